"""Worker threads for asynchronous adapters: a store may wait for its disk, and a loop must not.

The threads stay, whichever loop or task they work for. The one that was idle last works next, and
it is idle before its result is reported: whoever waits for each result before asking again is
always served by the same thread, and by the connection that this thread reads through.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections import deque
from contextvars import copy_context
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

__all__ = ["run_cancellable", "run_to_end"]

_T = TypeVar("_T")
_MOST: Final = min(32, (os.cpu_count() or 1) + 4)
"""How many threads there are at most; work that comes while all are busy waits for one of them."""


class _Job(NamedTuple):
    """Some work, the context of the task that asked for it, and the future that it waits for."""

    work: Callable[[], Any]
    context: Context
    done: asyncio.Future[Any]

    def run(self) -> tuple[Any, BaseException | None]:
        try:
            return self.context.run(self.work), None
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            return None, error

    def report(self, outcome: tuple[Any, BaseException | None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self.done.get_loop().call_soon_threadsafe(
                _set_result, self.done, outcome, context=self.context
            )


def _set_result(done: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if not done.done():
        done.set_result(outcome)


class _Workers:
    """Threads with an inbox each, and the jobs that wait until one of them is idle."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._waiting: deque[_Job] = deque()
        self._threads: list[threading.Thread] = []
        self._ended = False

    def give(self, job: _Job) -> None:
        """Hand a job to the thread that was idle last, or to a new one, or let it wait."""
        with self._gate:
            if self._ended:
                raise RuntimeError("the program is ending, and its worker threads have ended")
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._threads) < _MOST:
                inbox = SimpleQueue()
                name = f"palaver-adapters_{len(self._threads)}"
                thread = threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            else:
                self._waiting.append(job)
                return
        inbox.put(job)

    def _serve(self, inbox: SimpleQueue[_Job | None]) -> None:
        job = inbox.get()
        while job is not None:
            outcome = job.run()
            following = self._next_job(inbox)
            job.report(outcome)
            del job, outcome  # they hold what was read, and the thread may be idle for long
            job = inbox.get() if following is None else following

    def _next_job(self, inbox: SimpleQueue[_Job | None]) -> _Job | None:
        """Return a job that waits; without one the thread is idle, and the next comes by inbox."""
        with self._gate:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(inbox)
            if self._ended:
                inbox.put(None)
            return None

    def end(self) -> None:
        """Let the threads finish what they have, and wait for them."""
        with self._gate:
            self._ended = True
            for inbox in self._idle:
                inbox.put(None)
        for thread in self._threads:
            thread.join()


@cache
def _workers() -> _Workers:
    return _Workers()


@atexit.register
def _end() -> None:
    if _workers.cache_info().currsize:
        _workers().end()


os.register_at_fork(after_in_child=_workers.cache_clear)  # threads don't survive a fork


class _Uncancellable(asyncio.Future[Any]):
    """A future that ignores cancellation: a cancelled task learns of it when the work is done."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the signature of Future
        """Ignore the cancellation."""
        return False


def run_cancellable(work: Callable[[], _T]) -> Coroutine[Any, Any, _T]:
    """Run some work on a worker thread; it is abandoned when the task is cancelled."""
    return _run(work, asyncio.get_running_loop().create_future())


def run_to_end(work: Callable[[], _T]) -> Coroutine[Any, Any, _T]:
    """Run some work on a worker thread to its end, even if the task is cancelled."""
    return _run(work, _Uncancellable(loop=asyncio.get_running_loop()))


async def _run(work: Callable[[], _T], done: asyncio.Future[Any]) -> _T:
    _workers().give(_Job(work, copy_context(), done))
    value, error = await done
    if error is not None:
        try:
            raise error
        finally:
            error = None  # it holds this frame
    return value  # type: ignore[no-any-return]
