"""Threads share a transaction, and each gets its own result."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

import palaver
from palaver.errors import StoreError
from palaver.messages import user
from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.sqlite.connections import GroupCommit, Job
from tests.history.test_threads import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import apsw

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


def test_a_single_writer_runs_at_once() -> None:
    runs = Runs()
    group = GroupCommit(runs)
    assert [0, 1, 4] == [group.do(lambda n=n: n * n) for n in range(3)]  # type: ignore[misc]
    assert [1, 1, 1] == runs.sizes


def test_eight_threads_share_runs_and_each_has_its_answer() -> None:
    runs = Runs(seconds=0.002)
    group = GroupCommit(runs)
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
    group = GroupCommit(Runs(seconds=0.001))
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

    group = GroupCommit(run_all)
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


class Interrupting(Runs):
    """What runs jobs, and is interrupted once: before its end, or just after it."""

    def __init__(self, *, ended: bool) -> None:
        super().__init__()
        self.ended = ended
        self.left = 1
        self.full = threading.Event()

    def __call__(self, jobs: list[Job[int]]) -> None:
        super().__call__(jobs)
        if len(jobs) > 1 and self.left:
            self.left -= 1
            for job in jobs:
                job.committed = self.ended
            raise KeyboardInterrupt


def interrupted(runs: Runs, *, again: bool = True) -> tuple[list[str], list[int]]:
    """Eight threads, one that runs and seven that wait; what each came to, and what was done."""
    group = GroupCommit(runs)
    hold, held = threading.Event(), threading.Event()
    outcomes: list[str] = []
    done: list[int] = []

    def first() -> None:
        def work() -> int:
            held.set()
            assert hold.wait(30)
            return 0

        outcomes.append(str(group.do(work)))

    def work(number: int) -> Callable[[], None]:
        def job() -> int:
            done.append(number)
            return number

        def task() -> None:
            assert held.wait(30)
            try:
                outcomes.append(str(group.do(job, again=again)))
            except KeyboardInterrupt:
                outcomes.append("interrupted")
            except StoreError as error:
                outcomes.append(str(error))

        return task

    def release() -> None:
        assert held.wait(30)
        while len(group._queue) < THREADS - 1:
            time.sleep(0.001)
        hold.set()

    run(first, *map(work, range(1, THREADS)), release)
    assert 9 == group.do(lambda: 9)  # and it goes on
    return sorted(outcomes), done


def test_an_interrupt_is_the_leaders_alone_and_the_others_go_on() -> None:
    outcomes, done = interrupted(Interrupting(ended=False))
    assert 1 == outcomes.count("interrupted")
    assert THREADS - 1 == len([outcome for outcome in outcomes if outcome.isdecimal()])
    assert 2 * (THREADS - 1) - 1 == len(done)  # all but the leader's are done again


def test_what_was_committed_before_an_interrupt_is_not_repeated() -> None:
    outcomes, done = interrupted(Interrupting(ended=True))
    assert 1 == outcomes.count("interrupted")
    assert THREADS - 1 == len([outcome for outcome in outcomes if outcome.isdecimal()])
    assert list(range(1, THREADS)) == sorted(done)


def test_what_can_not_be_done_again_says_so() -> None:
    outcomes, done = interrupted(Interrupting(ended=False), again=False)
    assert 1 == outcomes.count("interrupted")
    again = "another thread was interrupted, and nothing was stored: do it again"
    assert THREADS - 2 == outcomes.count(again)
    assert list(range(1, THREADS)) == sorted(done)


def test_who_is_interrupted_while_waiting_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupCommit(Runs())
    hold, held = threading.Event(), threading.Event()
    lock = threading.Lock

    class Nervous:
        """A lock that is interrupted while it is waited for."""

        def __init__(self) -> None:
            self.inner = lock()
            self.times = 0

        def acquire(self) -> bool:
            self.times += 1
            if self.times > 1:
                raise KeyboardInterrupt
            return self.inner.acquire()

        def release(self) -> None:
            self.inner.release()

    def first() -> None:
        def work() -> int:
            held.set()
            assert hold.wait(30)
            return 0

        assert 0 == group.do(work)

    def second() -> None:
        assert held.wait(30)
        monkeypatch.setattr(threading, "Lock", Nervous)
        try:
            with pytest.raises(KeyboardInterrupt):
                group.do(lambda: pytest.fail("nobody waits for it"))
        finally:
            monkeypatch.undo()
            hold.set()

    run(first, second)
    assert 1 == group.do(lambda: 1)


class Interrupted:
    """A connection, and an interrupt that comes just after a statement."""

    def __init__(self, inner: apsw.Connection, place: str) -> None:
        self.inner, self.place = inner, place

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def execute(self, statement: str, *values: Any) -> object:  # noqa: ANN401 - handed on
        found = self.inner.execute(statement, *values)
        if statement == self.place:
            raise KeyboardInterrupt
        return found


def test_who_writes_alone_gives_the_turn_back_without_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupt comes at the beginning of a call, and would keep everybody waiting for good."""
    group = GroupCommit(Runs())
    monkeypatch.setattr(group, "_pass_on", None)
    assert [0, 1] == [group.do(lambda: n, atomic=True) for n in range(2)]  # noqa: B023 - run at once


