"""The SQLite store: one file, one writer at a time, any number of readers.

Writes of all threads go through one connection and share commits (see `groups`); every thread reads
through a connection of its own. A conversation that was forked reads its first messages from its
ancestors' rows: `lineage` knows who has which.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import apsw
from msgspec.structs import replace

from palaver.errors import (
    LeaseTaken,
    StoreDamaged,
    StoreError,
)
from palaver.history.rope import SHIFTS
from palaver.messages import ROLES
from palaver.messages.bulk import read_messages
from palaver.messages.gate import EMPTY
from palaver.stores.arguments import check_known, check_records
from palaver.stores.leases import boot_id, monotonic_ms, taken_by
from palaver.stores.lineage import FAR, pages
from palaver.stores.records import Frames, Head, Hit, Journaled, Lease, Listing
from palaver.stores.rows import (
    ROLE_NUMBERS,
    message_of,
    packed,
)
from palaver.stores.sealing import other_problems, row_problems
from palaver.stores.sqlite.base import QUERIES, json_of, translated, unknown
from palaver.stores.sqlite.listing import page
from palaver.stores.sqlite.writing import Writing
from palaver.stores.words import phrases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.lineage import Lineage, Stretch
    from palaver.stores.records import Record

__all__ = ["SQLiteKeeper"]

_PAGE: Final = 500
_HELD: Final = 1_000  # heads
_LEFT: Final = 17  # columns of what the last journal record left
_LAST: Final = 7  # columns of the last message
_AFTER_ALL: Final = b""  # SQLite sorts bytes after every text
_MUCH: Final = 8_000_000  # bytes; with larger messages, reading many at once is no gain


class SQLiteKeeper(Writing):
    """A store in one file."""

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Where a conversation stands."""
        known = self._heads.get(conversation)
        if known is not None:
            rows = self._read("head_since", conversation)
            if rows and rows[0][_LAST:] == known[1]:
                return _since(known[0], rows[0][:_LAST])
        check_known(conversation)
        rows = self._read("head", conversation)
        if not rows:
            unknown(conversation)
        left, (*last, parent) = _left(rows[0]), rows[0][_LEFT:]
        if len(self._heads) >= _HELD:
            self._heads.clear()
        self._heads[conversation] = left, tuple(last[_LAST:])
        self._cids[conversation] = last[_LAST]
        self._lineages.learn(last[_LAST], parent, left.base, left.origin)
        return _since(left, tuple(last[:_LAST]))

    def _lineage(self, conversation: str) -> Lineage[int]:
        """Where a conversation stands among its ancestors."""
        if self._cid(conversation) not in self._lineages:
            self.head(conversation)
        return self._lineages.get(self._cid(conversation))

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Conversations, the latest changed first, page by page."""
        updated, _, name = (after or f"{FAR}:\U0010ffff").partition(":")
        with translated(self.path), self._reader() as reader:
            rows = page(reader, (int(updated), name), limit + 1, tag)
        heads = tuple(_since(_left(row), row[_LEFT:]) for _, row in rows[:limit])
        more = f"{rows[limit - 1][0]}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def forks(self, conversation: str) -> list[Head]:
        """Where those conversations stand that were forked from this one."""
        rows = self._read("forks", self._cid(conversation))
        return [_since(_left(row), row[_LEFT:]) for row in rows]

    def named(self, beginning: str, limit: int) -> list[str]:
        """The ids that begin with a text, by their code points, and no more than so many."""
        rows = self._read("named", beginning, f"{beginning}\U0010ffff", limit)
        return [row[0] for row in rows]

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        found: list[Message] = []
        for ranges in pages(self._lineage(conversation).stretches(start, stop), _PAGE):
            read = self._read_page(ranges)
            found += read
            if not read and ranges[-1].stop > self.head(conversation).length:
                break
        return found

    def _read_page(self, page: Sequence[Stretch[int]]) -> list[Message]:
        """The messages of some stretches as one JSON list, where that can be read."""
        several, where = _where(page)
        count, joined = self._read(f"joined_bodies{several}", *where, _MUCH)[0]
        read = read_messages(b"[%b]" % joined) if count else None
        if read is None or len(read) != count:  # one by one, and it is said what is wrong
            read = [message_of(row[0]) for row in self._read(f"bodies{several}", *where)]
        return read

    def before(self, conversation: str, position: int) -> int:
        """How many messages there are before a position, in all and by role, packed."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("before", owner.key, position)
        if rows:
            return packed(position, *rows[0])
        head = self.head(conversation)
        if position != head.length:
            msg = f"{conversation} has no message at {position}"
            raise StoreDamaged(msg)
        return head.counts

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """What `before` says of every position from one to before another, all at once."""
        stretches = self._lineage(conversation).stretches(start, stop)
        several, where = _where(stretches)
        return [packed(*row) for row in self._read(f"befores{several}", *where)]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages from its start-th to before its stop-th."""
        number = ROLE_NUMBERS[role]
        stretches = self._lineage(conversation).stretches()
        if len(stretches) == 1:
            rows = self._read("select", stretches[0].key, number, start, stop, FAR)
        else:
            rows = self._read("select_of", json.dumps(stretches), number, start, stop)
        return [row[0] for row in rows]

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        lineage = self._lineage(conversation)
        return [
            position
            for cid, position in self._read("positions_of", message_id)
            if (owner := lineage.owner(position)) is not None and owner.key == cid
        ]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """The positions of the messages of a time, in the log's order."""
        begin, end = 0 if since is None else since, FAR if until is None else until
        stretches = self._lineage(conversation).stretches()
        if len(stretches) == 1:
            rows = self._read("between_times", stretches[0].key, FAR, begin, end)
        else:
            rows = self._read("between_times_of", json.dumps(stretches), begin, end)
        return [row[0] for row in rows]

    def replaced(self, conversation: str, position: int) -> int | None:
        """The position whose message was replaced by the one at a position."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("replaced", owner.key, position)
        return rows[0][0] if rows else None

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

    def generation(self, conversation: str) -> int:
        """How many ancestors a conversation has."""
        return self._lineage(conversation).generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Frames of a conversation's ancestors: generation, version and bytes."""
        ranges = json.dumps(list(self._lineage(conversation).frames(wanted)))
        return [
            (self._lineages.get(cid).generation, version, data)
            for cid, version, data in self._read("frames_of", ranges)
        ]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """The idempotency keys of the changes after one version and up to another, by version."""
        start, stop = (self._first_after(conversation, version) for version in (after, upto))
        return dict(self._read("keys", self._cid(conversation), after, upto, start, stop))

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """The messages with all these words, best first."""
        phrases(words)  # a query that is refused waits for nothing
        stretches = None if conversation is None else self._lineage(conversation).stretches()
        with translated(self.path), self._reader() as reader:
            self._words.catch_up(
                reader, self._file.connect, lambda work: self._write(work, atomic=True)
            )
            hits = self._words.search(reader, words, stretches, limit)
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
            Journaled(name, version, kind, at, first, count, _data(data), cursor)
            for name, version, kind, at, first, count, data, cursor, *_ in found
        ]

    def newest(self) -> int:
        """The cursor of the last change of all."""
        return int(self._read("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until another connection has written, and no longer than this."""
        end = time.monotonic() + seconds
        with self._reader() as reader:
            self._file.check(reader)
        seen = self._data_version()
        while time.monotonic() < end:
            time.sleep(min(0.01, max(end - time.monotonic(), 0)))
            if self._data_version() != seen:
                return

    def _data_version(self) -> tuple[int, int]:
        """Changes when another connection has written, and when this one is opened again."""
        with translated(self.path), self._reader() as reader:
            return id(reader), reader.data_version()

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; `LeaseTaken` while another holds it."""
        lasts = round(seconds * 1000)

        def work() -> Lease:
            cid = self._cid(conversation, self._writer)
            row: Any = self._writer.execute(QUERIES["lease"], (cid,)).fetchone()
            now, boot = monotonic_ms(), boot_id()
            token = 1
            if row is not None:
                other, token, expires, lasted, booted = row
                live = booted == boot and expires - lasted <= now < expires
                if live and other != holder:
                    raise LeaseTaken(taken_by(other, expires - now))
                token += other != holder or not live
            expires = now + lasts
            self._writer.execute(QUERIES["put_lease"], (cid, holder, token, expires, lasts, boot))
            return Lease(conversation, holder, token, expires, seconds)

        lease: Lease = self._write(work)
        return lease

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

        def work() -> None:
            cid = self._cid(lease.conversation, self._writer)
            self._writer.execute(QUERIES["end_lease"], (cid, lease.token))

        self._write(work)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Keep a record beside the log; None removes it."""
        check_records([(kind, name, value)])
        self._write(lambda: self._put(self._cid(conversation, self._writer), kind, name, value))

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Keep or remove several records beside the log, all or none."""
        check_records(records)

        def work() -> None:
            cid = self._cid(conversation, self._writer)
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
        """The records of a kind, by name, from one name to before another."""
        where = self._cid(conversation), kind, since, _AFTER_ALL if until is None else until
        if last is None:
            return dict(self._read("records", *where))
        return dict(reversed(self._read("last_records", *where, last)))

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of records there are, in order."""
        return [row[0] for row in self._read("kinds", self._cid(conversation))]

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """What is wrong with the rows of some messages that this conversation has itself."""
        yield from row_problems(
            self._read("hashes", self._cid(conversation), start, stop), start, stop
        )

    def unsound(self, conversation: str) -> Iterator[str]:
        """What is wrong with the rows of a conversation beside those of its messages."""
        cid = self._cid(conversation)
        yield from other_problems(self._read("label_hash", cid))
        version = -1
        while rows := self._read("journal_hashes", cid, version, _PAGE):
            yield from other_problems(rows)
            if rows[-1][4] <= version:  # an index that leads astray would lead there for ever
                yield f"what comes after version {version} of the journal can't be found"
                break
            version = rows[-1][4]
        yield from other_problems(self._read("record_hashes", cid))

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """The messages that a search does not find, or not by all they say, and why."""
        return self._read("unindexed", self._cid(conversation))

    def check(self) -> Iterator[str]:
        """What SQLite itself finds wrong with the file.

        It is asked on a new connection: one that has searched before may still have parts of the
        search index in its memory that were destroyed since, and would call that damage.
        """
        try:
            with translated(self.path), self._reader(), closing(self._file.connect()) as line:
                rows: list[Any] = line.execute("PRAGMA integrity_check(100)").fetchall()
            yield from (str(found) for (found,) in rows if found != "ok")
        except (StoreError, apsw.Error) as error:
            yield str(error)


def _where(stretches: Sequence[Stretch[int]]) -> tuple[str, tuple[Any, ...]]:
    """What a statement's name ends with, by whether it is one stretch, and what it takes."""
    if len(stretches) == 1:
        return "", stretches[0]
    return "_of", (json.dumps(stretches),)


def _left(row: tuple[Any, ...]) -> Head:
    """A head as the last journal record left it."""
    (name, version, stop, length, system, user, assistant, framed, size, parent, base, origin,
     title, tags, created, updated, erased) = row[:_LEFT]  # fmt: skip
    counts = packed(length, system, user, assistant)
    return Head(name, version, stop, length, counts, framed, size, parent, base, origin, title,
                tuple(json_of(tags)), created, updated, erased)  # fmt: skip


def _since(left: Head, last: tuple[Any, ...]) -> Head:
    """The head with the plain appends since, of which the last message tells."""
    version, seq, role, system, user, assistant, at = last
    if version is None or version <= left.version:
        return left
    counts = packed(seq, system, user, assistant) + (1 | 1 << SHIFTS[ROLES[role]])
    return Head(left.id, version, seq + 1, seq + 1, counts, left.framed,
                left.size + seq + 1 - left.length, left.parent, left.base, left.origin, left.title,
                left.tags, left.created, max(left.updated, at), left.erased)  # fmt: skip


def _data(text: str | None) -> Mapping[str, Any]:
    """What a journal record says besides; most say nothing."""
    return EMPTY if text is None else json_of(text)
