"""After an erasure: the old versions of rows, which PostgreSQL keeps until someone cleans up.

VACUUM takes them out of the tables: no statement can reach them, but their bytes may lie in the
free space of a page until a new row is written over them. VACUUM FULL writes the tables anew and
removes the old files; nobody can read the tables meanwhile. So that is done as long as they are
small, and above that it is the administrator's to decide. What the server has written to its
write-ahead log goes when the server lets go of those files; archives and backups are out of reach.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import errors

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import Connections, Line

__all__ = ["scrub"]

_PATIENCE: Final = 5.0
_LOCKED: Final = b"SET lock_timeout = '5s'"
_TABLES: Final = ("palaver.messages", "palaver.words", "palaver.records")
_GENTLE: Final = f"VACUUM {', '.join(_TABLES)}".encode()
_THOROUGH: Final = f"VACUUM FULL {', '.join(_TABLES)}".encode()


def scrub(connections: Connections, transaction: str, rewrite: int) -> None:
    """Destroy what a transaction has replaced; tables smaller than `rewrite` are written anew."""
    try:
        with connections.dial() as line:
            _wait(line, transaction)
            line.execute(b"SET statement_timeout = 0")
            line.longest = None
            (size,) = line.execute(STATEMENTS["footprint"], (list(_TABLES),)).fetchone() or (0,)
            if size <= rewrite:
                with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
                    line.execute(_LOCKED)
                    line.execute(_THOROUGH)
                    return
            line.execute(b"SET lock_timeout = '60s'")
            line.execute(_GENTLE)
    except (psycopg.Error, StoreError) as error:
        msg = f"it is erased, but the server could not clean up; erase it again: {error}"
        raise StoreError(msg) from error


def _wait(line: Line, transaction: str) -> None:
    """Wait for those who began before the erasure: what they might still read is not removed."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        row = line.execute(STATEMENTS["readers_of_the_past"], (transaction,)).fetchone()
        if row is None or not row[0]:
            return
        time.sleep(0.01)
