"""The clock that leases are measured with, where the store has no server that has one.

All users of a SQLite file are on one machine (a write-ahead log is shared memory), so the machine's
monotonic clock is the same for all of them and nobody can set it. It begins anew when the machine
does: the boot id says which start a time belongs to, and leases of another start have run out.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

__all__ = ["boot_id", "monotonic_ms", "taken_by"]


def monotonic_ms() -> int:
    """The machine's monotonic clock, in whole milliseconds: the same in all its processes."""
    return time.monotonic_ns() // 1_000_000


@cache
def boot_id() -> str:
    """What is the same until the machine starts again; empty where the system has no such thing.

    Without one, a lease that outlived a restart is known by beginning in the future.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def taken_by(holder: str, left: int) -> str:
    """What `LeaseTaken` says: who has it, and for how many milliseconds more."""
    return f"{holder} has the lease for another {max(left, 0) / 1_000:.3f} s"
