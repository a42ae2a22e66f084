"""Bringing the schema up to date: numbered files, one transaction, one process at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.sql import load_migrations

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import Line

__all__ = ["migrate"]

_PACKAGE: Final = "palaver.stores.postgres"


def migrate(line: Line, *, upto: int | None = None) -> tuple[int, int]:
    """Bring the schema to the newest version, in one transaction; answer what it was and is."""
    steps = load_migrations(_PACKAGE)
    newest = steps[-1][0] if upto is None else upto
    before = version = _version(line)
    if version > steps[-1][0]:
        msg = (
            f"the store was written by a newer palaver (schema {version}, this one knows {newest})"
        )
        raise StoreError(msg)
    if version < newest:
        with line.transaction():
            line.execute(STATEMENTS["migration_lock"])
            version = _version(line)  # another process may have been quicker
            if version < 0:
                for name in ("found", "found_store", "begin_store"):
                    line.execute(STATEMENTS[name])
            for number, statements in steps:
                if version < number <= newest:
                    line.execute(statements.encode())
            line.execute(STATEMENTS["note_version"], (max(version, newest),))
    _catch_up(line)
    return max(before, 0), max(version, newest)


def _version(line: Line) -> int:
    """The schema's version, -1 where there is none."""
    (present,) = line.execute(STATEMENTS["present"]).fetchone() or (False,)
    if not present:
        return -1
    row = line.execute(STATEMENTS["standing"]).fetchone()
    return -1 if row is None else int(row[0])


def _catch_up(line: Line) -> None:
    """Let journal numbers go on rising on a server whose transaction numbers are behind them.

    That is a server into which the store was restored from a dump: see `following`.
    """
    if _ahead(line) > 0:
        with line.transaction():
            line.execute(STATEMENTS["migration_lock"])
            ahead = _ahead(line)  # another process may have been quicker
            if ahead > 0:
                line.execute(STATEMENTS["shift"], (ahead,))


def _ahead(line: Line) -> int:
    row = line.execute(STATEMENTS["ahead"]).fetchone()
    return 0 if row is None else int(row[0])
