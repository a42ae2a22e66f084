"""Holding a conversation while something is done with it: a model asked, or tools at work.

The lease is renewed as long as the work goes on, however long that is. Where it is lost all the
same, somebody else has taken over: the work stops, and what it would still write is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from palaver.conversation.desk import LEASE_SECONDS
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation.desk import Desk

__all__ = ["while_held"]

_T = TypeVar("_T")


async def while_held(desk: Desk, work: Callable[[], Awaitable[_T]]) -> _T:
    """Do something while the lease is renewed; where it is lost, the work stops."""
    failure: Exception | None = None
    done: list[_T] = []

    async def renew(scope: anyio.CancelScope) -> None:
        nonlocal failure
        try:
            while True:
                await anyio.sleep(LEASE_SECONDS / 3)
                await to_thread.run_sync(desk.renew)
        except PalaverError as lost:
            failure = lost
            scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(renew, group.cancel_scope)
        try:
            done.append(await work())
        except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return done[0]
