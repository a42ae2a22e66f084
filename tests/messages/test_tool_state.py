from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import InvalidStateTransition, PalaverError, PartValidationError
from palaver.messages import (
    ToolCompleted,
    ToolError,
    ToolPending,
    ToolRunning,
    ToolState,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    start,
    to_dict,
)
from palaver.messages.tool_state import (
    NO_OUTPUT,
    CompletedTime,
    RunningTime,
    ToolTime,
    expire,
    states_between,
)
from tests.messages.outcome import outcome
from tests.messages.strategies import objects, states, texts, times
from tests.profiles import at_least

RUNNING = start(pending({"q": 1}, "raw"), at=10)
LATE = expire(RUNNING, limit_ms=5, at=20)
IMAGE = file_part(new_id(), new_id(), "image/png", "data:,")

payloads = st.fixed_dictionaries({"output": texts, "metadata": objects, "title": st.none() | texts})


@at_least(300)
@given(states, payloads, times)
def test_completing_twice_is_completing_once(
    state: ToolState, payload: dict[str, Any], at: int
) -> None:
    """Whatever the state: either both are refused, or the second changes nothing."""
    payload = {"tool": "t", **payload}
    once = outcome(lambda: complete(state, **payload, at=at))
    if isinstance(once, PalaverError):
        assert isinstance(once, InvalidStateTransition)
        assert state.status == once.current_status
        assert "completed" not in once.valid_transitions
    else:
        assert once is complete(once, **payload, at=at + 1)
        assert once.input == state.input


@at_least(300)
@given(states, texts.filter(str.strip), objects, times)
def test_failing_twice_is_failing_once(
    state: ToolState, error: str, metadata: dict[str, Any], at: int
) -> None:
    once = outcome(lambda: fail(state, error, metadata=metadata, at=at))
    if isinstance(once, PalaverError):
        assert isinstance(once, InvalidStateTransition)
        assert state.status in {"completed", "error"}
    else:
        assert once is fail(once, error, metadata=metadata, at=at + 1)
        assert [*states_between(state, once)][-1:] == ([] if state == once else [once])


@at_least(200)
@given(states, st.integers(0, 1000), times)
def test_only_what_runs_can_expire(state: ToolState, limit: int, at: int) -> None:
    after = expire(state, limit_ms=limit, at=at)
    if isinstance(state, ToolRunning) and at - state.time.start >= limit:
        assert "error" == after.status
        assert after is expire(after, limit_ms=limit, at=at)
    else:
        assert state is after


def test_time_is_taken_from_the_clock_where_nobody_gives_one() -> None:
    running = start(pending({}, ""))
    done = complete(running, "x", tool="t")
    assert running.time.start <= done.time.end
    assert isinstance(expire(RUNNING, limit_ms=1), ToolError)


def test_metadata_is_carried_along_and_the_newest_wins() -> None:
    running = start(pending({}, ""), metadata={"a": 1, "b": 1})
    assert {"a": 1, "b": 2} == fail(running, "no", metadata={"b": 2}).metadata
    done = complete(running, "", tool="t", metadata={"b": 2})
    assert {"a": 1, "b": 2, "rawOutput": ""} == done.metadata


@pytest.mark.parametrize(
    ("given_title", "running_title", "title"),
    [("A", "B", "A"), (None, "B", "B"), (None, None, "tool"), ("", "", "tool")],
)
def test_a_title_is_the_one_given_or_the_one_it_ran_under_or_the_tools_name(
    given_title: str | None, running_title: str | None, title: str
) -> None:
    running = start(pending({}, ""), title=running_title)
    done = complete(running, "x", tool="tool", title=given_title)
    assert isinstance(done, ToolCompleted)
    assert title == done.title


def test_attachments_are_stored_and_are_payload() -> None:
    done = complete(RUNNING, "x", tool="t", attachments=[IMAGE])
    assert isinstance(done, ToolCompleted)
    assert (IMAGE,) == done.attachments
    assert done is complete(done, "x", tool="t", attachments=iter([IMAGE]))
    with pytest.raises(InvalidStateTransition):
        complete(done, "x", tool="t")
    assert "attachments" not in to_dict(complete(RUNNING, "x", tool="t"))


