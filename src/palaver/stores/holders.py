"""Who holds a lease: a name of its own for each process, and whether that process still runs.

Leases are measured by the machine's monotonic clock. They end by themselves, since a process may be
killed; where it ran on this machine, that can be seen at once.
"""

from __future__ import annotations

import os
import platform
import re
import time
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from palaver.errors import LeaseHolder
from palaver.messages.ids import new_id, now_ms

__all__ = [
    "boot_id",
    "describe_holder",
    "has_ended",
    "holder_name",
    "monotonic_ms",
    "process_mark",
    "process_of",
]

_START_TIME: Final = 19  # the index of the start time in /proc/…/stat, after the name
_DEAD: Final = frozenset("XZ")  # the states of a process that was killed
_LONGEST_HOST: Final = 100
_HOLDER: Final = re.compile(r"(process \d+ on .+) ([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f-]{21}")


def monotonic_ms() -> int:
    """Return the machine's monotonic clock in milliseconds; all its processes share it."""
    return time.monotonic_ns() // 1_000_000


@cache
def boot_id() -> str:
    """Return an id that stays the same until the machine restarts; empty if there is none.

    Without one, a lease that outlived a restart is recognised because it begins in the future.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def process_mark(pid: int) -> str | None:
    """Identify a running program by boot, process id and start time; None if not on Linux.

    A process id alone is used again after a while.
    """
    facts = _process_facts(pid)
    return f"{boot_id()}/{pid}/{facts[_START_TIME]}" if facts else None


def _process_facts(pid: int) -> list[str]:
    """Read what Linux knows of a process, from its state on; nothing if there is none."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return said.rpartition(")")[2].split()  # the name may contain spaces and brackets


@lru_cache(maxsize=1)
def _mark_of(pid: int) -> str | None:
    """Identify this process and the space that its id is counted in, such as a container's."""
    mark = process_mark(pid)
    try:
        return None if mark is None else f"{Path('/proc/self/ns/pid').readlink()} {mark}"
    except OSError:
        return None


def process_of(holder: str) -> str | None:
    """Identify this process, where it alone goes on with the lease of a holder; else None.

    >>> process_of("anna") is None
    True
    """
    return _mark_of(os.getpid()) if _HOLDER.fullmatch(holder) else None


def has_ended(process: str | None) -> bool:
    """Tell whether the process that `process_of` identified is known to have ended.

    That of another machine, another start of this one or another container is not known here.

    >>> has_ended(process_of(holder_name()))
    False
    """
    space, _, mark = (process or "").rpartition(" ")
    here = _mark_of(os.getpid())
    if not space or here is None or here.partition(" ")[0] != space:
        return False
    try:
        boot, pid, started = mark.split("/")
        facts = _process_facts(int(pid))
    except ValueError:  # a damaged file
        return False
    if boot != boot_id():
        return False
    if not facts:  # it has ended, or it is hidden, or no more files can be opened here
        return not _exists(int(pid))
    return facts[0] in _DEAD or facts[_START_TIME] != started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or a damaged file has no such number
        pass
    return True


def holder_name() -> str:
    """Return a new name for who takes a lease: the process, the machine, and an id with the time.

    >>> holder_name() == holder_name()
    False
    """
    host = "".join(c if c.isprintable() else "_" for c in platform.node())[:_LONGEST_HOST]
    return f"process {os.getpid()} on {host or 'this machine'} {new_id()}"


def describe_holder(holder: str, left: int) -> LeaseHolder:
    """Return what `LeaseTaken` says: who holds the lease, and for how many milliseconds more.

    >>> describe_holder("anna", 3_000)[0], describe_holder(holder_name(), 3_000).since is None
    ('anna', False)
    """
    left, since = max(left, 0), None
    if made := _HOLDER.fullmatch(holder):  # the time is the beginning of the id
        holder, since = made[1], int(made[2] + made[3], 16)
    return LeaseHolder(holder, since, now_ms() + left, left)
