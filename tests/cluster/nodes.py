"""The servers of the cluster, to be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Node", "nodes_of"]


class Node:
    """One server, with its data on this machine."""

    def __init__(self, address: str) -> None:
        """Find out where its data and its programs are."""
        self.address = address
        with psycopg.connect(address) as line:
            (data,) = line.execute("SHOW data_directory").fetchone() or ("",)
        self._data = Path(data)
        self._installed = self._data.parent.parent

    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """Kill all its processes at once."""
        first = self._pid()
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while _is_alive(first):
            time.sleep(0.01)
        (self._data / "postmaster.pid").unlink()  # nobody may have noticed yet that it ended

    def start(self) -> None:
        """Start it, and wait until it answers; what is left of a killed one may be in its way."""
        end = time.monotonic() + 60
        while not self._begin():
            assert time.monotonic() < end, f"{self.address} does not start: see {self._data}.log"
            time.sleep(0.2)

    def _begin(self) -> bool:
        libraries = f"{self._installed}/pg/lib:{self._installed}/libs"
        owner = self._data.stat()
        begun = subprocess.run(
            [str(self._installed / "pg/bin/pg_ctl"), "-D", str(self._data), "-l",
             f"{self._data}.log", "-w", "-t", "60", "start"],
            check=False, env={**os.environ, "LD_LIBRARY_PATH": libraries}, cwd="/",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner.st_uid,
            group=owner.st_gid, extra_groups=[],
        )  # fmt: skip
        return begun.returncode == 0


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended waits for its parent to notice."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def nodes_of(coordinator: str) -> tuple[Node, list[Node]]:
    """Return the coordinator and the workers."""
    with psycopg.connect(coordinator) as line:
        found: Iterable[tuple[str, int]] = line.execute(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 ORDER BY groupid"
        ).fetchall()
    workers = [Node(f"postgresql://postgres@{name}:{port}/postgres") for name, port in found]
    return Node(coordinator), workers
