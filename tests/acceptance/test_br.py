"""BR-01 to BR-14: the rules that whatever palaver makes obeys, through the public API alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import InvalidStateTransition, PartValidationError, ValidationError
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    TextPart,
    TokenCounts,
    ToolCompleted,
    ToolError,
    ToolPending,
    ToolRunning,
    UserInfo,
    assistant,
    complete,
    dump,
    fail,
    fold,
    parse_message,
    parse_part,
    pending,
    start,
    to_dict,
    unfold,
    user,
)
from palaver.messages.message import Summary
from palaver.messages.parts import step_finish_part
from palaver.messages.tool_state import (
    NO_OUTPUT,
    CompletedTime,
    RunningTime,
    ToolTime,
    states_between,
)
from palaver.messages.validation import validate_turn
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


# BR-01


@pytest.mark.parametrize("field", ["id", "sessionID", "messageID"])
@pytest.mark.parametrize("kind", JSON_PARTS)
def test_br_01_every_part_must_have_its_three_ids(kind: str, field: str) -> None:
    value = {key: item for key, item in part_json(kind).items() if key != field}
    with pytest.raises(PartValidationError) as caught:
        parse_part(value)
    error = caught.value
    assert (f"$.{field}", "part-id", kind) == (error.path, error.rule, error.part)
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
    assert ("$.content[1].id", "duplicate-part-id") == (caught.value.path, caught.value.rule)
    with pytest.raises(ValidationError) as caught:
        user([part, part])
    assert ("$.content[1].id", "duplicate-part-id") == (caught.value.path, caught.value.rule)
    turn = {"info": {"id": "m", "role": "user", "time": {"created": 1}}, "parts": [TEXT, TEXT]}
    (problem,) = validate_turn(turn).problems
    assert ("$.parts[1].id", "duplicate-part-id") == (problem.path, problem.rule)


# BR-03


def test_br_03_the_type_is_a_literal_that_tells_parts_apart() -> None:
    for kind in JSON_PARTS:
        assert kind == to_dict(parse_part(part_json(kind)))["type"]
    for bad in (5, None, ["text"], {"a": 1}):
        with pytest.raises(PartValidationError) as caught:
            parse_part({**TEXT, "type": bad})
        assert ("$.type", "part-type") == (caught.value.path, caught.value.rule)
    with pytest.raises(PartValidationError):
        parse_part({"text": "hi"})


# BR-04


@pytest.mark.parametrize("field", ["sessionID", "messageID"])
@pytest.mark.parametrize("bad", ["ses_1", "x" * 36, SESSION + "\n", SESSION.replace("-", "")])
def test_br_04_session_and_message_ids_are_uuids(field: str, bad: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        parse_part({**TEXT, field: bad})
    assert f"$.{field}" == caught.value.path
    assert caught.value.rule in {"part-id", "not-a-uuid"}


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
        lambda done, failed: states_between(pending({}, ""), done),  # noqa: ARG005
        states_between,
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
        ({"status": "pending", "input": {}}, "$.state.raw", "tool-call-raw"),  # BR-06
        ({"status": "running", "input": {}}, "$.state.time", "tool-start-time"),  # BR-07
        ({"status": "running", "input": {}, "time": {}}, "$.state.time.start", "tool-start-time"),
        (
            {"status": "completed", "input": {}, "output": "x", "title": "t", "metadata": {}},
            "$.state.time",
            "tool-end-time",
        ),  # BR-08
        ({"status": "error", "input": {}, "error": "x"}, "$.state.time", "tool-end-time"),
        (
            {"status": "error", "input": {}, "error": "x", "time": {"start": 1}},
            "$.state.time.end",
            "tool-end-time",
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
            "empty-output",
        ),  # BR-09
        (
            {"status": "error", "input": {}, "time": {"start": 1, "end": 2}},
            "$.state.error",
            "empty-error",
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
    assert "tool-call-raw" == caught.value.rule


def test_br_07_running_records_when_it_started() -> None:
    assert 5 == start(pending({}, ""), at=5).time.start
    assert start(pending({}, "")).time.start > 1_600_000_000_000
    with pytest.raises(PartValidationError) as caught:
        ToolRunning(input={}, time=RunningTime("soon"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert ("$.time.start", "tool-start-time") == (caught.value.path, caught.value.rule)


def test_br_08_the_end_records_when_it_ended() -> None:
    running = start(pending({}, ""), at=5)
    done = complete(running, "x", tool="t", at=8)
    assert (8, 8) == (done.time.end, fail(running, "x", at=8).time.end)
    assert 5 == complete(running, "x", tool="t", at=1).time.end, "a clock that went back"
    with pytest.raises(PartValidationError) as caught:
        ToolError(input={}, error="x", time=ToolTime(1, None))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert "tool-end-time" == caught.value.rule


def test_br_09_an_output_is_never_empty() -> None:
    with pytest.raises(PartValidationError) as caught:
        ToolCompleted(input={}, output="", title="t", metadata={}, time=CompletedTime(1, 2))
    assert ("$.output", "empty-output", "tool") == (
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
    assert ("$.error", "empty-error") == (caught.value.path, caught.value.rule)


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
    assert ("$.costComputed", "cost") == (caught.value.path, caught.value.rule)
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


def test_br_13_counts_are_integers_and_not_negative() -> None:
    assert (15, 4) == (TOKENS.prompt, TOKENS.completion)
    for bad in (-1, 2**60, 1.5):
        with pytest.raises(ValidationError) as caught:
            AssistantInfo(tokens=TokenCounts(1, 1, 1, CacheCounts(bad, 0)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert ("$.tokens.cache.read", "token-counts") == (caught.value.path, caught.value.rule)


# BR-14


def test_br_14_completed_is_set_when_the_answer_is_complete() -> None:
    assert AssistantInfo().completed is None
    done = assistant("whole", info=AssistantInfo(completed=9), timestamp=5)
    (turn,) = fold([done])
    assert {"created": 5, "completed": 9} == to_dict(turn)["info"]["time"]
    assert (done,) == unfold([turn]).messages
    with pytest.raises(ValidationError) as caught:
        AssistantInfo(completed="now")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert "$.completed" == caught.value.path
