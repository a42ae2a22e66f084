"""The file of an open store, and whether it is still the one that was opened.

SQLite goes on writing to a file that was deleted or moved, and says nothing. So this is looked for
before a change is acknowledged (`SQLITE_FCNTL_HAS_MOVED`: one `stat` of the path), with every new
connection, and every now and then by who only reads. The two files that SQLite puts beside it are
looked for now and then as well. Once something is amiss the store refuses everything, until it is
opened again.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Final, NoReturn

import apsw

from palaver.errors import StoreMoved
from palaver.stores.paths import database_path
from palaver.stores.sqlite.connection import connect, identity

__all__ = ["StoreFile"]

_HAS_MOVED: Final = apsw.SQLITE_FCNTL_HAS_MOVED
_SELDOM: Final = 0.25  # seconds between two looks at what is not looked at with every change


class StoreFile:
    """A store's file, as it was when it was opened."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Take a path. It is made absolute, and links are followed once, as SQLite does."""
        self.path = path
        self._name = os.path.realpath(database_path(path)) if vfs is None else path
        self._vfs = vfs
        self._identity: tuple[int, int] | None = None
        self._beside: dict[str, tuple[int, int]] = {}
        self._refusal: str | None = None
        self._next = 0.0
        self._moved = ctypes.c_int(0)
        self._pointer = ctypes.addressof(self._moved)

    def connect(self) -> apsw.Connection:
        """A new connection; the first makes the file if need be, and no other does."""
        self.demand()
        try:
            connection = connect(self._name, vfs=self._vfs, expected=self._identity)
        except StoreMoved:
            self._refuse()
        if self._identity is None and self._vfs is None:
            self._identity = identity(self._name)
        return connection

    def opened(self) -> None:
        """Remember the two files beside it; they stay as long as a connection is open."""
        names = (f"{self._name}-wal", f"{self._name}-shm") if self._vfs is None else ()
        found = ((name, identity(name)) for name in names)
        self._beside = {name: which for name, which in found if which is not None}

    def closed(self) -> None:
        """Forget the two files beside it: they go with the last connection."""
        self._beside = {}

    def demand(self) -> None:
        """Raise `StoreMoved` where that was found before."""
        if self._refusal is not None:
            raise StoreMoved(self._refusal)

    def check(self, connection: apsw.Connection) -> None:
        """Raise `StoreMoved` where the file of a connection is not at its path any more."""
        if self._has_moved(connection):
            self._refuse()
        self.check_seldom(connection)

    def check_seldom(self, connection: apsw.Connection) -> None:
        """The same, and the files beside it; most calls do nothing."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SELDOM
        if self._has_moved(connection):
            self._refuse()
        for name, which in self._beside.items():
            if identity(name) != which:
                self._refuse(name)

    def _has_moved(self, connection: apsw.Connection) -> bool:
        # threads may share the answer: their connections are to the same file
        known = connection.file_control("main", _HAS_MOVED, self._pointer)
        return known and self._moved.value != 0

    def _refuse(self, beside: str | None = None) -> NoReturn:
        if beside is not None:
            what = f"{beside} was deleted or replaced while the store was open"
            then = (
                "Close the store in every program that has it open, which brings what they still "
                "have into the file; then open it again and verify it."
            )
        elif not Path(self._name).exists():
            what = f"{self.path} was deleted or moved while the store was open"
            then = f"Put it back, with {self._name}-wal if that is there, and open it again."
        else:
            what = f"{self.path} was replaced by another file while the store was open"
            then = "Open it again to go on with that one."
            wal = f"{self._name}-wal"
            if wal in self._beside and identity(wal) == self._beside[wal]:
                then = f"Close it, delete {wal}, which belongs to the old file, and open it again."
        self._refusal = f"{what}; it takes no more changes, and the last one may be lost. {then}"
        raise StoreMoved(self._refusal)
