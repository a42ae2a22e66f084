"""The lease of a conversation while a model is asked or tools run, and cleanup under cancellation.

A lease is renewed as long as the work goes on. If it is lost all the same, another worker has taken
over: the work stops, and what it would still write is refused by the store.

Access to the store is completed even if the task that makes it is cancelled. A cancel scope of
anyio's is held off by a shield, but `asyncio.Task.cancel()` is not: it ends the wait for a worker
thread while the thread goes on, and a lease that the thread then takes would have no owner. So a
task that is cancelled meanwhile waits for the end of the thread, and only then raises.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import anyio
from anyio import to_thread

from palaver.errors import PalaverError
from palaver.messages import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from palaver.stores.records import Lease
    from palaver.stores.store import Store

__all__ = ["LEASE_SECONDS", "OnExit", "SharedLease", "clean_up", "run_shielded"]

LEASE_SECONDS: Final = 4.0
"""How long a lease lasts unless it is renewed, and so how soon a killed worker is succeeded.

It is renewed three times as often while the work goes on. A worker that hangs for longer loses the
lease only if another one asks for it; what it would still write is refused then."""
_T = TypeVar("_T")
_THREAD_NAME: Final = "palaver-cleanup"


class SharedLease:
    """The right to work on a conversation, shared by everything that one `Conversation` does.

    The first `acquire` takes the lease from the store, the last `release` gives it back. The
    methods but `keep_renewed` block, and are safe for threads.
    """

    def __init__(self, store: Store, conversation: str, seconds: float = LEASE_SECONDS) -> None:
        """Take nothing yet; each lease lasts for so many seconds unless it is renewed."""
        self.holder = new_id()
        self._seconds = seconds
        self._store = store
        self._conversation = conversation
        self._lock = threading.Lock()
        self._acquired: list[Lease] = []

    def acquire(self) -> Lease:
        """Take the lease; raise `LeaseTaken` if another worker has it."""
        with self._lock:
            lease = self._take()
            self._acquired.append(lease)
            return lease

    def renew(self) -> None:
        """Make the lease last longer, unless it was given back meanwhile."""
        with self._lock:
            if self._acquired:
                self._take()

    def holds(self, lease: Lease) -> bool:
        """Tell whether a lease that `acquire` returned was not released yet."""
        return any(acquired is lease for acquired in self._acquired)

    @property
    def is_shared(self) -> bool:
        """Whether more than one thing is at work under the lease."""
        return len(self._acquired) > 1

    def release(self, lease: Lease) -> None:
        """Give back what `acquire` returned; releasing it twice is harmless."""
        with self._lock:
            if not self.holds(lease):
                return
            self._acquired = [acquired for acquired in self._acquired if acquired is not lease]
            if not self._acquired:
                self._store.release(lease)

    async def hold(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something while the lease is held and renewed, and give it back."""
        lease = await run_shielded(self.acquire, undo=self.release)
        release, holds = partial(self.release, lease), partial(self.holds, lease)
        async with OnExit(release, needed=holds):
            return await self.keep_renewed(work)

    async def keep_renewed(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something while the lease is renewed; if the lease is lost, the work is stopped."""
        failure: Exception | None = None
        done: list[_T] = []

        async def renew(scope: anyio.CancelScope) -> None:
            nonlocal failure
            try:
                while True:
                    await anyio.sleep(self._seconds / 3)
                    await to_thread.run_sync(self.renew)
            except PalaverError as lost:
                failure = lost
                scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(renew, group.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return done[0]

    def _take(self) -> Lease:
        return self._store.lease(self._conversation, self.holder, seconds=self._seconds)


class OnExit:
    """An async context manager that does something at its end if it is still needed."""

    def __init__(self, work: Callable[[], object], needed: Callable[[], bool]) -> None:
        """Take the work, which runs in a worker thread, and what tells whether it is needed."""
        self._work = work
        self._needed = needed

    async def __aenter__(self) -> None:
        """Do nothing yet."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do the work."""
        if self._needed():
            await clean_up(error, self._work)


async def clean_up(error: BaseException | None, work: Callable[[], object]) -> None:
    """Do something after an error, or after none, as `run_shielded` does.

    A coroutine that is closed (`GeneratorExit`) may not wait: then a thread does the work alone.
    """
    if isinstance(error, GeneratorExit):
        _run_detached(work)
    else:
        await run_shielded(work)


async def run_shielded(work: Callable[[], _T], *, undo: Callable[[_T], object] | None = None) -> _T:
    """Do something in a worker thread, and wait for its end even if the task is cancelled.

    A cancellation is raised afterwards, and what was done stands. With `undo`, what was done is
    undone in that case, and what has not begun does not begin. If the coroutine is closed and can't
    wait, a thread completes the work alone.
    """
    job = _Job(work, undo)
    cancelled: BaseException | None = None
    try:
        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(job.run)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
                job.unwanted = True
                await _wait_for_thread(job.run)
    except BaseException:
        job.unwanted = True
        _run_detached(job.run)
        raise
    if cancelled is not None:
        raise cancelled from job.error
    return job.result()


class _Job(Generic[_T]):
    """Work that is done once, in whichever worker thread comes first, and its result."""

    def __init__(self, work: Callable[[], _T], undo: Callable[[_T], object] | None) -> None:
        self._work = work
        self._undo = undo
        self._lock = threading.Lock()
        self._begun = False
        self._done: list[_T] = []
        self.error: BaseException | None = None
        self.unwanted = False

    def run(self) -> None:
        """Do the work; a second caller waits for the first. Unwanted work is undone."""
        with self._lock:
            withdrawn = self.unwanted and self._undo is not None
            try:
                if not self._begun and not withdrawn:
                    self._begun = True
                    self._done.append(self._work())
                if self.unwanted and self._undo is not None and self._done:
                    self._undo(self._done.pop())
            except BaseException as error:  # noqa: BLE001 - raised by `result`
                self.error = error

    def result(self) -> _T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._done[0]


async def _wait_for_thread(work: Callable[[], object]) -> None:
    """Do something in a thread and wait for it, however often the task is cancelled meanwhile.

    Only asyncio's tasks come here. One of anyio's worker threads would not do: the wait for it can
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

    threading.Thread(target=run, name=_THREAD_NAME).start()
    while not ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


def _run_detached(work: Callable[[], object]) -> None:
    """Do something in a thread without waiting for it."""
    with suppress(RuntimeError):  # the interpreter is ending, and starts no threads
        threading.Thread(target=cast("Callable[[], None]", work), name=_THREAD_NAME).start()
