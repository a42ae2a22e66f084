"""Calling a function of any kind: async ones in the loop, plain ones in a thread.

A thread can't be stopped. One that is given up runs on by itself, and takes nobody's place: each
call has a thread of its own, so that tools that hang never keep the store or other tools waiting.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread

from palaver.conversation.tools.outputs import as_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.conversation.tools.base import ToolContext, ToolOutput

__all__ = ["called"]


async def called(work: Callable[[], Any], context: ToolContext) -> ToolOutput:
    """Do it, wait for it, and make an output of what it gives."""
    if inspect.iscoroutinefunction(work):
        return as_output(await work(), context)

    def in_thread() -> Any:  # noqa: ANN401 - an output, or something to wait for
        value = work()
        return value if inspect.isawaitable(value) else as_output(value, context)

    found = await to_thread.run_sync(in_thread, abandon_on_cancel=True, limiter=CapacityLimiter(1))
    return as_output(await found, context) if inspect.isawaitable(found) else found