def test_a_late_failure_is_stored_too() -> None:
    after = fail(LATE, "connection lost", at=30)
    assert "timed out after 5 ms" == after.error
    assert {"error": "connection lost", "at": 30} == after.metadata["lateResult"]
    assert after is fail(after, "connection lost", at=40)
    with pytest.raises(InvalidStateTransition):
        fail(after, "another")
    with pytest.raises(InvalidStateTransition):
        complete(after, "x", tool="t")
    assert (after,) == states_between(LATE, after)


def test_a_late_result_that_somebody_else_wrote_is_respected() -> None:
    odd = ToolError(
        input={}, error="x", metadata={"timedOut": True, "lateResult": "text"}, time=ToolTime(1, 2)
    )
    with pytest.raises(InvalidStateTransition):
        complete(odd, "x", tool="t")


def test_the_same_state_is_no_passage() -> None:
    assert () == states_between(RUNNING, RUNNING)


def test_a_passage_between_unrelated_errors_is_refused() -> None:
    with pytest.raises(InvalidStateTransition):
        states_between(fail(RUNNING, "a"), fail(RUNNING, "b"))
    with pytest.raises(InvalidStateTransition):
        states_between(RUNNING, start(pending({}, ""), title="other"))


@pytest.mark.parametrize(
    ("make", "path", "rule"),
    [
        (lambda: ToolPending(input=[], raw=""), "$.input", "schema"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: ToolPending(input={"a": "\0"}, raw=""), "$.input.a", "text.nul"),
        (lambda: ToolPending(input={}, raw="\0"), "$.raw", "text.nul"),
        (lambda: ToolRunning(input={}, title="\0", time=RunningTime(1)), "$.title", "text.nul"),
        (lambda: ToolRunning(input={}, time=ToolTime(1, 2)), "$.time", "tool-start-time"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: ToolRunning(input={}, time=RunningTime(-1)), "$.time.start", "number.range"),
        (lambda: ToolError(input={}, error="\0", time=ToolTime(1, 2)), "$.error", "text.nul"),
        (
            lambda: ToolCompleted(
                input={}, output="\0", title="", metadata={}, time=CompletedTime(1, 2)
            ),
            "$.output",
            "text.nul",
        ),
        (
            lambda: ToolCompleted(
                input={}, output="x", title="\ud800", metadata={}, time=CompletedTime(1, 2)
            ),
            "$.title",
            "text.surrogate",
        ),
        (
            lambda: ToolCompleted(
                input={},
                output="x",
                title="",
                metadata={},
                time=CompletedTime(1, 2, "late"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            ),
            "$.time.compacted",
            "tool-end-time",
        ),
        (
            lambda: ToolCompleted(
                input={},
                output="x",
                title="",
                metadata={},
                time=CompletedTime(1, 2),
                attachments=("file",),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            ),
            "$.attachments[0]",
            "schema",
        ),
        (
            lambda: ToolCompleted(
                input={},
                output="x",
                title="",
                metadata={},
                time=CompletedTime(1, 2),
                attachments=5,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            ),
            "$.attachments",
            "schema",
        ),
    ],
)
def test_a_state_checks_itself(make: Any, path: str, rule: str) -> None:  # noqa: ANN401
    with pytest.raises(PartValidationError) as caught:
        make()
    assert (path, rule, "tool") == (caught.value.path, caught.value.rule, caught.value.part)


def test_attachments_may_come_as_a_list() -> None:
    done = ToolCompleted(
        input={},
        output="x",
        title="",
        metadata={},
        time=CompletedTime(1, 2),
        attachments=[IMAGE],  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )
    assert (IMAGE,) == done.attachments


def test_an_output_that_looks_like_the_placeholder_is_an_output() -> None:
    done = complete(RUNNING, NO_OUTPUT, tool="t")
    assert "rawOutput" not in done.metadata
