"""The store that forgets: everything in plain lists and dicts, gone with the process.

It keeps the same promises as the others as long as the process lives, and is the shortest answer to
what a store has to do.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    LeaseTaken,
    Stale,
    StoreError,
    UnknownConversation,
)
from palaver.stores.arguments import check_records
from palaver.stores.forking import RestingCondition
from palaver.stores.leases import monotonic_ms, taken_by
from palaver.stores.lineage import FAR
from palaver.stores.memory_tables import ByTime, Conversation, Row
from palaver.stores.records import (
    Again,
    Change,
    Erased,
    Frames,
    Head,
    Hit,
    Journaled,
    Lease,
    Listing,
)
from palaver.stores.rows import body_of, message_of, one, pruned, tombstone
from palaver.stores.traces import Traces
from palaver.stores.words import PARTIAL, has, indexed_text, is_cut, phrases, snippet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.records import Record

__all__ = ["MemoryKeeper"]


class MemoryKeeper:
    """A store in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[str, Conversation] = {}
        self._all: list[Journaled | None] = []  # by cursor; None where it was deleted
        self._begun = 0
        self._by_time = ByTime()
        self.erasures = 0
        self._news = RestingCondition()

    @property
    def migrated(self) -> tuple[int, int]:
        """There is no schema."""
        return 0, 0

    def close(self) -> None:
        """Nothing to let go of."""

    def _of(self, conversation: str, after: int | None = None) -> Conversation:
        """A conversation; `Stale` where it is not at the version `after`."""
        kept = self._kept.get(conversation)
        if kept is None:
            msg = f"no conversation has the id {conversation!r}"
            raise UnknownConversation(msg)
        if after is not None and kept.head.version != after:
            _stale(conversation, after)
        return kept

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        with self._news:
            if head.id in self._kept:
                msg = f"a conversation has the id {head.id!r} already"
                raise AlreadyExists(msg)
            parent = None if head.parent is None else self._of(head.parent)
            self._begun += 1
            kept = Conversation(head, self._begun, parent)
            counts = head.counts - sum(map(one, first.messages))
            self._add(kept, first, counts)
            self._kept[head.id] = kept
            if parent is not None:
                parent.forks[head.id] = None
            self._record(kept, first, 0, head.base)
            for record in first.records:
                self.put(head.id, *record)

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first."""
        with self._news:
            kept = self._of(change.conversation)
            if change.key is not None and change.key in kept.keys:
                return Again(kept.keys[change.key])
            if change.token is not None and (
                kept.lease is None or kept.lease.token != change.token
            ):
                msg = "the lease went to another worker meanwhile"
                raise LeaseLost(msg)
            head = kept.head
            if head.version != change.after:
                _stale(change.conversation, change.after)
            version = head.version + 1
            self._add(kept, change, head.counts)
            kept.head = replace(
                head,
                version=version,
                stop=change.stop,
                length=head.length + len(change.messages),
                counts=head.counts + sum(map(one, change.messages)),
                framed=head.framed if change.frame is None else version,
                size=change.size,
                updated=max(head.updated, change.at),
            )
            self._record(kept, change, version, head.length)
            for kind, name, value in change.records:
                self.put(change.conversation, kind, name, value)
            return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Keep changes that were made elsewhere: all of them, or none."""
        all_of_them = list(changes)  # what is wrong with them shows here, before anything is done
        version = -1
        with self._news:
            kept = self._kept.get(all_of_them[0].conversation) if all_of_them else None
            back_to = None if kept is None else kept.moment()
            told = len(self._all)
            try:
                for change in all_of_them:
                    if head is not None and change.after < 0:
                        self.create(head, change)
                        version = 0
                    else:
                        version = self.commit(change)
            except BaseException:
                if kept is not None and back_to is not None:
                    kept.return_to(back_to)
                    self._by_time.note(kept.head.id, kept.head.updated)
                elif head is not None:
                    self._remove(head.id)
                del self._all[told:]
                raise
        return version

    @staticmethod
    def _add(kept: Conversation, change: Change, counts: int) -> None:
        for index, message in enumerate(change.messages):
            kept.add(Row(message, counts, change.replaces.get(index)))
            counts += one(message)

    def _record(self, kept: Conversation, change: Change, version: int, first: int) -> None:
        told = Journaled(
            kept.head.id, version, change.kind, change.at, first, len(change.messages),
            change.data, len(self._all) + 1,
        )  # fmt: skip
        kept.journal.append((told, change.stop, change.frame))
        if change.key is not None:
            kept.add_key(change.key, version)
        self._all.append(told)
        self._by_time.note(kept.head.id, kept.head.updated)
        self._news.notify_all()

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""
        with self._news:
            kept = self._of(conversation, after)
            kept.head = replace(kept.head, title=title, tags=tuple(tags))

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Forget a conversation that nothing was forked from."""
        with self._news:
            kept = self._of(conversation, after)
            for fork in kept.forks:
                msg = f"{fork} was forked from it, and reads its messages"
                raise StoreError(msg)
            for told, _, _ in kept.journal:
                self._all[told.cursor - 1] = None
            self._remove(conversation)

    def _remove(self, conversation: str) -> None:
        kept = self._kept.pop(conversation, None)
        if kept is not None:
            if kept.head.parent is not None:
                self._of(kept.head.parent).forks.pop(conversation, None)
            self._by_time.note(conversation, None)

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        with self._news:
            first = self._of(conversation).lineage.ancestor(0)
            found = [self._of(conversation if first is None else first.key)]
            for kept in found:  # grows as forks of forks are found
                found += map(self._of, kept.forks)
            return [kept.head.id for kept in sorted(found, key=lambda kept: kept.serial)]

    def forks(self, conversation: str) -> list[Head]:
        """Where those conversations stand that were forked from this one."""
        with self._news:
            return [self._of(name).head for name in self._of(conversation).forks]

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> Erased:
        """Put tombstones in the place of messages, here and in all relatives."""
        wanted = frozenset(message_ids)
        with self._news:
            if note is not None:
                self.commit(note)
            family = [self._of(name) for name in self.family(conversation)]
            rows = [
                kept.rows[position - kept.head.base]
                for kept in family
                for position in sorted(p for name in wanted for p in kept.ids.get(name, ()))
            ]
            traces = Traces([message_of(row.body) for row in rows])
            gone: list[tuple[str, str, str]] = []
            for row in rows:
                row.body = body_of(tombstone(message_of(row.body), at))
            for kept in family:
                found = [key for key, value in kept.records.items() if traces.are_in(*key, value)]
                for key in sorted(found):
                    kept.records.put(*key, None)
                    gone.append((kept.head.id, *key))
                kept.head = replace(kept.head, erased=kept.head.erased + 1)
            self.erasures += 1
        return Erased(len(rows), tuple(gone))

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Put tombstones in the place of messages that nothing reaches any more."""
        with self._news:
            if sorted(family) != sorted(self.family(note.conversation)):
                msg = f"{note.conversation} has other relatives meanwhile"
                raise Stale(msg)
            self.commit(note)
            kept = self._of(note.conversation)
            for position in positions:
                row = kept.rows[position - kept.head.base]
                row.body = body_of(pruned(message_of(row.body), note.at))
            kept.head = replace(kept.head, erased=kept.head.erased + 1)
            self.erasures += 1

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Where a conversation stands."""
        with self._news:
            return self._of(conversation).head

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Conversations, the latest changed first, page by page."""
        updated, _, name = ("" if after is None else after).partition(":")
        with self._news:
            names = self._by_time.before(int(updated) if updated else None, name)
            heads = (self._kept[name].head for name in names)
            found = list(islice((h for h in heads if tag is None or tag in h.tags), limit + 1))
        page = tuple(found[:limit])
        more = f"{page[-1].updated}:{page[-1].id}" if len(found) > limit else None
        return Listing(page, more)

    def named(self, beginning: str, limit: int) -> list[str]:
        """The ids that begin with a text, by their code points, and no more than so many."""
        with self._news:
            return sorted(name for name in self._kept if name.startswith(beginning))[:limit]

    def _lineage(self, conversation: str) -> list[tuple[Conversation, int]]:
        """Whose rows a conversation reads and up to which position, the oldest first."""
        ranges = self._of(conversation).lineage.stretches()
        return [(self._of(name), stop) for name, _, stop in ranges]

    def _rows(self, conversation: str, start: int = 0, stop: int = FAR) -> list[tuple[int, Row]]:
        """The rows that a conversation reads from one position to before another."""
        found: list[tuple[int, Row]] = []
        for name, begin, end in self._of(conversation).lineage.stretches(start, stop):
            kept = self._of(name)
            rows = kept.rows[begin - kept.head.base : end - kept.head.base]
            found += enumerate(rows, begin)
        return found

    def _row(self, conversation: str, position: int) -> Row | None:
        rows = self._rows(conversation, position, position + 1)
        return rows[0][1] if rows else None

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        with self._news:
            return [message_of(row.body) for _, row in self._rows(conversation, start, stop)]

    def before(self, conversation: str, position: int) -> int:
        """How many messages there are before a position, in all and by role, packed."""
        with self._news:
            row = self._row(conversation, position)
            return self._of(conversation).head.counts if row is None else row.before

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """What `before` says of every position from one to before another, all at once."""
        with self._news:
            return [row.before for _, row in self._rows(conversation, start, stop)]

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages from its start-th to before its stop-th."""
        found: list[int] = []
        before = 0  # messages of the role in the conversations that were looked at
        with self._news:
            for kept, end in self._lineage(conversation):
                positions = kept.roles[role]
                count = bisect_left(positions, end)
                found += positions[max(start - before, 0) : max(min(stop - before, count), 0)]
                before += count
        return found

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        with self._news:
            return [
                position
                for kept, end in self._lineage(conversation)
                for position in kept.ids.get(message_id, ())
                if position < end
            ]

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """The positions of the messages of a time, in the log's order."""
        with self._news:
            rows = self._rows(conversation, 0, self._of(conversation).head.length)
        return [
            position
            for position, row in rows
            if (since is None or row.time >= since) and (until is None or row.time < until)
        ]

    def replaced(self, conversation: str, position: int) -> int | None:
        """The position whose message was replaced by the one at a position."""
        with self._news:
            row = self._row(conversation, position)
            return None if row is None else row.replaces

    def stop(self, conversation: str, version: int) -> int:
        """Where the view's tail ended at a version."""
        with self._news:
            return self._of(conversation).journal[version][1]

    def frames(self, conversation: str, after: int, upto: int) -> list[Frames]:
        """The frames after one version and up to another, oldest first."""
        with self._news:
            journal = self._of(conversation).journal[after + 1 : upto + 1]
        return [Frames(told.version, frame) for told, _, frame in journal if frame is not None]

    def generation(self, conversation: str) -> int:
        """How many ancestors a conversation has."""
        with self._news:
            return self._of(conversation).lineage.generation

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Frames of a conversation's ancestors: generation, version and bytes."""
        with self._news:
            ranges = self._of(conversation).lineage.frames(wanted)
            return [
                (self.generation(name), kept.version, kept.data)
                for name, after, upto in ranges
                for kept in self.frames(name, max(after, -1), upto)
            ]

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """The idempotency keys of the changes after one version and up to another, by version."""
        with self._news:
            return self._of(conversation).keys_between(after, upto)

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """The messages with all these words, the newest first."""
        wanted = phrases(words)
        hits: list[Hit] = []
        with self._news:
            found = [(name, kept.head.base, kept.rows[:]) for name, kept in self._kept.items()]
            if conversation is not None:
                length = self._of(conversation).head.length
                found = [(conversation, 0, [row for _, row in self._rows(conversation, 0, length)])]
        for name, base, rows in reversed(found) if wanted else ():  # others may write meanwhile
            for position, row in reversed([*enumerate(rows, base)]):
                if len(hits) >= limit:
                    return hits
                message = message_of(row.body)
                text = indexed_text(message)
                if has(text, wanted):
                    hits.append(Hit(name, position, message, snippet(text, words)))
        return hits

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[Journaled]:
        """Changes after a version (of a conversation) or a cursor (of the whole store)."""
        with self._news:
            if conversation is None:
                told = (self._all[place] for place in range(max(after, 0), len(self._all)))
                return list(islice((one for one in told if one is not None), limit))
            journal = self._of(conversation).journal
            return [one for one, _, _ in journal[after + 1 : after + 1 + limit]]

    def newest(self) -> int:
        """The cursor of the last change of all."""
        with self._news:
            return len(self._all)

    def wait(self, seconds: float) -> None:
        """Wait until there may be news, and no longer than this."""
        with self._news:
            self._news.wait(seconds)

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease; `LeaseTaken` while another holds it."""
        with self._news:
            kept = self._of(conversation)
            held = kept.lease
            now = monotonic_ms()
            if held is not None and held.holder != holder and held.expires > now:
                raise LeaseTaken(taken_by(held.holder, held.expires - now))
            token = 1
            if held is not None:
                token = held.token + (held.holder != holder or held.expires <= now)
            expires = now + round(seconds * 1000)
            kept.lease = Lease(conversation, holder, token, expires, seconds)
            return kept.lease

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._news:
            kept = self._of(lease.conversation)
            if kept.lease is not None and kept.lease.token == lease.token:
                kept.lease = replace(kept.lease, expires=0)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Keep a record beside the log; None removes it."""
        check_records([(kind, name, value)])
        with self._news:
            self._of(conversation).records.put(kind, name, value)

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Keep or remove several records beside the log, all or none."""
        check_records(records)
        with self._news:
            kept = self._of(conversation)
            if token is not None and (kept.lease is None or kept.lease.token != token):
                msg = "the lease went to another worker meanwhile"
                raise LeaseLost(msg)
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
        """The records of a kind, by name, from one name to before another."""
        with self._news:
            return self._of(conversation).records.between(kind, since, until, last)

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of records there are, in order."""
        with self._news:
            return self._of(conversation).records.kinds()

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """Nothing can be wrong with a list."""
        del conversation, start, stop
        return iter(())

    def unsound(self, conversation: str) -> Iterator[str]:
        """Nothing can be wrong with an object."""
        del conversation
        return iter(())

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """The messages that a search does not find by all they say, and why."""
        with self._news:
            kept = self._of(conversation)
            rows = [*enumerate(kept.rows, kept.head.base)]
        return [(position, PARTIAL) for position, row in rows if is_cut(message_of(row.body))]

    def check(self) -> Iterator[str]:
        """Nothing can be wrong with a dict."""
        return iter(())


def _stale(conversation: str, after: int) -> NoReturn:
    msg = f"{conversation} is no longer at version {after}"
    raise Stale(msg)
