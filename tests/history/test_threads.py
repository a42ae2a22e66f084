"""Many threads, one history: nothing is lost, nothing is seen half done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.history.checks import check_indexes
from tests.history.samples import begin, one

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history import BaseHistory

THREADS = 8


def run(*work: Callable[[], None]) -> None:
    """Run each in a thread of its own, all at once, and raise what any of them raises."""
    start = threading.Barrier(len(work))
    failures: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        start.wait()
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for failure in failures:
        raise failure


def test_eight_threads_append_and_edit_and_nothing_is_lost() -> None:
    history = begin("s0")

    def work(name: int) -> Callable[[], None]:
        def task() -> None:
            for number in range(100):
                history.append(one(f"u{name}-{number}"))
                if number % 5 == 0:
                    history.insert(0, [one(f"a{name}-{number}")])
                if number % 7 == 0:
                    history.extend([one(f"t{name}-{number}"), one(f"t{name}+{number}")])
                if number % 10 == 0:
                    history.filter()

        return task

    run(*map(work, range(THREADS)))
    each = 100 + 20 + 2 * 15
    assert THREADS * each + 1 == len(history) == len(history.log)
    assert len(history) == len({message.id for message in history})
    assert THREADS * (100 + 20 + 15 + 10) == history.version
    assert THREADS * (20 + 10) == history.batch_index
    check_indexes(history)
    for name in range(THREADS):  # what one thread said stands in the order in which it said it
        mine = [m.id for m in history.by_role("user") if m.id.startswith(f"u{name}-")]
        assert [f"u{name}-{number}" for number in range(100)] == mine


def test_readers_never_see_half_a_change() -> None:
    history = begin("u0")
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            history.extend([one(f"u{number}a"), one(f"a{number}b")])
            if number % 3 == 0:
                history.truncate(keep_first=1)
            if number % 5 == 0:
                history.undo()
        done.set()

    def read() -> None:
        while not done.is_set():
            view = history.view
            assert 1 == len(view) % 2
            messages = list(view)
            assert len(messages) == len(view) == view.stats.total_messages
            assert [m for m in messages if m.role == "user"] == view.by_role("user")
            assert messages[-1] in view
            assert view == history.at(view.version)

    run(write, *[read] * 4)


def test_versions_have_no_gaps() -> None:
    history = begin()

    def work() -> None:
        for _ in range(200):
            history.append(one("u1"))

    run(*[work] * THREADS)
    assert list(range(THREADS * 200 + 1)) == [
        len(history.at(v)) for v in range(history.version + 1)
    ]


def test_forks_merges_and_erasures_do_not_wait_for_each_other_for_ever() -> None:
    history = begin("u0")
    forks = [history.fork() for _ in range(3)]

    def work(fork: BaseHistory, name: int) -> Callable[[], None]:
        def task() -> None:
            for number in range(20):
                fork.append(one(f"u{name}-{number}"))
                history.merge(fork)
                fork.merge(history)
                fork.fork().append(one(f"t{name}-{number}"))
                if number % 5 == 0:
                    history.erase(f"u{name}-{number}")

        return task

    run(*[work(fork, name) for name, fork in enumerate(forks)])
    assert 61 == len(history) == len({message.id for message in history})
    check_indexes(history)
    for name, fork in enumerate(forks):
        assert 20 == sum(m.id.startswith(f"u{name}-") for m in fork)
        assert [""] * 4 == [
            message.text
            for message in fork
            if message.id in {f"u{name}-{number}" for number in (0, 5, 10, 15)}
        ]
