"""The SQLite backend: one file, one writer at a time, any number of readers.

Every change is stored whole or not at all. A plain append of a few messages is one statement; any
other change is a transaction with a journal record. Only `erase`, `bury` and `delete` destroy
anything, and they leave nothing behind in the file. A conversation that was forked reads its first
messages from its ancestors' rows: `lineage` knows which rows belong to whom.

`connections` runs the transactions, `order` finds messages by role, id and time, `search` has the
full-text index, `erase` destroys what was erased, `rows` has the rows as they are stored, and
`queries.sql` has every statement.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw
from msgspec.structs import replace

from palaver.errors import (
    AlreadyExists,
    LeaseTaken,
    Stale,
    StoreDamaged,
    UnknownConversation,
)
from palaver.history.erase import tombstone
from palaver.history.frame import SHIFTS
from palaver.history.log import packed_count
from palaver.messages import ROLES
from palaver.messages.codec import encode
from palaver.messages.decode import decode_messages
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
from palaver.stores.forks import FAR, Lineages, pages
from palaver.stores.holders import boot_id, describe_holder, has_ended, monotonic_ms, process_of
from palaver.stores.process_fork import restart_in_child
from palaver.stores.records import (
    ROLE_NUMBERS,
    AlreadyCommitted,
    BodyCodec,
    Erased,
    Head,
    Hit,
    JournalEntry,
    Lease,
    Listing,
    StoredFrame,
    check_journal_rows,
    check_known,
    check_label,
    check_message_rows,
    check_records,
    check_rows,
    label_hash,
    pack_counts,
    pruned_message,
    row_hash,
    unpack_counts,
)
from palaver.stores.sqlite.connections import QUERIES, SQLiteConnections, translate_errors
from palaver.stores.sqlite.erase import delete_rows, erase_rows, label, prune_rows
from palaver.stores.sqlite.order import (
    NONE_IN_ORDER,
    check_order,
    first_after_version,
    follow,
    latest_in_order,
    positions_by_id,
    positions_by_role,
    positions_by_time,
)
from palaver.stores.sqlite.rows import SQLiteRows
from palaver.stores.sqlite.search import SQLiteSearchIndex, read_page
from palaver.stores.text_index import parse_query

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.forks import Lineage, RowRange
    from palaver.stores.records import Change, Record
    from palaver.stores.sqlite.order import Latest, Read

__all__ = ["SQLiteBackend"]

_T = TypeVar("_T")
_FEW: Final = 16
_APPENDS: Final = [QUERIES["append_message"] + QUERIES["one_more"] * more for more in range(_FEW)]
"""The statements that append one message, two, and so on."""

_PLAIN: Final = BodyCodec()
_PAGE: Final = 500
_MAX_HEADS: Final = 1_000  # heads that are cached
_HEAD_COLUMNS: Final = 18  # what the last journal record left
_TAGS: Final = 13  # the column of the tags, as JSON
_LAST_COLUMNS: Final = 7  # the last message
_NOTHING: Final = -1, NONE_IN_ORDER
_HASH: Final = blake2b(digest_size=8)
_from_bytes: Final = int.from_bytes
_NONE: Final = b"None"
_AFTER_ALL: Final = b""  # SQLite sorts bytes after every text
_MAX_JOINED: Final = 8_000_000  # bytes; with larger messages, reading many at once is no gain


class SQLiteBackend:
    """A store in one SQLite file."""

    def __init__(self, path: str, *, vfs: str | None = None) -> None:
        """Open the file, create it if it is missing, and bring its schema up to date."""
        self.path = path
        self._connections = SQLiteConnections(path, vfs=vfs)
        self._read = self._connections.read
        self._reader = self._connections.reader
        self._write = self._connections.write
        self.migrated = self._connections.migrated
        self.erasures = 0
        self.codec = _PLAIN
        self._index = SQLiteSearchIndex(self._connections)
        self.rows = SQLiteRows(self._connections, self._index, self._cid)
        self._cids: dict[str, int] = {}
        self._begun: dict[str, int] = {}  # of conversations whose creation may not be committed yet
        self._lineages: Lineages[int] = Lineages(self._read_line)
        self._heads: dict[str, tuple[Head, tuple[Any, ...]]] = {}
        self._latest: dict[int, tuple[int, Latest]] = {}  # up to the end of a log of that length
        self._places: dict[str, int] = {}  # where messages in order were found
        restart_in_child(self)

    @property
    def _writer(self) -> apsw.Connection:
        """The connection that writes; it is another one after a fork."""
        return self._connections.writer

    @property
    def encrypted(self) -> bool:
        """Whether the store is encrypted: then the search index is off."""
        return self._index.is_off()

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._connections.close()

    def after_fork_in_child(self) -> None:
        """Forget what was cached: another thread may have been changing it."""
        for cache in (self._cids, self._begun, self._heads, self._latest, self._places):
            cache.clear()
        self._lineages.clear()

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        self._begin(head.id, lambda: self._create(head, first))

    def create_fork(self, head: Head, first: Change) -> Head:
        """Begin a fork with its parent's newest title, tags and owner; return its head."""

        def work() -> Head:
            parent = str(head.parent)
            rows = self._read_writing("labels", self._cid(parent, self._writer))
            if not rows:  # another process has deleted it meanwhile
                refuse_unknown(parent)
            *_, title, tags, owner = rows[0]
            made = head
            if (title, tags, owner) != (head.title, _encode_tags(head.tags), head.owner):
                made = replace(head, title=title, tags=tuple(_parse_json(tags)), owner=owner)
            self._create(made, first)
            return made

        return self._begin(head.id, work)

    def _begin(self, conversation: str, work: Callable[[], _T], *, again: bool = True) -> _T:
        """Begin a conversation; its number is cached as soon as all that is committed."""
        try:
            result = self._write(work, again=again)
        except BaseException:
            self._forget(conversation)
            raise
        cid = self._begun.pop(conversation, None)
        if cid is not None:
            self._cids[conversation] = cid
        return result

    def _create(self, head: Head, first: Change) -> int:
        parent = None if head.parent is None else self._cid(head.parent, self._writer)
        counts, tags = unpack_counts(head.counts), _encode_tags(head.tags)
        mark = label_hash(head.id, parent, head.base, head.origin, head.created, 0, head.title,
                          tags, head.owner)  # fmt: skip
        try:
            self._writer.execute(
                QUERIES["insert_conversation"],
                (head.id, head.stop, head.length, *counts, head.size, parent, head.base,
                 head.origin, head.title, tags, head.created, head.updated, head.owner, mark),
            )  # fmt: skip
        except apsw.ConstraintError:
            msg = f"a conversation has the id {head.id!r} already"
            raise AlreadyExists(msg) from None
        cid = self._begun[head.id] = self._writer.last_insert_rowid()
        if parent is not None:
            self._lineages.get(parent)
        self._lineages.learn(cid, parent, head.base, head.origin)
        number = self._insert_rows(cid, 0, first)
        self._insert_journal(number, cid, 0, first)
        for record in first.records:
            self._put(cid, *record)
        return 0

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Store changes that were made elsewhere: all of them, or none."""

        def work() -> int:
            version = -1
            for change in changes:
                begun = head if change.after < 0 else None
                version = self._create(begun, change) if begun else self._commit(change)
            return version

        write = self._write if head is None else partial(self._begin, head.id)
        return write(work, again=False)  # changes may come from a stream

    def commit(self, change: Change) -> int:
        """Store a change and return its version; raise `Stale` where another came first."""
        count = len(change.messages)
        if not 0 < count <= _FEW or change.records or not change.plain:
            return self._write(partial(self._commit, change))
        first = change.first
        cid = self._cids.get(change.conversation) or self._cid(change.conversation)
        known, latest = self._latest.get(cid, _NOTHING)
        if known != first:  # what comes before it does not change: any connection may read it
            latest = self._read_latest(self._read, cid, first - 1)
        rows, latest = _rows(cid, change, latest)
        columns = rows[0] if count == 1 else tuple(chain.from_iterable(rows))
        work = partial(self._append, cid, change, columns)
        version = self._write(work, atomic=True)
        if version.__class__ is int:  # and no `AlreadyCommitted`
            if len(self._latest) >= _MAX_HEADS:
                self._latest.clear()
            self._latest[cid] = first + count, latest
        return version

    def _stored_before(self, cid: int, change: Change) -> AlreadyCommitted | None:
        """Return the version of a change that was stored before under the same key."""
        row = self._writer.execute(QUERIES["version_of_key"], (cid, change.key)).fetchone()
        return None if row is None else AlreadyCommitted(row[0])

    def _append(self, cid: int, change: Change, columns: tuple[Any, ...]) -> int:
        """Store a plain append, the most common change of all, in one statement."""
        if change.key is not None:
            before = self._stored_before(cid, change)
            if before is not None:
                return before
        version = change.after + 1
        try:
            self._connections.writer.execute(
                _APPENDS[len(change.messages) - 1],
                (cid, version, change.at, change.token, *columns),
            )
        except apsw.ConstraintError:
            if change.token is not None:
                self._check_token(cid, change.token)
            refuse_stale(change.conversation, change.after)
        return version

    def _read_latest(self, read: Read, cid: int, position: int) -> Latest:
        """Read which message in order is the latest up to a position."""

        def order_at(position: int) -> Any:  # noqa: ANN401 - a row, if there is one
            rows = read("order_at", cid, position)
            if not rows:  # an ancestor has it
                owner = self._lineages.get(cid).owner(position)
                rows = [] if owner is None else read("order_at", owner.key, position)
            return rows[0] if rows else None

        return latest_in_order(order_at, position)

    def _read_writing(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what SQLite has
        """Run a named statement within the transaction."""
        return self._writer.execute(QUERIES[name], values).fetchall()

    def _commit(self, change: Change) -> int:
        """Store any change. A plain append is its messages; others have a journal record too."""
        writer = self._writer
        cid = self._cid(change.conversation, writer)
        if change.key is not None:
            before = self._stored_before(cid, change)
            if before is not None:
                return before
        if change.token is not None:
            self._check_token(cid, change.token)
        self._check_version(cid, change.conversation, change.after)
        version = change.after + 1
        number = self._insert_rows(cid, version, change)
        if not change.plain:
            self._insert_journal(number, cid, version, change)
            length = change.first + len(change.messages)
            counts = unpack_counts(change.counts + sum(map(packed_count, change.messages)))
            framed = None if change.frame is None else version
            writer.execute(
                QUERIES["advance"],
                (version, change.stop, length, *counts, framed, change.size, change.at, cid),
            )
        for record in change.records:
            self._put(cid, *record)
        return version

    def _check_version(self, cid: int, conversation: str, after: int) -> None:
        """Raise `Stale` for a change that was made for another version than the newest."""
        if self._writer.execute(QUERIES["standing"], (cid,)).get != after:
            refuse_stale(conversation, after)

    def _insert_rows(self, cid: int, version: int, change: Change) -> int | None:
        """Insert a change's messages, if any, and return the number that comes after theirs."""
        if not change.messages:
            return None
        first: int = self._writer.execute(QUERIES["next_number"]).get
        latest = self._read_latest(self._read_writing, cid, change.first - 1)
        found, _ = _rows(cid, change, latest)
        rows = [(number, cid, version, change.at, *row) for number, row in enumerate(found, first)]
        self._writer.executemany(QUERIES["insert_message"], rows)
        return first + len(rows)

    def _insert_journal(self, number: int | None, cid: int, version: int, change: Change) -> None:
        data = json.dumps(change.data, ensure_ascii=False) if change.data else None
        columns = (cid, version, change.kind, change.at, change.first, len(change.messages),
                   change.stop, data, change.key)  # fmt: skip
        mark = row_hash(change.frame or b"", *columns)
        row = (number, *columns, change.frame, mark)
        self._writer.execute(QUERIES["insert_journal"], row)

    def _check_token(self, cid: int, token: int) -> None:
        if self._writer.execute(QUERIES["token"], (cid,)).get != token:
            refuse_lease()

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            if after is not None:
                self._check_version(cid, conversation, after)
            changed = _encode_tags(tags)
            label(self._writer, cid, lambda erased, _, __, owner: (erased, title, changed, owner))

        self._write(work)

    def set_owner(self, conversation: str, owner: str | None, *, after: int | None = None) -> None:
        """Set whom a conversation belongs to."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            if after is not None:
                self._check_version(cid, conversation, after)
            label(self._writer, cid, lambda *labels: (*labels[:-1], owner))

        self._write(work)

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Delete a conversation that nothing was forked from."""
        fork = self._write(lambda: self._delete(conversation, after))
        if fork is not None:
            refuse_forked(fork)
        self._forget(conversation)
        self._finish_erasure()

    def delete_all(self, conversations: Sequence[tuple[str, int]]) -> list[str]:
        """Delete conversations that are still at a version and that nothing was forked from."""

        def work() -> list[str]:
            deleted: list[str] = []
            for name, version in conversations:
                with suppress(UnknownConversation, Stale):
                    if self._delete(name, version) is None:
                        deleted.append(name)
            return deleted

        deleted = self._write(work)
        for name in deleted:
            self._forget(name)
        self.erasures += 1
        return deleted

    def sweep(self) -> None:
        """Empty the write-ahead log, which still has the bytes of what `delete_all` deleted."""
        self._connections.truncate_wal()

    def _forget(self, conversation: str) -> None:
        """Forget the number and the ancestors of a conversation that is not there."""
        for cid in (self._begun.pop(conversation, None), self._cids.pop(conversation, None)):
            if cid is not None:
                self._lineages.forget(cid)

    def _delete(self, conversation: str, after: int | None) -> str | None:
        """Delete a conversation inside a transaction, or return the id of a fork of it."""
        cid = self._cid(conversation, self._writer)
        if after is not None:
            self._check_version(cid, conversation, after)
        fork: str | None = self._writer.execute(QUERIES["a_fork_of"], (cid,)).get
        if fork is not None:
            return fork
        delete_rows(self._writer, self._index, cid)
        return None

    def family(self, conversation: str) -> list[str]:
        """Return a conversation and all its relatives: those that share its first ancestor."""
        return [row[0] for row in self._read("family", self._cid(conversation))]

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

        def work() -> Erased:
            writer = self._writer
            cid = self._cid(conversation, writer)
            family: list[Any] = writer.execute(QUERIES["family"], (cid,)).fetchall()
            places = [
                (relative, position)
                for name, relative in family
                for message_id in message_ids
                for position in self._own_positions(relative, message_id)
                if (name, position) not in spare
            ]
            erased = erase_rows(
                writer, self._index, family, places,
                codec=self.codec, left=lambda m: tombstone(m, at),
            )  # fmt: skip
            if note is not None:
                self._commit(note)
            return erased

        erased = self._write(work)
        self._finish_erasure()
        return erased

    def _own_positions(self, cid: int, message_id: str) -> list[int]:
        """Return the positions of a conversation's own messages, not its ancestors', with an id."""
        line = self._lineages.get(cid)
        found = positions_by_id(self._read_writing, line, message_id, self._places)
        return [position for position in found if position >= line.base]

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that nothing reaches any more by tombstones."""

        def work() -> None:
            writer = self._writer
            cid = self._cid(note.conversation, writer)
            found: list[Any] = writer.execute(QUERIES["family"], (cid,)).fetchall()
            check_family(note.conversation, family, (name for name, _ in found))
            self._commit(note)
            prune_rows(
                writer, self._index, cid, positions,
                codec=self.codec, left=lambda m: pruned_message(m, note.at),
            )  # fmt: skip

        self._write(work)
        self._finish_erasure()

    def _finish_erasure(self) -> None:
        """Count an erasure, and empty the write-ahead log, which still has the erased bytes."""
        self.erasures += 1
        self._connections.truncate_wal()

    def _put(self, cid: int, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._writer.execute(QUERIES["drop_record"], (cid, kind, name))
        else:
            mark = row_hash(value, cid, kind, name)
            self._writer.execute(QUERIES["put_record"], (cid, kind, name, value, mark))

    adopts_in_turn = True
    """`adopt` reads its changes inside of its transaction, while nobody else can commit."""

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return where a conversation stands."""
        cached = self._heads.get(conversation)
        if cached is not None:
            rows = self._read("head_since", cached[1][0])
            if rows and rows[0][_LAST_COLUMNS:] == cached[1]:
                return _add_appends(cached[0], rows[0][:_LAST_COLUMNS])
        check_known(conversation)
        rows = self._read("head", conversation)
        if not rows:
            refuse_unknown(conversation)
        head, (*last, parent) = _decode_head(rows[0]), rows[0][_HEAD_COLUMNS:]
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        cid = last[_LAST_COLUMNS]
        self._heads[conversation] = head, tuple(last[_LAST_COLUMNS:])
        self._cids[conversation] = cid
        self._lineages.learn(cid, parent, head.base, head.origin)
        return _add_appends(head, tuple(last[:_LAST_COLUMNS]))

    def _lineage(self, conversation: str) -> Lineage[int]:
        """Return a conversation's line of ancestors."""
        if self._cid(conversation) not in self._lineages:
            self.head(conversation)
        return self._lineages.get(self._cid(conversation))

    def listing(
        self,
        *,
        after: str | None,
        limit: int,
        tag: str | None,
        owner: str | None = None,
        without: Sequence[str] = (),
    ) -> Listing:
        """Return a page of conversations, the latest changed first."""
        with translate_errors(self.path), self._reader() as reader:
            rows = read_page(reader, parse_cursor(after), limit + 1, tag, owner, without=without)
        heads = tuple(_decode_current_head(row) for _, row in rows[:limit])
        more = f"{rows[limit - 1][0]}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one."""
        rows = self._read("forks", self._cid(conversation))
        return [_decode_current_head(row) for row in rows]

    def named(self, beginning: str, limit: int) -> list[str]:
        """Return the ids that begin with a text, sorted by code points, at most `limit`."""
        rows = self._read("named", beginning, f"{beginning}\U0010ffff", limit)
        return [row[0] for row in rows]

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        found: list[Message] = []
        for ranges in pages(self._lineage(conversation).row_ranges(start, stop), _PAGE):
            read = self._read_page(ranges)
            found += read
            if not read and ranges[-1].stop > self.head(conversation).length:
                break
        return found

    def _read_page(self, page: Sequence[RowRange[int]]) -> list[Message]:
        """Read the messages of some ranges as one JSON list, or one by one where that fails."""
        several, where = _where(page)
        if self.codec is _PLAIN:
            count, joined = self._read(f"joined_bodies{several}", *where, _MAX_JOINED)[0]
            read = decode_messages(b"[%b]" % joined) if count else None
            if read is not None and len(read) == count:
                return read
        # one by one, so that each is decrypted, and the error names the fault
        return self.codec.messages([row[0] for row in self._read(f"bodies{several}", *where)])

    def bodies(self, conversation: str, start: int, stop: int) -> str:
        """Return the messages from one position to before another as JSON, unchecked."""
        several, where = _where(self._lineage(conversation).row_ranges(start, stop))
        return self.codec.join([body for (body,) in self._read(f"bodies{several}", *where)])

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
        several, where = _where(ranges)
        return [pack_counts(*row) for row in self._read(f"befores{several}", *where)]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages from its start-th to before its stop-th."""
        line = self._lineage(conversation)
        return positions_by_role(self._read, line, ROLE_NUMBERS[role], start, stop)

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        line = self._lineage(conversation)
        return positions_by_id(self._read, line, message_id, self._places)

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """Return the positions of the messages from one time to before another, in log order."""
        begin, end = 0 if since is None else since, FAR if until is None else until
        return positions_by_time(self._read, self._lineage(conversation), begin, end)

    def replaced(self, conversation: str, position: int) -> int | None:
        """Return the position whose message was replaced by the one at a position."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("replaced", owner.key, position)
        return rows[0][0] if rows else None

    def stop(self, conversation: str, version: int) -> int:
        """Return where the view's tail ended at a version."""
        cid = self._cid(conversation)
        rows = self._read("stop", cid, version)
        return int(rows[0][0]) if rows else self._first_after(conversation, version)

    def _first_after(self, conversation: str, version: int) -> int:
        """Return the position of the first message after a version, by binary search."""
        head = self.head(conversation)
        return first_after_version(self._read, self._cid(conversation), head, version)

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        """Return the frames after one version and up to another, oldest first."""
        cid = self._cid(conversation)
        return [StoredFrame(*row) for row in self._read("frames", cid, after, upto)]

    def generation(self, conversation: str) -> int:
        """Return how many ancestors a conversation has."""
        return self._lineage(conversation).generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Return frames of a conversation's ancestors: generation, version and bytes."""
        ranges = json.dumps(list(self._lineage(conversation).frames(wanted)))
        return [
            (self._lineages.get(cid).generation, version, data)
            for cid, version, data in self._read("frames_of", ranges)
        ]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of the changes after one version and up to another."""
        start, stop = (self._first_after(conversation, version) for version in (after, upto))
        return dict(self._read("keys", self._cid(conversation), after, upto, start, stop))

    def search(
        self, words: str, conversation: str | None, limit: int, *, owner: str | None = None
    ) -> list[Hit]:
        """Return the messages with all these words, best first."""
        parse_query(words)  # a query that is refused waits for nothing
        ranges = None if conversation is None else self._lineage(conversation).row_ranges()
        with translate_errors(self.path), self._reader() as reader:
            self._index.catch_up(reader)
            hits = self._index.search(reader, words, ranges, limit, owner)
        if conversation is not None:  # inherited messages have the same position there
            hits = [replace(hit, conversation=conversation) for hit in hits]
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version of a conversation, or a cursor of the whole store."""
        found: list[Any]
        if conversation is None:
            found = self._read("journal_of_all", after, limit)
        else:
            start = self._first_after(conversation, after)
            rows = self._read("journal", self._cid(conversation), after, start, limit)
            found = [(conversation, *row) for row in rows]
        return [
            JournalEntry(name, version, kind, at, first, count, _decode_data(data), cursor)
            for name, version, kind, at, first, count, data, cursor, *_ in found
        ]

    def newest(self) -> int:
        """Return the cursor of the newest change."""
        return int(self._read("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until another connection has written, at most so many seconds."""
        self._connections.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; raise `LeaseTaken` while another holds it."""
        lasts = round(seconds * 1000)

        def work() -> Lease:
            now = monotonic_ms()
            values = conversation, holder, now, lasts, boot_id(), process_of(holder)
            token = self._writer.execute(QUERIES["take_lease"], values).get
            if token is None:
                held = self._read_writing("lease_of", conversation)
                if not held:
                    refuse_unknown(conversation)
                cid, other, taken, expires, process = held[0]
                if not has_ended(process):
                    raise LeaseTaken(describe_holder(other, expires - now))
                self._writer.execute(QUERIES["end_lease"], (cid, taken))
                return work()
            return Lease(conversation, holder, token, now + lasts, seconds)

        return self._write(work)  # in a transaction: the clock is read while nobody else writes

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

        def work() -> None:
            cid = self._cid(lease.conversation, self._writer)
            self._writer.execute(QUERIES["end_lease"], (cid, lease.token))

        self._write(work, atomic=True)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log; None removes it."""
        self.keep(conversation, [(kind, name, value)])

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records beside the log, all or none."""
        check_records(records)

        def work() -> None:
            cid = self._cid(conversation, self._writer, cached=False)
            if token is not None:
                self._check_token(cid, token)
            for record in records:
                self._put(cid, *record)

        self._write(work)

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
        where = self._cid(conversation), kind, since, _AFTER_ALL if until is None else until
        if last is None:
            return dict(self._read("records", *where))
        return dict(reversed(self._read("last_records", *where, last)))

    def kinds(self, conversation: str) -> list[str]:
        """Return the kinds of records there are, sorted."""
        return [row[0] for row in self._read("kinds", self._cid(conversation))]

    # ── verification ─────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """Yield what is wrong with the rows of some messages of the conversation's own."""
        cid = self._cid(conversation)
        yield from check_message_rows(self._read("hashes_of_bytes", cid, start, stop), start, stop)
        latest = self._read_latest(self._read, cid, start - 1)
        yield from check_order(latest, self._read("orders", cid, start, stop))

    def unsound(self, conversation: str) -> Iterator[str]:
        """Yield what is wrong with the rows of a conversation other than its messages'."""
        cid = self._cid(conversation)
        yield from check_label(self._read("label_hash", cid))
        yield from check_journal_rows(
            lambda version: self._read("journal_hashes", cid, version, _PAGE)
        )
        yield from check_rows(self._read("record_hashes", cid))

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """Return the messages that are not in the index, or not with all their text, and why."""
        return self._read("unindexed", self._cid(conversation))

    def check(self) -> Iterator[str]:
        """Yield what SQLite itself finds wrong with the file."""
        return self._connections.check()

    def _read_line(self, cid: int) -> list[Any]:
        """Read a conversation and all its ancestors: number, parent, base and origin of each."""
        line = self._read("line", cid)
        for child, parent, *_ in line:
            if parent is not None and parent >= child:
                msg = f"conversation number {child} is older than what it was forked from"
                raise StoreDamaged(msg)
        return line

    def _cid(
        self, conversation: str, connection: apsw.Connection | None = None, *, cached: bool = True
    ) -> int:
        """Return a conversation's number. Another process may have deleted what is cached."""
        cid = self._cids.get(conversation) if cached else None
        if cid is None:
            check_known(conversation)
            if connection is None:
                cid = next((row[0] for row in self._read("cid", conversation)), None)
            else:
                with translate_errors(self.path):
                    cid = connection.execute(QUERIES["cid"], (conversation,)).get
            if cid is None:
                refuse_unknown(conversation)
            if connection is None:  # what the writing one sees may not be committed yet
                self._cids[conversation] = cid
        return cid


def _where(ranges: Sequence[RowRange[int]]) -> tuple[str, tuple[Any, ...]]:
    """Return the ending of a statement's name, for one range or several, and its values."""
    if len(ranges) == 1:
        return "", ranges[0]
    return "_of", (json.dumps(ranges),)


def _decode_current_head(row: tuple[Any, ...]) -> Head:
    """Return a head from its row, which ends with the columns of the last message."""
    return _add_appends(_decode_head(row), row[_HEAD_COLUMNS:])


def _decode_head(row: tuple[Any, ...]) -> Head:
    """Return a head as the last journal record left it."""
    tags = _parse_json(row[_TAGS])
    if type(tags) is not list:
        msg = f"the tags of {row[0]!r} are damaged: {tags!r}"
        raise StoreDamaged(msg)
    return decode_head(row[:_HEAD_COLUMNS], tags)


def _add_appends(left: Head, last: tuple[Any, ...]) -> Head:
    """Return the head after the plain appends since; the last message tells how many came."""
    version, seq, role, system, user, assistant, at = last
    if version is None or version <= left.version:
        return left
    counts = pack_counts(seq, system, user, assistant) + (1 | 1 << SHIFTS[ROLES[role]])
    return Head(left.id, version, seq + 1, seq + 1, counts, left.framed,
                left.size + seq + 1 - left.length, left.parent, left.base, left.origin, left.title,
                left.tags, left.created, max(left.updated, at), left.erased,
                left.owner)  # fmt: skip


def _decode_data(text: str | None) -> Mapping[str, Any]:
    """Return the data of a journal record; most have none."""
    return EMPTY if text is None else _parse_json(text)


def _rows(cid: int, change: Change, latest: Latest) -> tuple[list[tuple[Any, ...]], Latest]:
    """Return the rows of a change's messages, and which is the latest in order then.

    A row has the columns that are not the same for the whole change. A plain append's last row is
    its journal record, too.
    """
    rows: list[tuple[Any, ...]] = []
    position, version, at, replaced = change.first, change.after + 1, change.at, change.replaces
    system, user, assistant = unpack_counts(change.counts)
    counts = [system, user, assistant, position - system - user - assistant]
    left = len(change.messages) if change.plain else 0
    last = position + left - 1
    for index, message in enumerate(change.messages):
        role = ROLE_NUMBERS[message.role]
        batch, key = (left, change.key) if position == last else (0, None)
        replaces = replaced.get(index) if replaced else None
        body = encode(message)
        # the same as `row_hash`, written out: it is a fifth of what Python does for an append
        hashed = _HASH.copy()
        hashed.update(
            b"%d\0%d\0%b\0%d\0%d\0%d\0%b\0%b" % (
                cid, position, _NONE if replaces is None else b"%d" % replaces, version, batch,
                at, _NONE if key is None else key.encode(), body,
            )
        )  # fmt: skip
        mark = _from_bytes(hashed.digest(), "big", signed=True)
        sent, name = message.timestamp, message.id
        distance, latest = follow(latest, position, sent, name)
        system, user, assistant, _ = counts
        rows.append(
            (position, batch, role, counts[role], system, user, assistant, sent, replaces, mark,
             key, name, body.decode(), distance)
        )  # fmt: skip
        position += 1
        counts[role] += 1
    return rows, latest


def _encode_tags(tags: Sequence[str]) -> str:
    """Return tags as JSON; most conversations have none."""
    return json.dumps([*tags]) if tags else "[]"


def _parse_json(text: str) -> Any:  # noqa: ANN401 - what was written
    """Return what a column of JSON holds."""
    try:
        return json.loads(text)
    except (ValueError, TypeError) as error:  # a damaged column may have a value of another type
        msg = f"what was written as JSON is none: {error}"
        raise StoreDamaged(msg) from error
