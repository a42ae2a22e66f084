"""Processes that may be killed: forked from one that has everything loaded and no threads.

    with Nursery() as nursery:
        status = nursery.run("tests.faults.kills:child", [path, 7], ledger, lines=3, grace=0.001)

A job tells what it did by lines in its ledger file: what it wrote is there, however it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["HUNG", "KILLED", "Ledger", "Nursery"]

KILLED: Final = -signal.SIGKILL
HUNG: Final = 1_000
"""What `Nursery.run` answers for a job that had to be ended after its time limit."""


class Ledger:
    """Lines of a job. Each is one write, so it is there whole or not at all."""

    def __init__(self, path: str) -> None:
        """Add to a file."""
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, line: str) -> None:
        """Add a line."""
        os.write(self._file, f"{line}\n".encode())


class Nursery:
    """A process that forks others."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parent.parent.parent,
            text=True,
        )

    def __enter__(self) -> Self:
        """End it with the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it end."""
        self._process.communicate()

    def run(
        self,
        job: str,
        args: Sequence[object],
        ledger: Path,
        *,
        lines: int | None = None,
        grace: float = 0,
        limit: float = 60,
    ) -> int:
        """Run a job to its end, or kill it some time after so many lines; answer how it ended."""
        (status,) = self.run_all(job, [args], ledger, lines=lines, grace=grace, limit=limit)
        return status

    def run_all(
        self,
        job: str,
        args: Sequence[Sequence[object]],
        ledger: Path,
        *,
        lines: int | None = None,
        grace: float = 0,
        limit: float = 60,
    ) -> list[int]:
        """Run a job several times at once, with different arguments."""
        order = {
            "job": job, "args": args, "ledger": str(ledger), "lines": lines, "grace": grace,
            "limit": limit,
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return list(map(int, json.loads(answer)))


# ── inside the nursery ──────────────────────────────────────────────────────────────────────────


def serve(orders: TextIO, answers: TextIO) -> None:
    """Carry out orders until there are no more."""
    for line in orders:
        order: dict[str, Any] = json.loads(line)
        module, _, function = order["job"].partition(":")
        job = getattr(importlib.import_module(module), function)
        children = [_fork(job, args, order["ledger"]) for args in order["args"]]
        if order["lines"] is not None:
            _await_lines(Path(order["ledger"]), order["lines"], children[0], order["limit"])
            time.sleep(order["grace"])
            for child in children:
                os.kill(child, signal.SIGKILL)
        end = time.monotonic() + order["limit"]
        answers.write(json.dumps([_status(child, end) for child in children]) + "\n")
        answers.flush()


def _fork(job: Any, args: list[Any], ledger: str) -> int:  # noqa: ANN401 - a function and what it takes
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        job(Ledger(ledger), *args)
        status = 0
    except BaseException:  # noqa: BLE001 - it is told, and the process ends
        Ledger(ledger).write("raised " + json.dumps(traceback.format_exc()))
    finally:
        os._exit(status)


def _await_lines(ledger: Path, lines: int, child: int, limit: float) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if ledger.exists() and ledger.read_bytes().count(b"\n") >= lines:
            return
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.0002)


def _status(child: int, end: float) -> int:
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
