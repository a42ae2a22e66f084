"""Sums that follow a history: each message is counted once, whatever is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.history import BaseHistory, History
from palaver.messages import (
    Message,
    ToolCompleted,
    assistant,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    reasoning_part,
    start,
    text_part,
    tool_call_part,
    tool_part,
    user,
)
from palaver.tokens import RunningTotal, Weights, weigh, weigh_schema
from tests.profiles import at_least
from tests.wire.conversations import histories

if TYPE_CHECKING:
    from palaver.messages import Part, Role

S, M = new_id(), new_id()
RUNNING = start(pending({}, ""), at=1)
DONE = complete(RUNNING, "12345", tool="t", at=2)
IMAGE = file_part(S, M, "image/png", "https://example.org/a.png")


def cleared() -> ToolCompleted:
    """A result whose output was cleared."""
    assert isinstance(DONE, ToolCompleted)
    return replace(DONE, time=replace(DONE.time, compacted=3))


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (text_part(S, M, "12345"), 5),
        (text_part(S, M, "12345", ignored=True), 0),
        (reasoning_part(S, M, "123", start=1), 3),
        (tool_call_part(S, M, "ls", {}), 8 + 2 + 2),
        (tool_part(S, M, "c", "ls", DONE), 8 + 5),
        (tool_part(S, M, "c", "ls", cleared()), 8 + 8),
        (tool_part(S, M, "c", "ls", fail(RUNNING, "oops", at=2)), 8 + 4),
        (tool_part(S, M, "c", "ls", complete(RUNNING, "1", tool="t", attachments=[IMAGE])), 809),
        (IMAGE, 800),
        (file_part(S, M, "application/pdf", "https://example.org/a.pdf"), 1_500),
        (file_part(S, M, "text/plain", "https://example.org/a.txt"), 1_500),
        (file_part(S, M, "text/plain", "data:text/plain;base64,dGVuIGxldHRlcnM="), 11),
        (file_part(S, M, "text/csv", "data:text/csv,ten%20letters"), 11),
        (file_part(S, M, "text/plain", "data:text/plain;base64,/w=="), 1_500),
    ],
)
def test_what_parts_weigh(part: Part, tokens: int) -> None:
    """Words by the counter, the rest by set figures; four for the message itself."""
    side: Role = "assistant" if part.type in ("tool-call", "reasoning") else "user"

    assert 4 + tokens == weigh(Message(side, (part,)), len)


def test_a_schema_is_counted_as_it_is_sent() -> None:
    """Tool schemas count too."""
    assert len('{"type":"object"}') == weigh_schema({"type": "object"}, len)


@at_least(60)
@given(history=histories(), budget=st.integers(0, 300))
def test_sums_agree_with_counting_everything(history: BaseHistory, budget: int) -> None:
    """Against plain sums over the messages, on any view."""
    totals = RunningTotal(len)
    counts = [weigh(message, len) for message in history.view]
    first = totals.first_fitting(history.view, budget)

    assert sum(counts) == totals.total(history.view)
    assert counts == totals.each(history.view)
    assert sum(counts[first:]) <= budget
    assert first == 0 or sum(counts[first - 1 :]) > budget
    assert first == totals.first_fitting(history.view, budget)


def test_one_more_append_costs_one_more_count() -> None:
    """CV-07: counts are cached per message."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    history, totals = History([user(f"m{n}") for n in range(100)]), RunningTotal(count)
    totals.total(history.view)
    counted.clear()
    history.append(assistant("new"))
    history.truncate(keep_last=50)
    totals.total(history.view)
    totals.first_fitting(history.view, 1_000)

    assert ["new"] == counted


def test_only_what_fits_is_looked_at() -> None:
    """The newest that fit, without counting the rest."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 10

    history = History([user(f"m{n}") for n in range(1_000)])

    assert RunningTotal(count).first_fitting(history.view, 30) == 998
    assert len(counted) == 3


def test_an_erased_message_is_counted_anew() -> None:
    """What was erased is no longer there to be counted."""
    history, totals = History([user("12345"), user("1")]), RunningTotal(len, Weights(message=0))
    assert totals.total(history.view) == 6
    history.erase(0)
    totals.forget()

    assert totals.total(history.view) < 6 + 20
    assert totals.weigh(user("abc")) == 3
