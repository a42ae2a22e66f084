"""Visits to a store from worker threads, as few steps away as they can be.

A write is seen through: whoever is called off meanwhile learns that when it has ended, and so never
wonders whether it was kept. A read is simply left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["read", "seen_through"]

_T = TypeVar("_T")


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads; the loop's own would answer through two more futures, each time."""
    return ThreadPoolExecutor(thread_name_prefix="palaver-openai-agents")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind


class _Certain(asyncio.Future[Any]):
    """What is waited for to its end: a task that is cancelled meanwhile hears of it then."""

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - it is not
        """Never."""
        return False


async def read(visit: Callable[[], _T]) -> _T:
    """Visit from a worker thread; a visit that is called off is left behind."""
    return await _made(visit, asyncio.get_running_loop().create_future())


async def seen_through(visit: Callable[[], _T]) -> _T:
    """Visit from a worker thread, to its end, though the run is called off."""
    return await _made(visit, _Certain(loop=asyncio.get_running_loop()))


async def _made(visit: Callable[[], _T], done: asyncio.Future[Any]) -> _T:
    loop = done.get_loop()

    def tell(outcome: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome: Any = visit(), None
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(tell, outcome)

    _pool().submit(work)
    value, error = await done
    if error is not None:
        try:
            raise error
        finally:
            error = None  # it holds this frame
    return value  # type: ignore[no-any-return]
