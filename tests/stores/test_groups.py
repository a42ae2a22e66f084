"""Threads share a run; each gets its own outcome."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from palaver.stores.groups import Group
from tests.history.test_threads import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.groups import Job

THREADS = 8


class Runs:
    """What runs jobs, and how many it had each time."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.sizes: list[int] = []
        self.seconds = seconds
        self.inside = threading.Lock()

    def __call__(self, jobs: list[Job[int]]) -> None:
        assert self.inside.acquire(blocking=False), "two leaders at once"
        try:
            self.sizes.append(len(jobs))
            for job in jobs:
                job.run()
            time.sleep(self.seconds)
        finally:
            self.inside.release()


def test_whoever_is_alone_is_done_at_once() -> None:
    runs = Runs()
    group = Group[int](runs)
    assert [0, 1, 4] == [group.do(lambda n=n: n * n) for n in range(3)]  # type: ignore[misc]
    assert [1, 1, 1] == runs.sizes


def test_eight_threads_share_runs_and_each_has_its_answer() -> None:
    runs = Runs(seconds=0.002)
    group = Group[int](runs)
    answers: dict[int, list[int]] = {}

    def work(number: int) -> Callable[[], None]:
        def task() -> None:
            answers[number] = [group.do(lambda n=n: number * 1_000 + n) for n in range(25)]  # type: ignore[misc]

        return task

    run(*map(work, range(THREADS)))
    for number in range(THREADS):
        assert [number * 1_000 + n for n in range(25)] == answers[number]
    assert THREADS * 25 == sum(runs.sizes)
    assert len(runs.sizes) < THREADS * 25


def test_an_error_is_its_own_jobs_and_nobody_elses() -> None:
    group = Group[int](Runs(seconds=0.001))
    failed: list[int] = []

    def refuse() -> int:
        raise ValueError("no")

    def work(number: int) -> Callable[[], None]:
        def task() -> None:
            for n in range(20):
                if (number + n) % 3:
                    assert n == group.do(lambda n=n: n)  # type: ignore[misc]
                else:
                    with pytest.raises(ValueError, match="no"):
                        group.do(refuse)
                    failed.append(n)

        return task

    run(*map(work, range(THREADS)))
    assert sum((number + n) % 3 == 0 for number in range(THREADS) for n in range(20)) == len(failed)


def test_a_run_that_fails_fails_all_its_jobs_and_the_next_goes_on() -> None:
    ill = threading.Event()
    sizes: list[int] = []

    def run_all(jobs: list[Job[int]]) -> None:
        sizes.append(len(jobs))
        for job in jobs:
            job.run()
        time.sleep(0.001)
        if ill.is_set():
            raise OSError("disk full")

    group = Group[int](run_all)
    assert 1 == group.do(lambda: 1)
    ill.set()

    def task() -> None:
        for _ in range(10):
            with pytest.raises(OSError, match="disk full"):
                group.do(lambda: 1)

    run(*[task] * THREADS)
    ill.clear()
    assert 2 == group.do(lambda: 2)
    assert THREADS * 10 + 2 == sum(sizes)
