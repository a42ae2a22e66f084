"""Worker threads of the adapters: one serves whoever waits, several serve many, none is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from palaver.adapters._worker_threads import run_cancellable, run_to_end


def test_who_waits_for_each_result_is_served_by_one_thread() -> None:
    """A thread has a connection of its own to read through, which is warm the second time."""

    async def ask() -> set[int]:
        return {await run_to_end(threading.get_ident) for _ in range(50)}

    seen = asyncio.run(ask())
    assert len(seen) == 1
    assert threading.get_ident() not in seen


def test_more_work_than_threads_waits_for_them_and_is_done() -> None:
    def work(number: int) -> int:
        time.sleep(0.002)
        return number

    async def ask() -> list[int]:
        asked = (run_cancellable(partial(work, number)) for number in range(150))
        return await asyncio.gather(*asked)

    assert list(range(150)) == asyncio.run(ask())


def test_an_error_is_raised_where_the_result_is_awaited() -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    async def ask() -> None:
        await run_to_end(fail)

    with pytest.raises(LookupError, match="no such thing"):
        asyncio.run(ask())


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


_ABANDONED = """
import asyncio, time
from palaver.adapters._worker_threads import run_cancellable

def work():
    time.sleep(0.2)
    print("done", flush=True)

async def ask():
    task = asyncio.ensure_future(run_cancellable(work))
    await asyncio.sleep(0.05)
    task.cancel()

asyncio.run(ask())
"""


def test_what_is_under_way_is_finished_before_the_program_ends() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _ABANDONED], capture_output=True, text=True, timeout=60, check=True
    )
    assert ("done\n", "") == (ran.stdout, ran.stderr)
