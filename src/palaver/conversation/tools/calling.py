"""Calling a function of any kind: async ones in the loop, plain ones in a thread.

A thread can't be stopped. One that is given up runs on by itself and is in nobody's way: a call
never waits for a thread, so that tools that hang keep neither the store nor other tools waiting,
nor the process from ending.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
from anyio.lowlevel import current_token

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

    found = await _in_a_thread(in_thread)
    return as_output(await found, context) if inspect.isawaitable(found) else found


async def _in_a_thread(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it gives
    done, loop = anyio.Event(), cast("Any", current_token().native_token)
    # asyncio's word for it, or trio's; neither waits for the loop
    soon: Callable[..., object] = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    value: Any = None
    failure: BaseException | None = None

    def run() -> None:
        nonlocal value, failure
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised again, in the loop
            failure = error

    def over() -> None:
        with suppress(RuntimeError):  # it was given up, and the loop is gone
            soon(done.set)

    _worker().put((partial(copy_context().run, run), over))
    await done.wait()
    if failure is not None:
        raise failure
    return value


_Work: TypeAlias = "SimpleQueue[tuple[Callable[[], None], Callable[[], None]]]"
"""What a thread is to do, and whom to tell when it can be asked again."""
_MOST: Final = 32
_idle: Final[deque[_Work]] = deque()
"""The threads that have nothing to do and wait for more; one that hangs never comes back here."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads stay with the parent


def _worker() -> _Work:
    """A thread that has nothing to do, by the queue it takes work from."""
    try:
        return _idle.pop()
    except IndexError:
        queue: _Work = SimpleQueue()
        # a daemon: what a tool never ends, the end of the process does
        threading.Thread(target=_serve, args=(queue,), name="palaver tool", daemon=True).start()
        return queue


def _serve(queue: _Work) -> None:
    while True:
        work, tell = queue.get()
        work()
        stays = len(_idle) < _MOST
        if stays:
            _idle.append(queue)
        tell()
        if not stays:
            return
