"""The connections of the SQLite store: one that writes, and one for each thread that reads.

Writes of all threads go through one connection and share commits (see `groups`); every thread reads
through a connection of its own, which goes to another when the thread ends. What SQLite says is
wrong is said again as an error of palaver's. Before a change is acknowledged it is made sure that
the file is still where it was (see `place`).
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import apsw

from palaver.errors import (
    StoreDamaged,
    StoreError,
    UnknownConversation,
)
from palaver.stores.groups import Group, Job
from palaver.stores.lineage import Lineages
from palaver.stores.sql import load_queries
from palaver.stores.sqlite.connection import migrate, schema_of
from palaver.stores.sqlite.place import StoreFile
from palaver.stores.sqlite.searching import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from palaver.stores.records import Head

__all__ = [
    "QUERIES",
    "Connections",
    "json_of",
    "own_error",
    "translated",
    "unknown",
]

QUERIES: Final = load_queries("palaver.stores.sqlite")


class _Lent:
    """A connection that a thread reads through, until the thread ends."""

    __slots__ = ("_free", "connection")

    def __init__(self, connection: apsw.Connection, free: list[apsw.Connection]) -> None:
        """Lend a connection; it goes to `free` when nobody holds this any more."""
        self.connection = connection
        self._free = free

    def __del__(self) -> None:
        """Give it back: many programs begin threads all the time."""
        self._free.append(self.connection)


class Connections:
    """A store's file, opened for writing and for reading."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Open the file, make it if need be, and bring its schema up to date."""
        self.path = path
        self._file = StoreFile(path, vfs=vfs)
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._free: list[apsw.Connection] = []
        self._gate = threading.Lock()
        with translated(path):
            self._writer = self._file.connect()
            try:
                before = schema_of(self._writer)
                self.migrated = before, migrate(self._writer)
                self._file.opened()
                self._file.check(self._writer)
            except BaseException:
                self._writer.close()
                raise
        self._words = Words(self._writer)
        self._group: Group[Any] = Group(self._run_all)
        self._cids: dict[str, int] = {}
        self._lineages: Lineages[int] = Lineages(self._line)
        self._heads: dict[str, tuple[Head, tuple[Any, ...]]] = {}
        self._closed = False
        self.erasures = 0

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        with self._gate:
            self._closed = True
            readers, self._readers = self._readers, []
        for connection in (*readers, self._writer):
            connection.close()

    # ── connections ─────────────────────────────────────────────────────────────────────────────

    def _read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what SQLite has
        try:
            connection = self._reader()
            self._file.check_seldom(connection)
            return connection.execute(QUERIES[name], values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise own_error(error, self.path) from error

    def _reader(self) -> apsw.Connection:
        self._file.demand()
        lent: _Lent | None = getattr(self._local, "lent", None)
        if lent is None:
            if self._closed:
                msg = "the store is closed"
                raise StoreError(msg)
            try:
                connection = self._free.pop()
            except IndexError:
                connection = self._file.connect()
                with self._gate:
                    self._readers.append(connection)
            lent = self._local.lent = _Lent(connection, self._free)
        return lent.connection

    def _write(self, work: Callable[[], Any], *, atomic: bool = False, again: bool = True) -> Any:  # noqa: ANN401 - what the work answers
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        self._file.demand()
        wanted = partial(self._alone, work) if atomic else work
        try:
            return self._group.do(wanted, atomic=atomic, again=again)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise own_error(error, self.path) from error

    def _alone(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the work answers
        """Do what is a transaction by itself; with others, theirs is looked after."""
        result = work()
        if not self._writer.in_transaction:
            self._file.check(self._writer)
        return result

    def _run_all(self, jobs: list[Job[Any]]) -> None:
        """Run jobs in one transaction; one that fails takes only its own part back."""
        writer = self._writer
        if len(jobs) == 1 and jobs[0].atomic:
            jobs[0].run()
            return
        began = False
        try:
            writer.execute("BEGIN IMMEDIATE")
            began = True
            if len(jobs) == 1:
                jobs[0].run()
            else:
                for job in jobs:
                    writer.execute("SAVEPOINT job")
                    job.run()
                    if job.error is not None:
                        writer.execute("ROLLBACK TO job")
                    writer.execute("RELEASE job")
            alone_failed = len(jobs) == 1 and jobs[0].error is not None
            writer.execute("ROLLBACK" if alone_failed else "COMMIT")
            self._file.check(writer)
        except Exception:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        except BaseException:  # an interrupt, before the end or just after it
            ended = began and not writer.in_transaction
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            for job in jobs:
                job.kept = ended
            raise

    def _line(self, cid: int) -> list[Any]:
        """A conversation and all its ancestors: number, parent, base and origin of each."""
        line = self._read("line", cid)
        for child, parent, *_ in line:
            if parent is not None and parent >= child:
                msg = f"conversation number {child} is older than what it was forked from"
                raise StoreDamaged(msg)
        return line

    def _cid(self, conversation: str, connection: apsw.Connection | None = None) -> int:
        cid = self._cids.get(conversation)
        if cid is None:
            with translated(self.path):
                found = connection or self._reader()
                cid = found.execute(QUERIES["cid"], (conversation,)).get
            if cid is None:
                unknown(conversation)
            self._cids[conversation] = cid
        return cid


def unknown(conversation: str) -> NoReturn:
    """There is no such conversation."""
    msg = f"no conversation has the id {conversation!r}"
    raise UnknownConversation(msg)


def json_of(text: str) -> Any:  # noqa: ANN401 - what was written
    """What a column of JSON holds."""
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"what was written as JSON is none: {error}"
        raise StoreDamaged(msg) from error


def own_error(error: apsw.Error | UnicodeDecodeError, path: str) -> Exception:
    """SQLite's error as one of palaver's."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return StoreDamaged(f"{path} is damaged: {error}")
    return StoreError(f"{path}: {error}")


@contextmanager
def translated(path: str) -> Generator[None]:
    """Say SQLite's errors as palaver's own."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise own_error(error, path) from error
