"""The PostgreSQL store: one database, any number of processes on any number of machines.

Nearly everything is one statement, and so one transaction and one round trip. How a change is kept
stands in `writing`, which changes a follower may be told in `following`, what an erasure leaves
behind in `cleaning`. A conversation that was forked reads its first messages from its ancestors'
rows: `lineage` knows who has which.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import psycopg
from msgspec.structs import replace

from palaver.errors import LeaseLost, LeaseTaken, Stale, StoreDamaged, StoreError
from palaver.messages.gate import EMPTY
from palaver.stores.arguments import check_known, check_records
from palaver.stores.leases import taken_by
from palaver.stores.lineage import FAR, Lineages
from palaver.stores.postgres.burying import erase_rows, hollow_rows, label
from palaver.stores.postgres.cleaning import scrub
from palaver.stores.postgres.connections import STATEMENTS, Connections
from palaver.stores.postgres.following import Bell, Ears, settled
from palaver.stores.postgres.migrating import migrate
from palaver.stores.postgres.searching import Words
from palaver.stores.postgres.writing import (
    Adoption,
    begin,
    keep,
    lock,
    new_attempt,
    tags_text,
    unknown,
)
from palaver.stores.records import Change, Erased, Frames, Head, Hit, Journaled, Lease, Listing
from palaver.stores.rows import ROLE_NUMBERS, message_of, packed, pruned, tombstone
from palaver.stores.sealing import other_problems, row_hash, row_problems
from palaver.stores.words import phrases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.lineage import Lineage
    from palaver.stores.postgres.connections import Line
    from palaver.stores.records import Record

__all__ = ["PostgresKeeper"]

_PAGE: Final = 500


class PostgresKeeper:
    """A store in a PostgreSQL database, in the schema `palaver`."""

    def __init__(
        self,
        address: str,
        *,
        pool: int = 10,
        patience: float = 30.0,
        rewrite: int = 1 << 28,
    ) -> None:
        """Go to a database, and bring its schema up to date.

        `pool` is the most connections at a time; `patience` how many seconds a server that went
        away or does not answer is waited for; `rewrite` how large the tables may be, in bytes, for
        an erasure to write them anew (see `cleaning`).
        """
        self._connections = Connections(address, size=pool, patience=patience)
        self._rewrite = rewrite
        self.erasures = 0
        self._words = Words(self._connections)
        self._bell = Bell(self._connections)
        self._ears = Ears(self._connections)
        self._lineages: Lineages[str] = Lineages(
            lambda name: self._connections.fetch("line", [name])
        )
        try:
            with self._connections.dial() as line:
                self.migrated = migrate(line)
        except psycopg.Error as error:
            raise self._connections.own(error) from error

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._bell.close()
        self._ears.close()
        self._connections.close()

    def _read(self, name: str, *values: Any) -> list[Any]:  # noqa: ANN401 - what a column has
        return self._connections.fetch(name, values)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        attempt = new_attempt()
        self._connections.run(lambda line: begin(line, head, first, attempt))
        self._bell.ring()

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first."""
        attempt = new_attempt()
        version = self._connections.run(lambda line: keep(line, change, attempt))
        self._bell.ring()
        return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Keep changes that were made elsewhere: all of them, or none."""
        version = Adoption(self._connections, head).keep_all(changes)
        self._bell.ring()
        return version

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""

        def work(line: Line) -> int:
            with line.transaction():
                if after is not None:
                    lock(line, conversation, after)
                return label(line, [conversation], lambda erased, *_: (erased, title, list(tags)))

        if not self._connections.run(work):
            unknown(conversation)

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Forget a conversation that nothing was forked from.

        The rows are gone for every statement, and the server's own clean-up takes their bytes in
        time. What must be destroyed now is erased first: see `cleaning` for what that costs.
        """
        tried = False

        def work(line: Line) -> None:
            nonlocal tried
            with line.transaction():
                self._words.lock(line)
                if not lock(line, conversation, after):
                    if tried:  # the answer was lost, the deed was not
                        return
                    unknown(conversation)
                fork = line.execute(STATEMENTS["a_fork_of"], (conversation,)).fetchone()
                if fork is not None:
                    msg = f"{fork[0]} was forked from it, and reads its messages"
                    raise StoreError(msg)
                line.execute(STATEMENTS["delete"], {"id": conversation})
                tried = True

        self._connections.run(work)
        self._lineages.forget(conversation)
        self.erasures += 1

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        check_known(conversation)
        found = [row[0] for row in self._read("family", conversation)]
        if not found:
            self.head(conversation)
        return found

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> Erased:
        """Put tombstones in the place of messages, here and in all relatives; destroy the bytes."""
        family = self.family(conversation)
        attempt = new_attempt()

        def work(line: Line) -> tuple[Erased, str]:
            with line.transaction():
                self._words.lock(line)
                if note is not None:
                    keep(line, note, attempt)
                erased = erase_rows(line, family, message_ids, lambda m: tombstone(m, at))
                (transaction,) = line.execute(STATEMENTS["transaction"]).fetchone() or ("0",)
                return erased, transaction

        erased, transaction = self._connections.run(work)
        self.erasures += 1
        self._bell.ring()
        scrub(self._connections, transaction, self._rewrite)
        return erased

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Put tombstones in the place of messages that nothing reaches any more."""
        attempt = new_attempt()

        def work(line: Line) -> str:
            with line.transaction():
                self._words.lock(line)
                line.execute(STATEMENTS["lock"], (note.conversation,))  # nobody forks meanwhile
                found = line.execute(STATEMENTS["family"], (note.conversation,)).fetchall()
                if sorted(family) != sorted(row[0] for row in found):
                    msg = f"{note.conversation} has other relatives meanwhile"
                    raise Stale(msg)
                keep(line, note, attempt)
                hollow_rows(line, note.conversation, positions, lambda m: pruned(m, note.at))
                (transaction,) = line.execute(STATEMENTS["transaction"]).fetchone() or ("0",)
                return str(transaction)

        transaction = self._connections.run(work)
        self.erasures += 1
        self._bell.ring()
        scrub(self._connections, transaction, self._rewrite)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Where a conversation stands."""
        check_known(conversation)
        rows = self._read("head", conversation)
        if not rows:
            self._lineages.forget(conversation)
            unknown(conversation)
        head = _head(rows[0])
        self._lineages.learn(conversation, head.parent, head.base, head.origin)
        return head

    def _lineage(self, conversation: str) -> Lineage[str]:
        """Where a conversation stands among its ancestors."""
        if conversation not in self._lineages:
            self.head(conversation)
        return self._lineages.get(conversation)

    def _read_stretches(
        self,
        name: str,
        stretches: Sequence[tuple[str, int, int]],
        **values: Any,  # noqa: ANN401 - what a column has
    ) -> list[Any]:
        """Run a named statement over stretches of several conversations, in one round trip."""
        if not stretches:
            return []
        names, starts, stops = (list(column) for column in zip(*stretches, strict=True))
        where = {"names": names, "starts": starts, "stops": stops}
        return self._connections.fetch(name, where | values)

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Conversations, the latest changed first, page by page."""
        updated, _, name = (after or f"{FAR}:\U0010ffff").partition(":")
        values = {"updated": int(updated), "id": name, "tag": tag, "limit": limit + 1}
        rows = self._connections.fetch("listing", values)
        heads = tuple(_head(row) for row in rows[:limit])
        more = f"{heads[-1].updated}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def forks(self, conversation: str) -> list[Head]:
        """Where those conversations stand that were forked from this one."""
        check_known(conversation)
        rows = self._read("forks", conversation)
        if not rows:
            self.head(conversation)
        return [_head(row) for row in rows]

    def named(self, beginning: str, limit: int) -> list[str]:
        """The ids that begin with a text, by their code points, and no more than so many."""
        rows = self._read("named", beginning, f"{beginning}\U0010ffff", limit)
        return [row[0] for row in rows]

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        stretches = self._lineage(conversation).stretches(start, stop)
        if len(stretches) == 1:
            rows = self._read("bodies", *stretches[0])
        else:
            rows = self._read_stretches("bodies_of", stretches)
        return [message_of(row[0]) for row in rows]

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
        rows = self._read_stretches("befores_of", stretches)
        return [packed(*row) for row in rows]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages from its start-th to before its stop-th."""
        number = ROLE_NUMBERS[role]
        stretches = self._lineage(conversation).stretches()
        if len(stretches) == 1:
            rows = self._read("select", conversation, number, start, stop, FAR)
        else:
            rows = self._read_stretches("select_of", stretches, role=number, first=start, last=stop)
        return [row[0] for row in rows]

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        stretches = self._lineage(conversation).stretches()
        rows = self._read_stretches("positions_of", stretches, id=message_id)
        return [row[0] for row in rows]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """The positions of the messages of a time, in the log's order."""
        begin, end = 0 if since is None else since, FAR if until is None else until
        stretches = self._lineage(conversation).stretches()
        if len(stretches) == 1:
            rows = self._read("between_times", conversation, FAR, begin, end)
        else:
            rows = self._read_stretches("between_times_of", stretches, since=begin, until=end)
        return [row[0] for row in rows]

    def replaced(self, conversation: str, position: int) -> int | None:
        """The position whose message was replaced by the one at a position."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("replaced", owner.key, position)
        return rows[0][0] if rows else None

    def stop(self, conversation: str, version: int) -> int:
        """Where the view's tail ended at a version."""
        rows = self._read("stop", conversation, version)
        if not rows:
            self.head(conversation)
            msg = f"{conversation} has no version {version}"
            raise StoreDamaged(msg)
        return int(rows[0][0])

    def frames(self, conversation: str, after: int, upto: int) -> list[Frames]:
        """The frames after one version and up to another, oldest first."""
        rows = self._read("frames", conversation, after, upto)
        if not rows:
            self.head(conversation)
        return [Frames(*row) for row in rows]

    def generation(self, conversation: str) -> int:
        """How many ancestors a conversation has."""
        return self._lineage(conversation).generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Frames of a conversation's ancestors: generation, version and bytes."""
        ranges = list(self._lineage(conversation).frames(wanted))
        rows = self._read_stretches("frames_of", ranges)
        return [(self._lineages.get(name).generation, *frame) for name, *frame in rows]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """The idempotency keys of the changes after one version and up to another, by version."""
        rows = self._read("keys", conversation, after, upto)
        if not rows:
            self.head(conversation)
        return dict(rows)

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """The messages with all these words, the newest first."""
        phrases(words)  # a query that is refused waits for nothing
        stretches = None if conversation is None else self._lineage(conversation).stretches()
        self._words.catch_up()
        hits = self._words.search(words, stretches, limit)
        if conversation is not None:  # what it inherited has the same place there
            hits = [replace(hit, conversation=conversation) for hit in hits]
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[Journaled]:
        """Changes after a version (of a conversation) or a cursor (of the whole store)."""
        if conversation is None:
            rows = settled(self._connections, after, limit)
        else:
            check_known(conversation)
            rows = self._read("journal", conversation, after, limit)
            if not rows:
                self.head(conversation)
        return [_journaled(row) for row in rows]

    def newest(self) -> int:
        """The cursor of the last change of all."""
        return int(self._read("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until there may be news, and no longer than this."""
        self._ears.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; `LeaseTaken` while another holds it."""
        values = {"id": conversation, "holder": holder, "lasts": round(seconds * 1000)}
        rows = self._connections.fetch("lease", values)
        if rows:
            token, expires = rows[0]
            return Lease(conversation, holder, token, expires, seconds)
        held = self._read("leased", conversation)
        if not held:
            unknown(conversation)
        raise LeaseTaken(taken_by(*held[0]))

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        if not self._connections.count("release", (lease.conversation, lease.token)):
            self.head(lease.conversation)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Keep a record beside the log; None removes it."""
        check_records([(kind, name, value)])
        if not self._connections.count(*_record(conversation, kind, name, value)):
            self.head(conversation)

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Keep or remove several records beside the log, all or none."""
        check_records(records)

        def work(line: Line) -> None:
            with line.transaction(), line.pipeline():
                held = line.execute(STATEMENTS["held"], (conversation,))
                for record in records:
                    statement, values = _record(conversation, *record)
                    line.execute(STATEMENTS[statement], values)
                found = held.fetchone()
                if found is None:
                    unknown(conversation)
                if token is not None and found[0] != token:
                    msg = "the lease went to another worker meanwhile"
                    raise LeaseLost(msg)

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
        """The records of a kind, by name, from one name to before another."""
        check_known(conversation)
        query = ("" if last is None else "last_") + "records" + ("" if until is None else "_until")
        bounds = (value for value in (until, last) if value is not None)
        rows = self._read(query, conversation, kind, since, *bounds)
        if not rows:
            self.head(conversation)
        return dict(rows if last is None else reversed(rows))

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of records there are, in order."""
        rows = self._read("kinds", conversation)
        if not rows:
            self.head(conversation)
        return [row[0] for row in rows]

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """What is wrong with the rows of some messages that this conversation has itself."""
        yield from row_problems(self._read("hashes", conversation, start, stop), start, stop)

    def unsound(self, conversation: str) -> Iterator[str]:
        """What is wrong with the rows of a conversation beside those of its messages."""
        heads = self._read("label_hash", conversation)
        yield from other_problems((*head[:-1], tags_text(head[-1])) for head in heads)
        version = -1
        while rows := self._read("journal_hashes", conversation, version, _PAGE):
            yield from other_problems(rows)
            if rows[-1][4] <= version:  # an index that leads astray would lead there for ever
                yield f"what comes after version {version} of the journal can't be found"
                break
            version = rows[-1][4]
        yield from other_problems(self._read("record_hashes", conversation))

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """The messages that a search does not find, or not by all they say, and why."""
        return self._read("unindexed_messages", conversation)

    def check(self) -> Iterator[str]:
        """Rows that belong to nothing, and forks whose parent is gone."""
        try:
            for what, conversation, place in self._read("orphans"):
                yield f"{what} belongs to nothing: {conversation} at {place}"
        except StoreError as error:
            yield str(error)


def _head(row: tuple[Any, ...]) -> Head:
    (name, version, stop, length, system, user, assistant, framed, size, parent, base, origin,
     title, tags, created, updated, erased) = row  # fmt: skip
    counts = packed(length, system, user, assistant)
    return Head(name, version, stop, length, counts, framed, size, parent, base, origin, title,
                tuple(tags), created, updated, erased)  # fmt: skip


def _journaled(row: tuple[Any, ...]) -> Journaled:
    conversation, version, kind, at, first, count, data, number = row
    known = EMPTY if data is None else json.loads(data)
    return Journaled(conversation, version, kind, at, first, count, known, number)


def _record(
    conversation: str, kind: str, name: str, value: bytes | None
) -> tuple[str, dict[str, Any]]:
    """The statement that keeps or removes a record, and what it takes."""
    values: dict[str, Any] = {"id": conversation, "kind": kind, "name": name, "value": value}
    if value is None:
        return "drop_record", values
    return "put_record", values | {"hash": row_hash(value, conversation, kind, name)}
