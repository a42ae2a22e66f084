"""Group commit: threads that write at the same time share one transaction and one trip to disk.

The first to come leads: it takes everything that waits, runs it in one transaction, and tells each
its own outcome. Who comes meanwhile waits, and the first of those leads the next group. A writer
that is alone pays for none of this.

An interrupt (Ctrl-C) is the affair of the thread it comes to. Where that one leads, what the others
asked for is done in the next group, unless it was done already; where it waits, it leaves the line.

`hold` takes the lead without a job: nobody runs anything until `release`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, cast

from palaver.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Group", "Job"]

_T = TypeVar("_T")


class Job(Generic[_T]):
    """Something to do in a transaction, and what came of it."""

    __slots__ = (
        "again", "alone", "atomic", "error", "kept", "leads", "others", "result", "turn", "work",
    )  # fmt: skip

    def __init__(self, work: Callable[[], _T], *, atomic: bool, again: bool = True) -> None:
        """Take what is to be done.

        `atomic` is work that needs no transaction when it is alone; `again` tells whether it can be
        done once more after a transaction that was taken back.
        """
        self.work = work
        self.atomic = atomic
        self.again = again
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.alone = False  # it leads nobody, and nobody leads it
        self.kept = False  # the transaction has ended, and the outcome stands
        self.turn: threading.Lock | None = None
        self.leads = False
        self.others: list[Job[_T]] = []  # whom it leads, and who have not been told yet

    def run(self) -> None:
        """Do it; an error is this job's own."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            self.error = error


class Group(Generic[_T]):
    """A queue of jobs and whoever leads it.

    `run_all` runs jobs in one transaction. Where it is interrupted when that has ended already, it
    says so by setting their `kept`.
    """

    def __init__(self, run_all: Callable[[list[Job[_T]]], None]) -> None:
        """Take what runs a list of jobs to its durable end."""
        self._run_all = run_all
        self.reset()

    def reset(self) -> None:
        """Begin with an empty queue that nobody leads, as in a child after a fork."""
        self._gate = threading.Lock()
        self._queue: list[Job[_T]] = []
        self._busy = False

    def hold(self, seconds: float = -1) -> bool:
        """Wait for those who came before, and keep everyone else waiting until `release`.

        Return False where that takes longer than so many seconds; -1 is without limit.
        """
        job: Job[_T] = Job(_nothing, atomic=False)
        job.alone = True
        try:
            self._line_up(job)
            if job.turn is None or job.turn.acquire(timeout=seconds):
                return True
        except BaseException:
            self._leave(job)
            raise
        self._leave(job)
        return False

    def release(self) -> None:
        """End a `hold`."""
        self._pass_on(None)

    def do(self, work: Callable[[], _T], *, atomic: bool = False, again: bool = True) -> _T:
        """Have something done, alone or with others, and answer what came of it."""
        if atomic and not self._busy:
            mine = False
            try:  # the common case without detours: nobody else is there
                with self._gate:
                    if not self._busy:
                        self._busy = mine = True
                if mine:
                    return work()
            finally:
                if mine:
                    self._pass_on(None)
        job = Job(work, atomic=atomic, again=again)
        try:
            self._line_up(job)
            if job.turn is not None:
                job.turn.acquire()
            if job.leads:
                self._lead(job)
        except BaseException:
            self._leave(job)
            raise
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)  # it ran, or there is an error

    def _line_up(self, job: Job[_T]) -> None:
        """Lead, if nobody does; otherwise wait in line for a turn."""
        with self._gate:
            if self._busy:
                self._queue.append(job)
                job.turn = threading.Lock()
                job.turn.acquire()
            else:
                self._busy = job.leads = True

    def _lead(self, job: Job[_T]) -> None:
        if self._queue:
            with self._gate:
                waiting = [other for other in self._queue if other is not job]
                alone = (place for place, other in enumerate(waiting) if other.alone)
                until = next(alone, len(waiting))
                job.others, self._queue = waiting[:until], waiting[until:]
        try:
            self._run_all([job, *job.others])
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            for each in (job, *job.others):
                each.error = each.error or error
        job.kept = True
        self._hand_over(job)

    def _leave(self, job: Job[_T]) -> None:
        """An interrupt: who waits leaves the line, and who leads lets the others go on."""
        with self._gate:
            if job in self._queue:
                self._queue.remove(job)
            if not job.leads:
                return
            if not job.kept:
                for other in job.others:
                    other.result = other.error = None
                    if not other.again:
                        msg = "another thread was interrupted, and nothing was kept: do it again"
                        other.error = StoreError(msg)
                self._queue[:0] = [other for other in job.others if other.again]
                job.others = [other for other in job.others if not other.again]
        self._hand_over(job)

    def _hand_over(self, job: Job[_T]) -> None:
        """Tell the others that they are done, and let somebody else lead."""
        while job.others:
            done = job.others.pop()
            assert done.turn is not None  # noqa: S101 - it came while another led
            done.turn.release()
        self._pass_on(job)

    def _pass_on(self, job: Job[_T] | None) -> None:
        """The first who waits leads next."""
        with self._gate:
            if job is not None:
                job.leads = False
            if not self._queue:
                self._busy = False
                return
            following = self._queue[0]
            assert following.turn is not None  # noqa: S101 - as above
            following.leads = True
            if following.alone:
                del self._queue[0]
            following.turn.release()


def _nothing() -> NoReturn:
    raise AssertionError  # it is never run
