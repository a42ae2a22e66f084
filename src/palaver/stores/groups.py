"""Group commit: threads that write at the same time share one transaction and one trip to disk.

The first to come leads: it takes everything that waits, runs it in one transaction, and tells each
its own outcome. Who comes meanwhile waits, and the first of those leads the next group. A writer
that is alone pays for none of this.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Group", "Job"]

_T = TypeVar("_T")


class Job(Generic[_T]):
    """Something to do in a transaction, and what came of it."""

    __slots__ = ("atomic", "error", "leads", "result", "turn", "work")

    def __init__(self, work: Callable[[], _T], *, atomic: bool) -> None:
        """Take what is to be done; `atomic` is work that needs no transaction when it is alone."""
        self.work = work
        self.atomic = atomic
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.turn: threading.Lock | None = None
        self.leads = False

    def run(self) -> None:
        """Do it; an error is this job's own."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            self.error = error


class Group(Generic[_T]):
    """A queue of jobs and whoever leads it. `run_all` runs jobs in one transaction."""

    def __init__(self, run_all: Callable[[list[Job[_T]]], None]) -> None:
        """Take what runs a list of jobs to its durable end."""
        self._run_all = run_all
        self._gate = threading.Lock()
        self._queue: list[Job[_T]] = []
        self._busy = False

    def do(self, work: Callable[[], _T], *, atomic: bool = False) -> _T:
        """Have something done, alone or with others, and answer what came of it."""
        job = Job(work, atomic=atomic)
        with self._gate:
            self._queue.append(job)
            leads = not self._busy
            if leads:
                self._busy = True
            else:
                job.turn = threading.Lock()
                job.turn.acquire()
        if not leads:
            assert job.turn is not None  # noqa: S101 - made above
            job.turn.acquire()
            leads = job.leads
        if leads:
            self._lead()
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)  # it ran, or there is an error

    def _lead(self) -> None:
        with self._gate:
            jobs, self._queue = self._queue, []
        try:
            self._run_all(jobs)
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it
            for job in jobs:
                job.error = job.error or error
        finally:
            self._hand_over(jobs)

    def _hand_over(self, jobs: list[Job[_T]]) -> None:
        for job in jobs:
            if job.turn is not None:
                if job.leads:
                    continue  # that is whoever leads now
                job.turn.release()
        with self._gate:
            if not self._queue:
                self._busy = False
                return
            following = self._queue[0]
        following.leads = True
        assert following.turn is not None  # noqa: S101 - it came while another led
        following.turn.release()