def test_an_interrupt_in_the_store_leaves_it_usable(path: Path) -> None:
    """As above, with real transactions."""
    with palaver.open(path) as store:
        history = store.create()
        backend = store.backend
        assert isinstance(backend, SQLiteBackend)
        connections = backend._connections
        for place in ("BEGIN IMMEDIATE", "COMMIT"):
            writer = connections.writer
            connections.writer = cast("Any", Interrupted(writer, place))
            with pytest.raises(KeyboardInterrupt):
                history.extend([user("one"), user("two")], records=[("note", "one", b"1")])
            connections.writer = writer
            history = store.get(history.id)
            assert (2 if place == "COMMIT" else 0) == len(history)
            assert [] == list(store.verify())
            jobs = [Job(lambda: 0, atomic=True) for _ in range(2)]
            connections.writer = cast("Any", Interrupted(writer, place))
            with pytest.raises(KeyboardInterrupt):
                connections.run_all(jobs)
            connections.writer = writer
            assert [place == "COMMIT"] * 2 == [job.committed for job in jobs]


# ── holding ─────────────────────────────────────────────────────────────────────────────────────


def test_a_hold_keeps_the_others_waiting() -> None:
    """Who came before is done first, and who came after waits for the release."""
    group = GroupCommit(Runs())
    order: list[str] = []
    go = threading.Event()

    def lead() -> int:
        go.wait()
        order.append("leader")
        return 0

    def noted(name: str) -> Callable[[], object]:
        def work() -> int:
            order.append(name)
            return 0

        return lambda: group.do(work)

    def hold() -> None:
        assert group.hold()
        order.append("held")
        late.start()
        while len(group._queue) < 1:
            time.sleep(0.001)
        order.append("released")
        group.release()

    late = threading.Thread(target=noted("late"))
    tasks = (lambda: group.do(lead), noted("before"), hold, noted("after"))
    threads = [threading.Thread(target=task) for task in tasks]
    threads[0].start()
    while not group._busy:
        time.sleep(0.001)
    for place, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(group._queue) < place:
            time.sleep(0.001)
    go.set()
    for thread in (*threads, late):
        thread.join()
    assert ["leader", "before", "held", "released"] == order[:4]
    assert {"after", "late"} == set(order[4:])


def test_a_hold_that_takes_too_long_is_given_up() -> None:
    group = GroupCommit(Runs())
    go = threading.Event()
    thread = threading.Thread(target=lambda: group.do(lambda: int(go.wait())))
    thread.start()
    while not group._busy:
        time.sleep(0.001)
    assert not group.hold(0.01)
    go.set()
    thread.join()
    assert 7 == group.do(lambda: 7)
    assert group.hold(0.01)
    assert not group.hold(0.01)
    group.release()
    assert 8 == group.do(lambda: 8, atomic=True)
