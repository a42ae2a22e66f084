"""Worker threads for asynchronous adapters: a store may wait for its disk, and a loop must not.

The threads stay, whichever loop or task they work for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_cancellable", "run_to_end"]

_T = TypeVar("_T")


@cache
def _pool() -> ThreadPoolExecutor:
    """The worker threads; the loop's default executor would cost two more futures per call."""
    return ThreadPoolExecutor(thread_name_prefix="palaver-adapters")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads don't survive a fork


class _Uncancellable(asyncio.Future[Any]):
    """A future that ignores cancellation: a cancelled task learns of it when the work is done."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the signature of Future
        """Ignore the cancellation."""
        return False


async def run_cancellable(work: Callable[[], _T]) -> _T:
    """Run some work on a worker thread; it is abandoned when the task is cancelled."""
    return await _run(work, asyncio.get_running_loop().create_future())


async def run_to_end(work: Callable[[], _T]) -> _T:
    """Run some work on a worker thread to its end, even if the task is cancelled."""
    return await _run(work, _Uncancellable(loop=asyncio.get_running_loop()))


async def _run(work: Callable[[], _T], done: asyncio.Future[Any]) -> _T:
    loop = done.get_loop()

    def report(outcome: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def run_and_report() -> None:
        try:
            outcome: Any = work(), None
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(report, outcome)

    _pool().submit(copy_context().run, run_and_report)
    value, error = await done
    if error is not None:
        try:
            raise error
        finally:
            error = None  # it holds this frame
    return value  # type: ignore[no-any-return]
