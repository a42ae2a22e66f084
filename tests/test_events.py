"""The bus: plain and async handlers, in order, and none of them can break anything."""

from __future__ import annotations

import asyncio
import logging

import pytest

from palaver.errors import ValidationError
from palaver.events import EVENT_NAMES, Event, EventBus

EVENT = Event("message.added", "c", 1)


def test_handlers_are_called_in_order_and_only_for_their_names() -> None:
    """A name's own handlers come before those of all names."""
    events, seen = EventBus(), list[str]()
    events.on("*", lambda event: seen.append(f"all {event.name}"))
    events.on("message.added", lambda _: seen.append("one"))
    events.on("tool.error", lambda _: seen.append("never"))
    events.emit(EVENT)

    assert ["one", "all message.added"] == seen


def test_a_failing_handler_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CV-08."""
    events, seen = EventBus(), list[int]()

    async def broken(_: Event) -> None:
        raise RuntimeError

    def broken_too(_: Event) -> None:
        raise ZeroDivisionError

    events.on("message.added", broken_too)
    events.on("message.added", broken)
    events.on("message.added", lambda event: seen.append(event.version))
    with caplog.at_level(logging.ERROR, logger="palaver.events"):
        events.emit(EVENT)
        asyncio.run(events.publish(EVENT))

    assert [1, 1] == seen
    assert ["a handler of message.added failed"] * 4 == [r.getMessage() for r in caplog.records]


def test_async_handlers_run_from_anywhere() -> None:
    """In a loop of their own, in the one that is running, or waited for."""
    events, seen = EventBus(), list[int]()

    async def handler(event: Event) -> None:
        await asyncio.sleep(0)
        seen.append(event.version)

    events.on("message.added", handler)
    events.emit(EVENT)
    assert [1] == seen

    async def inside() -> None:
        events.emit(EVENT)
        await asyncio.sleep(0.01)
        await events.publish(EVENT)

    asyncio.run(inside())
    assert [1, 1, 1] == seen


def test_a_handler_can_be_taken_off_also_by_itself() -> None:
    """Twice is no error."""
    events, seen = EventBus(), list[int]()

    def once(event: Event) -> None:
        seen.append(event.version)
        stop()

    stop = events.on("message.added", once)
    assert events.wanted("message.added")
    events.emit(EVENT)
    events.emit(EVENT)
    stop()

    assert [1] == seen
    assert not events.wanted("message.added")


def test_an_unknown_name_is_an_error() -> None:
    """A handler that would never be called is a mistake."""
    with pytest.raises(ValidationError, match=r"no such event: 'message\.aded'; there are"):
        EventBus().on("message.aded", print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert len(EVENT_NAMES) == 13
