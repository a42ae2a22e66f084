"""The connections of the SQLite store: one that writes, and one for each thread that reads.

Writes of all threads go through one connection and share commits (see `groups`); every thread reads
through a connection of its own, which goes to another when the thread ends. What SQLite says is
wrong is said again as an error of palaver's. Before a change is acknowledged it is made sure that
the file is still where it was (see `place`).

No connection is carried across a fork: SQLite keeps one list of files and locks for a process, and
a child would take the locks in it for its own although it holds none. So every connection is closed
before the process forks, when no thread is using one, and opened again on both sides.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import apsw

from palaver.errors import (
    StoreDamaged,
    StoreError,
    UnknownConversation,
)
from palaver.stores.arguments import check_known
from palaver.stores.forking import leak, rest_for_fork
from palaver.stores.groups import Group, Job
from palaver.stores.lineage import Lineages
from palaver.stores.sql import load_queries
from palaver.stores.sqlite.connection import migrate, schema_of
from palaver.stores.sqlite.place import StoreFile
from palaver.stores.sqlite.searching import Words
from palaver.stores.sqlite.turns import Turns

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


class _Reader:
    """A connection to read through, opened when it is first used and again after a fork.

    Whoever uses it holds the lock, so that it is not closed for a fork meanwhile.
    """

    __slots__ = ("_connect", "connection", "lock")

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        """Take what opens a connection."""
        self._connect = connect
        self.connection: apsw.Connection | None = None
        self.lock = threading.RLock()  # whoever reads may read once more, while it reads

    def __enter__(self) -> apsw.Connection:
        """Use the connection."""
        self.lock.acquire()
        connection = self.connection
        if connection is None:
            try:
                connection = self.connection = self._connect()
            except BaseException:
                self.lock.release()
                raise
        return connection

    def __exit__(self, *_: object) -> None:
        """Use it no longer."""
        self.lock.release()


class _Lent:
    """A connection that a thread reads through, until the thread ends."""

    __slots__ = ("_free", "reader")

    def __init__(self, reader: _Reader, free: list[_Reader]) -> None:
        """Lend a connection; it goes to `free` when nobody holds this any more."""
        self.reader = reader
        self._free = free

    def __del__(self) -> None:
        """Give it back: many programs begin threads all the time."""
        self._free.append(self.reader)


class Connections:
    """A store's file, opened for writing and for reading."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Open the file, make it if need be, and bring its schema up to date."""
        self.path = path
        self._file = StoreFile(path, vfs=vfs)
        self._local = threading.local()
        self._readers: list[_Reader] = []
        self._free: list[_Reader] = []
        self._gate = threading.Lock()
        self._unopened = False  # the writing connection was closed for a fork
        self._closed = False
        self._refusal = "the store is closed"
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
        self._turns = Turns()
        self._writer.set_busy_handler(self._turns.wait)
        self._words = Words(self._writer)
        self._group: Group[Any] = Group(self._run_all)
        self._cids: dict[str, int] = {}
        self._lineages: Lineages[int] = Lineages(self._line)
        self._heads: dict[str, tuple[Head, tuple[Any, ...]]] = {}
        self.erasures = 0
        rest_for_fork(self)

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            readers, self._readers = self._readers, []
        for connection in (*(reader.connection for reader in readers), self._writer):
            if connection is not None:
                connection.close()

    # ── forks of the process ────────────────────────────────────────────────────────────────────

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep every other thread from the connections; see `forking`."""
        end = time.monotonic() + seconds
        if not self._group.hold(seconds):
            return False
        if not self._gate.acquire(timeout=max(end - time.monotonic(), 0)):
            self._group.release()
            return False
        for count, reader in enumerate(self._readers):
            if not reader.lock.acquire(timeout=max(end - time.monotonic(), 0)):
                self._let_go(self._readers[:count])
                return False
        return True

    def before_fork(self) -> None:
        """Close every connection, to open them again when they are needed."""
        if self._closed:
            return
        for reader in self._readers:
            if reader.connection is not None:
                with suppress(apsw.Error):
                    reader.connection.close(force=True)
                reader.connection = None
        self._unopened = True
        self._file.closed()
        with suppress(apsw.Error):
            self._writer.close(force=True)

    def resume_after_fork(self) -> None:
        """Let every other thread go on."""
        self._let_go(self._readers)

    def _let_go(self, readers: list[_Reader]) -> None:
        for reader in readers:
            reader.lock.release()
        self._gate.release()
        try:
            if self._unopened:
                self._reopen()
        except StoreError:
            pass  # whoever writes next tries again, and is told
        finally:
            self._group.release()

    def after_fork_in_child(self, *, held: bool) -> None:
        """Begin anew; a store whose connections were in use is given up."""
        self._group.reset()
        self._gate = threading.Lock()
        self._turns = Turns()
        self._cids.clear()
        self._lineages.clear()
        self._heads.clear()
        if held:
            for reader in self._readers:
                reader.lock.release()
        elif not self._closed:
            leak((self._writer, self._readers))
            self._readers = []
            self._unopened = self._closed = True
            self._refusal = (
                f"{self.path} was in use when the process forked, and can't be used in the child: "
                "fork outside of changes, or open the store after the fork"
            )

    def _reopen(self) -> None:
        """Open the writing connection again."""
        with self._gate, translated(self.path):
            if self._unopened and not self._closed:
                self._writer = self._file.connect()
                self._writer.set_busy_handler(self._turns.wait)
                self._file.opened()
                self._words._writer = self._writer  # noqa: SLF001 - it has no other state
                self._unopened = False

    # ── connections ─────────────────────────────────────────────────────────────────────────────

    def _read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what SQLite has
        try:
            with self._reader() as connection:
                self._file.check_seldom(connection)
                return connection.execute(QUERIES[name], values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise own_error(error, self.path) from error

    def _reader(self) -> _Reader:
        """What this thread reads through: `with self._reader() as connection`."""
        self._file.demand()
        lent: _Lent | None = getattr(self._local, "lent", None)
        if lent is None or self._closed:
            if self._closed:
                raise StoreError(self._refusal)
            try:
                reader = self._free.pop()
            except IndexError:
                reader = _Reader(self._connect)
                with self._gate:
                    self._readers.append(reader)
            lent = self._local.lent = _Lent(reader, self._free)
        return lent.reader

    def _connect(self) -> apsw.Connection:
        if self._closed:
            raise StoreError(self._refusal)
        return self._file.connect()

    def _write(self, work: Callable[[], Any], *, atomic: bool = False, again: bool = True) -> Any:  # noqa: ANN401 - what the work answers
        if self._closed:
            raise StoreError(self._refusal)
        self._file.demand()
        if self._unopened:
            self._reopen()
        wanted = partial(self._alone, work) if atomic else work
        self._turns.begin()
        try:
            return self._group.do(wanted, atomic=atomic, again=again)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise own_error(error, self.path) from error
        finally:
            self._turns.end()

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
            check_known(conversation)
            if connection is None:
                rows = self._read("cid", conversation)
                cid = rows[0][0] if rows else None
            else:
                with translated(self.path):
                    cid = connection.execute(QUERIES["cid"], (conversation,)).get
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
