"""Worker threads for asynchronous adapters: a store may wait for its disk, and a loop must not.

A hop to a thread and back takes longer than a small append. So the threads stay, whichever loop or
task they work for, and the one that became idle last works next: its caches and its connection to
the store are warm. A thread is idle before it reports a result, so whoever waits for each result
before asking again is always served by the same one. Half of a hop is waking the loop. With
`Patience` the loop waits for the thread for a moment, shorter than that takes, and is woken only
where the thread needs longer. It waits for a byte in a pipe: a thread that writes one holds no lock
of the interpreter's meanwhile, and the system lets the loop go on where the thread stops.

Most of the rest is waking another processor, where the data is in no cache: while one of two waits
for the other, both are better off on one. The system does not know that, and wakes the thread on
the processor that is idle. So a thread that is waited for can be kept on the loop's processor, as
long as the loop waits, and may run anywhere as soon as it does not. A hop that does nothing takes
10 µs of processor time then, and 70 otherwise, on a virtual machine of two processors.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from select import select
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from palaver.stores import Store

__all__ = [
    "Patience",
    "is_local",
    "patience_with",
    "run_cancellable",
    "run_in_background",
    "run_to_end",
]

_T = TypeVar("_T")
_MOST: Final = min(32, (os.cpu_count() or 1) + 4)
_IN_A_ROW: Final = 16
"""So often a task may go on without a look at the loop's other tasks."""
_LONGEST_PAUSE: Final = 64
_LOCAL: Final = ("memory", "sqlite")
_MAX_FILE: Final = 1023
"""The largest file number that `select` takes."""


def _find_processor() -> Callable[[], int] | None:
    """Return what tells which processor a thread runs on; None where it can't be kept there."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        return ctypes.PyDLL(None).sched_getcpu
    except (OSError, AttributeError):  # pragma: no cover - a C library without it
        return None


_processor: Final = _find_processor()


class Patience:
    """Whether a loop waits for a thread, and how long, in seconds: it depends on the disk.

    After waiting in vain, the next calls don't wait: twice as many each time, up to 64. With
    `together`, the thread is kept on the loop's processor meanwhile; its work must start no thread
    and no process, which would stay there.
    """

    def __init__(self, seconds: float, *, together: bool = False) -> None:
        """Wait so long at most."""
        self._seconds = seconds
        self.together = together
        self._in_a_row = 0
        self._in_vain = 1
        self._paused = 0

    def is_tried(self) -> bool:
        """Tell whether the loop waits for the next call."""
        if self._paused:
            self._paused -= 1
            return False
        return True

    def wait(self, job: _Job) -> bool:
        """Wait until a job is done; False if that takes too long."""
        if job.wait(self._seconds):
            self._in_vain = 1
            return True
        self._in_vain = min(2 * self._in_vain, _LONGEST_PAUSE)
        self._paused = self._in_vain
        return False

    def is_turn_of_others(self) -> bool:
        """Tell whether the loop has waited so often that its other tasks are to have a turn."""
        self._in_a_row = (self._in_a_row + 1) % _IN_A_ROW
        return not self._in_a_row


def is_local(store: Store) -> bool:
    """Tell whether what is read of a store comes from memory or a file of this machine."""
    return store.kind in _LOCAL


def patience_with(
    store: Store | None, seconds: float, *, together: bool = False
) -> Patience | None:
    """Return how long a loop waits for a store; None for one that is asked over a network.

    That answers later than any loop waits, and may start a thread. So might one that is not known.
    """
    local = store is not None and is_local(store)
    return Patience(seconds, together=together) if local else None


class _Signal:
    """A pipe through which a thread wakes another; it may hold a byte that nobody waited for."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)  # another may have read the byte
        os.set_blocking(self._writer, False)  # and a full pipe wakes as well

    def send(self) -> None:
        """Wake who waits."""
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until there is a byte, and take it; False if there was none for so long."""
        if self._reader > _MAX_FILE or not select((self._reader,), (), (), seconds)[0]:
            return False
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)
        return True

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class _Job:
    """Some work, its outcome, and who waits for it: a task's future, or a loop at the signal.

    The one side sets `done` and then looks who waits, the other says that it waits and then looks
    at `done`. So at least one of them sees the other.
    """

    __slots__ = ("_context", "_work", "done", "error", "is_awaited", "value", "waiter", "worker")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._context = copy_context()
        self._work = work
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.worker: _Worker | None = None
        """Who does it, if there was one for it at once."""
        self.is_awaited = False
        self.waiter: asyncio.Future[Any] | None = None

    def run(self) -> None:
        try:
            self.value = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self.error = error

    def report(self) -> None:
        """Let whoever waits for the outcome go on."""
        self.done = True
        if self.waiter is not None:
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                self.waiter.get_loop().call_soon_threadsafe(_wake, self.waiter)
        elif self.is_awaited and self.worker is not None and self.worker.signal is not None:
            self.worker.signal.send()

    def wait(self, seconds: float) -> bool:
        """Wait at the signal; False if the job is not done after so long.

        Two loops may wait for jobs of one worker, and take each other's byte: then one of them
        waits to the end of its time.
        """
        self.is_awaited = True
        signal = None if self.worker is None else self.worker.signal
        try:
            while signal is not None and not self.done and signal.wait(seconds):
                pass  # and again, if it was a byte that an earlier job has left
        finally:
            if not self.done and self.worker is not None:
                self.worker.place(None)
        return self.done


def _wake(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Worker:
    """A thread and what it is given to do; None ends it."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._given: deque[_Job | None] = deque()
        self._reader, self._writer = os.pipe()  # a byte for each
        self.signal = _Signal() if os.name == "posix" else None  # elsewhere no loop waits for it
        self._processor: int | None = None  # that it is kept on
        self._placing = threading.Lock()
        self.thread = threading.Thread(target=self._work, name="palaver-adapters", daemon=True)
        self.thread.start()

    def place(self, processor: int | None) -> None:
        """Keep the thread on a processor, or let it run wherever the program may."""
        if processor == self._processor:
            return
        with self._placing, suppress(OSError):  # the thread has ended, or nobody may do that here
            main = os.sched_getaffinity(os.getpid())  # that of the first thread, never a worker
            allowed = main if processor is None or processor < 0 else {processor}
            os.sched_setaffinity(self.thread.native_id or 0, allowed)
            self._processor = processor

    def give(self, job: _Job | None) -> None:
        self._given.append(job)
        os.write(self._writer, b"\0")

    def _next(self) -> _Job | None:
        os.read(self._reader, 1)
        return self._given.popleft()

    def close(self) -> None:
        """Close the pipes, where its thread is not: in a process that was forked."""
        if self.signal is not None:
            self.signal.close()
        os.close(self._reader)
        os.close(self._writer)

    def _work(self) -> None:
        job = self._next()
        while job is not None:
            job.run()
            following = self._pool.next_for(self)
            job.report()
            del job  # it holds what was read, and the thread may be idle for long
            job = following or self._next()


