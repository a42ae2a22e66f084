"""PT: messages and parts, and the rules BR-01 to BR-14, through the public API alone."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import InvalidStateTransition, PartValidationError, ValidationError
from palaver.messages import (
    NO_OUTPUT,
    AssistantInfo,
    CacheCounts,
    CompletedTime,
    FilePart,
    Message,
    RunningTime,
    Summary,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
    ToolTime,
    UserInfo,
    agent_part,
    assistant,
    compaction_part,
    complete,
    dump,
    expire,
    fail,
    file_part,
    fold,
    is_agent_part,
    is_compaction_part,
    is_file_part,
    is_patch_part,
    is_reasoning_part,
    is_retry_part,
    is_snapshot_part,
    is_step_finish_part,
    is_step_start_part,
    is_subtask_part,
    is_text_part,
    is_tool_call_part,
    is_tool_part,
    is_unknown_part,
    parse_export,
    parse_message,
    parse_messages,
    parse_part,
    passage,
    patch_part,
    pending,
    reasoning_part,
    retry_part,
    snapshot_part,
    start,
    step_finish_part,
    step_start_part,
    subtask_part,
    system,
    text_part,
    to_content,
    to_dict,
    tool_call_part,
    tool_part,
    try_parse,
    unfold,
    user,
    validate_part,
    validate_turn,
    write_export,
)
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = "0190163d-8694-739b-aea5-966c26f8ad91"
MESSAGE = "0190163d-8694-739b-aea5-966c26f8ad92"
IDS = {"id": "p1", "sessionID": SESSION, "messageID": MESSAGE}
TEXT: dict[str, Any] = {"type": "text", **IDS, "text": "hi"}
TOKENS = TokenCounts(9, 3, 1, CacheCounts(4, 2))
JSON_TOKENS = {"input": 9, "output": 3, "reasoning": 1, "cache": {"read": 4, "write": 2}}

JSON_PARTS: dict[str, dict[str, Any]] = {
    "text": {
        "text": "hi",
        "synthetic": True,
        "ignored": False,
        "time": {"start": 1, "end": 2},
        "metadata": {"a": [1]},
    },
    "reasoning": {"text": "hm", "time": {"start": 1, "end": 2}, "metadata": {"signature": "s"}},
    "tool-call": {"callID": "c1", "tool": "ls", "input": {"path": "."}, "raw": '{"path": "."}'},
    "tool": {
        "callID": "c1",
        "tool": "ls",
        "state": {
            "status": "completed",
            "input": {"path": "."},
            "output": "a.py",
            "title": "ls",
            "metadata": {},
            "time": {"start": 1, "end": 2, "compacted": 3},
            "attachments": [{"type": "file", **IDS, "mime": "image/png", "url": "data:,"}],
        },
    },
    "step-start": {"snapshot": "9f2c"},
    "step-finish": {"reason": "stop", "cost": 0.5, "tokens": JSON_TOKENS, "snapshot": "9f2c"},
    "file": {
        "mime": "text/x-python",
        "filename": "a.py",
        "url": "file:///a.py",
        "source": {
            "type": "file",
            "path": "a.py",
            "text": {"value": "@a.py", "start": 0, "end": 5},
        },
    },
    "compaction": {"auto": True, "overflow": False, "tail_start_id": "m7"},
    "retry": {"attempt": 2, "error": {"name": "APIError"}, "time": {"created": 5}},
    "subtask": {
        "prompt": "count",
        "description": "count them",
        "agent": "counter",
        "model": {"providerID": "p", "modelID": "m"},
        "command": "/count",
    },
    "agent": {"name": "reviewer", "source": {"value": "@reviewer", "start": 0, "end": 9}},
    "patch": {"hash": "9f2c", "files": ["a.py", "b.py"]},
    "snapshot": {"snapshot": "9f2c"},
}
"""Every part type with every field, as JSON."""


def part_json(kind: str) -> dict[str, Any]:
    return {"type": kind, **IDS, **JSON_PARTS[kind]}


# PT-01


@pytest.mark.parametrize("kind", JSON_PARTS)
def test_pt_01_every_part_type_is_read_and_written_as_it_stands(kind: str) -> None:
    part = parse_part(part_json(kind))
    assert kind == part.type
    assert part_json(kind) == to_dict(part)
    assert part == parse_part(dump(part))


@pytest.mark.parametrize(
    "source",
    [
        {"type": "file", "path": "a.py", "text": {"value": "@a.py", "start": 0, "end": 5}},
        {
            "type": "symbol",
            "path": "a.py",
            "range": {"start": {"line": 0, "character": 1}, "end": {"line": 2, "character": 3}},
            "name": "main",
            "kind": 12,
            "text": {"value": "@main", "start": 0, "end": 5},
        },
        {
            "type": "resource",
            "clientName": "docs",
            "uri": "docs://a",
            "text": {"value": "@a", "start": 0, "end": 2},
        },
    ],
    ids=lambda source: source["type"],
)
def test_pt_01_a_file_has_any_of_three_sources(source: dict[str, Any]) -> None:
    value = {**part_json("file"), "source": source}
    assert value == to_dict(parse_part(value))


def test_pt_01_an_unknown_part_type_is_kept_whole() -> None:
    strange = {"type": "hologram", "beam": [1, {"deep": None}], "sessionID": 5}
    part = parse_part(strange)
    assert is_unknown_part(part)
    assert strange == to_dict(part)
    message = {"role": "user", "content": [TEXT, strange], "id": "m1", "timestamp": 5}
    assert message == json.loads(dump(parse_message(json.dumps(message))))


# PT-02


def test_pt_02_the_plain_content_list_is_read_into_parts_and_written_back() -> None:
    asked = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "image_url": {"url": "https://example.org/cat.png?size=2"}},
        {"type": "tool_use", "tool_use": {"id": "c1", "name": "ls", "input": {"path": "."}}},
    ]
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "a.py"}}
    answer, told = parse_messages(
        json.dumps([{"role": "assistant", "content": asked}, {"role": "tool", "content": [result]}])
    )
    assert ["text", "file", "tool-call"] == [part.type for part in answer.parts]
    image = answer.parts[1]
    assert is_file_part(image)
    assert "image/png" == image.mime
    done = told.parts[0]
    assert is_tool_part(done)
    assert ("ls", "c1") == (done.tool, done.call_id)
    assert (asked, ()) == to_content(answer)
    assert ([result], ()) == to_content(told)


# PT-03


def test_pt_03_values_from_outside_are_mapped_and_written_back_as_they_were() -> None:
    state = {
        "status": "completed",
        "input": {},
        "output": "",
        "title": "",
        "metadata": {},
        "time": {"start": 1, "end": 2},
    }
    theirs = [
        {
            "info": {
                "id": "msg_1",
                "sessionID": "ses_1",
                "role": "assistant",
                "time": {"created": 1, "completed": 9},
                "modelID": "m",
                "providerID": "p",
                "parentID": "msg_0",
                "cost": 0,
                "tokens": JSON_TOKENS,
            },
            "parts": [
                {
                    "type": "tool",
                    "id": "prt_1",
                    "sessionID": "ses_1",
                    "messageID": "msg_1",
                    "callID": "c1",
                    "tool": "ls",
                    "state": state,
                }
            ],
        }
    ]
    export = parse_export(json.dumps(theirs))
    part = export.turns[0].parts[0]
    assert is_tool_part(part)
    assert isinstance(part.state, ToolCompleted)
    assert NO_OUTPUT == part.state.output
    assert "" == part.state.metadata["rawOutput"]
    assert validate_part(part).valid
    assert export.turns[0].info.cost is None
    log = unfold(export.turns).messages
    assert all("palaver.foreign" in message.metadata for message in log)
    assert theirs == write_export(parse_export(theirs))
    assert theirs == [write_export(export)[0]]


# PT-04


def test_pt_04_transitions_are_pure_and_return_new_values() -> None:
    asked = pending({"q": "tea"}, '{"q": "tea"}')
    running = start(asked, title="Searching", metadata={"a": 1}, at=5)
    done = complete(running, "found", tool="search", metadata={"b": 2}, at=9)
    assert ["pending", "running", "completed"] == [s.status for s in (asked, running, done)]
    assert asked == pending({"q": "tea"}, '{"q": "tea"}')
    assert isinstance(done, ToolCompleted)
    assert {"a": 1, "b": 2} == done.metadata
    assert (5, 9) == (done.time.start, done.time.end)
    assert "Searching" == done.title


def test_pt_04_repeating_a_transition_with_the_same_payload_changes_nothing() -> None:
    running = start(pending({}, ""), title="T", at=5)
    assert running is start(running, at=99)
    assert running is start(running, title="T", at=99)
    done = complete(running, "out", tool="t", metadata={"b": 2}, at=9)
    assert done is complete(done, "out", tool="t", at=99)
    assert done is complete(done, "out", tool="t", metadata={"b": 2}, at=99)
    failed = fail(running, "no", at=9)
    assert failed is fail(failed, "no", at=99)


@pytest.mark.parametrize(
    ("again", "status"),
    [
        (lambda: start(start(pending({}, ""), title="T"), title="U"), "running"),
        (lambda: start(start(pending({}, "")), metadata={"a": 1}), "running"),
        (
            lambda: complete(complete(start(pending({}, "")), "a", tool="t"), "b", tool="t"),
            "completed",
        ),
        (
            lambda: complete(
                complete(start(pending({}, "")), "a", tool="t"), "a", tool="t", title="other"
            ),
            "completed",
        ),
        (lambda: fail(fail(start(pending({}, "")), "a"), "b"), "error"),
    ],
)
def test_pt_04_repeating_it_with_another_payload_is_refused(
    again: Callable[[], object], status: str
) -> None:
    with pytest.raises(InvalidStateTransition) as caught:
        again()
    assert (status, status) == (caught.value.current_status, caught.value.attempted_status)


def test_pt_04_a_missing_title_becomes_the_tools_name() -> None:
    done = complete(start(pending({}, "")), "out", tool="search")
    assert isinstance(done, ToolCompleted)
    assert "search" == done.title


def test_pt_04_running_past_the_limit_is_an_error_by_itself() -> None:
    running = start(pending({}, ""), at=100)
    assert running is expire(running, limit_ms=50, at=149)
    late = expire(running, limit_ms=50, at=150)
    assert isinstance(late, ToolError)
    assert (100, 150) == (late.time.start, late.time.end)
    assert "timed out after 50 ms" == late.error


def test_pt_04_pending_to_error_passes_through_a_recorded_running() -> None:
    asked = pending({"q": 1}, "")
    failed = fail(asked, "no such tool", at=7)
    assert ["running", "error"] == [state.status for state in passage(asked, failed)]
    assert ToolRunning(input={"q": 1}, time=RunningTime(7)) == passage(asked, failed)[0]


def test_pt_04_a_result_after_a_timeout_is_kept_beside_the_error() -> None:
    late = expire(start(pending({}, ""), at=0), limit_ms=10, at=20)
    file = file_part(SESSION, MESSAGE, "image/png", "data:,")
    after = complete(late, "at last", tool="t", metadata={"x": 1}, attachments=[file], at=30)
    assert "error" == after.status
    assert isinstance(after, ToolError)
    kept = after.metadata["lateResult"]
    assert {"output": "at last", "metadata": {"x": 1}, "at": 30} == {
        key: kept[key] for key in ("output", "metadata", "at")
    }
    assert to_dict(file) == kept["attachments"][0]
    assert (after,) == passage(late, after)
    assert after is complete(after, "at last", tool="t", at=40)
    with pytest.raises(InvalidStateTransition):
        complete(after, "something else", tool="t")


# PT-05


def test_pt_05_an_invalid_transition_says_where_it_is_and_where_it_may_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InvalidStateTransition) as caught:
        complete(pending({}, ""), "out", tool="t")
    assert {
        "name": "InvalidStateTransition",
        "message": "a tool call that is pending cannot become completed; "
        "it can only become running",
        "details": {
            "currentStatus": "pending",
            "attemptedStatus": "completed",
            "validTransitions": ["running"],
        },
    } == caught.value.to_dict()
    assert [str(caught.value)] == [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextPart(id="p1", session_id="ses_1", message_id=MESSAGE, text="hi"),
        lambda: parse_part({**TEXT, "sessionID": "ses_1"}),
        lambda: parse_message({"role": "user", "content": [{**TEXT, "sessionID": "ses_1"}]}),
        lambda: parse_message(
            json.dumps({"role": "user", "content": [{**TEXT, "sessionID": "ses_1"}]})
        ),
    ],
    ids=["constructor", "parse_part", "a dict", "JSON"],
)
def test_pt_05_a_part_error_names_part_field_and_rule_and_is_logged_once(
    make: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PartValidationError) as caught:
        make()
    error = caught.value
    assert ("text", "sessionID", "BR-04") == (error.part, error.field, error.rule)
    assert error.path.endswith("sessionID")
    assert 1 == len(caplog.records)
    assert logging.ERROR == caplog.records[0].levelno


def test_pt_05_try_parse_answers_none_for_a_missing_field_and_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert try_parse({"type": "text", "text": "no ids yet"}) is None
    assert "$.id: is missing" in caplog.text
    assert TEXT == to_dict(try_parse(TEXT))
    with pytest.raises(PartValidationError):
        try_parse({**TEXT, "text": 5})


# PT-06

FACTORIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "text": (text_part, ("hi",), {}),
    "reasoning": (reasoning_part, ("hm",), {}),
    "tool-call": (tool_call_part, ("ls", {"path": "."}), {}),
    "tool": (tool_part, ("c1", "ls", pending({}, "")), {}),
    "step-start": (step_start_part, (), {}),
    "step-finish": (step_finish_part, ("stop", 0.5, TOKENS), {}),
    "file": (file_part, ("image/png", "data:,"), {}),
    "compaction": (compaction_part, (), {"auto": True}),
    "retry": (retry_part, (1, {"name": "E"}), {}),
    "subtask": (subtask_part, ("p", "d", "a"), {}),
    "agent": (agent_part, ("a",), {}),
    "patch": (patch_part, ("h", ["a.py"]), {}),
    "snapshot": (snapshot_part, ("s",), {}),
}
GUARDS: dict[str, Callable[[object], bool]] = {
    "text": is_text_part,
    "reasoning": is_reasoning_part,
    "tool-call": is_tool_call_part,
    "tool": is_tool_part,
    "step-start": is_step_start_part,
    "step-finish": is_step_finish_part,
    "file": is_file_part,
    "compaction": is_compaction_part,
    "retry": is_retry_part,
    "subtask": is_subtask_part,
    "agent": is_agent_part,
    "patch": is_patch_part,
    "snapshot": is_snapshot_part,
}


@pytest.mark.parametrize("kind", JSON_PARTS)
def test_pt_06_every_part_type_has_a_factory_a_guard_and_validation(kind: str) -> None:
    factory, arguments, keywords = FACTORIES[kind]
    part = factory(SESSION, MESSAGE, *arguments, **keywords)
    assert kind == part.type
    assert (SESSION, MESSAGE) == (part.session_id, part.message_id)
    assert [kind] == [name for name, guard in GUARDS.items() if guard(part)]
    assert validate_part(part).valid
    assert validate_part(part_json(kind)).valid
    broken = validate_part({**part_json(kind), "messageID": "m"})
    assert ["BR-04"] == [problem.rule for problem in broken.problems]


def test_pt_06_factories_and_transitions_are_safe_for_threads() -> None:
    """Eight threads make parts and race one state: no id twice, no state torn."""
    shared = start(pending({"q": 1}, ""), at=1)
    gate = threading.Barrier(8)
    made: list[list[str]] = [[] for _ in range(8)]
    ends: list[list[ToolCompleted | ToolError]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        gate.wait()
        for _ in range(300):
            made[number].append(text_part(SESSION, MESSAGE, "hi").id)
            made[number].append(user("hi").id)
            ends[number].append(complete(shared, f"out {number}", tool="t", at=2))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [name for names in made for name in names]
    assert 8 * 600 == len(every) == len(set(every))
    assert start(pending({"q": 1}, ""), at=1) == shared
    for number, states in enumerate(ends):
        assert {f"out {number}"} == {s.output for s in states if isinstance(s, ToolCompleted)}


# PT-07


def test_pt_07_a_users_message_carries_its_extension() -> None:
    value = {
        "role": "user",
        "content": "hi",
        "id": "m1",
        "timestamp": 5,
        "info": {
            "role": "user",
            "agent": "build",
            "model": {"providerID": "p", "modelID": "m"},
            "system": "Be brief.",
            "tools": {"ls": True, "rm": False},
            "variant": "high",
            "summary": {"title": "t", "body": "b", "diffs": [{"file": "a.py"}]},
        },
    }
    assert value == to_dict(parse_message(value))


def test_pt_07_an_answer_carries_its_extension() -> None:
    value = {
        "role": "assistant",
        "content": "hi",
        "id": "m1",
        "timestamp": 5,
        "info": {
            "role": "assistant",
            "agent": "build",
            "model": {"providerID": "p", "modelID": "m"},
            "path": {"cwd": "a", "root": "b"},
            "cost": 0.5,
            "costComputed": True,
            "tokens": JSON_TOKENS,
            "completed": 9,
            "finish": "stop",
        },
    }
    assert value == to_dict(parse_message(value))


def test_pt_07_an_extension_of_another_role_is_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        user("hi", info=AssistantInfo())
    assert ("$.info.role", "PT-07") == (caught.value.path, caught.value.rule)


# PT-08


def test_pt_08_messages_and_ledger_fold_into_turns_and_back() -> None:
    ls = tool_call_part(SESSION, MESSAGE, "ls", {}, call_id="c1")
    find = tool_call_part(SESSION, MESSAGE, "find", {"q": "x"}, call_id="c2")
    lost = tool_call_part(SESSION, MESSAGE, "lost", {}, call_id="c3")
    done = complete(start(pending({}, "{}"), at=1), "a.py", tool="ls", at=2)
    ledger = {"c2": tool_part(SESSION, MESSAGE, "c2", "find", start(pending({"q": "x"}, ""), at=3))}
    log = [
        system("Be brief."),
        user("What is here?"),
        assistant([text_part(SESSION, MESSAGE, "Let me see."), ls, find, lost]),
        Message("tool", (tool_part(SESSION, MESSAGE, "c1", "ls", done),)),
        user("Well?"),
    ]
    turns = fold(log, ledger)
    assert ["system", "user", "assistant", "user"] == [turn.info.role for turn in turns]
    states = [part.state.status for part in turns[2].parts if isinstance(part, ToolPart)]
    assert ["completed", "running", "pending"] == states
    back = unfold(turns)
    assert tuple(log) == back.messages
    assert ledger == back.ledger


def test_pt_08_an_export_unfolds_into_messages_and_open_calls() -> None:
    base = {"sessionID": "ses_1", "messageID": "msg_2"}
    call = {"type": "tool", **base, "tool": "ls"}
    turn = {
        "info": {"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1}},
        "parts": [
            {"type": "text", **base, "id": "prt_1", "text": "Let me see."},
            {
                **call,
                "id": "prt_2",
                "callID": "c1",
                "state": {
                    "status": "error",
                    "input": {},
                    "error": "no",
                    "time": {"start": 1, "end": 2},
                },
            },
            {
                **call,
                "id": "prt_3",
                "callID": "c2",
                "state": {"status": "running", "input": {"a": 1}, "time": {"start": 3}},
            },
        ],
    }
    export = parse_export({"info": {"id": "ses_1", "title": "T"}, "messages": [turn]})
    assert "T" == export.session["title"]
    unfolded = unfold(export.turns)
    assert ["assistant", "tool"] == [message.role for message in unfolded.messages]
    assert ["text", "tool-call", "tool-call"] == [p.type for p in unfolded.messages[0].parts]
    assert ["c2"] == list(unfolded.ledger)
    assert "running" == unfolded.ledger["c2"].state.status
    assert [turn] == [to_dict(t) for t in write_export(export)["messages"]]


# BR-01


@pytest.mark.parametrize("field", ["id", "sessionID", "messageID"])
@pytest.mark.parametrize("kind", JSON_PARTS)
def test_br_01_every_part_must_have_its_three_ids(kind: str, field: str) -> None:
    value = {key: item for key, item in part_json(kind).items() if key != field}
    with pytest.raises(PartValidationError) as caught:
        parse_part(value)
    error = caught.value
    assert (f"$.{field}", "BR-01", kind) == (error.path, error.rule, error.part)
    bad: list[Any] = ["", None, 5, []]
    for empty in bad:
        with pytest.raises(PartValidationError):
            parse_part({**value, field: empty})


@pytest.mark.parametrize("bad", ["", None, 5, ["x"], "a\nb", "x" * 1025])
def test_br_01_a_constructor_refuses_a_bad_id(bad: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(PartValidationError) as caught:
        TextPart(id=bad, session_id=SESSION, message_id=MESSAGE, text="hi")
    assert "$.id" == caught.value.path


# BR-02


def test_br_02_part_ids_are_unique_within_a_message() -> None:
    part = parse_part(TEXT)
    with pytest.raises(ValidationError) as caught:
        parse_message({"role": "user", "content": [TEXT, TEXT]})
    assert ("$.content[1].id", "BR-02") == (caught.value.path, caught.value.rule)
    with pytest.raises(ValidationError) as caught:
        user([part, part])
    assert ("$.content[1].id", "BR-02") == (caught.value.path, caught.value.rule)
    turn = {"info": {"id": "m", "role": "user", "time": {"created": 1}}, "parts": [TEXT, TEXT]}
    (problem,) = validate_turn(turn).problems
    assert ("$.parts[1].id", "BR-02") == (problem.path, problem.rule)


# BR-03


def test_br_03_the_type_is_a_literal_that_tells_parts_apart() -> None:
    for kind in JSON_PARTS:
        assert kind == to_dict(parse_part(part_json(kind)))["type"]
    for bad in (5, None, ["text"], {"a": 1}):
        with pytest.raises(PartValidationError) as caught:
            parse_part({**TEXT, "type": bad})
        assert ("$.type", "BR-03") == (caught.value.path, caught.value.rule)
    with pytest.raises(PartValidationError):
        parse_part({"text": "hi"})


# BR-04


@pytest.mark.parametrize("field", ["sessionID", "messageID"])
@pytest.mark.parametrize("bad", ["ses_1", "x" * 36, SESSION + "\n", SESSION.replace("-", "")])
def test_br_04_session_and_message_ids_are_uuids(field: str, bad: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        parse_part({**TEXT, field: bad})
    assert f"$.{field}" == caught.value.path
    assert caught.value.rule in {"BR-01", "BR-04"}


# BR-05


def test_br_05_states_go_from_pending_to_running_to_completed_or_error() -> None:
    asked = pending({}, "")
    running = start(asked)
    assert "completed" == complete(running, "x", tool="t").status
    assert "error" == fail(running, "x").status


@pytest.mark.parametrize(
    "attempt",
    [
        lambda done, failed: complete(pending({}, ""), "x", tool="t"),  # noqa: ARG005
        lambda done, failed: start(done),  # noqa: ARG005
        lambda done, failed: start(failed),  # noqa: ARG005
        lambda done, failed: fail(done, "x"),  # noqa: ARG005
        lambda done, failed: complete(failed, "x", tool="t"),  # noqa: ARG005
        lambda done, failed: passage(pending({}, ""), done),  # noqa: ARG005
        passage,
    ],
)
def test_br_05_nothing_else_moves_a_state(attempt: Callable[[Any, Any], object]) -> None:
    done = complete(start(pending({}, "")), "out", tool="t")
    failed = fail(start(pending({}, "")), "no")
    with pytest.raises(InvalidStateTransition):
        attempt(done, failed)
    assert "completed" == done.status
    assert "error" == failed.status


# BR-06 to BR-10


@pytest.mark.parametrize(
    ("state", "path", "rule"),
    [
        ({"status": "pending", "input": {}}, "$.state.raw", "BR-06"),  # BR-06
        ({"status": "running", "input": {}}, "$.state.time", "BR-07"),  # BR-07
        ({"status": "running", "input": {}, "time": {}}, "$.state.time.start", "BR-07"),
        (
            {"status": "completed", "input": {}, "output": "x", "title": "t", "metadata": {}},
            "$.state.time",
            "BR-08",
        ),  # BR-08
        ({"status": "error", "input": {}, "error": "x"}, "$.state.time", "BR-08"),
        (
            {"status": "error", "input": {}, "error": "x", "time": {"start": 1}},
            "$.state.time.end",
            "BR-08",
        ),
        (
            {
                "status": "completed",
                "input": {},
                "title": "t",
                "metadata": {},
                "time": {"start": 1, "end": 2},
            },
            "$.state.output",
            "BR-09",
        ),  # BR-09
        (
            {"status": "error", "input": {}, "time": {"start": 1, "end": 2}},
            "$.state.error",
            "BR-10",
        ),
    ],
)
def test_br_06_to_10_a_state_has_what_its_rule_demands(
    state: dict[str, Any], path: str, rule: str
) -> None:
    with pytest.raises(PartValidationError) as caught:
        parse_part({**part_json("tool"), "state": state})
    assert (path, rule, "is missing") == (caught.value.path, caught.value.rule, caught.value.detail)


def test_br_06_pending_keeps_what_the_model_wrote_to_the_letter() -> None:
    raw = '{"q":   "tea",}'
    assert raw == pending({}, raw).raw
    assert raw == to_dict(pending({}, raw))["raw"]
    with pytest.raises(PartValidationError) as caught:
        ToolPending(input={}, raw=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert "BR-06" == caught.value.rule


def test_br_07_running_records_when_it_started() -> None:
    assert 5 == start(pending({}, ""), at=5).time.start
    assert start(pending({}, "")).time.start > 1_600_000_000_000
    with pytest.raises(PartValidationError) as caught:
        ToolRunning(input={}, time=RunningTime("soon"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert ("$.time.start", "BR-07") == (caught.value.path, caught.value.rule)


def test_br_08_the_end_records_when_it_ended() -> None:
    running = start(pending({}, ""), at=5)
    done = complete(running, "x", tool="t", at=8)
    assert (8, 8) == (done.time.end, fail(running, "x", at=8).time.end)
    assert 5 == complete(running, "x", tool="t", at=1).time.end, "a clock that went back"
    with pytest.raises(PartValidationError) as caught:
        ToolError(input={}, error="x", time=ToolTime(1, None))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert "BR-08" == caught.value.rule


def test_br_09_an_output_is_never_empty() -> None:
    with pytest.raises(PartValidationError) as caught:
        ToolCompleted(input={}, output="", title="t", metadata={}, time=CompletedTime(1, 2))
    assert ("$.output", "BR-09", "tool") == (
        caught.value.path,
        caught.value.rule,
        caught.value.part,
    )
    done = complete(start(pending({}, "")), "", tool="t")
    assert isinstance(done, ToolCompleted)
    assert (NO_OUTPUT, "") == (done.output, done.metadata["rawOutput"])


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_br_10_an_error_says_what_went_wrong(empty: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        fail(start(pending({}, "")), empty)
    assert ("$.error", "BR-10") == (caught.value.path, caught.value.rule)


# BR-11


def test_br_11_a_summary_is_there_only_where_compaction_put_it() -> None:
    assert UserInfo().summary is None
    plain = user("hi", info=UserInfo(agent="build"))
    assert "summary" not in to_dict(plain)["info"]
    assert "summary" not in to_dict(fold([plain])[0])["info"]
    made = user("hi", info=UserInfo(summary=Summary(title="So far", body="…")))
    assert made == parse_message(dump(made))
    assert (made,) == unfold(fold([made])).messages


# BR-12


def test_br_12_cost_is_the_providers_figure_or_marked_or_unknown() -> None:
    assert "cost" not in to_dict(AssistantInfo())
    assert 0.25 == AssistantInfo(cost=0.25).cost
    assert AssistantInfo(cost=0.25, cost_computed=True).cost_computed
    with pytest.raises(ValidationError) as caught:
        AssistantInfo(cost_computed=True)
    assert ("$.costComputed", "BR-12") == (caught.value.path, caught.value.rule)
    for bad in (-1, float("nan"), float("inf"), "free"):
        with pytest.raises(ValidationError):
            AssistantInfo(cost=bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    part = step_finish_part(SESSION, MESSAGE, "stop", None, TOKENS)
    assert "cost" not in to_dict(part)


# BR-13


@pytest.mark.parametrize("field", ["input", "output", "reasoning", "cache"])
def test_br_13_tokens_have_all_their_counts(field: str) -> None:
    tokens = {key: item for key, item in JSON_TOKENS.items() if key != field}
    with pytest.raises(PartValidationError) as caught:
        parse_part({**part_json("step-finish"), "tokens": tokens})
    assert f"$.tokens.{field}" == caught.value.path
    with pytest.raises(ValidationError):
        parse_message(
            {"role": "assistant", "content": "x", "info": {"role": "assistant", "tokens": tokens}}
        )


def test_br_13_counts_are_whole_and_not_negative() -> None:
    assert (15, 4) == (TOKENS.prompt, TOKENS.completion)
    for bad in (-1, 2**60, 1.5):
        with pytest.raises(ValidationError) as caught:
            AssistantInfo(tokens=TokenCounts(1, 1, 1, CacheCounts(bad, 0)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert ("$.tokens.cache.read", "BR-13") == (caught.value.path, caught.value.rule)


# BR-14


def test_br_14_completed_is_set_when_the_answer_is_whole() -> None:
    assert AssistantInfo().completed is None
    done = assistant("whole", info=AssistantInfo(completed=9), timestamp=5)
    (turn,) = fold([done])
    assert {"created": 5, "completed": 9} == to_dict(turn)["info"]["time"]
    assert (done,) == unfold([turn]).messages
    with pytest.raises(ValidationError) as caught:
        AssistantInfo(completed="now")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert "$.completed" == caught.value.path


# Bad input: a typed error that names the path and the rule, and nothing half made


def refused(make: Callable[[], object], path: str, rule: str) -> ValidationError:
    """Expect a typed refusal with this path and rule, before anyone loses patience."""
    with within(60), pytest.raises(ValidationError) as caught:
        make()
    error = caught.value
    assert (path, rule) == (error.path, error.rule)
    assert len(str(error)) < 1_000
    assert rule in str(error)
    return error


def as_json_and_as_dict(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return [value, json.dumps(value), json.dumps(value).encode()]


def test_bad_input_an_unknown_role() -> None:
    for value in as_json_and_as_dict({"role": "robot"}):
        refused(lambda value=value: parse_message(value), "$.role", "role")  # type: ignore[misc]  # bound now
    refused(lambda: Message("robot", "beep"), "$.role", "role")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    refused(
        lambda: parse_messages('[{"role":"user","content":""},{"role":"robot"}]'),
        "$[1].role",
        "role",
    )


def test_bad_input_a_part_without_an_id() -> None:
    part = {key: item for key, item in TEXT.items() if key != "id"}
    refused(lambda: parse_part(part), "$.id", "BR-01")
    refused(
        lambda: parse_message(json.dumps({"role": "user", "content": [TEXT, part]})),
        "$.content[1].id",
        "BR-01",
    )


def test_bad_input_a_completed_state_with_empty_output() -> None:
    part = part_json("tool")
    part["state"] = {**part["state"], "output": ""}
    refused(lambda: parse_part(part), "$.state.output", "BR-09")
    refused(
        lambda: parse_message(json.dumps({"role": "tool", "content": [part]})),
        "$.content[0].state.output",
        "BR-09",
    )


def test_bad_input_a_transition_from_completed_to_running() -> None:
    done = complete(start(pending({}, "")), "out", tool="t")
    with pytest.raises(InvalidStateTransition) as caught:
        start(done)
    assert ("completed", "running", ()) == (
        caught.value.current_status,
        caught.value.attempted_status,
        caught.value.valid_transitions,
    )


def test_bad_input_100_000_levels_of_nesting() -> None:
    levels = 100_000
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]
    text = (
        '{"role":"user","content":"x","metadata":{"a":' + "[" * levels + "0" + "]" * levels + "}}"
    )
    for value in (text, {"role": "user", "content": "x", "metadata": {"a": deep}}):
        for replace in (False, True):
            with within(60), pytest.raises(ValidationError) as caught:
                parse_message(value, replace=replace)
            assert "depth" == caught.value.rule
            assert caught.value.path.startswith("$.metadata.a[0][0]")
            assert len(str(caught.value)) < 1_000
    for make in (
        lambda: parse_part({**TEXT, "metadata": {"a": deep}}),
        lambda: parse_part({"type": "hologram", "beam": deep}),
        lambda: tool_call_part(SESSION, MESSAGE, "t", {"a": deep}),
        lambda: user("x", metadata={"a": deep}),
        lambda: parse_export("[" * levels),
        lambda: parse_messages("[" * levels + "]" * levels),
    ):
        with within(60), pytest.raises(ValidationError) as caught:
            make()
        assert "depth" == caught.value.rule


def test_bad_input_200_mb_of_text() -> None:
    text = "x" * 200_000_000
    refused(lambda: user(text), "$.content", "size")
    refused(lambda: text_part(SESSION, MESSAGE, text), "$.text", "size")
    value = b'{"role":"user","content":"' + text.encode() + b'"}'
    refused(lambda: parse_message(value), "$.content", "size")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: user("a\ud800"), "$.content"),
        (lambda: parse_message(r'{"role": "user", "content": "a\ud800"}'), "$.content"),
        (lambda: parse_message('{"role": "user", "content": "a\ud800"}'), "$.content"),
        (lambda: parse_message({"role": "user", "content": "a\ud800"}), "$.content"),
        (lambda: user("x", metadata={"a": ["\udc00"]}), "$.metadata.a[0]"),
        (lambda: parse_part({**TEXT, "text": "\udfff"}), "$.text"),
        (lambda: text_part(SESSION, MESSAGE, "\udfff"), "$.text"),
    ],
)
def test_bad_input_a_lone_surrogate(make: Callable[[], object], path: str) -> None:
    refused(make, path, "text.surrogate")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: user("x", metadata={"a": {"b": float("nan")}}), "$.metadata.a.b"),
        (
            lambda: parse_message('{"role": "user", "content": "x", "metadata": {"a": NaN}}'),
            "$.metadata.a",
        ),
        (lambda: tool_call_part(SESSION, MESSAGE, "t", {"a": float("inf")}), "$.input.a"),
    ],
)
def test_bad_input_nan(make: Callable[[], object], path: str) -> None:
    refused(make, path, "number.nan")


@pytest.mark.parametrize("number", [2**60, -(2**60), 10**5000], ids=["2^60", "-2^60", "10^5000"])
def test_bad_input_an_integer_beyond_2_to_the_53(number: int) -> None:
    refused(lambda: user("x", metadata={"a": [number]}), "$.metadata.a[0]", "number.range")
    refused(lambda: user("x", timestamp=abs(number)), "$.timestamp", "number.range")
    refused(lambda: pending({"a": number}, ""), "$.input.a", "number.range")
    if number.bit_length() < 100:
        value = {"role": "user", "content": "x", "metadata": {"a": [number]}}
        for form in as_json_and_as_dict(value):
            refused(lambda form=form: parse_message(form), "$.metadata.a[0]", "number.range")  # type: ignore[misc]  # bound now


LIST: Any = ["hi"]


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: parse_part({**TEXT, "text": ["hi"]}), "$.text"),
        (lambda: TextPart(id="p", session_id=SESSION, message_id=MESSAGE, text=["hi"]), "$.text"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: parse_message({"role": "user", "content": ["hi"]}), "$.content[0]"),
        (lambda: user(["hi"]), "$.content[0]"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        (lambda: parse_message({"role": ["user"], "content": "hi"}), "$.role"),
        (lambda: parse_message({"role": "user", "content": "x", "id": ["m"]}), "$.id"),
        (
            lambda: ToolCallPart(
                id="p",
                session_id=SESSION,
                message_id=MESSAGE,
                call_id=LIST,
                tool="t",
                input={},
                raw="",
            ),
            "$.callID",
        ),
        (
            lambda: FilePart(id="p", session_id=SESSION, message_id=MESSAGE, mime=LIST, url=""),
            "$.mime",
        ),
        (lambda: pending({}, ["raw"]), "$.raw"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_input_a_list_where_a_string_belongs(make: Callable[[], object], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert path == caught.value.path
    assert caught.value.rule in {"schema", "role", "id", "BR-06"}


def test_bad_input_leaves_nothing_half_made() -> None:
    """A list of messages is read whole or not at all, and the caller's values stay as they were."""
    good, bad = {"role": "user", "content": "x"}, {"role": "user", "content": [TEXT, {}]}
    before = json.dumps([good, bad])
    with pytest.raises(ValidationError):
        parse_messages([good, bad])
    assert before == json.dumps([good, bad])
