"""The SQLite store: one file, one writer at a time, any number of readers.

Writes of all threads go through one connection and share commits (see `groups`); every thread reads
through a connection of its own. A conversation that was forked reads its first messages from its
parent's rows: `lineage` is the list of who has which stretch.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import apsw
from msgspec.structs import replace

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    LeaseTaken,
    Stale,
    StoreDamaged,
    StoreError,
    UnknownConversation,
)
from palaver.history.rope import SHIFTS
from palaver.messages import ROLES
from palaver.messages.gate import EMPTY, MAX_INT
from palaver.stores.groups import Group, Job
from palaver.stores.records import Change, Frames, Head, Hit, Journaled, Lease, Listing
from palaver.stores.rows import ROLE_NUMBERS, body_of, counts_of, message_of, one, packed, row_hash, tombstone
from palaver.stores.sql import load_queries
from palaver.stores.sqlite.connection import connect, migrate, schema_of
from palaver.stores.sqlite.searching import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from palaver.messages import Message, Role

__all__ = ["SQLiteKeeper"]

_Q: Final = load_queries("palaver.stores.sqlite")
_APPEND: Final = _Q["append_message"]
_FAR: Final = MAX_INT
_CID: Final = 16  # where a head's row has it


class _Stretch(NamedTuple):
    """Positions from start to before stop are rows of a conversation."""

    cid: int
    start: int
    stop: int


class SQLiteKeeper:
    """A store in one file."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Open the file, make it if need be, and bring its schema up to date."""
        self.path = path
        self._vfs = vfs
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._gate = threading.Lock()
        with _translated(path):
            self._writer = connect(path, vfs=vfs)
            try:
                before = schema_of(self._writer)
                self.migrated = before, migrate(self._writer)
            except BaseException:
                self._writer.close()
                raise
        self._words = Words(self._writer)
        self._group: Group[Any] = Group(self._run_all)
        self._cids: dict[str, int] = {}
        self._lineages: dict[int, tuple[_Stretch, ...]] = {}
        self._closed = False

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        with self._gate:
            self._closed = True
            readers, self._readers = self._readers, []
        for connection in (*readers, self._writer):
            connection.close()

    # ── connections ─────────────────────────────────────────────────────────────────────────────

    def _read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what SQLite has
        with _translated(self.path):
            return self._reader().execute(_Q[name], values).fetchall()

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            if self._closed:
                msg = "the store is closed"
                raise StoreError(msg)
            connection = connect(self.path, vfs=self._vfs)
            self._local.connection = connection
            with self._gate:
                self._readers.append(connection)
        return connection

    def _write(self, work: Callable[[], Any], *, atomic: bool = False) -> Any:  # noqa: ANN401 - what the work answers
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        try:
            return self._group.do(work, atomic=atomic)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _own(error, self.path) from error

    def _run_all(self, jobs: list[Job[Any]]) -> None:
        """Run jobs in one transaction; one that fails takes only its own part back."""
        writer = self._writer
        if len(jobs) == 1 and jobs[0].atomic:
            jobs[0].run()
            return
        writer.execute("BEGIN IMMEDIATE")
        try:
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
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        self._write(lambda: self._create(head, first))

    def _create(self, head: Head, first: Change) -> int:
        parent = None if head.parent is None else self._cid(head.parent, self._writer)
        counts = counts_of(head.counts)
        try:
            self._writer.execute(
                _Q["insert_conversation"],
                (head.id, head.stop, head.length, *counts, head.size, parent, head.base,
                 head.origin, head.title, json.dumps(head.tags), head.created, head.updated),
            )  # fmt: skip
        except apsw.ConstraintError:
            msg = f"a conversation has the id {head.id!r} already"
            raise AlreadyExists(msg) from None
        cid = self._writer.last_insert_rowid()
        number = self._rows(cid, 0, first)
        self._insert_journal(number, cid, 0, first)
        for record in first.records:
            self._put(cid, *record)
        return 0

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Keep changes that were made elsewhere: all of them, or none."""

        def work() -> int:
            version = -1
            for change in changes:
                if head is not None and change.after < 0:
                    version = self._create(head, change)
                else:
                    version = self._commit(change)
            return version

        try:
            version: int = self._write(work)
        except BaseException:
            if head is not None:
                self._cids.pop(head.id, None)  # it never was there
            raise
        return version

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first."""
        version: int
        if len(change.messages) == 1 and change.plain and not (change.token or change.records):
            version = self._write(lambda: self._append_one(change), atomic=True)
        else:
            version = self._write(lambda: self._commit(change))
        return version

    def _known(self, cid: int, change: Change) -> int | None:
        """The version of a change that was kept before, by its key."""
        row = self._writer.execute(_Q["version_of_key"], (cid, change.key)).fetchone()
        return None if row is None else int(row[0])

    def _append_one(self, change: Change) -> int:
        """The most common change of all, in one statement."""
        writer = self._writer
        cid = self._cids.get(change.conversation) or self._cid(change.conversation, writer)
        if change.key is not None:
            known = self._known(cid, change)
            if known is not None:
                return known
        (message,) = change.messages
        position, version = change.first, change.after + 1
        system, user, assistant = counts_of(change.counts)
        role = ROLE_NUMBERS[message.role]
        body = body_of(message)
        ordinal = (system, user, assistant, position - system - user - assistant)[role]
        try:
            writer.execute(
                _APPEND,
                (cid, position, version, change.at, role, ordinal, system, user, assistant,
                 message.timestamp, row_hash(position, body), change.key, message.id, body),
            )  # fmt: skip
        except apsw.ConstraintError:
            _stale(change)
        return version

    def _commit(self, change: Change) -> int:
        """Any change. A plain append is its messages; the others have a journal record too."""
        writer = self._writer
        cid = self._cid(change.conversation, writer)
        if change.key is not None:
            known = self._known(cid, change)
            if known is not None:
                return known
        if change.token is not None:
            self._check_token(cid, change.token)
        version: int = writer.execute(_Q["standing"], (cid,)).get
        if version != change.after:
            _stale(change)
        version += 1
        number = self._rows(cid, version, change)
        if not change.plain:
            self._insert_journal(number, cid, version, change)
            length = change.first + len(change.messages)
            counts = counts_of(change.counts + sum(map(one, change.messages)))
            framed = None if change.frame is None else version
            writer.execute(
                _Q["advance"],
                (version, change.stop, length, *counts, framed, change.size, change.at, cid),
            )
        for record in change.records:
            self._put(cid, *record)
        return int(version)

    def _rows(self, cid: int, version: int, change: Change) -> int:
        """Insert a change's messages, and answer the number that comes after theirs."""
        number: int = self._writer.execute(_Q["next_number"]).get
        system, user, assistant = counts_of(change.counts)
        position, last = change.first, len(change.messages) - 1
        rows: list[tuple[Any, ...]] = []
        for index, message in enumerate(change.messages):
            body = body_of(message)
            role = ROLE_NUMBERS[message.role]
            ordinal = (system, user, assistant, position - system - user - assistant)[role]
            closes = change.plain and index == last
            rows.append(
                (number, cid, position, version, last + 1 if closes else 0, change.at, role,
                 ordinal, system, user, assistant, message.timestamp, change.replaces.get(index),
                 row_hash(position, body), change.key if closes else None, message.id, body)
            )  # fmt: skip
            system += role == 0
            user += role == 1
            assistant += role == 2  # noqa: PLR2004 - the roles in their order
            position += 1
            number += 1
        if rows:
            self._writer.executemany(_Q["insert_message"], rows)
        return int(number)

    def _insert_journal(self, number: int, cid: int, version: int, change: Change) -> None:
        data = json.dumps(change.data, ensure_ascii=False) if change.data else None
        self._writer.execute(
            _Q["insert_journal"],
            (number, cid, version, change.kind, change.at, change.first, len(change.messages),
             change.stop, data, change.key, change.frame),
        )  # fmt: skip

    def _check_token(self, cid: int, token: int) -> None:
        row = self._writer.execute(_Q["lease"], (cid,)).fetchone()
        if row is None or row[1] != token:
            msg = "the lease went to another worker meanwhile"
            raise LeaseLost(msg)

    def describe(self, conversation: str, title: str | None, tags: Sequence[str]) -> None:
        """Set a conversation's title and tags."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            self._writer.execute(_Q["describe"], (title, json.dumps(list(tags)), cid))

        self._write(work)

    def delete(self, conversation: str) -> None:
        """Forget a conversation that nothing was forked from."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            fork = self._writer.execute(_Q["a_fork_of"], (cid,)).fetchone()
            if fork is not None:
                msg = f"{fork[0]} was forked from it, and reads its messages"
                raise StoreError(msg)
            self._forget_words(self._writer.execute(_Q["all_rows"], (cid,)).fetchall())
            newest: int = self._writer.execute(_Q["newest"]).get
            for table in ("messages", "journal", "leases", "records", "conversations"):
                self._writer.execute(f"DELETE FROM {table} WHERE cid = ?", (cid,))  # noqa: S608 - from the list above
            self._writer.execute(_Q["keep_counting"], (newest,))
            self._writer.execute(_Q["index_again"])

        self._write(work)
        self._cids.pop(conversation, None)
        self._lineages.clear()
        self._scrub()

    def _forget_words(self, rows: list[Any]) -> None:
        for number, body in rows:
            self._words.forget(number, body)

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        return [row[0] for row in self._read("family", self._cid(conversation))]

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> int:
        """Put tombstones in the place of messages, here and in all relatives; destroy the bytes."""
        family = self.family(conversation)

        def work() -> int:
            places = 0
            for name in family:
                cid = self._cid(name, self._writer)
                for message_id in message_ids:
                    found = self._writer.execute(_Q["rows_of"], (message_id, cid))
                    rows: list[Any] = found.fetchall()
                    self._forget_words([(row[0], row[2]) for row in rows])
                    for number, position, body in rows:
                        left = body_of(tombstone(message_of(body), at))
                        mark = row_hash(position, left)
                        self._writer.execute(_Q["bury"], (left, mark, number))
                        self._words.remember(number, left)
                    places += len(rows)
                self._writer.execute(_Q["note_erasure"], (cid,))
            if note is not None:
                self._commit(note)
            return places

        places: int = self._write(work)
        self._scrub()
        return places

    def _scrub(self) -> None:
        """Empty the write-ahead log, which still has what was destroyed."""
        with _translated(self.path):
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Where a conversation stands."""
        return _head(self._head_row(conversation))

    def _head_row(self, conversation: str) -> tuple[Any, ...]:
        rows = self._read("head", conversation)
        if not rows:
            _unknown(conversation)
        row: tuple[Any, ...] = rows[0]
        self._cids[conversation] = row[_CID]
        return row

    def _cid(self, conversation: str, connection: apsw.Connection | None = None) -> int:
        cid = self._cids.get(conversation)
        if cid is None:
            if connection is None:
                self._head_row(conversation)
            else:
                row = connection.execute(_Q["head"], (conversation,)).fetchone()
                if row is None:
                    _unknown(conversation)
                self._cids[conversation] = row[_CID]
            cid = self._cids[conversation]
        return cid

    def _lineage(self, conversation: str) -> tuple[_Stretch, ...]:
        """Who has which stretch of a conversation's messages, oldest first."""
        cid = self._cid(conversation)
        known = self._lineages.get(cid)
        if known is None:
            head = self.head(conversation)
            inherited: tuple[_Stretch, ...] = ()
            if head.parent is not None:
                if self._cid(head.parent) >= cid:
                    msg = f"{conversation} is older than what it was forked from"
                    raise StoreDamaged(msg)
                inherited = tuple(
                    stretch._replace(stop=min(stretch.stop, head.base))
                    for stretch in self._lineage(head.parent)
                    if stretch.start < head.base
                )
            known = (*inherited, _Stretch(cid, head.base, _FAR))
            self._lineages[cid] = known
        return known

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Conversations, the latest changed first, page by page."""
        updated, _, name = (after or f"{_FAR}:\U0010ffff").partition(":")
        rows = self._read("list", int(updated), name, tag, limit + 1)
        heads = tuple(_head(row) for row in rows[:limit])
        more = f"{heads[-1].updated}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        return [
            message_of(row[0])
            for stretch in self._lineage(conversation)
            if start < stretch.stop and stretch.start < stop
            for row in self._read("bodies", stretch.cid, max(start, stretch.start),
                                  min(stop, stretch.stop))
        ]  # fmt: skip

    def before(self, conversation: str, position: int) -> int:
        """How many messages there are before a position, in all and by role, packed."""
        for stretch in self._lineage(conversation):
            if stretch.start <= position < stretch.stop:
                rows = self._read("before", stretch.cid, position)
                if rows:
                    return packed(position, *rows[0])
        head = self.head(conversation)
        if position != head.length:
            msg = f"{conversation} has no message at {position}"
            raise StoreDamaged(msg)
        return head.counts

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages from its start-th to before its stop-th."""
        number = ROLE_NUMBERS[role]
        return [
            row[0]
            for stretch in self._lineage(conversation)
            for row in self._read("select", stretch.cid, number, start, stop, stretch.stop)
        ]

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        return [
            row[0]
            for stretch in self._lineage(conversation)
            for row in self._read("positions_of", message_id, stretch.cid, stretch.stop)
        ]

    def between_times(
        self, conversation: str, since: int | None, until: int | None
    ) -> list[int]:
        """The positions of the messages of a time, in the log's order."""
        begin, end = 0 if since is None else since, _FAR if until is None else until
        return [
            row[0]
            for stretch in self._lineage(conversation)
            for row in self._read("between_times", stretch.cid, stretch.stop, begin, end)
        ]

    def replaced(self, conversation: str, position: int) -> int | None:
        """The position whose message was replaced by the one at a position."""
        for stretch in self._lineage(conversation):
            if stretch.start <= position < stretch.stop:
                rows = self._read("replaced", stretch.cid, position)
                return rows[0][0] if rows else None
        return None

    def stop(self, conversation: str, version: int) -> int:
        """Where the view's tail ended at a version."""
        cid = self._cid(conversation)
        rows = self._read("stop", cid, version)
        return int(rows[0][0]) if rows else self._first_after(conversation, version)

    def _first_after(self, conversation: str, version: int) -> int:
        """The position of the first message that came after a version, by halving."""
        head = self.head(conversation)
        cid = self._cid(conversation)
        low, high = head.base, head.length
        while low < high:
            middle = (low + high) // 2
            rows = self._read("version_at", cid, middle)
            if not rows or rows[0][0] is None:
                msg = f"{conversation} has no message at {middle}"
                raise StoreDamaged(msg)
            if rows[0][0] > version:
                high = middle
            else:
                low = middle + 1
        return low

    def frames(self, conversation: str, after: int, upto: int) -> list[Frames]:
        """The frames after one version and up to another, oldest first."""
        cid = self._cid(conversation)
        return [Frames(*row) for row in self._read("frames", cid, after, upto)]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """The idempotency keys of the changes after one version and up to another, by version."""
        start, stop = (self._first_after(conversation, version) for version in (after, upto))
        return dict(self._read("keys", self._cid(conversation), after, upto, start, stop))

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """The messages with all these words, best first."""
        self._write(lambda: self._words.catch_up())
        stretches = None if conversation is None else self._lineage(conversation)
        with _translated(self.path):
            hits = self._words.search(self._reader(), words, stretches, limit)
        if conversation is not None:  # what it inherited has the same place there
            hits = [replace(hit, conversation=conversation) for hit in hits]
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[Journaled]:
        """Changes after a version (of a conversation) or a cursor (of the whole store)."""
        found: list[Any]
        if conversation is None:
            found = self._read("journal_of_all", after, limit)
        else:
            start = self._first_after(conversation, after)
            rows = self._read("journal", self._cid(conversation), after, start, limit)
            found = [(conversation, *row) for row in rows]
        return [
            Journaled(*row[:6], EMPTY if row[6] is None else _known_json(row[6]), row[7])
            for row in found
        ]

    def newest(self) -> int:
        """The cursor of the last change of all."""
        return int(self._read("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until another connection has written, and no longer than this."""
        end = time.monotonic() + seconds
        reader = self._reader()
        seen = reader.data_version()
        while time.monotonic() < end:
            time.sleep(min(0.01, max(end - time.monotonic(), 0)))
            if reader.data_version() != seen:
                return

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float, at: int) -> Lease:
        """Take or renew the lease; `LeaseTaken` while another holds it."""

        def work() -> Lease:
            cid = self._cid(conversation, self._writer)
            row = self._writer.execute(_Q["lease"], (cid,)).fetchone()
            if row is not None and row[0] != holder and row[2] > at:
                msg = f"{row[0]} has the lease for another {row[2] - at} ms"
                raise LeaseTaken(msg)
            token = 1 if row is None else row[1] + (row[0] != holder or row[2] <= at)
            lease = Lease(conversation, holder, token, at + round(seconds * 1000))
            self._writer.execute(_Q["put_lease"], (cid, holder, token, lease.expires))
            return lease

        lease: Lease = self._write(work)
        return lease

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

        def work() -> None:
            cid = self._cid(lease.conversation, self._writer)
            self._writer.execute(_Q["end_lease"], (cid, lease.token))

        self._write(work)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Keep a record beside the log; None removes it."""

        self._write(lambda: self._put(self._cid(conversation, self._writer), kind, name, value))

    def _put(self, cid: int, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._writer.execute(_Q["drop_record"], (cid, kind, name))
        else:
            self._writer.execute(_Q["put_record"], (cid, kind, name, value))

    def records(self, conversation: str, kind: str) -> dict[str, bytes]:
        """All records of a kind, by name."""
        return dict(self._read("records", self._cid(conversation), kind))

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of records there are, in order."""
        return [row[0] for row in self._read("kinds", self._cid(conversation))]

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """What is wrong with the rows of some messages that this conversation has itself."""
        expected = start
        for position, mark, body in self._read("hashes", self._cid(conversation), start, stop):
            if position != expected:
                yield f"message {expected} is missing"
            if mark != row_hash(position, body):
                yield f"message {position}: the row is not what was written"
            expected = position + 1
        if expected != stop:
            yield f"message {expected} is missing"

    def check(self) -> Iterator[str]:
        """What SQLite itself finds wrong with the file."""
        try:
            with _translated(self.path):
                for (found,) in self._reader().execute("PRAGMA integrity_check(100)"):
                    if found != "ok":
                        yield str(found)
        except (StoreError, apsw.Error) as error:
            yield str(error)


def _head(row: tuple[Any, ...]) -> Head:
    (name, version, stop, length, system, user, assistant, framed, size, parent, base, origin,
     title, tags, created, updated, _, erased, *last) = row  # fmt: skip
    counts = packed(length, system, user, assistant)
    if last[0] is not None and last[0] > version:  # plain appends since the last record
        version, seq, role, system, user, assistant, at = last
        size += seq + 1 - length
        stop = length = seq + 1
        counts = packed(seq, system, user, assistant) + (1 | 1 << SHIFTS[ROLES[role]])
        updated = max(updated, at)
    return Head(name, version, stop, length, counts, framed, size, parent, base, origin, title,
                tuple(_known_json(tags)), created, updated, erased)  # fmt: skip


def _unknown(conversation: str) -> NoReturn:
    msg = f"no conversation has the id {conversation!r}"
    raise UnknownConversation(msg)


def _stale(change: Change) -> NoReturn:
    msg = f"{change.conversation} is no longer at version {change.after}"
    raise Stale(msg)


def _known_json(text: str) -> Any:  # noqa: ANN401 - what was written
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"what was written as JSON is none: {error}"
        raise StoreDamaged(msg) from error


def _own(error: apsw.Error | UnicodeDecodeError, path: str) -> Exception:
    """SQLite's error as one of palaver's."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return StoreDamaged(f"{path} is damaged: {error}")
    return StoreError(f"{path}: {error}")


@contextmanager
def _translated(path: str) -> Generator[None]:
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise _own(error, path) from error