class _Pool:
    """The workers of a process: those that are idle, and the jobs that found none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self._ended = False

    def submit(self, job: _Job, processor: int | None = None) -> None:
        """Give a job to an idle worker or a new one; where there are enough, it waits for one.

        The worker is kept on a processor, if one is given.
        """
        with self._lock:
            if self._ended:
                raise RuntimeError("the program is ending, and its worker threads have ended")
            if self._idle:
                worker = self._idle.pop()
            elif len(self.workers) < _MOST:
                worker = _Worker(self)
                self.workers.append(worker)
            else:
                self._waiting.append(job)
                return
        job.worker = worker
        worker.place(processor)
        worker.give(job)

    def next_for(self, worker: _Worker) -> _Job | None:
        """Return a job that waits, or None: then the worker is idle."""
        with self._lock:
            if self._waiting:
                worker.place(None)
                return self._waiting.popleft()
            self._idle.append(worker)
            return None

    def end(self) -> None:
        """Wait for the jobs that have begun, when the interpreter ends."""
        with self._lock:
            self._ended = True
        for worker in self.workers:
            worker.give(None)
        for worker in self.workers:
            worker.thread.join()


_pools: Final = [_Pool()]
"""The one of this process: a fork takes no threads along, and the child begins with another."""


def _begin_anew() -> None:
    for worker in _pools[0].workers:
        worker.close()
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


def run_cancellable(
    work: Callable[[], _T], patience: Patience | None = None
) -> Coroutine[Any, Any, _T]:
    """Run some work on a worker thread; it is abandoned when the task is cancelled."""
    return _run(work, asyncio.Future, patience)


def run_to_end(work: Callable[[], _T], patience: Patience | None = None) -> Coroutine[Any, Any, _T]:
    """Run some work on a worker thread to its end, even if the task is cancelled."""
    return _run(work, _Uncancellable, patience)


def run_in_background(work: Callable[[], object]) -> None:
    """Begin some work on a worker thread; nobody waits for it."""
    _pools[0].submit(_Job(work))


async def _run(
    work: Callable[[], _T], future: type[asyncio.Future[Any]], patience: Patience | None
) -> _T:
    job = _Job(work)
    yields = False
    if patience is None:  # the thread can begin when the loop rests, so nothing is left to do then
        job.waiter = future(loop=asyncio.get_running_loop())
        _pools[0].submit(job)
        await job.waiter
    else:
        tried = patience.is_tried()
        near = tried and patience.together
        _pools[0].submit(job, _processor() if near and _processor is not None else None)
        if tried and patience.wait(job):
            yields = patience.is_turn_of_others()
        else:
            job.waiter = future(loop=asyncio.get_running_loop())
            yields = job.done
            if not yields:  # whoever is done now sees the waiter
                await job.waiter
    if yields:
        await asyncio.sleep(0)
    if job.error is not None:
        try:
            raise job.error
        finally:
            del job  # its error holds this frame
    return job.value  # type: ignore[no-any-return]
