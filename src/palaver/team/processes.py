"""One run of a program: a prompt in, its words out, and nothing left behind.

The program is the head of a process group of its own, so that what it starts ends with it: when its
time is up, when it is called off, and when it is done but something still holds its output open.
There is never a shell: arguments are a list.
"""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct

from palaver.team.echo import plain
from palaver.team.environment import chosen_environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from anyio.abc import ByteReceiveStream, Process

__all__ = ["Ran", "run_program"]

GRACE: Final = 2.0
"""How long a program may take to end after it was asked to, in seconds."""
_LINGER: Final = 0.5
"""How long output may come after the program itself has ended."""
_MAX_ERRORS: Final = 16 * 1024


class Ran(Struct, frozen=True):
    """What a program did: its exit status, its output, and how much of that was left out."""

    status: int
    output: str
    errors: str
    left_out: int = 0


class _Sink:
    """Takes in a stream: the first so many bytes or the last, and counts the rest."""

    def __init__(self, limit: int, told: Callable[[str], object] | None = None) -> None:
        self.data = bytearray()
        self.left_out = 0
        self._limit = limit
        self._told = told
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def drain(self, stream: ByteReceiveStream | None) -> None:
        """Take in a stream to its end."""
        if stream is None:  # pragma: no cover - it was asked for
            return
        async for chunk in stream:
            if self._told is None:  # of errors the last words matter
                self.data += chunk
                self.left_out += max(0, len(self.data) - self._limit)
                del self.data[: -self._limit]
                continue
            taken = chunk[: self._limit - len(self.data)]
            self.data += taken
            self.left_out += len(chunk) - len(taken)
            text = self._decoder.decode(taken)
            if text:
                self._told(text)

    @property
    def text(self) -> str:
        return plain(self.data.decode(errors="replace"))


async def run_program(
    argv: Sequence[str],
    prompt: str,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int,
    told: Callable[[str], object] = lambda _: None,
    started: Callable[[int], Awaitable[None]] | None = None,
) -> Ran:
    """Run a program with a prompt on standard input; `told` hears its output as it comes.

    Without `env` it gets the basic variables of our own environment, and nothing else of it.
    `started` gets its process number before the program gets its prompt. `OSError` where it can't
    be started. When this is called off, the program and all it started are ended first.
    """
    process = await anyio.open_process(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=chosen_environment() if env is None else env,
        start_new_session=True,
    )
    output, errors = _Sink(max_output, told), _Sink(_MAX_ERRORS)
    try:
        if started is not None:
            await started(process.pid)
        async with anyio.create_task_group() as group:
            silent = anyio.Event()
            group.start_soon(_feed, process, prompt.encode())
            group.start_soon(_hear, process, output, errors, silent)
            await process.wait()
            with anyio.move_on_after(_LINGER):
                await silent.wait()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    return Ran(process.returncode or 0, output.text, errors.text, output.left_out)


async def _feed(process: Process, data: bytes) -> None:
    """Give the program its prompt; one that does not want it all is free not to read it."""
    if process.stdin is None:  # pragma: no cover - it was asked for
        return
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await process.stdin.send(data)
    with suppress(OSError):
        await process.stdin.aclose()


async def _hear(process: Process, output: _Sink, errors: _Sink, silent: anyio.Event) -> None:
    """Take in both streams to their ends."""
    async with anyio.create_task_group() as group:
        group.start_soon(output.drain, process.stdout)
        group.start_soon(errors.drain, process.stderr)
    silent.set()


async def _end(process: Process) -> None:
    """End the whole group: asked first, then made to."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(GRACE):
            await process.wait()
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    await process.wait()
    await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:  # pragma: no cover - Windows
            process.send_signal(number)
