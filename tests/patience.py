"""A guard against hanging: generous, so that it says nothing about speed."""

from __future__ import annotations

import faulthandler
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

_LEAST: Final = 300.0
"""However little is asked for: on a busy machine one of two processes may stand still for long."""

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def within(seconds: float) -> Generator[None]:
    """End the whole run, with a traceback, if the block hangs."""
    faulthandler.dump_traceback_later(max(seconds, _LEAST), exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
