"""One small typed bus: what happened, told to whoever wants to know, after it was stored.

Handlers are plain or async functions. One that fails is logged and changes nothing for anybody
else. Nothing is told before it is true.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from palaver.errors import ValidationError
from palaver.messages.gate import EMPTY
from palaver.messages.ids import now_ms

__all__ = ["NAMES", "Event", "Events", "Handler", "Name"]

Name: TypeAlias = Literal[
    "message.added",
    "history.edited",
    "history.rolled_back",
    "tool.pending",
    "tool.running",
    "tool.completed",
    "tool.error",
    "usage.updated",
    "tokens.exceeded",
    "compaction.done",
    "team_task.changed",
    "message.erased",
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
_log = logging.getLogger("palaver.events")


class Event(Struct, frozen=True, rename="camel"):
    """Something that happened: its name, where, and what is known of it.

    `cursor` is there for what was followed in a store: the place to go on from after it.
    """

    name: Name
    conversation: str
    version: int
    data: Mapping[str, Any] = EMPTY
    at: int = field(default_factory=now_ms)
    cursor: int | None = None


Handler: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""A plain or async function of an event."""


class Events:
    """Handlers by the names of the events they want.

    >>> events, seen = Events(), []
    >>> stop = events.on("message.added", lambda event: seen.append(event.version))
    >>> events.emit(Event("message.added", "c", 1))
    >>> stop()
    >>> events.emit(Event("message.added", "c", 2))
    >>> seen
    [1]
    """

    def __init__(self) -> None:
        """Begin with nobody listening."""
        self._handlers: dict[str, tuple[Handler, ...]] = {}

    def on(self, name: Name | Literal["*"], handler: Handler) -> Callable[[], None]:
        """Have a handler called for a name, or for all (`*`); call what this returns to stop."""
        if name != "*" and name not in NAMES:
            detail = f"no such event: {name!r}; there are {', '.join(NAMES)}"
            raise ValidationError(detail, path="$.name", rule="CV-08")
        self._handlers[name] = (*self._handlers.get(name, ()), handler)

        def stop() -> None:
            left = list(self._handlers.get(name, ()))
            if handler in left:
                left.remove(handler)
            self._handlers[name] = tuple(left)

        return stop

    def wanted(self, name: Name) -> bool:
        """Tell whether anybody listens."""
        return bool(self._handlers.get(name) or self._handlers.get("*"))

    async def publish(self, event: Event) -> None:
        """Tell everybody, in the order they came; async handlers are waited for."""
        for handler in self._called(event.name):
            try:
                answer = handler(event)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:  # noqa: BLE001 - whatever it raises, the others are told
                _log.exception("a handler of %s failed", event.name)

    def emit(self, event: Event) -> None:
        """Tell everybody from code that can't wait.

        Async handlers run in the loop that is running, or in one of their own until they are done.
        """
        for handler in self._called(event.name):
            try:
                answer = handler(event)
                if inspect.isawaitable(answer):
                    _run(_logged(answer, event.name))
            except Exception:  # noqa: BLE001 - whatever it raises, the others are told
                _log.exception("a handler of %s failed", event.name)

    def _called(self, name: Name) -> tuple[Handler, ...]:
        return (*self._handlers.get(name, ()), *self._handlers.get("*", ()))


_running: set[Any] = set()


async def _logged(answer: Awaitable[None], name: Name) -> None:
    try:
        await answer
    except Exception:  # noqa: BLE001 - as above
        _log.exception("a handler of %s failed", name)


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio  # noqa: PLC0415 - only where somebody listens asynchronously

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    task = loop.create_task(work)
    _running.add(task)  # the loop itself holds its tasks only weakly
    task.add_done_callback(_running.discard)
