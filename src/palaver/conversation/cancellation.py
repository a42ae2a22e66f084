"""Visits to the store that are seen through, whatever cancels the task that makes them.

A cancel scope of anyio's is held off by a shield, but `asyncio.Task.cancel()` is not: it ends the
wait for a worker thread while the thread goes on, and may come before the thread has begun. What a
thread then takes (a lease) would have no owner. So whoever is cancelled while it waits goes on
waiting until the thread has ended, and only then is the cancellation raised.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import anyio
from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["AtTheEnd", "at_last", "shielded"]

_T = TypeVar("_T")
_NAME: Final = "palaver-cleanup"


class _Visit(Generic[_T]):
    """Something that is done once, in some worker thread, and what came of it."""

    def __init__(self, work: Callable[[], _T], undo: Callable[[_T], object] | None) -> None:
        self._work = work
        self._undo = undo
        self._gate = threading.Lock()
        self._begun = False
        self._done: list[_T] = []
        self.error: BaseException | None = None
        self.unwanted = False

    def run(self) -> None:
        """Do it; whoever comes second waits for the first. What is unwanted is undone."""
        with self._gate:
            withdrawn = self.unwanted and self._undo is not None
            try:
                if not self._begun and not withdrawn:
                    self._begun = True
                    self._done.append(self._work())
                if self.unwanted and self._undo is not None and self._done:
                    self._undo(self._done.pop())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self.error = error

    def outcome(self) -> _T:
        """What came of it."""
        if self.error is not None:
            raise self.error
        return self._done[0]


async def shielded(work: Callable[[], _T], *, undo: Callable[[_T], object] | None = None) -> _T:
    """Do something in a worker thread, and wait for its end though all else is called off.

    A cancellation is raised afterwards, and what was done stands. With `undo` it does not: what
    was done is undone, in a worker thread too, and what has not begun does not begin. Where there
    is no waiting (the coroutine is closed), a thread sees to it alone.
    """
    visit = _Visit(work, undo)
    cancelled: BaseException | None = None
    try:
        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(visit.run)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
                visit.unwanted = True
                await _ended(visit.run)
    except BaseException:
        visit.unwanted = True
        _alone(visit.run)
        raise
    if cancelled is not None:
        raise cancelled from visit.error
    return visit.outcome()


async def at_last(error: BaseException | None, work: Callable[[], object]) -> None:
    """Clean up after an error, or none: as `shielded` does, or in a thread of its own.

    A coroutine that is closed (`GeneratorExit`) may not wait any more.
    """
    if isinstance(error, GeneratorExit):
        _alone(work)
    else:
        await shielded(work)


class AtTheEnd:
    """A block that does something at its end, whatever ends it, if it is still needed."""

    def __init__(self, work: Callable[[], object], needed: Callable[[], bool]) -> None:
        """Take what is to be done, in a worker thread, and what tells whether it still is."""
        self._work = work
        self._needed = needed

    async def __aenter__(self) -> None:
        """Nothing is done yet."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do it."""
        if self._needed():
            await at_last(error, self._work)


async def _ended(work: Callable[[], object]) -> None:
    """Do something in a thread and wait for it, however often the task is cancelled meanwhile.

    Only asyncio's tasks come here. Waiting for one of anyio's worker threads would not do: it can
    be cancelled before the thread begins, again and again.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        finally:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=run, name=_NAME).start()
    while not ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


def _alone(work: Callable[[], object]) -> None:
    """Do something without waiting: whoever is here may stand in the middle of anything."""
    with suppress(RuntimeError):  # the interpreter is ending, and begins no threads
        threading.Thread(target=cast("Callable[[], None]", work), name=_NAME).start()
