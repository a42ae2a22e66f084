"""The worker threads of asynchronous adapters: what comes back, what a loop may do meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from typing import Any

import pytest

import palaver
from palaver.adapters import _worker_threads
from palaver.adapters._worker_threads import (
    Patience,
    _Job,
    is_local,
    patience_with,
    run_cancellable,
    run_to_end,
)
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend

LONG = 30.0
KINDS = [run_cancellable, run_to_end]
PATIENCES = [None, 0.0, LONG]


@pytest.mark.parametrize("run", KINDS)
@pytest.mark.parametrize("seconds", PATIENCES)
def test_a_result_and_an_error_come_back(run: Any, seconds: float | None) -> None:
    """From another thread, which sees the task's context variables."""
    who = ContextVar("who", default="nobody")
    patience = None if seconds is None else Patience(seconds)

    def work() -> tuple[str, int]:
        return who.get(), threading.get_ident()

    def fail() -> None:
        raise LookupError("no")

    async def go() -> None:
        who.set("ann")
        for _ in range(40):
            found, thread = await run(work, patience)
            assert "ann" == found
            assert threading.get_ident() != thread
            with pytest.raises(LookupError, match="no"):
                await run(fail, patience)

    asyncio.run(go())


def test_who_waits_for_each_result_is_served_by_one_thread() -> None:
    """A thread has a connection of its own to read through, which is warm the second time."""

    async def ask() -> set[int]:
        return {await run_to_end(threading.get_ident) for _ in range(50)}

    seen = asyncio.run(ask())
    assert len(seen) == 1
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("to_end", [True, False])
def test_a_cancelled_task_waits_for_what_runs_to_its_end_and_abandons_the_rest(
    to_end: bool,  # noqa: FBT001 - a case
) -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(10)
        ended.set()

    async def ask() -> bool:
        task = asyncio.create_task((run_to_end if to_end else run_cancellable)(work))
        await asyncio.to_thread(began.wait, 10)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        try:
            await task
        except asyncio.CancelledError:
            return ended.is_set()
        return ended.is_set()

    assert to_end == asyncio.run(ask())
    go_on.set()
    assert ended.wait(10)


def test_more_work_than_threads_is_all_done() -> None:
    """What finds no thread waits for one; and there are several at once."""
    together = threading.Barrier(3)

    async def go() -> list[int]:
        meeting = [run_to_end(lambda: together.wait(LONG)) for _ in range(3)]
        many = [run_to_end(lambda: time.sleep(0.001)) for _ in range(300)]
        return [len(await asyncio.gather(*meeting)), len(await asyncio.gather(*many))]

    assert [3, 300] == asyncio.run(go())


def test_a_loop_waits_only_a_moment_for_a_thread() -> None:
    """The work ends because another task of the loop lets it; after that the loop waits less."""
    go_on = threading.Event()
    patience = Patience(0.001)

    async def let_go() -> None:
        go_on.set()

    async def go() -> bool:
        other = asyncio.create_task(let_go())
        found = await run_to_end(lambda: go_on.wait(LONG), patience)
        await other
        return found

    assert asyncio.run(go())
    done, endless = _Job(list), _Job(list)
    done.report()

    def waits(job: _Job) -> bool:
        return patience.is_tried() and patience.wait(job)

    assert [False, False, True] == [waits(done) for _ in range(3)]
    for pause in (2, 4, 8, 16, 32, 64, 64):
        tries = [waits(endless) for _ in range(pause + 1)]
        assert not any(tries)
    assert patience.wait(done)


def test_a_thread_stays_on_the_processor_of_the_loop_only_while_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the loop goes on without it, the thread may run wherever the loop may."""
    everywhere = os.sched_getaffinity(0)
    here = max(everywhere)
    monkeypatch.setattr(_worker_threads, "_processor", lambda: here)
    go_on = threading.Event()

    def allowed() -> set[int]:
        return os.sched_getaffinity(threading.get_native_id())

    def slow() -> set[int]:
        go_on.wait(LONG)
        return allowed()

    async def go() -> None:
        patience = Patience(LONG, together=True)
        assert {here} == await run_to_end(allowed, patience)
        assert everywhere == await run_to_end(allowed)
        assert {here} == await run_to_end(allowed, patience)
        asyncio.get_running_loop().call_later(0.01, go_on.set)
        hasty = Patience(0.001, together=True)
        assert everywhere == await run_to_end(slow, hasty)
        assert everywhere == await run_to_end(allowed, hasty)  # it is not waited for
        assert everywhere == await run_to_end(allowed, Patience(LONG))
        with monkeypatch.context() as patch:
            patch.setattr(os, "sched_setaffinity", _refused)
            assert everywhere == await run_to_end(allowed, patience)
        with monkeypatch.context() as patch:
            patch.setattr(_worker_threads, "_processor", lambda: -1)  # it is not known
            assert everywhere == await run_to_end(allowed, patience)

    asyncio.run(go())
    assert everywhere == os.sched_getaffinity(0)


def test_only_a_store_on_this_machine_is_waited_for() -> None:
    """Another answers too late, and a thread that it starts would stay where the worker is."""
    with palaver.open(":memory:") as store:
        assert is_local(store)
        assert patience_with(store, 1) is not None

        class Elsewhere(MemoryBackend):
            pass

        assert patience_with(Store(Elsewhere()), 1) is None
    assert patience_with(None, 1) is None


def _refused(*_: object) -> None:
    raise PermissionError


def test_a_byte_that_nobody_waited_for_wakes_nobody_too_early() -> None:
    """It was for a job before; the job after it is waited for until it is done, or as long."""
    job = _Job(list)
    worker = job.worker = _worker_threads._Worker(_worker_threads._Pool())
    signal = worker.signal
    assert signal is not None
    for _ in range(3):
        signal.send()
    assert not job.wait(0.01)
    for _ in range(100_000):  # more than the pipe takes
        signal.send()
    timer = threading.Timer(0.05, job.report)
    timer.start()
    assert job.wait(LONG)
    timer.join()
    worker.give(None)
    worker.thread.join()
    worker.close()


def test_a_pipe_that_select_cannot_take_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_worker_threads, "_MAX_FILE", -1)

    async def go() -> list[int]:
        patience = Patience(LONG)
        return [await run_to_end(lambda: number, patience) for number in range(30)]  # noqa: B023 - run at once

    assert list(range(30)) == asyncio.run(go())


def test_a_task_that_works_without_a_break_lets_others_in() -> None:
    """The loop need not be woken for any of it, and yet it looks at its other tasks."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def go() -> None:
        patience = Patience(LONG)
        other = asyncio.create_task(count())
        for _ in range(100):
            await run_to_end(lambda: None, patience)
        other.cancel()

    asyncio.run(go())
    assert turns >= 5


PROGRAM = """
import asyncio, os, time
from palaver.adapters._worker_threads import run_in_background, run_to_end

def slow():
    time.sleep(0.2)
    print("done", flush=True)

assert asyncio.run(run_to_end(lambda: 1)) == 1
time.sleep(0.1)  # the thread is idle now
if os.fork() == 0:
    assert asyncio.run(run_to_end(lambda: 2)) == 2
    print("child", flush=True)
    os._exit(0)
os.wait()
run_in_background(slow)
"""


def test_a_child_has_threads_of_its_own_and_work_ends_before_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert ["child", "done"] == done.stdout.split()
