"""Worker threads for asynchronous adapters: a store may wait for its disk, and a loop must not.

A hop to a thread and back takes longer than a small append. So the threads stay, whichever loop or
task they work for, and the one that became idle last works next: its caches and its connection to
the store are warm. A thread is idle before it reports a result, so whoever waits for each result
before asking again is always served by the same one. Half of a hop is waking the loop. With
`Patience` the loop waits for the thread for a moment, shorter than that takes, and is woken only
where the thread needs longer.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Patience", "run_cancellable", "run_in_background", "run_to_end"]

_T = TypeVar("_T")
_MOST: Final = min(32, (os.cpu_count() or 1) + 4)
_IN_A_ROW: Final = 16
"""So often a task may go on without a look at the loop's other tasks."""
_LONGEST_PAUSE: Final = 64


class Patience:
    """Whether a loop waits for a thread, and how long, in seconds: it depends on the disk.

    After waiting in vain, the next calls don't wait: twice as many each time, up to 64.
    """

    def __init__(self, seconds: float) -> None:
        """Wait so long at most."""
        self._seconds = seconds
        self._in_a_row = 0
        self._in_vain = 1
        self._paused = 0

    def wait(self, done: threading.Lock) -> bool:
        """Wait until it is released; False if that takes too long, or is not tried."""
        if self._paused:
            self._paused -= 1
        elif self._in_a_row >= _IN_A_ROW:
            self._in_a_row = 0
        elif done.acquire(timeout=self._seconds):
            self._in_a_row += 1
            self._in_vain = 1
            return True
        else:
            self._in_vain = min(2 * self._in_vain, _LONGEST_PAUSE)
            self._paused = self._in_vain
        return False


class _Job:
    """Some work, its outcome, and the future of a task that waits for it."""

    __slots__ = ("_work", "done", "error", "value", "waiter")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.value: Any = None
        self.error: BaseException | None = None
        self.waiter: asyncio.Future[Any] | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self.error = error

    def report(self) -> None:
        """Let whoever waits for the outcome go on."""
        self.done.release()
        if self.waiter is not None:
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                self.waiter.get_loop().call_soon_threadsafe(_wake, self.waiter)


def _wake(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Worker:
    """A thread and what it is given to do; None ends it."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="palaver-adapters", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        job = self.jobs.get()
        while job is not None:
            job.run()
            following = self._pool.next_for(self)
            job.report()
            del job  # it holds what was read, and the thread may be idle for long
            job = following or self.jobs.get()


class _Pool:
    """The workers of a process: those that are idle, and the jobs that found none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self._ended = False

    def submit(self, job: _Job) -> None:
        """Give a job to an idle worker or a new one; where there are enough, it waits for one."""
        with self._lock:
            if self._ended:
                raise RuntimeError("the program is ending, and its worker threads have ended")
            if self._idle:
                worker = self._idle.pop()
            elif len(self._workers) < _MOST:
                worker = _Worker(self)
                self._workers.append(worker)
            else:
                self._waiting.append(job)
                return
        worker.jobs.put(job)

    def next_for(self, worker: _Worker) -> _Job | None:
        """Return a job that waits, or None: then the worker is idle."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(worker)
            return None

    def end(self) -> None:
        """Wait for the jobs that have begun, when the interpreter ends."""
        with self._lock:
            self._ended = True
        for worker in self._workers:
            worker.jobs.put(None)
        for worker in self._workers:
            worker.thread.join()


_pools: Final = [_Pool()]
"""The one of this process: a fork takes no threads along, and the child begins with another."""


def _begin_anew() -> None:
    _pools[0] = _Pool()


def _end() -> None:
    _pools[0].end()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_end)


class _Uncancellable(asyncio.Future[Any]):
    """A future that ignores cancellation: a cancelled task learns of it when the work is done."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the signature of Future
        """Ignore the cancellation."""
        return False


async def run_cancellable(work: Callable[[], _T], patience: Patience | None = None) -> _T:
    """Run some work on a worker thread; it is abandoned when the task is cancelled."""
    return await _run(work, asyncio.Future, patience)


async def run_to_end(work: Callable[[], _T], patience: Patience | None = None) -> _T:
    """Run some work on a worker thread to its end, even if the task is cancelled."""
    return await _run(work, _Uncancellable, patience)


def run_in_background(work: Callable[[], object]) -> None:
    """Begin some work on a worker thread; nobody waits for it."""
    _pools[0].submit(_Job(work))


async def _run(
    work: Callable[[], _T], future: type[asyncio.Future[Any]], patience: Patience | None
) -> _T:
    job = _Job(partial(copy_context().run, work))
    if patience is None:  # the thread can begin when the loop rests, so nothing is left to do then
        job.waiter = future(loop=asyncio.get_running_loop())
        _pools[0].submit(job)
        await job.waiter
    else:
        _pools[0].submit(job)
        if not patience.wait(job.done):
            job.waiter = future(loop=asyncio.get_running_loop())
            if not job.done.acquire(blocking=False):  # whoever releases it now sees the waiter
                await job.waiter
    if job.error is not None:
        try:
            raise job.error
        finally:
            del job  # its error holds this frame
    return job.value  # type: ignore[no-any-return]
