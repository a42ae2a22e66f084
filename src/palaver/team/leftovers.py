"""Programs that outlived the process that ran them: found again, and ended.

Their turn is taken anew only then, so that two of them never work at the same thing. A process
number is used again and again, so a program is known by the machine's boot, its number and the
moment it began. Where the system does not tell these (it is not Linux), nothing is ended.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["end_leftover", "mark_of"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_BEGAN: Final = 19  # the place of its beginning in /proc/…/stat, after the name


def mark_of(pid: int) -> str | None:
    """What tells a running program from all others; None where the system does not say."""
    try:
        boot = _BOOT.read_text("ascii").strip()
        # the name in it may have spaces and brackets, and ends at the last one
        facts = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return f"{boot}/{pid}/{facts[_BEGAN]}"
    except (OSError, IndexError):
        return None


def end_leftover(mark: str) -> bool:
    """End a program and its group, if it is still the very same one; tell whether it was."""
    pid = int(mark.split("/")[1])
    if mark_of(pid) != mark:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return True
