"""The backend in memory: everything in plain lists and dicts, gone with the process.

It keeps the same promises as the others as long as the process lives, and is the shortest example
of what a backend has to do. One lock covers every method.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec.structs import replace

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    LeaseTaken,
    Stale,
    StoreError,
    UnknownConversation,
)
from palaver.history.erase import tombstone
from palaver.history.log import packed_count
from palaver.messages import ROLES
from palaver.stores.erase import Traces
from palaver.stores.forks import FAR, Lineage
from palaver.stores.holders import describe_holder, monotonic_ms
from palaver.stores.process_fork import RestingCondition
from palaver.stores.records import (
    AlreadyCommitted,
    Change,
    Erased,
    Head,
    Hit,
    JournalEntry,
    Lease,
    Listing,
    StoredFrame,
    check_records,
    decode_body,
    encode_body,
    pruned_message,
)
from palaver.stores.text_index import TRUNCATED, collect_hits, is_truncated, parse_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.records import Record

__all__ = ["MemoryBackend"]


class MemoryBackend:
    """A store in memory."""

    def __init__(self) -> None:
        """Start empty."""
        self._conversations: dict[str, _Conversation] = {}
        self._all: list[JournalEntry | None] = []  # by cursor; None for deleted conversations
        self._created = 0
        self._order = _ByTime()
        self._owned: defaultdict[str | None, _ByTime] = defaultdict(_ByTime)
        self.erasures = 0
        self._condition = RestingCondition()

    @property
    def migrated(self) -> tuple[int, int]:
        """There is no schema."""
        return 0, 0

    def close(self) -> None:
        """Nothing to let go of."""

    def _get(self, conversation: str, after: int | None = None) -> _Conversation:
        """Return a conversation; raise `Stale` where it is not at the version `after`."""
        stored = self._conversations.get(conversation)
        if stored is None:
            msg = f"no conversation has the id {conversation!r}"
            raise UnknownConversation(msg)
        if after is not None and stored.head.version != after:
            _refuse_stale(conversation, after)
        return stored

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        with self._condition:
            if head.id in self._conversations:
                msg = f"a conversation has the id {head.id!r} already"
                raise AlreadyExists(msg)
            parent = None if head.parent is None else self._get(head.parent)
            self._created += 1
            stored = _Conversation(head, self._created, parent)
            counts = head.counts - sum(map(packed_count, first.messages))
            self._add(stored, first, counts)
            self._conversations[head.id] = stored
            if parent is not None:
                parent.forks[head.id] = None
            self._record(stored, first, 0, head.base)
            for record in first.records:
                self.put(head.id, *record)

    def commit(self, change: Change) -> int:
        """Store a change and return its version; raise `Stale` where another came first."""
        with self._condition:
            stored = self._get(change.conversation)
            if change.key is not None and change.key in stored.keys:
                return AlreadyCommitted(stored.keys[change.key])
            stored.check_token(change.token)
            head = stored.head
            if head.version != change.after:
                _refuse_stale(change.conversation, change.after)
            version = head.version + 1
            self._add(stored, change, head.counts)
            stored.head = replace(
                head,
                version=version,
                stop=change.stop,
                length=head.length + len(change.messages),
                counts=head.counts + sum(map(packed_count, change.messages)),
                framed=head.framed if change.frame is None else version,
                size=change.size,
                updated=max(head.updated, change.at),
            )
            self._record(stored, change, version, head.length)
            for kind, name, value in change.records:
                self.put(change.conversation, kind, name, value)
            return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Store changes that were made elsewhere: all of them, or none."""
        adopted = list(changes)  # an error in them is raised here, before anything is stored
        version = -1
        with self._condition:
            stored = self._conversations.get(adopted[0].conversation) if adopted else None
            savepoint = None if stored is None else stored.savepoint()
            count = len(self._all)
            try:
                for change in adopted:
                    if head is not None and change.after < 0:
                        self.create(head, change)
                        version = 0
                    else:
                        version = self.commit(change)
            except BaseException:
                if stored is not None and savepoint is not None:
                    stored.roll_back(savepoint)
                    self._note(stored.head)
                elif head is not None:
                    self._remove(head.id)
                del self._all[count:]
                raise
        return version

    @staticmethod
    def _add(stored: _Conversation, change: Change, counts: int) -> None:
        for index, message in enumerate(change.messages):
            stored.add(_Row(message, counts, change.replaces.get(index)))
            counts += packed_count(message)

    def _record(self, stored: _Conversation, change: Change, version: int, first: int) -> None:
        entry = JournalEntry(
            stored.head.id, version, change.kind, change.at, first, len(change.messages),
            change.data, len(self._all) + 1,
        )  # fmt: skip
        stored.journal.append((entry, change.stop, change.frame))
        if change.key is not None:
            stored.add_key(change.key, version)
        self._all.append(entry)
        self._note(stored.head)
        self._condition.notify_all()

    def _note(self, head: Head) -> None:
        """Note when a conversation was last changed."""
        self._order.note(head.id, head.updated)
        if head.owner is not None:
            self._owned[head.owner].note(head.id, head.updated)

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""
        with self._condition:
            stored = self._get(conversation, after)
            stored.head = replace(stored.head, title=title, tags=tuple(tags))

    def set_owner(self, conversation: str, owner: str | None, *, after: int | None = None) -> None:
        """Set whom a conversation belongs to."""
        with self._condition:
            stored = self._get(conversation, after)
            self._owned[stored.head.owner].note(conversation, None)
            stored.head = replace(stored.head, owner=owner)
            self._note(stored.head)

    def delete_all(self, conversations: Sequence[tuple[str, int]]) -> list[str]:
        """Delete conversations that are still at a version and that nothing was forked from."""
        deleted: list[str] = []
        for name, version in conversations:
            with suppress(UnknownConversation, Stale, StoreError):
                self.delete(name, after=version)
                deleted.append(name)
        return deleted

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Delete a conversation that nothing was forked from."""
        with self._condition:
            stored = self._get(conversation, after)
            for fork in stored.forks:
                msg = f"{fork} was forked from it, and reads its messages"
                raise StoreError(msg)
            for entry, _, _ in stored.journal:
                self._all[entry.cursor - 1] = None
            self._remove(conversation)

    def _remove(self, conversation: str) -> None:
        stored = self._conversations.pop(conversation, None)
        if stored is not None:
            if stored.head.parent is not None:
                self._get(stored.head.parent).forks.pop(conversation, None)
            self._order.note(conversation, None)
            self._owned[stored.head.owner].note(conversation, None)

    def family(self, conversation: str) -> list[str]:
        """Return a conversation and all its relatives: those that share its first ancestor."""
        with self._condition:
            first = self._get(conversation).lineage.ancestor(0)
            found = [self._get(conversation if first is None else first.key)]
            for stored in found:  # grows as forks of forks are found
                found += map(self._get, stored.forks)
            return [stored.head.id for stored in sorted(found, key=lambda stored: stored.serial)]

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one."""
        with self._condition:
            return [self._get(name).head for name in self._get(conversation).forks]

    def erase(
        self,
        conversation: str,
        message_ids: Sequence[str],
        at: int,
        *,
        note: Change | None = None,
        spare: Collection[tuple[str, int]] = (),
    ) -> Erased:
        """Replace messages by tombstones, here and in all relatives."""
        wanted = frozenset(message_ids)
        with self._condition:
            if note is not None:
                self.commit(note)
            family = [self._get(name) for name in self.family(conversation)]
            rows = [
                stored.rows[position - stored.head.base]
                for stored in family
                for position in sorted(p for name in wanted for p in stored.ids.get(name, ()))
                if (stored.head.id, position) not in spare
            ]
            traces = Traces([decode_body(row.body) for row in rows])
            dropped: list[tuple[str, str, str]] = []
            for row in rows:
                row.body = encode_body(tombstone(decode_body(row.body), at))
            for stored in family:
                found = [
                    key for key, value in stored.records.items() if traces.found_in(*key, value)
                ]
                for key in sorted(found):
                    stored.records.put(*key, None)
                    dropped.append((stored.head.id, *key))
                stored.head = replace(stored.head, erased=stored.head.erased + 1)
            self.erasures += 1
        return Erased(len(rows), tuple(dropped))

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that nothing reaches any more by tombstones."""
        with self._condition:
            if sorted(family) != sorted(self.family(note.conversation)):
                msg = f"{note.conversation} has other relatives meanwhile"
                raise Stale(msg)
            self.commit(note)
            stored = self._get(note.conversation)
            for position in positions:
                row = stored.rows[position - stored.head.base]
                row.body = encode_body(pruned_message(decode_body(row.body), note.at))
            stored.head = replace(stored.head, erased=stored.head.erased + 1)
            self.erasures += 1

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return where a conversation stands."""
        with self._condition:
            return self._get(conversation).head

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
        updated, _, name = ("" if after is None else after).partition(":")
        with self._condition:
            order = self._order if owner is None else self._owned[owner]
            names = order.before(int(updated) if updated else None, name)
            heads = (self._conversations[name].head for name in names)
            fitting = (
                head
                for head in heads
                if (tag is None or tag in head.tags) and not any(t in head.tags for t in without)
            )
            found = list(islice(fitting, limit + 1))
        page = tuple(found[:limit])
        more = f"{page[-1].updated}:{page[-1].id}" if len(found) > limit else None
        return Listing(page, more)

    def named(self, beginning: str, limit: int) -> list[str]:
        """Return the ids that begin with a text, sorted by code points, at most `limit`."""
        with self._condition:
            return sorted(name for name in self._conversations if name.startswith(beginning))[
                :limit
            ]

    def _lineage(self, conversation: str) -> list[tuple[_Conversation, int]]:
        """Return whose rows a conversation reads, and up to which position, the oldest first."""
        ranges = self._get(conversation).lineage.row_ranges()
        return [(self._get(name), stop) for name, _, stop in ranges]

    def _rows(self, conversation: str, start: int = 0, stop: int = FAR) -> list[tuple[int, _Row]]:
        """Return the rows that a conversation reads from one position to before another."""
        found: list[tuple[int, _Row]] = []
        for name, begin, end in self._get(conversation).lineage.row_ranges(start, stop):
            stored = self._get(name)
            rows = stored.rows[begin - stored.head.base : end - stored.head.base]
            found += enumerate(rows, begin)
        return found

    def _row(self, conversation: str, position: int) -> _Row | None:
        rows = self._rows(conversation, position, position + 1)
        return rows[0][1] if rows else None

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        with self._condition:
            return [decode_body(row.body) for _, row in self._rows(conversation, start, stop)]

    def before(self, conversation: str, position: int) -> int:
        """Return how many messages come before a position, in all and by role, packed."""
        with self._condition:
            row = self._row(conversation, position)
            return self._get(conversation).head.counts if row is None else row.before

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """Return what `before` returns for every position from one to before another."""
        with self._condition:
            return [row.before for _, row in self._rows(conversation, start, stop)]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages from its start-th to before its stop-th."""
        found: list[int] = []
        before = 0  # messages of the role in the conversations that were looked at
        with self._condition:
            for stored, end in self._lineage(conversation):
                positions = stored.roles[role]
                count = bisect_left(positions, end)
                found += positions[max(start - before, 0) : max(min(stop - before, count), 0)]
                before += count
        return found

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        with self._condition:
            return [
                position
                for stored, end in self._lineage(conversation)
                for position in stored.ids.get(message_id, ())
                if position < end
            ]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """Return the positions of the messages from one time to before another, in log order."""
        with self._condition:
            rows = self._rows(conversation, 0, self._get(conversation).head.length)
        return [
            position
            for position, row in rows
            if (since is None or row.time >= since) and (until is None or row.time < until)
        ]

    def replaced(self, conversation: str, position: int) -> int | None:
        """Return the position whose message was replaced by the one at a position."""
        with self._condition:
            row = self._row(conversation, position)
            return None if row is None else row.replaces

    def stop(self, conversation: str, version: int) -> int:
        """Return where the view's tail ended at a version."""
        with self._condition:
            return self._get(conversation).journal[version][1]

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        """Return the frames after one version and up to another, oldest first."""
        with self._condition:
            journal = self._get(conversation).journal[after + 1 : upto + 1]
        return [
            StoredFrame(entry.version, frame) for entry, _, frame in journal if frame is not None
        ]

    def generation(self, conversation: str) -> int:
        """Return how many ancestors a conversation has."""
        with self._condition:
            return self._get(conversation).lineage.generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Return frames of a conversation's ancestors: generation, version and bytes."""
        with self._condition:
            ranges = self._get(conversation).lineage.frames(wanted)
            return [
                (self.generation(name), frame.version, frame.data)
                for name, after, upto in ranges
                for frame in self.frames(name, max(after, -1), upto)
            ]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of the changes after one version and up to another."""
        with self._condition:
            return self._get(conversation).keys_between(after, upto)

    def search(
        self, words: str, conversation: str | None, limit: int, *, owner: str | None = None
    ) -> list[Hit]:
        """Return the messages with all these words, the newest first."""
        wanted = parse_query(words)
        with self._condition:
            found = [
                (n, c.head.base, c.rows[:])
                for n, c in self._conversations.items()
                if owner is None or c.head.owner == owner
            ]
            if conversation is not None:
                length = self._get(conversation).head.length
                found = [(conversation, 0, [row for _, row in self._rows(conversation, 0, length)])]
        if not wanted or limit <= 0:
            return []
        candidates = (  # read without the lock: others may write meanwhile
            (name, position, row.body)
            for name, base, rows in reversed(found)
            for position, row in reversed([*enumerate(rows, base)])
        )
        return collect_hits(candidates, words, wanted, limit)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version of a conversation, or a cursor of the whole store."""
        with self._condition:
            if conversation is None:
                entries = (self._all[index] for index in range(max(after, 0), len(self._all)))
                return list(islice((entry for entry in entries if entry is not None), limit))
            journal = self._get(conversation).journal
            return [entry for entry, _, _ in journal[after + 1 : after + 1 + limit]]

    def newest(self) -> int:
        """Return the cursor of the newest change."""
        with self._condition:
            return len(self._all)

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most so many seconds."""
        with self._condition:
            self._condition.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; raise `LeaseTaken` while another holds it."""
        with self._condition:
            stored = self._get(conversation)
            held = stored.lease
            now = monotonic_ms()
            if held is not None and held.holder != holder and held.expires > now:
                raise LeaseTaken(describe_holder(held.holder, held.expires - now))
            token = 1
            if held is not None:
                token = held.token + (held.holder != holder or held.expires <= now)
            expires = now + round(seconds * 1000)
            stored.lease = Lease(conversation, holder, token, expires, seconds)
            return stored.lease

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._condition:
            stored = self._get(lease.conversation)
            if stored.lease is not None and stored.lease.token == lease.token:
                stored.lease = replace(stored.lease, expires=0)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log; None removes it."""
        check_records([(kind, name, value)])
        with self._condition:
            self._get(conversation).records.put(kind, name, value)

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records beside the log, all or none."""
        check_records(records)
        with self._condition:
            stored = self._get(conversation)
            stored.check_token(token)
            for record in records:
                self.put(conversation, *record)

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
        with self._condition:
            return self._get(conversation).records.between(kind, since, until, last)

    def kinds(self, conversation: str) -> list[str]:
        """Return the kinds of records there are, sorted."""
        with self._condition:
            return self._get(conversation).records.kinds()

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """Yield nothing: a list has no damaged rows."""
        del conversation, start, stop
        return iter(())

    def unsound(self, conversation: str) -> Iterator[str]:
        """Yield nothing: an object has no damaged rows."""
        del conversation
        return iter(())

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """Return the messages that are not searched with all their text, and why."""
        with self._condition:
            stored = self._get(conversation)
            rows = [*enumerate(stored.rows, stored.head.base)]
        return [
            (position, TRUNCATED) for position, row in rows if is_truncated(decode_body(row.body))
        ]

    def check(self) -> Iterator[str]:
        """Yield nothing: there is no file that could be damaged."""
        return iter(())


