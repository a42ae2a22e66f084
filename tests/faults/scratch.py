"""Where the campaigns put their stores: in memory, if the machine has such a disk."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["scratch"]

_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder of its own is made in it


@contextmanager
def scratch() -> Generator[Path]:
    """A folder that is gone afterwards."""
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="palaver-faults-", dir=where) as folder:
        yield Path(folder)
