"""The PostgreSQL backend: one database, any number of processes on any number of machines.

Nearly everything is one statement, and so one transaction and one round trip. A change is a call of
a function in the database (`changes`), which makes it or says why not. It carries a random number
of its own (`attempt`), so that a process that loses the connection before the answer can send it
again: it is made then, or found to be made.

All rows of a family, a conversation and what was forked from it, begin with the id of its first
ancestor, the root, and so lie on one shard; `families` remembers the roots it has seen. A fork
reads its first messages from its ancestors' rows: `forks` knows which rows belong to whom.
`connections` has the pool, `notify` reports changes to followers, `search`
has the full-text index, `erase` destroys what was erased, `rows` has the rows as they are stored,
`replica` reads from standbys, and `queries.sql` and `functions.sql` have every statement.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import psycopg
from msgspec.structs import replace

from palaver.errors import LeaseTaken, Stale, StoreDamaged, StoreError
from palaver.history.erase import tombstone
from palaver.stores.backend import (
    Opened,
    check_family,
    parse_cursor,
    refuse_forked,
    refuse_lease,
    refuse_unknown,
)
from palaver.stores.forks import FAR
from palaver.stores.holders import describe_holder
from palaver.stores.postgres.changes import (
    Adoption,
    Outcome,
    Relabelled,
    commit,
    committed,
    create,
    journal_hash,
    lock,
    new_attempt,
    record_values,
    release_made,
    send_commit,
    transaction_number,
)
from palaver.stores.postgres.cluster import (
    Cluster,
    after_migration,
    distribute_store,
    examine,
    is_distributed,
    numbers_ahead,
)
from palaver.stores.postgres.connections import (
    STATEMENTS,
    PostgresConnections,
    migrate,
    shift_numbers,
)
from palaver.stores.postgres.erase import (
    clean_up,
    delete_rows,
    delete_unforked,
    encode_tags,
    erase_rows,
    label,
    prune_rows,
    reclaim,
)
from palaver.stores.postgres.families import Families
from palaver.stores.postgres.notify import Listener, Notifier, read_settled
from palaver.stores.postgres.replica import READ_FROM_STANDBY, ReplicaReader
from palaver.stores.postgres.row_security import check_security, secure_rows
from palaver.stores.postgres.rows import TAGS, PostgresRows, decode_head, decode_journaled
from palaver.stores.postgres.search import PostgresSearchIndex
from palaver.stores.records import (
    ROLE_NUMBERS,
    AlreadyCommitted,
    BodyCodec,
    Change,
    Erased,
    Head,
    Hit,
    JournalEntry,
    Lease,
    Listing,
    Placed,
    StoredFrame,
    Work,
    check_journal_rows,
    check_known,
    check_label,
    check_message_rows,
    check_records,
    check_rows,
    pack_counts,
    pruned_message,
)
from palaver.stores.text_index import parse_query

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.forks import Lineage
    from palaver.stores.postgres.connections import TimedConnection
    from palaver.stores.records import Record, StoreReport

__all__ = ["PostgresBackend"]

_PAGE: Final = 500


class PostgresBackend:
    """A store in a PostgreSQL database, in the schema `palaver`."""

    def __init__(
        self,
        address: str,
        *,
        pool: int = 10,
        patience: float = 30.0,
        rewrite: int = 1 << 28,
        pooler: bool | None = None,
        read: Literal["primary", "replica"] = "primary",
        owner: str | None = None,
    ) -> None:
        """Connect to a database, and bring its schema up to date.

        `pool` is the largest number of connections; `patience` how many seconds to wait for a
        server that went away or does not answer, or for a new primary where the address has several
        hosts; `rewrite` how large the tables may be, in bytes, for an erasure to rewrite them (see
        `palaver.stores.postgres.erase`). `pooler` tells whether a pooler such as PgBouncer is in
        between that gives connections to single transactions; by default that is found out. With
        `read="replica"`, conversations are read from a standby: see `palaver.open`. With an
        `owner`, only what belongs to that owner can be seen and changed; the store must have row
        security.
        """
        settings: Any = {"size": pool, "patience": patience, "pooler": pooler, "owner": owner}
        self._connections = PostgresConnections(address, **settings)
        self.owner = owner
        self._replica: ReplicaReader | None = None
        if read == "replica":
            standbys = PostgresConnections(address, **settings, standby=True)
            self._replica = ReplicaReader(self._connections, standbys)
        self._rewrite = rewrite
        self.erasures = 0
        self.codec = BodyCodec()
        self._index = PostgresSearchIndex(self._connections)
        self._notifier = Notifier(self._connections)
        self._listener = Listener(self._connections)
        self._families = Families(self._connections)
        self._in_family = self._families.run
        self._lineages = self._families.lineages
        self.rows = PostgresRows(
            self._connections, self._index, self._families, read=self._read, clean_up=self._clean_up
        )
        self.forks_of = self.rows.forks_of
        self.read_whole = lambda names: self.rows.read_whole(names, self.codec)
        try:
            with self._connections.connect(wait=True) as connection:
                self.migrated = migrate(connection, migrated=after_migration)
                distributed = is_distributed(connection)
                shift_numbers(connection, numbers_ahead if distributed else None)
                self._index.secured = check_security(connection, owner)
        except psycopg.Error as error:
            raise self._connections.translate(error) from error
        self._cluster = Cluster(self._connections) if distributed else None
        if distributed and self._replica is not None:
            self.close()
            msg = "a store on the nodes of a cluster can't be read from a standby; read='primary'"
            raise StoreError(msg)

    def distribute(self) -> None:
        """Bring a store that is on one server of a cluster to all its nodes.

        Nobody can use it meanwhile; processes that have it open have to open it again.
        """
        distribute_store(self._connections)
        self._cluster = Cluster(self._connections)

    def secure_rows(self, *, on: bool) -> None:
        """Turn row security by owner on or off; see `Store.secure_rows`."""
        with self._connections.connect() as connection:
            try:
                with connection.transaction():
                    connection.execute(STATEMENTS["migration_lock"])
                    if self._cluster is not None:
                        msg = "a store that is distributed over a cluster can't have row security"
                        raise StoreError(msg)
                    secure_rows(connection, on=on)
            except psycopg.Error as error:
                raise self._connections.translate(error) from error
        self._index.secured = on

    def examine(self) -> StoreReport:
        """Return what the store runs on, and what is missing."""
        return replace(self._connections.run(examine), pooler=self._connections.pooled)

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self._notifier.close()
        self._listener.close()
        self._connections.close()
        if self._replica is not None:
            self._replica.close()

    @property
    def encrypted(self) -> bool:
        """Whether the store is encrypted: then the search index is off."""
        return bool(self._connections.fetch("index_is_off"))

    # ── standbys ────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, conversation: str, name: str, values: Any) -> list[Any]:  # noqa: ANN401 - bound
        """Run a named statement about a conversation, on a standby if the caller asked for it."""
        if self._replica is None:
            return self._connections.fetch(name, values)
        return self._replica.fetch(conversation, name, values)

    def _saw(self, conversation: str, version: int) -> None:
        if self._replica is not None:
            self._replica.saw(conversation, version)

    def _saw_all(self, heads: Iterable[Head]) -> None:
        for head in heads if self._replica is not None else ():
            self._saw(head.id, head.version)

    def _forget(self, conversation: str) -> None:
        """Forget a conversation that was deleted."""
        self._families.forget(conversation)
        if self._replica is not None:
            self._replica.forget(conversation)

    def _changed(self) -> None:
        if self._replica is not None:
            self._replica.changed()

    def _read(
        self,
        name: str,
        conversation: str,
        *values: Any,  # noqa: ANN401 - what a column has
        heir: str | None = None,
        **named: Any,  # noqa: ANN401 - what a column has
    ) -> list[Any]:
        """Run a named statement about a conversation: root and id are its first values.

        Where the others have names, so do these two. `heir` is the fork whose inherited messages
        are read.
        """

        def fetch(root: str) -> list[Any]:
            where: Any = root, conversation, *values
            if named:
                where = {"root": root, "id": conversation, **named}
            if name in READ_FROM_STANDBY:
                return self._fetch(heir or conversation, name, where)
            return self._connections.fetch(name, where)

        known = self._families.roots.get(conversation)
        rows = fetch(known or conversation)
        if rows or known is not None:
            return rows
        root = self._families.find(conversation)
        return rows if root is None or root == conversation else fetch(root)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Create a conversation, with its first messages and frame."""
        self._create(head, first)

    def create_fork(self, head: Head, first: Change) -> Head:
        """Create a fork with its parent's newest title, tags and owner; return its head."""
        while True:
            try:
                self._create(head, first, as_parent=True)
            except Relabelled:
                parent = self.head(str(head.parent))
                head = replace(head, title=parent.title, tags=parent.tags, owner=parent.owner)
            else:
                return head

    def _owned(self, head: Head) -> Head:
        """Return a head with the owner that this backend is bound to, if it has none."""
        return head if head.owner is not None else replace(head, owner=self.owner)

    def _create(self, head: Head, first: Change, *, as_parent: bool = False) -> None:
        attempt = new_attempt()
        head = self._owned(head)
        root = head.id if head.parent is None else self._families.root(head.parent)
        self._connections.run(
            lambda connection: create(
                connection, root, head, first, attempt=attempt, as_parent=as_parent
            )
        )
        self._families.remember(head.id, root)
        self._lineages.learn(head.id, head.parent, head.base, head.origin)
        self._saw(head.id, 0)
        self._notifier.notify()

    def commit(self, change: Change) -> int:
        """Store a change and return its version; raise `Stale` where another came first."""
        attempt, sent = new_attempt(), False

        def send(connection: TimedConnection, root: str) -> int:
            nonlocal sent
            again, sent = sent, True
            return commit(connection, root, change, attempt, again=again, in_turn=in_turn)

        in_turn = change.conversation in self._families.crowded
        version = self._in_family_seen(change, send)
        self._notifier.notify()
        return version

    def _in_family_seen(self, change: Change, send: Callable[[TimedConnection, str], int]) -> int:
        """Send a change to its family, and remember the version for reads from a standby."""
        try:
            version = self._in_family(
                change.conversation,
                lambda root: self._connections.run(lambda connection: send(connection, root)),
            )
        except Stale:
            self._saw(change.conversation, change.after + 1)
            raise
        placed = version if isinstance(version, Placed) else None
        self._families.note_crowd(change.conversation, crowded=placed is not None)
        self._saw(change.conversation, version if placed is None else placed.head.version)
        return version

    def commit_and_release(self, change: Change, lease: Lease) -> int:
        """Store a change as `commit` does, and give a lease back, in one round trip."""
        attempt = new_attempt()

        def send(connection: TimedConnection, root: str) -> int:
            with connection.batch():
                answer = send_commit(connection, root, change, attempt)
                release_made(connection, root, change, attempt, lease.token)
            return committed(change, answer.fetchone())

        version = self._in_family_seen(change, send)
        if isinstance(version, AlreadyCommitted):
            self.release(lease)
        self._notifier.notify()
        return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Store changes that were made elsewhere: all of them, or none."""
        given = iter(changes)
        first = next(given, None)
        if first is None:
            return -1
        if head is None:
            root = self._families.root(first.conversation)
        else:
            head = self._owned(head)
            root = head.id if head.parent is None else self._families.root(head.parent)
        version = Adoption(self._connections, root, head).store(chain([first], given))
        self._saw(first.conversation, version)
        self._notifier.notify()
        return version

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""
        self._label(
            conversation, after, lambda erased, _, __, owner: (erased, title, list(tags), owner)
        )

    def set_owner(self, conversation: str, owner: str | None, *, after: int | None = None) -> None:
        """Set whom a conversation belongs to."""
        self._label(conversation, after, lambda *labels: (*labels[:-1], owner))

    def _label(
        self, conversation: str, after: int | None, change: Callable[..., tuple[Any, ...]]
    ) -> None:
        """Change what is said of a conversation, if a version is its newest."""

        def work(connection: TimedConnection, root: str) -> None:
            with connection.transaction():
                if after is not None:
                    lock(connection, root, conversation, after)
                if not label(connection, root, [conversation], change):
                    refuse_unknown(conversation)

        self._in_family(
            conversation,
            lambda root: self._connections.run(lambda connection: work(connection, root)),
        )
        self._changed()

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Delete a conversation that nothing was forked from.

        No statement sees the rows any more, and the server's own clean-up removes their bytes in
        time. What must be destroyed now is erased first: see `palaver.stores.postgres.erase`.
        """
        tried = False

        def work(connection: TimedConnection, root: str) -> None:
            nonlocal tried
            with connection.transaction():
                self._index.lock(connection)
                if not lock(connection, root, conversation, after):
                    if tried:  # the first try succeeded, and its answer was lost
                        return
                    refuse_unknown(conversation)
                found = connection.execute(STATEMENTS["a_fork_of"], (root, conversation))
                for fork in found:
                    refuse_forked(fork[0])
                delete_rows(connection, root, conversation)
                tried = True

        self._in_family(
            conversation,
            lambda root: self._connections.run(lambda connection: work(connection, root)),
        )
        self._forget(conversation)
        self._changed()
        self.erasures += 1

    def delete_all(self, conversations: Sequence[tuple[str, int]]) -> list[str]:
        """Delete conversations that are still at a version and that nothing was forked from."""
        roots = self._families.find_all(name for name, _ in conversations)
        wanted = [(name, roots[name], after) for name, after in conversations if name in roots]
        spread = self._cluster is not None
        deleted = delete_unforked(self._connections, self._index, wanted, distributed=spread)
        for name in deleted:
            self._forget(name)
        self._changed()
        self.erasures += 1
        return deleted

    def sweep(self) -> None:
        """Let the server use the room of what `delete_all` deleted for what comes next."""
        reclaim(self._connections)

    def family(self, conversation: str) -> list[str]:
        """Return a conversation and all its relatives: those that share its first ancestor."""
        check_known(conversation)

        def look(root: str) -> list[str]:
            found = [row[0] for row in self._connections.fetch("family", (root,))]
            return found if conversation in found else refuse_unknown(conversation)

        return self._in_family(conversation, look)

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
        root = self._families.root(conversation)
        attempt = new_attempt()

        def work(connection: TimedConnection) -> tuple[Erased, str]:
            with connection.transaction():
                self._index.lock(connection)
                if note is not None:
                    commit(connection, root, note, attempt)
                erased = erase_rows(
                    connection, root, family, message_ids,
                    codec=self.codec, left=lambda m: tombstone(m, at), spare=spare,
                )  # fmt: skip
                return erased, transaction_number(connection)

        erased, transaction = self._connections.run(work)
        self._changed()
        self.erasures += 1
        self._notifier.notify()
        self._clean_up(transaction)
        return erased

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that nothing reaches any more by tombstones."""
        attempt = new_attempt()
        root = self._families.root(note.conversation)

        def work(connection: TimedConnection) -> str:
            with connection.transaction():
                self._index.lock(connection)
                lock(connection, root, note.conversation)  # nobody forks meanwhile
                found = connection.execute(STATEMENTS["family"], (root,)).fetchall()
                check_family(note.conversation, family, (row[0] for row in found))
                commit(connection, root, note, attempt)
                prune_rows(
                    connection, root, note.conversation, positions,
                    codec=self.codec, left=lambda m: pruned_message(m, note.at),
                )  # fmt: skip
                return transaction_number(connection)

        transaction = self._connections.run(work)
        self._changed()
        self.erasures += 1
        self._notifier.notify()
        self._clean_up(transaction)

    def _clean_up(self, transaction: str, **tables: Sequence[str]) -> None:
        distributed = self._cluster is not None
        clean_up(self._connections, transaction, self._rewrite, distributed=distributed, **tables)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return where a conversation stands."""
        check_known(conversation)

        def look(root: str) -> Head:
            rows = self._fetch(conversation, "head", (root, conversation))
            return decode_head(rows[0]) if rows else refuse_unknown(conversation)

        head = self._in_family(conversation, look)
        self._saw(conversation, head.version)
        self._lineages.learn(conversation, head.parent, head.base, head.origin)
        return head

    def open(self, conversation: str, last: int) -> Opened:
        """Return what a history begins with, in one round trip."""
        check_known(conversation)
        (row,) = self._fetch(conversation, "open", (conversation, last))
        root, *columns = row[: TAGS + 4]
        ids, bases, origins, versions, frames, names, values, first, bodies, owner = row[TAGS + 4 :]
        if root is None:
            self._families.forget(conversation)
            refuse_unknown(conversation)
        self._families.remember(conversation, root)
        self._saw(conversation, columns[0])
        parent = None
        for name, base, origin in reversed([*zip(ids or (), bases, origins, strict=False)]):
            self._lineages.learn(name, parent, base, origin)
            parent = name
        return Opened(
            decode_head((conversation, *columns, owner)),
            [StoredFrame(*frame) for frame in zip(versions or (), frames or (), strict=True)],
            dict(zip(names or (), values or (), strict=True)),
            first,
            self._decode_last(bodies or ()),
        )

    def _decode_last(self, bodies: Sequence[str]) -> list[Message]:
        """Return messages that are read ahead: none where one is damaged, which is said later."""
        try:
            return self.codec.messages(bodies)
        except StoreDamaged:
            return []

    def _lineage(self, conversation: str) -> Lineage[str]:
        """Return a conversation's line of ancestors."""
        if conversation not in self._lineages:
            self.head(conversation)
        return self._lineages.get(conversation)

    def _read_ranges(
        self,
        name: str,
        conversation: str,
        ranges: Sequence[tuple[str, int, int]],
        **values: Any,  # noqa: ANN401 - what a column has
    ) -> list[Any]:
        """Run a named statement over a conversation's and its ancestors' rows, in a round trip."""
        if not ranges:
            return []
        names, starts, stops = (list(column) for column in zip(*ranges, strict=True))
        root = self._families.root(names[0])
        where = {"root": root, "names": names, "starts": starts, "stops": stops}
        return self._fetch(conversation, name, where | values)

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
        updated, name = parse_cursor(after)
        values = {"updated": updated, "id": name, "tag": tag, "limit": limit + 1,
                  "without": list(without)}  # fmt: skip
        owner = owner or self.owner
        if owner is None:
            rows = self._connections.fetch("listing", values)
        else:
            rows = self._connections.fetch("listing_of_owner", values | {"owner": owner})
        heads = tuple(decode_head(row) for row in rows[:limit])
        self._saw_all(heads)
        more = f"{heads[-1].updated}:{heads[-1].id}" if len(rows) > limit else None
        return Listing(heads, more)

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one."""
        check_known(conversation)
        rows = self._read("forks", conversation)
        if not rows:
            self.head(conversation)
        heads = [decode_head(row) for row in rows]
        self._saw_all(heads)
        return heads

    def named(self, beginning: str, limit: int) -> list[str]:
        """Return the ids that begin with a text, sorted by code points, at most `limit`."""
        rows = self._connections.fetch("named", (beginning, f"{beginning}\U0010ffff", limit))
        return [row[0] for row in rows]

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        ranges = self._lineage(conversation).row_ranges(start, stop)
        if len(ranges) == 1:
            (own,) = ranges
            rows = self._read("bodies", own.key, own.start, own.stop, heir=conversation)
        else:
            rows = self._read_ranges("bodies_of", conversation, ranges)
        return self.codec.messages([row[0] for row in rows])

    def before(self, conversation: str, position: int) -> int:
        """Return how many messages come before a position, in all and by role, packed."""
        owner = self._lineage(conversation).owner(position)
        rows = [] if owner is None else self._read("before", owner.key, position, heir=conversation)
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
        rows = self._read_ranges("befores_of", conversation, ranges)
        return [pack_counts(*row) for row in rows]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages from its start-th to before its stop-th."""
        number = ROLE_NUMBERS[role]
        ranges = self._lineage(conversation).row_ranges()
        if len(ranges) == 1:
            rows = self._read("select", conversation, number, start, stop, FAR)
        else:
            rows = self._read_ranges(
                "select_of", conversation, ranges, role=number, first=start, last=stop
            )
        return [row[0] for row in rows]

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        ranges = self._lineage(conversation).row_ranges()
        rows = self._read_ranges("positions_of", conversation, ranges, id=message_id)
        return [row[0] for row in rows]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """Return the positions of the messages from one time to before another, in log order."""
        begin, end = 0 if since is None else since, FAR if until is None else until
        ranges = self._lineage(conversation).row_ranges()
        if len(ranges) == 1:
            rows = self._read("between_times", conversation, FAR, begin, end)
        else:
            rows = self._read_ranges(
                "between_times_of", conversation, ranges, since=begin, until=end
            )
        return [row[0] for row in rows]

    def replaced(self, conversation: str, position: int) -> int | None:
        """Return the position whose message was replaced by the one at a position."""
        owner = self._lineage(conversation).owner(position)
        rows = (
            [] if owner is None else self._read("replaced", owner.key, position, heir=conversation)
        )
        return rows[0][0] if rows else None

    def stop(self, conversation: str, version: int) -> int:
        """Return where the view's tail ended at a version."""
        rows = self._read("stop", conversation, version=version)
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
        rows = self._read_ranges("frames_of", conversation, ranges)
        return [(self._lineages.get(name).generation, *frame) for name, *frame in rows]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of the changes after one version and up to another."""
        rows = self._read("keys", conversation, after, upto)
        if not rows:
            self.head(conversation)
        return dict(rows)

    def search(
        self, words: str, conversation: str | None, limit: int, *, owner: str | None = None
    ) -> list[Hit]:
        """Return the messages with all these words, the newest first."""
        parse_query(words)  # a query that is refused waits for nothing
        root, ranges = "", None
        if conversation is not None:
            ranges = self._lineage(conversation).row_ranges()
            root = self._families.root(conversation)
        self._index.catch_up({0: None} if self._cluster is None else {**self._cluster.horizons()})
        owner = owner or self.owner
        hits = self._index.search(words, ranges, limit, root=root, owner=owner)
        if conversation is not None:  # inherited messages have the same position there
            hits = [replace(hit, conversation=conversation) for hit in hits]
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version of a conversation, or a cursor of the whole store."""
        if conversation is None:
            cluster = self._cluster
            rows = (
                read_settled(self._connections, after, limit)
                if cluster is None
                else cluster.journal(after, limit)
            )
        else:
            check_known(conversation)
            after, limit = min(max(after, -1), FAR), min(limit, FAR)  # their sum is a bigint
            rows = self._read("journal", conversation, after=after, limit=limit)
            if not rows:
                self.head(conversation)
            if self._cluster is not None:
                rows = [(*change, 0) for *change, _ in rows]
        changes = [decode_journaled(row) for row in rows]
        for change in changes if self._replica is not None else ():
            self._saw(change.conversation, change.version)
        return changes

    def newest(self) -> int:
        """Return the cursor of the newest change."""
        if self._cluster is not None:
            return self._cluster.newest()
        return int(self._connections.fetch("newest")[0][0])

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most so many seconds."""
        self._listener.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; raise `LeaseTaken` while another holds it."""
        values = {"id": conversation, "holder": holder, "lasts": round(seconds * 1000)}

        def take(root: str) -> tuple[Any, ...]:
            ((found, *numbers),) = self._connections.fetch("lease", values | {"root": root})
            return refuse_unknown(conversation) if numbers[0] is None else (found, *numbers)

        found, token, expires, left = self._in_family(conversation, take)
        if found != holder:
            raise LeaseTaken(describe_holder(found, left))
        return Lease(conversation, holder, token, expires, seconds)

    def begin_work(
        self, conversation: str, holder: str, seconds: float, kinds: Sequence[str]
    ) -> Work:
        """Take the lease as `lease` does, and read what work begins with, in one round trip."""

        def take(connection: TimedConnection, root: str) -> Work:
            where = root, conversation
            values = {"root": root, "id": conversation, "holder": holder, "lasts": lasts}
            with connection.batch():
                lease = connection.execute(STATEMENTS["lease"], values)
                records = connection.execute(STATEMENTS["records_of"], (*where, list(kinds)))
                head = connection.execute(STATEMENTS["head"], where)
            found, token, expires, left = lease.fetchall()[0]
            row = head.fetchone()
            if token is None or row is None:
                refuse_unknown(conversation)
            if found != holder:
                raise LeaseTaken(describe_holder(found, left))
            read: dict[str, dict[str, bytes]] = {kind: {} for kind in kinds}
            for kind, name, value in records.fetchall():
                read[kind][name] = value
            taken = Lease(conversation, holder, token, expires, seconds)
            return Work(taken, decode_head(row), read)

        lasts = round(seconds * 1000)
        work = self._in_family(
            conversation,
            lambda root: self._connections.run(lambda connection: take(connection, root)),
        )
        self._saw(conversation, work.head.version)
        return work

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

        def give(root: str) -> None:
            where = root, lease.conversation, lease.token
            if not self._connections.count("release", where):
                self.head(lease.conversation)

        self._in_family(lease.conversation, give)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log; None removes it."""
        self.keep(conversation, [(kind, name, value)])

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records beside the log, all or none."""
        check_records(records)
        columns = record_values(conversation, records).values()

        def store(root: str) -> None:
            ((answer,),) = self._connections.fetch("keep", (root, conversation, token, *columns))
            if answer[0] == Outcome.UNKNOWN:
                refuse_unknown(conversation)
            if answer[0] == Outcome.LEASE_LOST:
                refuse_lease()

        self._in_family(conversation, store)

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
        yield from check_label((*head[:-2], encode_tags(head[-2]), head[-1]) for head in heads)
        yield from check_journal_rows(
            lambda version: self._read("journal_hashes", conversation, version, _PAGE),
            journal_hash,
        )
        yield from check_rows(self._read("record_hashes", conversation))

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """Return the messages that are not in the index, or not with all their text, and why."""
        return self._read("unindexed_messages", conversation)

    def check(self) -> Iterator[str]:
        """Yield rows without a conversation, and forks whose parent is missing."""
        try:
            for what, conversation, position in self._connections.fetch("orphans"):
                yield f"{what} belongs to nothing: {conversation} at {position}"
        except StoreError as error:
            yield str(error)
