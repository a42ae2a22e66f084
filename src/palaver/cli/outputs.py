"""Files that commands write: whole, or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["open_output"]


@contextmanager
def open_output(file: str) -> Generator[IO[bytes]]:
    """Open FILE to write: it takes its place when it is complete, for its owner alone to read."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    place = Path(file)
    if place.exists() and not place.is_file():  # a pipe or a device
        with place.open("wb") as stream:
            yield stream
        return
    number, name = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
