"""The PostgreSQL backend: one database, any number of processes on any number of machines.

Nearly everything is one statement, and so one transaction and one round trip. A change moves the
conversation on from the version it was made for, and only if that succeeds adds the rest. It
carries a random number of its own (`attempt`), so that a process that loses the connection before
the answer can ask for the outcome: sent again, the change finds either the version it was made for,
and is made now, or its own number, and is not made twice.

A conversation that was forked reads its first messages from its ancestors' rows: `lineage` knows
which rows belong to whom. `connections` has the pool, `feed` reports changes to followers, `search`
has the full-text index, `erase` destroys what was erased, and `queries.sql` has every statement.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from msgspec.structs import replace

from palaver.errors import AlreadyExists, LeaseTaken, StoreDamaged, StoreError
from palaver.history.erase import tombstone
from palaver.history.log import packed_count
from palaver.messages.limits import EMPTY
from palaver.stores.backend import (
    check_family,
    decode_head,
    parse_cursor,
    refuse_forked,
    refuse_lease,
    refuse_stale,
    refuse_unknown,
)
from palaver.stores.forks import FAR, Lineages
from palaver.stores.postgres.connections import (
    STATEMENTS,
    Listener,
    Notifier,
    PostgresConnections,
    migrate,
    read_settled,
)
from palaver.stores.postgres.erase import clean_up, encode_tags, erase_rows, label, prune_rows
from palaver.stores.postgres.search import PostgresSearchIndex
from palaver.stores.records import (
    ROLE_NUMBERS,
    AlreadyCommitted,
    Change,
    Erased,
    Head,
    Hit,
    JournalEntry,
    Lease,
    Listing,
    StoredFrame,
    check_journal_rows,
    check_known,
    check_message_rows,
    check_records,
    check_rows,
    decode_body,
    describe_holder,
    encode_body,
    pack_counts,
    pruned_message,
    row_hash,
    unpack_counts,
)
from palaver.stores.text_index import parse_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.forks import Lineage
    from palaver.stores.postgres.connections import Cursor, TimedConnection
    from palaver.stores.records import Record

__all__ = ["PostgresBackend"]

_PAGE: Final = 500
_TAGS: Final = 13  # the column of the tags in the row of a head
_NONE: Final = -1  # in a list of numbers, where NULL is meant
_PIPELINED: Final = 100  # statements that are sent before their answers are read
_MAX_ADOPTED: Final = 1 << 22  # numbers that a transaction has for its changes, as in queries.sql


class PostgresBackend:
    """A store in a PostgreSQL database, in the schema `palaver`."""

    def __init__(
        self,
        address: str,
        *,
        pool: int = 10,
        patience: float = 30.0,
        rewrite: int = 1 << 28,
    ) -> None:
        """Connect to a database, and bring its schema up to date.

        `pool` is the largest number of connections; `patience` how many seconds to wait for a
        server that went away or does not answer; `rewrite` how large the tables may be, in bytes,
        for an erasure to rewrite them (see `palaver.stores.postgres.erase`).
        """
        self._connections = PostgresConnections(address, size=pool, patience=patience)
        self._rewrite = rewrite
        self.erasures = 0
        self._index = PostgresSearchIndex(self._connections)
        self._notifier = Notifier(self._connections)
        self._listener = Listener(self._connections)
        self._lineages: Lineages[str] = Lineages(
            lambda name: self._connections.fetch("line", [name])
        )
        try:
            with self._connections.connect() as connection:
                self.migrated = migrate(connection)
        except psycopg.Error as error:
            raise self._connections.translate(error) from error

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._notifier.close()
        self._listener.close()
        self._connections.close()

    def _read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what a column has
        return self._connections.fetch(name, values)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Create a conversation, with its first messages and frame."""
        attempt = _new_attempt()
        self._connections.run(lambda connection: _create(connection, head, first, attempt))
        self._notifier.notify()

    def commit(self, change: Change) -> int:
        """Store a change and return its version; raise `Stale` where another came first."""
        attempt = _new_attempt()
        version = self._connections.run(lambda connection: _commit(connection, change, attempt))
        self._notifier.notify()
        return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Store changes that were made elsewhere: all of them, or none."""
        version = _Adoption(self._connections, head).store(changes)
        self._notifier.notify()
        return version

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""

        def work(connection: TimedConnection) -> int:
            with connection.transaction():
                if after is not None:
                    _lock(connection, conversation, after)
                return label(
                    connection, [conversation], lambda erased, *_: (erased, title, list(tags))
                )

        if not self._connections.run(work):
            refuse_unknown(conversation)

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Delete a conversation that nothing was forked from.

        No statement sees the rows any more, and the server's own clean-up removes their bytes in
        time. What must be destroyed now is erased first: see `palaver.stores.postgres.erase`.
        """
        tried = False

        def work(connection: TimedConnection) -> None:
            nonlocal tried
            with connection.transaction():
                self._index.lock(connection)
                if not _lock(connection, conversation, after):
                    if tried:  # the first try succeeded, and its answer was lost
                        return
                    refuse_unknown(conversation)
                fork = connection.execute(STATEMENTS["a_fork_of"], (conversation,)).fetchone()
                if fork is not None:
                    refuse_forked(fork[0])
                connection.execute(STATEMENTS["delete"], {"id": conversation})
                tried = True

        self._connections.run(work)
        self._lineages.forget(conversation)
        self.erasures += 1

    def family(self, conversation: str) -> list[str]:
        """Return a conversation and all its relatives: those that share its first ancestor."""
        check_known(conversation)
        found = [row[0] for row in self._read("family", conversation)]
        if not found:
            self.head(conversation)
        return found

    def erase(
        self,
        conversation: str,
        message_ids: Sequence[str],
        at: int,
        *,
        note: Change | None = None,
        spare: Collection[tuple[str, int]] = (),
    ) -> Erased:
        """Replace messages by tombstones, here and in all relatives, and destroy their bytes."""
        family = self.family(conversation)
        attempt = _new_attempt()

        def work(connection: TimedConnection) -> tuple[Erased, str]:
            with connection.transaction():
                self._index.lock(connection)
                if note is not None:
                    _commit(connection, note, attempt)
                erased = erase_rows(
                    connection, family, message_ids, lambda m: tombstone(m, at), spare
                )
                return erased, _transaction_number(connection)

        erased, transaction = self._connections.run(work)
        self.erasures += 1
        self._notifier.notify()
        clean_up(self._connections, transaction, self._rewrite)
        return erased

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that nothing reaches any more by tombstones."""
        attempt = _new_attempt()

        def work(connection: TimedConnection) -> str:
            with connection.transaction():
                self._index.lock(connection)
                connection.execute(
                    STATEMENTS["lock"], (note.conversation,)
                )  # nobody forks meanwhile
                found = connection.execute(STATEMENTS["family"], (note.conversation,)).fetchall()
                check_family(note.conversation, family, (row[0] for row in found))
                _commit(connection, note, attempt)
                prune_rows(
                    connection, note.conversation, positions, lambda m: pruned_message(m, note.at)
                )
                return _transaction_number(connection)

        transaction = self._connections.run(work)
        self.erasures += 1
        self._notifier.notify()
        clean_up(self._connections, transaction, self._rewrite)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return where a conversation stands."""
        check_known(conversation)
        rows = self._read("head", conversation)
        if not rows:
            self._lineages.forget(conversation)
            refuse_unknown(conversation)
        head = _decode_head(rows[0])
        self._lineages.learn(conversation, head.parent, head.base, head.origin)
        return head

    def _lineage(self, conversation: str) -> Lineage[str]:
        """Return a conversation's line of ancestors."""
        if conversation not in self._lineages:
            self.head(conversation)
        return self._lineages.get(conversation)

    def _read_ranges(
        self,
        name: str,
        ranges: Sequence[tuple[str, int, int]],
        **values: Any,  # noqa: ANN401 - what a column has
    ) -> list[Any]:
        """Run a named statement over ranges of several conversations, in one round trip."""
        if not ranges:
            return []
        names, starts, stops = (list(column) for column in zip(*ranges, strict=True))
        where = {"names": names, "starts": starts, "stops": stops}
        return self._connections.fetch(name, where | values)

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Return a page of conversations, the latest changed first."""
        updated, name = parse_cursor(after)
        values = {"updated": updated, "id": name, "tag": tag, "limit": limit + 1}
        rows = self._connections.fetch("listing", values)
        heads = tuple(_decode_head(row) for row in rows[:limit])
        more = f"{heads[-1].updated}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one."""
        check_known(conversation)
        rows = self._read("forks", conversation)
        if not rows:
            self.head(conversation)
        return [_decode_head(row) for row in rows]

    def named(self, beginning: str, limit: int) -> list[str]:
        """Return the ids that begin with a text, sorted by code points, at most `limit`."""
        rows = self._read("named", beginning, f"{beginning}\U0010ffff", limit)
        return [row[0] for row in rows]

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        ranges = self._lineage(conversation).row_ranges(start, stop)
        if len(ranges) == 1:
            rows = self._read("bodies", *ranges[0])
        else:
            rows = self._read_ranges("bodies_of", ranges)
        return [decode_body(row[0]) for row in rows]

    def before(self, conversation: str, position: int) -> int:
        """Return how many messages come before a position, in all and by role, packed."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("before", owner.key, position)
        if rows:
            return pack_counts(position, *rows[0])
        head = self.head(conversation)
        if position != head.length:
            msg = f"{conversation} has no message at {position}"
            raise StoreDamaged(msg)
        return head.counts

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """Return what `before` returns for every position from one to before another."""
        ranges = self._lineage(conversation).row_ranges(start, stop)
        rows = self._read_ranges("befores_of", ranges)
        return [pack_counts(*row) for row in rows]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages from its start-th to before its stop-th."""
        number = ROLE_NUMBERS[role]
        ranges = self._lineage(conversation).row_ranges()
        if len(ranges) == 1:
            rows = self._read("select", conversation, number, start, stop, FAR)
        else:
            rows = self._read_ranges("select_of", ranges, role=number, first=start, last=stop)
        return [row[0] for row in rows]

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        ranges = self._lineage(conversation).row_ranges()
        rows = self._read_ranges("positions_of", ranges, id=message_id)
        return [row[0] for row in rows]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """Return the positions of the messages from one time to before another, in log order."""
        begin, end = 0 if since is None else since, FAR if until is None else until
        ranges = self._lineage(conversation).row_ranges()
        if len(ranges) == 1:
            rows = self._read("between_times", conversation, FAR, begin, end)
        else:
            rows = self._read_ranges("between_times_of", ranges, since=begin, until=end)
        return [row[0] for row in rows]

    def replaced(self, conversation: str, position: int) -> int | None:
        """Return the position whose message was replaced by the one at a position."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("replaced", owner.key, position)
        return rows[0][0] if rows else None

    def stop(self, conversation: str, version: int) -> int:
        """Return where the view's tail ended at a version."""
        rows = self._read("stop", conversation, version)
        if not rows:
            self.head(conversation)
            msg = f"{conversation} has no version {version}"
            raise StoreDamaged(msg)
        return int(rows[0][0])

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        """Return the frames after one version and up to another, oldest first."""
        rows = self._read("frames", conversation, after, upto)
        if not rows:
            self.head(conversation)
        return [StoredFrame(*row) for row in rows]

    def generation(self, conversation: str) -> int:
        """Return how many ancestors a conversation has."""
        return self._lineage(conversation).generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Return frames of a conversation's ancestors: generation, version and bytes."""
        ranges = list(self._lineage(conversation).frames(wanted))
        rows = self._read_ranges("frames_of", ranges)
        return [(self._lineages.get(name).generation, *frame) for name, *frame in rows]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of the changes after one version and up to another."""
        rows = self._read("keys", conversation, after, upto)
        if not rows:
            self.head(conversation)
        return dict(rows)

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """Return the messages with all these words, the newest first."""
        parse_query(words)  # a query that is refused waits for nothing
        ranges = None if conversation is None else self._lineage(conversation).row_ranges()
        self._index.catch_up()
        hits = self._index.search(words, ranges, limit)
        if conversation is not None:  # inherited messages have the same position there
            hits = [replace(hit, conversation=conversation) for hit in hits]
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version of a conversation, or a cursor of the whole store."""
        if conversation is None:
            rows = read_settled(self._connections, after, limit)
        else:
            check_known(conversation)
            rows = self._read("journal", conversation, after, limit)
            if not rows:
                self.head(conversation)
        return [_decode_journaled(row) for row in rows]

    def newest(self) -> int:
        """Return the cursor of the newest change."""
        return int(self._read("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most so many seconds."""
        self._listener.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; raise `LeaseTaken` while another holds it."""
        values = {"id": conversation, "holder": holder, "lasts": round(seconds * 1000)}
        rows = self._connections.fetch("lease", values)
        if rows:
            token, expires = rows[0]
            return Lease(conversation, holder, token, expires, seconds)
        held = self._read("leased", conversation)
        if not held:
            refuse_unknown(conversation)
        raise LeaseTaken(describe_holder(*held[0]))

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        if not self._connections.count("release", (lease.conversation, lease.token)):
            self.head(lease.conversation)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log; None removes it."""
        check_records([(kind, name, value)])
        if not self._connections.count(*_record(conversation, kind, name, value)):
            self.head(conversation)

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records beside the log, all or none."""
        check_records(records)

        def work(connection: TimedConnection) -> None:
            with connection.transaction(), connection.pipeline():
                held = connection.execute(STATEMENTS["held"], (conversation,))
                for record in records:
                    statement, values = _record(conversation, *record)
                    connection.execute(STATEMENTS[statement], values)
                found = held.fetchone()
                if found is None:
                    refuse_unknown(conversation)
                if token is not None and found[0] != token:
                    refuse_lease()

        self._connections.run(work)

    def records(
        self,
        conversation: str,
        kind: str,
        *,
        since: str = "",
        until: str | None = None,
        last: int | None = None,
    ) -> dict[str, bytes]:
        """Return the records of a kind, by name, from one name to before another."""
        check_known(conversation)
        query = ("" if last is None else "last_") + "records" + ("" if until is None else "_until")
        bounds = (value for value in (until, last) if value is not None)
        rows = self._read(query, conversation, kind, since, *bounds)
        if not rows:
            self.head(conversation)
        return dict(rows if last is None else reversed(rows))

    def kinds(self, conversation: str) -> list[str]:
        """Return the kinds of records there are, sorted."""
        rows = self._read("kinds", conversation)
        if not rows:
            self.head(conversation)
        return [row[0] for row in rows]

    # ── verification ─────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """Yield what is wrong with the rows of some messages of the conversation's own."""
        rows = self._read("hashes", conversation, start, stop)
        yield from check_message_rows(rows, start, stop)

    def unsound(self, conversation: str) -> Iterator[str]:
        """Yield what is wrong with the rows of a conversation other than its messages'."""
        heads = self._read("label_hash", conversation)
        yield from check_rows((*head[:-1], encode_tags(head[-1])) for head in heads)
        yield from check_journal_rows(
            lambda version: self._read("journal_hashes", conversation, version, _PAGE)
        )
        yield from check_rows(self._read("record_hashes", conversation))

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """Return the messages that are not in the index, or not with all their text, and why."""
        return self._read("unindexed_messages", conversation)

    def check(self) -> Iterator[str]:
        """Yield rows without a conversation, and forks whose parent is missing."""
        try:
            for what, conversation, position in self._read("orphans"):
                yield f"{what} belongs to nothing: {conversation} at {position}"
        except StoreError as error:
            yield str(error)


# ── committing ──────────────────────────────────────────────────────────────────────────────────


def _new_attempt() -> int:
    """Return a number that no other change of the same version has."""
    return secrets.randbits(63)


def _create(connection: TimedConnection, head: Head, first: Change, attempt: int) -> None:
    """Create a conversation."""
    if (
        connection.execute(STATEMENTS["create"], _create_values(head, first, attempt, 0)).fetchone()
        is None
    ):
        _explain_create(connection, head, attempt)


def _explain_create(connection: TimedConnection, head: Head, attempt: int) -> None:
    found = _outcome(connection, head.id, None, 0)
    if found is None:
        refuse_unknown(str(head.parent))
    if found.attempt != attempt:
        msg = f"a conversation has the id {head.id!r} already"
        raise AlreadyExists(msg)


def _commit(connection: TimedConnection, change: Change, attempt: int) -> int:
    """Store a change and return its version."""
    name, values = _statement(change, attempt, 0)
    row = connection.execute(STATEMENTS[name], values).fetchone()
    return int(row[0]) if row is not None else _explain_commit(connection, change, attempt)


def _explain_commit(connection: TimedConnection, change: Change, attempt: int) -> int:
    """Return the version of a change that was made before, or raise the reason against it."""
    version = change.after + 1
    found = _outcome(connection, change.conversation, change.key, version)
    if found is None:
        refuse_unknown(change.conversation)
    if found.attempt == attempt:
        return version
    if found.keyed is not None:
        return AlreadyCommitted(found.keyed)
    if change.token is not None and found.token != change.token:
        refuse_lease()
    return refuse_stale(change.conversation, change.after)


def _lock(connection: TimedConnection, conversation: str, after: int | None = None) -> bool:
    """Lock a conversation until the transaction ends, and return whether it is there.

    With `after`, raise `Stale` where that is not its newest version.
    """
    row = connection.execute(STATEMENTS["lock"], (conversation,)).fetchone()
    if row is not None and after is not None and row[0] != after:
        refuse_stale(conversation, after)
    return row is not None


def _transaction_number(connection: TimedConnection) -> str:
    (number,) = connection.execute(STATEMENTS["transaction"]).fetchone() or ("0",)
    return str(number)


class _Outcome(NamedTuple):
    """The lease of a conversation, and which attempt made the version of a change."""

    token: int
    keyed: int | None
    attempt: int | None


def _outcome(
    connection: TimedConnection, conversation: str, key: str | None, version: int
) -> _Outcome | None:
    values = {"id": conversation, "key": key, "version": version}
    row = connection.execute(STATEMENTS["outcome"], values).fetchone()
    return None if row is None else _Outcome(*row)


class _Adoption:
    """Many changes of one conversation in one transaction, without waiting for each answer.

    They may come from a stream that can't be read twice, so they are not sent again when the
    connection is lost; but the server can still be asked whether they were committed.
    """

    def __init__(self, connections: PostgresConnections, head: Head | None) -> None:
        """Take the connections and, where a conversation is created, its head."""
        self._connections = connections
        self._head = head
        self._attempt = _new_attempt()
        self._last: Change | None = None
        self._answers: list[tuple[Change, Cursor]] = []

    def store(self, changes: Iterable[Change]) -> int:
        """Store all changes, or none, and return the last version."""
        try:
            return self._connections.run(
                lambda connection: self._send(connection, changes), again=False
            )
        except StoreError as error:
            last = self._last
            if last is None or not isinstance(error.__cause__, psycopg.OperationalError):
                raise
            version = last.after + 1
            found = self._connections.run(
                lambda connection: _outcome(connection, last.conversation, None, version)
            )
            if found is None or found.attempt != self._attempt:
                raise
            return version

    def _send(self, connection: TimedConnection, changes: Iterable[Change]) -> int:
        version = -1
        with connection.transaction(), connection.pipeline():
            for index, change in enumerate(changes):
                if index == _MAX_ADOPTED:
                    msg = f"more than {_MAX_ADOPTED:,} changes can't be stored in one step"
                    raise StoreError(msg)
                if self._head is not None and change.after < 0:
                    values = _create_values(self._head, change, self._attempt, index)
                    answer = connection.execute(STATEMENTS["create"], values)
                else:
                    name, values = _statement(change, self._attempt, index)
                    answer = connection.execute(STATEMENTS[name], values)
                self._last = change
                self._answers.append((change, answer))
                if len(self._answers) == _PIPELINED:
                    version = self._read_answers(connection, version)
            return self._read_answers(connection, version)

    def _read_answers(self, connection: TimedConnection, version: int) -> int:
        answers, self._answers = self._answers, []
        for change, answer in answers:
            row = answer.fetchone()
            if self._head is not None and change.after < 0:
                if row is None:
                    _explain_create(connection, self._head, self._attempt)
                version = 0
            else:
                version = (
                    row[0]
                    if row is not None
                    else _explain_commit(connection, change, self._attempt)
                )
        return version


def _statement(change: Change, attempt: int, index: int) -> tuple[str, dict[str, Any]]:
    """Return the statement that makes a change, and its values; one message is the common case."""
    if change.plain and len(change.messages) == 1 and not (change.records or change.replaces):
        return "append", _append_values(change, attempt, index)
    return "commit", _commit_values(change, attempt, index)


def _append_values(change: Change, attempt: int, index: int) -> dict[str, Any]:
    """Return the values of the statement `append`."""
    (message,) = change.messages
    position = change.first
    system, user, assistant = unpack_counts(change.counts)
    body = encode_body(message)
    role = ROLE_NUMBERS[message.role]
    ordinal = (system, user, assistant, position - system - user - assistant)[role]
    mark = row_hash(body.encode(), change.conversation, position, None)
    return {
        "id": change.conversation, "after": change.after, "first": position, "at": change.at,
        "stop": change.stop, "size": change.size, "token": change.token, "key": change.key,
        "attempt": attempt, "index": index, "role": role, "ordinal": ordinal, "system": system,
        "user": user, "assistant": assistant, "time": message.timestamp, "hash": mark,
        "message": message.id, "body": body, "journal_hash": _journal_hash(change, None),
    }  # fmt: skip


def _create_values(head: Head, first: Change, attempt: int, index: int) -> dict[str, Any]:
    """Return the values of the statement `create`."""
    system, user, assistant = unpack_counts(head.counts)
    return {
        **_message_columns(first),
        **_journal_values(first, attempt, index),
        **_record_values(first),
        "id": head.id, "length": head.length, "system": system, "user": user,
        "assistant": assistant, "parent": head.parent, "base": head.base, "origin": head.origin,
        "title": head.title, "tags": list(head.tags), "created": head.created,
        "updated": head.updated,
        "label_hash": row_hash(b"", head.id, head.parent, head.base, head.origin, head.created, 0,
                               head.title, encode_tags(head.tags)),
    }  # fmt: skip


def _commit_values(change: Change, attempt: int, index: int) -> dict[str, Any]:
    """Return the values of the statement `commit`."""
    system, user, assistant = unpack_counts(sum(map(packed_count, change.messages)))
    return {
        **_message_columns(change),
        **_journal_values(change, attempt, index),
        **_record_values(change),
        "id": change.conversation, "after": change.after, "system": system, "user": user,
        "assistant": assistant, "framed": None if change.frame is None else change.after + 1,
        "token": change.token,
    }  # fmt: skip


def _journal_values(change: Change, attempt: int, index: int) -> dict[str, Any]:
    data = json.dumps(change.data, ensure_ascii=False) if change.data else None
    return {
        "kind": change.kind, "at": change.at, "stop": change.stop, "size": change.size,
        "first": change.first, "count": len(change.messages), "key": change.key, "data": data,
        "attempt": attempt, "index": index, "frame": change.frame,
        "journal_hash": _journal_hash(change, data),
    }  # fmt: skip


def _journal_hash(change: Change, data: str | None) -> int:
    return row_hash(
        change.frame or b"", change.conversation, change.after + 1, change.kind, change.at,
        change.first, len(change.messages), change.stop, data, change.key,
    )  # fmt: skip


def _message_columns(change: Change) -> dict[str, Any]:
    counts = list(unpack_counts(change.counts))
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("seqs", "roles", "ordinals", "systems", "users", "assistants", "times",
                     "replaces", "hashes", "ids", "bodies")
    }  # fmt: skip
    for position, message in enumerate(change.messages, change.first):
        body = encode_body(message)
        role = ROLE_NUMBERS[message.role]
        ordinal = (*counts, position - sum(counts))[role]
        replaces = change.replaces.get(position - change.first)
        mark = row_hash(body.encode(), change.conversation, position, replaces)
        row = (position, role, ordinal, *counts, message.timestamp,
               _NONE if replaces is None else replaces, mark, message.id, body)  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        if role < len(counts):
            counts[role] += 1
    return columns


def _record_values(change: Change) -> dict[str, Any]:
    """Return which records are stored and which are removed; the last one of a name counts."""
    last = {(kind, name): value for kind, name, value in change.records}
    stored = [(*which, value) for which, value in last.items() if value is not None]
    dropped = [which for which, value in last.items() if value is None]
    return {
        "stored_kinds": [kind for kind, _, _ in stored],
        "stored_names": [name for _, name, _ in stored],
        "values": [value for _, _, value in stored],
        "stored_hashes": [
            row_hash(value, change.conversation, kind, name) for kind, name, value in stored
        ],
        "dropped_kinds": [kind for kind, _ in dropped],
        "dropped_names": [name for _, name in dropped],
    }


# ── rows ────────────────────────────────────────────────────────────────────────────────────────


def _decode_head(row: tuple[Any, ...]) -> Head:
    return decode_head(row, row[_TAGS])


def _decode_journaled(row: tuple[Any, ...]) -> JournalEntry:
    conversation, version, kind, at, first, count, data, number = row
    known = EMPTY if data is None else json.loads(data)
    return JournalEntry(conversation, version, kind, at, first, count, known, number)


def _record(
    conversation: str, kind: str, name: str, value: bytes | None
) -> tuple[str, dict[str, Any]]:
    """Return the statement that stores or removes a record, and its values."""
    values: dict[str, Any] = {"id": conversation, "kind": kind, "name": name, "value": value}
    if value is None:
        return "drop_record", values
    return "put_record", values | {"hash": row_hash(value, conversation, kind, name)}
