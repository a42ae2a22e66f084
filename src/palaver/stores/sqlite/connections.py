"""Connections to an SQLite file: one writer, readers by thread, and who may write when.

Threads that write at the same time share one transaction and one sync to disk (`GroupCommit`). The
first thread to come leads: it takes every job that waits, runs them in one transaction, and hands
each its own result. A thread that comes meanwhile waits, and the first of those leads the next
group. A thread that writes alone pays for none of this. `FairTurns` does the same for processes: it
lets the others write now and then.

An interrupt (Ctrl-C) concerns the thread it comes to alone. If that thread leads, the others' jobs
run in the next group, unless they were committed already; if it waits, it leaves the queue.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

import apsw

from palaver.errors import StoreDamaged, StoreError, StoreMoved
from palaver.stores.backend import load_migrations, load_queries
from palaver.stores.open import database_path
from palaver.stores.process_fork import leak, rest_for_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = [
    "APPLICATION_ID",
    "QUERIES",
    "FairTurns",
    "GroupCommit",
    "Job",
    "SQLiteConnections",
    "StoreFile",
    "busy_handler",
    "connect",
    "migrate",
    "schema_version",
    "translate_errors",
]


_T = TypeVar("_T")


def _nothing() -> None:
    """Do nothing."""


class GroupCommit:
    """A queue of jobs and the thread that leads it.

    `run_all` runs jobs in one transaction. If it is interrupted after the transaction has ended, it
    sets their `committed`. `after_alone` runs after atomic work that needed no transaction.
    """

    def __init__(
        self,
        run_all: Callable[[list[Job[Any]]], None],
        *,
        after_alone: Callable[[], None] = _nothing,
    ) -> None:
        """Take what runs a list of jobs to its durable end."""
        self._run_all = run_all
        self._after_alone = after_alone
        self.reset()

    def reset(self) -> None:
        """Start with an empty queue that nobody leads, as in a child after a fork."""
        self._gate = threading.Lock()
        self._queue: list[Job[Any]] = []
        self._busy = False

    def do(self, work: Callable[[], _T], *, atomic: bool = False, again: bool = True) -> _T:  # noqa: C901 - without detours
        """Run work, alone or in a transaction with others, and return its result."""
        if atomic and not self._busy:
            mine = False
            try:  # the common case without detours: no other thread is writing
                with self._gate:
                    if not self._busy:
                        self._busy = mine = True
                if mine:
                    result = work()
                    self._after_alone()
                    return result
            finally:
                if mine:
                    with self._gate:  # no call, at whose beginning an interrupt could come
                        if not self._queue:
                            self._busy = mine = False
                    if mine:
                        self._pass_on(None)
        job = Job(work, atomic=atomic, again=again)
        try:
            self._line_up(job)
            if job.turn is not None:
                job.turn.acquire()
            if job.leads:
                self._lead(job)
        except BaseException:
            self._leave(job)
            raise
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)  # it ran, or there is an error

    def hold(self, seconds: float = -1) -> bool:
        """Wait for the jobs that came before, and keep all others waiting until `release`.

        Return False where that takes longer than so many seconds; -1 waits without limit.
        """
        job: Job[Any] = Job(_never, atomic=False)
        job.alone = True
        try:
            self._line_up(job)
            if job.turn is None or job.turn.acquire(timeout=seconds):
                return True
        except BaseException:
            self._leave(job)
            raise
        self._leave(job)
        return False

    def release(self) -> None:
        """End a `hold`."""
        self._pass_on(None)

    def _line_up(self, job: Job[Any]) -> None:
        """Lead, if nobody does; otherwise wait in the queue for a turn."""
        with self._gate:
            if self._busy:
                self._queue.append(job)
                job.turn = threading.Lock()
                job.turn.acquire()
            else:
                self._busy = job.leads = True

    def _lead(self, job: Job[Any]) -> None:
        if self._queue:
            with self._gate:
                waiting = [other for other in self._queue if other is not job]
                alone = (index for index, other in enumerate(waiting) if other.alone)
                until = next(alone, len(waiting))
                job.others, self._queue = waiting[:until], waiting[until:]
        try:
            self._run_all([job, *job.others])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for each in (job, *job.others):
                each.error = each.error or error
        job.committed = True
        self._hand_over(job)

    def _leave(self, job: Job[Any]) -> None:
        """After an interrupt: a waiting job leaves the queue; a leader lets the others go on."""
        with self._gate:
            if job in self._queue:
                self._queue.remove(job)
            if not job.leads:
                return
            if not job.committed:
                for other in job.others:
                    other.result = other.error = None
                    if not other.again:
                        msg = "another thread was interrupted, and nothing was stored: do it again"
                        other.error = StoreError(msg)
                self._queue[:0] = [other for other in job.others if other.again]
                job.others = [other for other in job.others if not other.again]
        self._hand_over(job)

    def _hand_over(self, job: Job[Any]) -> None:
        """Wake the threads whose jobs are done, and let another one lead."""
        while job.others:
            done = job.others.pop()
            assert done.turn is not None  # noqa: S101 - it came while another led
            done.turn.release()
        self._pass_on(job)

    def _pass_on(self, job: Job[Any] | None) -> None:
        """Let the first that waits lead next."""
        with self._gate:
            if job is not None:
                job.leads = False
            if not self._queue:
                self._busy = False
                return
            following = self._queue[0]
            assert following.turn is not None  # noqa: S101 - as above
            following.leads = True
            if following.alone:
                del self._queue[0]
            following.turn.release()


class Job(Generic[_T]):
    """Work to run in a transaction, and its result.

    `atomic` work needs no transaction when it runs alone; `again` tells whether it can run once
    more after a transaction that was rolled back.
    """

    __slots__ = (
        "again", "alone", "atomic", "committed", "error", "leads", "others", "result", "turn",
        "work",
    )  # fmt: skip

    def __init__(self, work: Callable[[], _T], *, atomic: bool, again: bool = True) -> None:
        """Take the work."""
        self.work = work
        self.atomic = atomic
        self.again = again
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.alone = False  # it leads no others, and none leads it
        self.committed = False  # the transaction has ended, and the outcome stands
        self.turn: threading.Lock | None = None
        self.leads = False
        self.others: list[Job[Any]] = []  # the jobs it leads whose threads still wait

    def run(self) -> None:
        """Run the work; an error is this job's own."""
        try:
            self.result = self.work()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self.error = error


