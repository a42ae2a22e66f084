"""PT: messages and parts, through the public API alone."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import InvalidStateTransition, PartValidationError, ValidationError
from palaver.messages import (
    AssistantInfo,
    Message,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
    assistant,
    complete,
    dump,
    fail,
    file_part,
    fold,
    parse_message,
    parse_messages,
    parse_part,
    pending,
    reasoning_part,
    start,
    system,
    text_part,
    to_dict,
    tool_call_part,
    tool_part,
    unfold,
    user,
)
from palaver.messages.codec import to_content
from palaver.messages.foreign import parse_export, write_export
from palaver.messages.parts import (
    agent_part,
    compaction_part,
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
    patch_part,
    retry_part,
    snapshot_part,
    step_finish_part,
    step_start_part,
    subtask_part,
)
from palaver.messages.tool_state import NO_OUTPUT, RunningTime, expire, states_between
from palaver.messages.validation import try_parse, validate_part
from tests.acceptance.parts import (
    JSON_PARTS,
    JSON_TOKENS,
    MESSAGE,
    SESSION,
    TEXT,
    TOKENS,
    part_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable


# PT-01


@pytest.mark.parametrize("kind", JSON_PARTS)
def test_pt_01_every_part_type_is_read_and_written_unchanged(kind: str) -> None:
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


def test_pt_01_an_unknown_part_type_is_stored_unchanged() -> None:
    strange = {"type": "hologram", "beam": [1, {"deep": None}], "sessionID": 5}
    part = parse_part(strange)
    assert is_unknown_part(part)
    assert strange == to_dict(part)
    owner = TEXT["messageID"]
    message = {"role": "user", "content": [TEXT, strange], "id": owner, "timestamp": 5}
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
    assert ["running", "error"] == [state.status for state in states_between(asked, failed)]
    assert ToolRunning(input={"q": 1}, time=RunningTime(7)) == states_between(asked, failed)[0]


def test_pt_04_a_result_after_a_timeout_is_stored_beside_the_error() -> None:
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
    assert (after,) == states_between(late, after)
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
    assert ("text", "sessionID", "not-a-uuid") == (error.part, error.field, error.rule)
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
    assert ["not-a-uuid"] == [problem.rule for problem in broken.problems]


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
    assert ("$.info.role", "info-role") == (caught.value.path, caught.value.rule)


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
