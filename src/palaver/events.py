"""A small typed event bus: handlers are called for what happened, after it was stored.

Handlers are plain or async functions. An error of a handler is logged and does not affect the
others. An event is emitted only after its change has been committed.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from palaver.errors import ValidationError
from palaver.messages.ids import now_ms
from palaver.messages.limits import EMPTY, describe_argument

__all__ = ["EVENT_NAMES", "Event", "EventBus", "EventName", "Handler"]

EventName: TypeAlias = Literal[
    "message.added",
    "history.edited",
    "history.rolled_back",
    "tool.pending",
    "tool.running",
    "tool.completed",
    "tool.error",
    "usage.updated",
    "cache.updated",
    "tokens.exceeded",
    "compaction.done",
    "team_task.changed",
    "message.erased",
]
EVENT_NAMES: Final[tuple[EventName, ...]] = get_args(EventName)
_log = logging.getLogger("palaver.events")


class Event(Struct, frozen=True, rename="camel"):
    """Something that happened: its name, its conversation and version, and data about it.

    `cursor` is set on events that were read from a store: the position to continue from.
    """

    name: EventName
    conversation: str
    version: int
    data: Mapping[str, Any] = EMPTY
    at: int = field(default_factory=now_ms)
    cursor: int | None = None


Handler: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""A plain or async function that takes an event."""


class EventBus:
    """Handlers by the names of their events.

    >>> events, seen = EventBus(), []
    >>> stop = events.on("message.added", lambda event: seen.append(event.version))
    >>> events.emit(Event("message.added", "c", 1))
    >>> stop()
    >>> events.emit(Event("message.added", "c", 2))
    >>> seen
    [1]
    """

    def __init__(self) -> None:
        """Start without handlers."""
        self._handlers: dict[str, tuple[Handler, ...]] = {}
        self.sources: WeakKeyDictionary[object, object] = WeakKeyDictionary()
        """The histories whose changes are published here, and what publishes them."""

    def on(self, name: EventName | Literal["*"], handler: Handler) -> Callable[[], None]:
        """Call a handler for every event of a name, or for all events (`*`).

        Returns a function that removes the handler.
        """
        if name != "*" and name not in EVENT_NAMES:
            detail = f"no such event: {name!r}; there are {', '.join(EVENT_NAMES)}"
            raise ValidationError(detail, path="$.name", rule="unknown-event")
        if not callable(handler):
            detail = f"must be a function that takes an event, not {describe_argument(handler)}"
            raise ValidationError(detail, path="$.handler", rule="argument")
        self._handlers[name] = (*self._handlers.get(name, ()), handler)

        def stop() -> None:
            left = list(self._handlers.get(name, ()))
            if handler in left:
                left.remove(handler)
            self._handlers[name] = tuple(left)

        return stop

    def wanted(self, name: EventName) -> bool:
        """Return whether an event of this name has a handler."""
        return bool(self._handlers.get(name) or self._handlers.get("*"))

    async def publish(self, event: Event) -> None:
        """Call the handlers in the order they were added, and await the async ones."""
        for handler in self._called(event.name):
            try:
                answer = handler(event)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:  # noqa: BLE001 - the other handlers are called whatever it raises
                _log.exception("a handler of %s failed", event.name)

    def emit(self, event: Event) -> None:
        """Call the handlers from code that is not async.

        In a worker thread of anyio's, they are called in the event loop, and awaited. Otherwise
        async handlers run in the running event loop, or to their end in a new one.
        """
        if not self.wanted(event.name) or self._publish_in_loop(event):
            return
        for handler in self._called(event.name):
            try:
                answer = handler(event)
                if inspect.isawaitable(answer):
                    _run(_logged(answer, event.name))
            except Exception:  # noqa: BLE001 - the other handlers are called whatever it raises
                _log.exception("a handler of %s failed", event.name)

    def _publish_in_loop(self, event: Event) -> bool:
        """Publish an event in the loop that this worker thread works for; False without one."""
        if "anyio" not in sys.modules:
            return False
        from anyio import from_thread  # noqa: PLC0415 - loaded already

        published = False

        async def publish() -> None:
            nonlocal published
            published = True
            await self.publish(event)

        with suppress(RuntimeError):  # no such thread, or its loop has ended
            from_thread.run(publish)
        return published

    def _called(self, name: EventName) -> tuple[Handler, ...]:
        return (*self._handlers.get(name, ()), *self._handlers.get("*", ()))


_running: set[Any] = set()


async def _logged(answer: Awaitable[None], name: EventName) -> None:
    try:
        await answer
    except Exception:  # noqa: BLE001 - as above
        _log.exception("a handler of %s failed", name)


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio  # noqa: PLC0415 - only for async handlers

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    task = loop.create_task(work)
    _running.add(task)  # the loop itself holds its tasks only weakly
    task.add_done_callback(_running.discard)
