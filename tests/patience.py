"""How long tests wait: generous, so that it says nothing about speed."""

from __future__ import annotations

import faulthandler
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

_LEAST: Final = 300.0
"""However little is asked for: on a busy machine one of two processes may stand still for long."""

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores.postgres.connections import PostgresConnections


@contextmanager
def within(seconds: float) -> Generator[None]:
    """End the whole run, with a traceback, if the block hangs."""
    faulthandler.dump_traceback_later(max(seconds, _LEAST), exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def set_patience(connections: PostgresConnections, seconds: float) -> None:
    """Let a store on PostgreSQL wait so long for its server from here on: not long for an error.

    A store that was opened with little patience may get its error too early, on a busy machine.
    """
    connections._patience = seconds
    for line in connections._idle:
        line.limit = seconds / 2