def _refuse_stale(conversation: str, after: int) -> NoReturn:
    msg = f"{conversation} is no longer at version {after}"
    raise Stale(msg)


def _refuse_lease() -> NoReturn:
    msg = "the lease went to another worker meanwhile"
    raise LeaseLost(msg)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


class _Row:
    """A message as it is stored: what was before it, and its bytes."""

    __slots__ = ("before", "body", "id", "replaces", "role", "time")

    def __init__(self, message: Message, before: int, replaces: int | None) -> None:
        """Take a message, the packed counts before it, and the position it replaces."""
        self.before = before
        self.body = encode_body(message)
        self.id = message.id
        self.role: Role = message.role
        self.time = message.timestamp
        self.replaces = replaces


class _Records:
    """_Records by kind and name; the names of a kind are stored in order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._values: dict[str, dict[str, bytes]] = {}
        self._names: dict[str, list[str]] = {}

    def put(self, kind: str, name: str, value: bytes | None) -> None:
        """Set a record; None removes it."""
        values = self._values.setdefault(kind, {})
        names = self._names.setdefault(kind, [])
        if value is not None:
            if name not in values:
                insort(names, name)
            values[name] = value
        elif values.pop(name, None) is not None:
            del names[bisect_left(names, name)]

    def between(self, kind: str, since: str, until: str | None, last: int | None) -> dict[str, Any]:
        """Return the records of a kind from one name to before another, or the last few of them."""
        names, values = self._names.get(kind, []), self._values.get(kind, {})
        start = bisect_left(names, since)
        stop = len(names) if until is None else max(bisect_left(names, until), start)
        if last is not None:
            start = max(start, stop - last)
        return {name: values[name] for name in names[start:stop]}

    def kinds(self) -> list[str]:
        """Return the kinds there are, sorted."""
        return sorted(kind for kind, names in self._names.items() if names)

    def items(self) -> Iterator[tuple[tuple[str, str], bytes]]:
        """Yield every record with its kind and name, sorted."""
        for kind in self.kinds():
            for name in self._names[kind]:
                yield (kind, name), self._values[kind][name]

    def copy(self) -> _Records:
        """_Records that go their own way."""
        made = _Records()
        made._values = {kind: dict(values) for kind, values in self._values.items()}
        made._names = {kind: list(names) for kind, names in self._names.items()}
        return made


_Savepoint: TypeAlias = "tuple[Head, int, int, int, _Records]"


class _Conversation:
    """One conversation: its own rows, and where each id and each role stands among them."""

    def __init__(self, head: Head, serial: int, parent: _Conversation | None) -> None:
        """Start without rows; `serial` counts the conversations in the order of their creation."""
        self.head = head
        self.serial = serial
        above = None if parent is None else parent.lineage
        self.lineage: Lineage[str] = Lineage(head.id, above, head.base, head.origin)
        self.rows: list[_Row] = []
        self.ids: dict[str, list[int]] = {}
        self.roles: dict[Role, list[int]] = {role: [] for role in ROLES}
        self.journal: list[tuple[JournalEntry, int, bytes | None]] = []
        self.keys: dict[str, int] = {}
        self.keyed: list[tuple[int, str]] = []  # the same, by version
        self.forks: dict[str, None] = {}
        self.lease: Lease | None = None
        self.records = _Records()

    def check_token(self, token: int | None) -> None:
        """Raise `LeaseLost` for the token of a lease that another worker took since."""
        if token is not None and (self.lease is None or self.lease.token != token):
            _refuse_lease()

    def add(self, row: _Row) -> None:
        """Add a row at the end."""
        position = self.head.base + len(self.rows)
        self.rows.append(row)
        self.ids.setdefault(row.id, []).append(position)
        self.roles[row.role].append(position)

    def add_key(self, key: str, version: int) -> None:
        """Note the key of a version."""
        self.keys[key] = version
        self.keyed.append((version, key))

    def keys_between(self, after: int, upto: int) -> dict[int, str]:
        """Return the keys of the versions after one and up to another."""
        start = bisect_right(self.keyed, after, key=_version)
        return dict(self.keyed[start : bisect_right(self.keyed, upto, key=_version)])

    def savepoint(self) -> _Savepoint:
        """Return what `roll_back` needs to restore the present state."""
        return (
            self.head, len(self.rows), len(self.journal), len(self.keyed), self.records.copy(),
        )  # fmt: skip

    def roll_back(self, savepoint: _Savepoint) -> None:
        """Undo everything since a savepoint."""
        self.head, rows, journal, keyed, self.records = savepoint
        for row in reversed(self.rows[rows:]):
            self.ids[row.id].pop()
            self.roles[row.role].pop()
        for _, key in self.keyed[keyed:]:
            del self.keys[key]
        del self.rows[rows:]
        del self.journal[journal:]
        del self.keyed[keyed:]


def _version(entry: tuple[int, str]) -> int:
    return entry[0]


class _ByTime:
    """Conversations by the time of their last change, sorted when they are read."""

    def __init__(self) -> None:
        """Begin empty."""
        self._sorted: list[tuple[int, str]] = []
        self._listed: dict[str, int] = {}
        self._changed: dict[str, int | None] = {}

    def note(self, conversation: str, updated: int | None) -> None:
        """Note when a conversation was last changed; None where it was deleted."""
        self._changed[conversation] = updated

    def before(self, updated: int | None, name: str) -> Iterator[str]:
        """Return the conversations before a time and id, the latest first; all of them for None."""
        self._sort()
        entries = self._sorted
        stop = len(entries) if updated is None else bisect_left(entries, (updated, name))
        return (entries[index][1] for index in range(stop - 1, -1, -1))

    def _sort(self) -> None:
        changed, self._changed = self._changed, {}
        few = len(changed) * 8 < len(self._sorted)
        for name, updated in changed.items():
            known = self._listed.pop(name, None)
            if updated == known and known is not None:
                self._listed[name] = known
                continue
            if few and known is not None:
                del self._sorted[bisect_left(self._sorted, (known, name))]
            if updated is not None:
                self._listed[name] = updated
                if few:
                    insort(self._sorted, (updated, name))
        if not few:
            self._sorted = sorted((updated, name) for name, updated in self._listed.items())
