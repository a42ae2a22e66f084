"""A connection to the file: how it is opened, what is demanded of it, and its migrations.

WAL with `synchronous=FULL`: a commit that returned is on disk. A file that palaver makes is for its
owner alone (0600), and so are the two files that SQLite puts beside it.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from palaver.errors import StoreDamaged, StoreError, StoreMoved
from palaver.stores.sql import load_migrations

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["APPLICATION", "connect", "identity", "migrate", "patient", "schema_of"]

APPLICATION: Final = 0x70616C76  # "palv", in the file's header: this file is palaver's
_PATIENCE: Final = 60.0
_PACKAGE: Final = "palaver.stores.sqlite"


def identity(path: str) -> tuple[int, int] | None:
    """What tells a file from every other, whatever it is called; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(
    path: str, *, vfs: str | None = None, expected: tuple[int, int] | None = None
) -> apsw.Connection:
    """Open the file, and make it if need be.

    Where a certain file is `expected`, by its identity, no other is made or touched: `StoreMoved`.
    """
    if expected is not None:
        return _configured(_same(path, vfs, expected), path)
    if vfs is None and not Path(path).exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            msg = f"{path} can't be made: {error.strerror}"
            raise StoreError(msg) from None
        _sync_folder(path)
    return _configured(apsw.Connection(path, vfs=vfs, statementcachesize=128), path)


def _same(path: str, vfs: str | None, expected: tuple[int, int]) -> apsw.Connection:
    """A connection to a file that is there, and is the one that is expected."""
    msg = f"{path} is not the file that was opened"
    try:
        connection = apsw.Connection(
            path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs, statementcachesize=128
        )
    except apsw.CantOpenError:
        if identity(path) == expected:
            raise
        raise StoreMoved(msg) from None
    if identity(path) != expected:
        connection.close()
        raise StoreMoved(msg)
    return connection


def _configured(connection: apsw.Connection, path: str) -> apsw.Connection:
    if connection.readonly("main") and os.access(path, os.W_OK):
        connection.close()  # SQLite tries that where opening failed, and then never writes
        msg = f"{path} could not be opened for writing"
        raise StoreError(msg)
    connection.set_busy_handler(patient())
    try:
        schema_of(connection)  # what is not ours is left as it is
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA secure_delete = ON")
    except (apsw.NotADBError, apsw.CorruptError) as error:
        connection.close()
        msg = f"{path} is not a palaver store: {error}"
        raise StoreDamaged(msg) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _sync_folder(path: str) -> None:
    """Put a new file's name on disk: SQLite does so only when it makes a file there itself."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError:  # some file systems have no such thing for folders
        pass
    finally:
        os.close(folder)


def patient() -> Callable[[int], bool]:
    """A busy handler that waits a minute, a little longer each time, never in step with others."""
    began = 0.0

    def wait(times: int) -> bool:
        nonlocal began
        if not times:
            began = time.monotonic()
        if time.monotonic() - began > _PATIENCE:
            return False
        time.sleep(min(0.0005 * 2 ** min(times, 6), 0.03) * (0.5 + random.random()))  # noqa: S311 - no secret
        return True

    return wait


def migrate(connection: apsw.Connection, *, upto: int | None = None) -> int:
    """Bring the schema to the newest version, in one transaction; answer the version."""
    steps = load_migrations(_PACKAGE)
    newest = steps[-1][0] if upto is None else upto
    version = schema_of(connection)
    if version == newest:
        return version
    if version > steps[-1][0]:
        name = connection.filename
        msg = f"{name} was written by a newer palaver (schema {version}, this one knows {newest})"
        raise StoreError(msg)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_of(connection)  # another process may have been quicker
        for number, statements in steps:
            if version < number <= newest:
                connection.execute(statements)
        connection.execute(f"PRAGMA user_version = {newest:d}")
        connection.execute(f"PRAGMA application_id = {APPLICATION:d}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return newest


def schema_of(connection: apsw.Connection) -> int:
    """The version of the schema; 0 for a file that is new."""
    version = int(connection.pragma("user_version"))
    known = int(connection.pragma("application_id"))
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if known != APPLICATION and tables and tables[0]:
        msg = f"{connection.filename} is a database, but not a palaver store"
        raise StoreDamaged(msg)
    return version