def _close(connection: apsw.Connection) -> None:
    """Close a connection; wait for another thread that is using it. It begins nothing new."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.close()
        except apsw.ThreadingViolationError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK)
        else:
            return


def _never() -> NoReturn:
    raise AssertionError  # it is never run


# ── between processes ───────────────────────────────────────────────────────────────────────────

_BUSY_SECONDS: Final = 60.0
_LOOK: Final = 0.004
"""How long a waiting writer sleeps between two tries, on average, in seconds."""
_BREAK: Final = 0.004
"""How long a writer stops: another that waits will look in this time."""
_TURN: Final = 0.01
"""How long it writes before it stops, where it has just met others."""
_ALONE: Final = 0.64
"""And where it has not met any for long."""


class FairTurns:
    """When one connection writes, and when it stops so that other processes can.

    SQLite has no queue: a writer that finds the file locked looks again a little later, and one
    that has just committed is back before any other has looked. So one process could write nearly
    alone. A writer that goes on without a break therefore stops now and then for a moment: often
    where it has met others of late, seldom where it seems to be alone (less than one part in a
    hundred of its time). This needs no lock of its own and leaves nothing behind after a crash, and
    it works beside programs that know nothing of it.
    """

    def __init__(self) -> None:
        """Start as if alone."""
        self._gate = threading.Lock()
        self._asked = 0.0
        self._since = 0.0
        self._ended = 0.0
        self._length = _ALONE

    def wait(self, times: int) -> bool:
        """The busy handler: wait a moment for another writer, and a minute in all."""
        now = time.monotonic()
        if not times:
            self._asked = now
        if now - self._asked > _BUSY_SECONDS:
            return False
        time.sleep(_LOOK * (0.5 + random.random()))  # noqa: S311 - no secret
        self._length = _TURN
        self._since = time.monotonic()  # the turn starts when the waiting ends
        return True

    def begin(self) -> None:
        """Before a write: stop for a moment where the turn has lasted long enough."""
        now = time.monotonic()
        if now - self._since < self._length:
            return
        with self._gate:
            if now - self._ended < _BREAK and self._since < now:  # no break yet
                self._length = min(2 * self._length, _ALONE)  # until others are met again
                time.sleep(_BREAK)
            self._since = time.monotonic()

    def end(self) -> None:
        """After a write."""
        self._ended = time.monotonic()


APPLICATION_ID: Final = 0x70616C76  # "palv", in the file's header: this file is palaver's
_PACKAGE: Final = "palaver.stores.sqlite"
QUERIES: Final = load_queries(_PACKAGE)
"""The statements of `queries.sql`, by name."""

_HAS_MOVED: Final = apsw.SQLITE_FCNTL_HAS_MOVED
_CHECK_INTERVAL: Final = 0.25  # seconds between two checks of what is not checked with every change


class SQLiteConnections:
    """The open connections of one store."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Open the file, create it if it is missing, and bring its schema up to date."""
        self.path = path
        self.file = StoreFile(path, vfs=vfs)
        self._local = threading.local()
        self._readers: list[_ReadConnection] = []
        self._free: list[_ReadConnection] = []
        self._gate = threading.Lock()
        self._must_reopen = False  # the writing connection was closed for a fork
        self._closed = False
        self._refusal = "the store is closed"
        with translate_errors(path):
            self.writer = self.file.connect()
            try:
                before = schema_version(self.writer)
                self.migrated = before, migrate(self.writer)
                self.file.remember_companions()
                self.file.check(self.writer)
            except BaseException:
                self.writer.close()
                raise
        self._turns = FairTurns()
        self.writer.set_busy_handler(self._turns.wait)
        self._group = GroupCommit(self.run_all, after_alone=self._check_file)
        rest_for_fork(self)

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            readers, self._readers = self._readers, []
        for connection in (*(reader.connection for reader in readers), self.writer):
            if connection is not None:
                _close(connection)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what SQLite has
        """Run a named statement on this thread's connection and return all its rows."""
        try:
            with self.reader() as connection:
                self.file.check_sometimes(connection)
                return connection.execute(QUERIES[name], values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _translate(error, self.path) from error

    def read_once(self, name: str) -> list[Any]:
        """Run a named statement for a thread that may never read again, such as one that opens.

        The connection is free for another thread then, unless this one had it before.
        """
        had = hasattr(self._local, "loan")
        try:
            return self.read(name)
        finally:
            if not had:
                self._local.__dict__.pop("loan", None)

    def reader(self) -> _ReadConnection:
        """The connection this thread reads through: `with connections.reader() as connection`."""
        self.file.check_refused()
        loan: _Loan | None = getattr(self._local, "loan", None)
        if loan is None or self._closed:
            if self._closed:
                raise StoreError(self._refusal)
            try:
                reader = self._free.pop()
            except IndexError:
                reader = _ReadConnection(self._connect)
                with self._gate:
                    self._readers.append(reader)
            loan = self._local.loan = _Loan(reader, self._free)
        return loan.reader

    def wait(self, seconds: float) -> None:
        """Wait until another connection has written, at most so many seconds."""
        end = time.monotonic() + seconds
        with self.reader() as reader:
            self.file.check(reader)
        seen = self._data_version()
        while time.monotonic() < end:
            time.sleep(min(0.01, max(end - time.monotonic(), 0)))
            if self._data_version() != seen:
                return

    def _data_version(self) -> tuple[int, int]:
        """Return what changes when another connection writes, or this one is opened again."""
        with translate_errors(self.path), self.reader() as reader:
            return id(reader), reader.data_version()

    def check(self) -> Iterator[str]:
        """Yield what SQLite itself finds wrong with the file.

        A new connection checks it: one that has searched before may still hold parts of the search
        index in memory that were destroyed since, and would report that as damage.
        """
        try:
            with (
                translate_errors(self.path),
                self.reader(),
                closing(self.file.connect()) as new,
            ):
                rows: list[Any] = new.execute("PRAGMA integrity_check(100)").fetchall()
            yield from (str(found) for (found,) in rows if found != "ok")
        except (StoreError, apsw.Error) as error:
            yield str(error)

    def _connect(self) -> apsw.Connection:
        if self._closed:
            raise StoreError(self._refusal)
        return self.file.connect()

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def write(self, work: Callable[[], _T], *, atomic: bool = False, again: bool = True) -> _T:
        """Run work on the writing connection in a transaction, alone or with other threads' work.

        `atomic` work needs no transaction when it runs alone. `again` tells whether the work can
        run once more after a transaction that was rolled back.
        """
        if self._closed:
            raise StoreError(self._refusal)
        self.file.check_refused()
        if self._must_reopen:
            self._reopen()
        self._turns.begin()
        try:
            return self._group.do(work, atomic=atomic, again=again)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _translate(error, self.path) from error
        finally:
            self._turns.end()

    def run_all(self, jobs: list[Job[Any]]) -> None:
        """Run jobs in one transaction; a job that fails takes back only its own part."""
        if len(jobs) == 1 and jobs[0].atomic:
            jobs[0].run()
            if jobs[0].error is None:
                self.file.check(self.writer)
            return
        writer = self.writer
        began = False
        try:
            writer.execute("BEGIN IMMEDIATE")
            began = True
            writer.execute("COMMIT" if _run_jobs(writer, jobs) else "ROLLBACK")
            self.file.check(writer)
        except Exception:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        except BaseException:  # an interrupt, before the end or just after it
            ended = began and not writer.in_transaction
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            for job in jobs:
                job.committed = ended
            raise

    def _check_file(self) -> None:
        self.file.check(self.writer)

    def truncate_wal(self) -> None:
        """Empty the write-ahead log, which still holds the bytes of what was erased."""
        self._group.hold()
        try:
            with translate_errors(self.path):
                self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._group.release()

    # ── forks of the process ────────────────────────────────────────────────────────────────────

    def hold_for_fork(self, seconds: float) -> bool:
        """Keep every other thread from the connections; see `palaver.stores.process_fork`."""
        end = time.monotonic() + seconds
        if not self._group.hold(seconds):
            return False
        if not self._gate.acquire(timeout=max(end - time.monotonic(), 0)):
            self._group.release()
            return False
        for count, reader in enumerate(self._readers):
            if not reader.lock.acquire(timeout=max(end - time.monotonic(), 0)):
                self._release(self._readers[:count])
                return False
        return True

    def before_fork(self) -> None:
        """Close every connection; they are opened again when they are needed."""
        if self._closed:
            return
        for reader in self._readers:
            if reader.connection is not None:
                with suppress(apsw.Error):
                    reader.connection.close(force=True)
                reader.connection = None
        self._must_reopen = True
        self.file.forget_companions()
        with suppress(apsw.Error):
            self.writer.close(force=True)

    def resume_after_fork(self) -> None:
        """Let the other threads go on."""
        self._release(self._readers)

    def _release(self, readers: list[_ReadConnection]) -> None:
        for reader in readers:
            reader.lock.release()
        self._gate.release()
        try:
            if self._must_reopen:
                self._reopen()
        except StoreError:
            pass  # the next write tries again, and raises the error
        finally:
            self._group.release()

    def after_fork_in_child(self, *, held: bool) -> None:
        """Start over in the child; a store whose connections were in use can't be used there."""
        self._group.reset()
        self._gate = threading.Lock()
        self._turns = FairTurns()
        if held:
            for reader in self._readers:
                reader.lock.release()
        elif not self._closed:
            leak((self.writer, self._readers))
            self._readers = []
            self._must_reopen = self._closed = True
            self._refusal = (
                f"{self.path} was in use when the process forked, and can't be used in the child: "
                "fork outside of changes, or open the store after the fork"
            )

    def _reopen(self) -> None:
        """Open the writing connection again."""
        with self._gate, translate_errors(self.path):
            if self._must_reopen and not self._closed:
                self.writer = self.file.connect()
                self.writer.set_busy_handler(self._turns.wait)
                self.file.remember_companions()
                self._must_reopen = False


def _run_jobs(writer: apsw.Connection, jobs: list[Job[Any]]) -> bool:
    """Run jobs inside a transaction; return False where there is nothing to commit."""
    if len(jobs) == 1:
        jobs[0].run()
        return jobs[0].error is None
    for job in jobs:
        writer.execute("SAVEPOINT job")
        job.run()
        if job.error is not None:
            writer.execute("ROLLBACK TO job")
        writer.execute("RELEASE job")
    return True


class _ReadConnection:
    """A connection to read through, opened when it is first used and again after a fork.

    Whoever uses it holds the lock, so that it is not closed for a fork in the meantime.
    """

    __slots__ = ("_connect", "connection", "lock")

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self.connection: apsw.Connection | None = None
        self.lock = threading.RLock()  # a reader may read once more while it reads

    def __enter__(self) -> apsw.Connection:
        """Take the lock and return the connection."""
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
        """Release the lock."""
        self.lock.release()


class _Loan:
    """A connection lent to a thread; it is free again when the thread ends."""

    __slots__ = ("_free", "reader")

    def __init__(self, reader: _ReadConnection, free: list[_ReadConnection]) -> None:
        self.reader = reader
        self._free = free

    def __del__(self) -> None:
        """Return the connection: many programs start threads all the time."""
        self._free.append(self.reader)


# ── the file ────────────────────────────────────────────────────────────────────────────────────


class StoreFile:
    """The file of an open store, and whether it is still the one that was opened.

    SQLite goes on writing to a file that was deleted or moved, without an error. So this is checked
    before a change is acknowledged (`SQLITE_FCNTL_HAS_MOVED`: one `stat` of the path), with every
    new connection, and every now and then when reading. The two files that SQLite puts beside it
    are checked now and then as well. Once a check fails, the store refuses every call until it is
    opened again.
    """

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Take a path. It is made absolute, and links are followed once, as SQLite does."""
        self.path = path
        self._name = os.path.realpath(database_path(path)) if vfs is None else path
        self._vfs = vfs
        self._identity: tuple[int, int] | None = None
        self._companions: dict[str, tuple[int, int]] = {}
        self._refusal: str | None = None
        self._next_check = 0.0
        self._moved = ctypes.c_int(0)
        self._pointer = ctypes.addressof(self._moved)

    def connect(self) -> apsw.Connection:
        """Open a new connection. The first one creates the file if it is missing; no other does."""
        self.check_refused()
        try:
            connection = connect(self._name, vfs=self._vfs, expected=self._identity)
        except StoreMoved:
            self._refuse()
        if self._identity is None and self._vfs is None:
            self._identity = _identity(self._name)
        return connection

    def remember_companions(self) -> None:
        """Note the two files beside it; they stay as long as a connection is open."""
        names = (f"{self._name}-wal", f"{self._name}-shm") if self._vfs is None else ()
        found = ((name, _identity(name)) for name in names)
        self._companions = {name: which for name, which in found if which is not None}

    def forget_companions(self) -> None:
        """Forget the two files beside it: SQLite removes them with the last connection."""
        self._companions = {}

    def check_refused(self) -> None:
        """Raise `StoreMoved` if an earlier check failed."""
        if self._refusal is not None:
            raise StoreMoved(self._refusal)

    def check(self, connection: apsw.Connection) -> None:
        """Raise `StoreMoved` if a connection's file is no longer at its path."""
        self._check_path(connection)
        if time.monotonic() >= self._next_check:
            self.check_sometimes(connection)

    def check_sometimes(self, connection: apsw.Connection) -> None:
        """Check the file and those beside it, at most a few times a second."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_INTERVAL
        self._check_path(connection)
        for name, which in self._companions.items():
            if _identity(name) != which:
                self._refuse(name)

    def _check_path(self, connection: apsw.Connection) -> None:
        # threads may share the answer: their connections are to the same file
        if connection.file_control("main", _HAS_MOVED, self._pointer) and self._moved.value:
            self._refuse()

    def _refuse(self, companion: str | None = None) -> NoReturn:
        if companion is not None:
            what = f"{companion} was deleted or replaced while the store was open"
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
            if wal in self._companions and _identity(wal) == self._companions[wal]:
                then = f"Close it, delete {wal}, which belongs to the old file, and open it again."
        self._refusal = f"{what}; it takes no more changes, and the last one may be lost. {then}"
        raise StoreMoved(self._refusal)


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file, which tell it from every other; None where there is no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# ── one connection ──────────────────────────────────────────────────────────────────────────────


def connect(
    path: str, *, vfs: str | None = None, expected: tuple[int, int] | None = None
) -> apsw.Connection:
    """Open the file, and create it if it is missing.

    `expected` is the device and inode that the file must have: no file is created then, and
    `StoreMoved` is raised where there is another one or none.
    """
    if expected is not None:
        return _configure(_connect_expected(path, vfs, expected), path)
    if vfs is None and not Path(path).exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            reason, folder = error.strerror, Path(path).parent
            if not folder.exists():
                reason = f"there is no folder {folder}; make it first"
            msg = f"{path} can't be created: {reason}"
            raise StoreError(msg) from None
        _sync_folder(path)
    return _configure(apsw.Connection(path, vfs=vfs, statementcachesize=128), path)


def _connect_expected(path: str, vfs: str | None, expected: tuple[int, int]) -> apsw.Connection:
    """Open a file that exists and is the expected one."""
    msg = f"{path} is not the file that was opened"
    try:
        connection = apsw.Connection(
            path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs, statementcachesize=128
        )
    except apsw.CantOpenError:
        if _identity(path) == expected:
            raise
        raise StoreMoved(msg) from None
    if _identity(path) != expected:
        connection.close()
        raise StoreMoved(msg)
    return connection


def _configure(connection: apsw.Connection, path: str) -> apsw.Connection:
    if connection.readonly("main") and os.access(path, os.W_OK):
        connection.close()  # SQLite falls back to reading where opening failed, and never writes
        msg = f"{path} could not be opened for writing"
        raise StoreError(msg)
    connection.set_busy_handler(busy_handler())
    try:
        schema_version(connection)  # a file that is not palaver's is left as it is
        _switch_to_wal(connection)
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


def _switch_to_wal(connection: apsw.Connection) -> None:
    """Wait for others that set up the same new file: SQLite calls no busy handler here."""
    wait, times = busy_handler(), 0
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if not wait(times):
                raise
            times += 1
        else:
            return


def _sync_folder(path: str) -> None:
    """Put a new file's name on disk: SQLite does so only for files that it creates itself."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError:  # some file systems can't sync folders
        pass
    finally:
        os.close(folder)


def busy_handler() -> Callable[[int], bool]:
    """A busy handler that waits a minute, a little longer each time, never in step with others."""
    began = 0.0

    def wait(times: int) -> bool:
        nonlocal began
        if not times:
            began = time.monotonic()
        if time.monotonic() - began > _BUSY_SECONDS:
            return False
        time.sleep(min(0.0005 * 2 ** min(times, 6), 0.03) * (0.5 + random.random()))  # noqa: S311 - no secret
        return True

    return wait


def migrate(connection: apsw.Connection, *, upto: int | None = None) -> int:
    """Bring the schema to the newest version, in one transaction, and return the version."""
    steps = load_migrations(_PACKAGE)
    newest = steps[-1][0] if upto is None else upto
    version = schema_version(connection)
    if version == newest:
        return version
    if version > steps[-1][0]:
        name = connection.filename
        msg = f"{name} was written by a newer palaver (schema {version}, this one knows {newest})"
        raise StoreError(msg)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection)  # another process may have been quicker
        for number, statements in steps:
            if version < number <= newest:
                connection.execute(statements)
        connection.execute(f"PRAGMA user_version = {newest:d}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return newest


def schema_version(connection: apsw.Connection) -> int:
    """Return the version of the schema, 0 for a new file; `StoreDamaged` if it is not palaver's."""
    # the tables first: whoever makes them in this moment writes the other two along with them
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    application = int(connection.pragma("application_id"))
    version = int(connection.pragma("user_version"))
    if application != APPLICATION_ID and tables and tables[0]:
        msg = f"{connection.filename} is a database, but not a palaver store"
        raise StoreDamaged(msg)
    return version


@contextmanager
def translate_errors(path: str) -> Generator[None]:
    """Raise SQLite's errors as palaver's own."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise _translate(error, path) from error


def _translate(error: apsw.Error | UnicodeDecodeError, path: str) -> Exception:
    """SQLite's error as one of palaver's."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return StoreDamaged(f"{path} is damaged: {error}")
    return StoreError(f"{path}: {error}")
