"""The protocol that every backend implements. All methods are synchronous and all or nothing.

Three backends come with palaver: `memory`, `sqlite`, `postgres`. Another one is a class with these
methods that passes `palaver.testing.store_conformance`.

What the SQL backends share is here too: statements in `.sql` files, each under its `-- name:`,
migrations, whose files begin with their number, and how rows and refusals are read.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, runtime_checkable
from uuid import UUID, uuid5

from msgspec import Struct

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    Stale,
    StoreError,
    UnknownConversation,
    ValidationError,
)
from palaver.messages import Message
from palaver.stores.forks import FAR
from palaver.stores.records import (
    MERGED_POSITIONS,
    Head,
    StoredFrame,
    check_idempotency_key,
    pack_counts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from palaver.messages import Role
    from palaver.stores.records import (
        Change,
        Erased,
        Hit,
        JournalEntry,
        Lease,
        Listing,
        Record,
    )

__all__ = [
    "Backend",
    "Opened",
    "check_creation_key",
    "check_family",
    "create_once",
    "decode_head",
    "id_from_key",
    "load_migrations",
    "load_queries",
    "open_conversation",
    "parse_cursor",
    "refuse_forked",
    "refuse_lease",
    "refuse_stale",
    "refuse_unknown",
    "was_created",
]

_NAMESPACE: Final = UUID("b6a2a7f3-5c0e-5c6a-9d0b-7d1d7a1f2e11")


@runtime_checkable
class Backend(Protocol):
    """What stores conversations: it commits changes and returns what was committed."""

    @property
    def migrated(self) -> tuple[int, int]:
        """The schema's version when the store was opened, and the version it has now."""
        ...

    @property
    def erasures(self) -> int:
        """How often something was erased through this backend: messages read before may be gone."""
        ...

    def close(self) -> None:
        """Close files and connections."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Create a conversation, with its first messages, frame and records, in one change.

        Raises `AlreadyExists` if the id is taken.

        A backend may have a method `create_fork(head, first)` too: it does the same with the
        parent's newest title, tags and owner, whatever the head says, and returns it as stored.
        """

    def commit(self, change: Change) -> int:
        """Commit a change and return its version; `Stale` if another was committed first.

        When it returns, the change is on disk. A change whose key is known is not made again: its
        version is returned as an `AlreadyCommitted`.

        A backend may have a method `commit_and_release(change, lease)` too: it does the same and
        gives a lease back, which a server does in one round trip.
        """
        ...

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Commit changes of one conversation that were made elsewhere: all of them, or none.

        It is one transaction. With a head, the first change creates the conversation, as `create`
        does; without, they follow its newest version, as with `commit`. The `records` of every
        change are stored too. Returns the last version. What `changes` itself raises ends it like
        any other error.

        A backend may have an attribute `adopts_in_turn` that is true: then `changes` is read inside
        of the transaction, after everyone else is kept from committing, and may itself read from
        this backend. A history uses it for a change that others overtook several times.
        """
        ...

    def describe(
        self,
        conversation: str,
        title: str | None,
        tags: Sequence[str],
        *,
        after: int | None = None,
    ) -> None:
        """Set a conversation's title and tags.

        With `after`, only if that is the newest version; `Stale` otherwise, and nothing changes.
        The check and the change are one step, as in `commit`.
        """

    def set_owner(self, conversation: str, owner: str | None, *, after: int | None = None) -> None:
        """Set whom a conversation belongs to; `after` is as in `describe`."""

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Delete a conversation that nothing was forked from; `after` is as in `describe`."""

    def delete_all(self, conversations: Sequence[tuple[str, int]]) -> list[str]:
        """Delete conversations in one step, each only if a version is still its newest.

        Those that others were forked from stay, too. Returns the ids of those that are gone. A
        backend may have a method `sweep()`, which destroys what is left of their bytes and is
        called after several of these.
        """
        ...

    def family(self, conversation: str) -> list[str]:
        """Return the ids of a conversation and of all that share its first ancestor."""
        ...

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one, oldest first.

        A backend may have a method `forks_of(conversations)` too, which returns those of several
        conversations, by their ids; and a method `read_whole(conversations)`, which returns a
        `StoredConversation` by id, of those that are no forks and not long.
        """
        ...

    def erase(
        self,
        conversation: str,
        message_ids: Sequence[str],
        at: int,
        *,
        note: Change | None = None,
        spare: Collection[tuple[str, int]] = (),
    ) -> Erased:
        """Replace messages with tombstones, here and in the whole family; destroy the bytes.

        Records that name or repeat them are removed too. `note` is the change that records it: it
        is committed in the same step, or neither is. `spare` are positions, each with its
        conversation, where other messages have one of the ids: they stay. It is given only if there
        are any.
        """
        ...

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that no version needs any more with tombstones; see `Store.prune`.

        `note` is committed in the same step. Raises `Stale`, too, if the family has changed.
        """

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return a conversation's head; `UnknownConversation` if it does not exist.

        A backend on another machine may have a method `open(conversation, last)` too, which returns
        an `Opened` in one round trip.
        """
        ...

    def listing(
        self,
        *,
        after: str | None,
        limit: int,
        tag: str | None,
        owner: str | None = None,
        without: Sequence[str] = (),
    ) -> Listing:
        """Return a page of conversations, the last changed first: all, or those of an owner.

        With a `tag` only those that have it; those that have a tag of `without` are left out.
        """
        ...

    def named(self, beginning: str, limit: int) -> list[str]:
        """Return the ids that begin with a text, by their code points, at most `limit`."""
        ...

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another.

        A backend may have a method `bodies(conversation, start, stop)` too: it returns them as JSON
        with commas in between, unchecked, for readers that need only a part of each.
        """
        ...

    def before(self, conversation: str, position: int) -> int:
        """Return how many messages there are before a position, in all and by role, packed."""
        ...

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """Return what `before` returns for every position from one to before another."""
        ...

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages from its start-th to before its stop-th."""
        ...

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        ...

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """Return the positions of the messages of a time, in the log's order."""
        ...

    def replaced(self, conversation: str, position: int) -> int | None:
        """Return the position whose message was replaced by the one at a position, if any."""
        ...

    def stop(self, conversation: str, version: int) -> int:
        """Return where the view's tail ended at a version."""
        ...

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        """Return the frames after one version and up to another, oldest first."""
        ...

    def generation(self, conversation: str) -> int:
        """Return how many ancestors a conversation has: 0 for one that was not forked.

        It takes few statements, however many ancestors there are.
        """
        ...

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Return frames of a conversation's ancestors: generation, version, bytes, in any order.

        `wanted` gives generations (0 is the first ancestor), each with the versions after which and
        up to which its frames are wanted. Generations that this conversation's line does not have,
        and what an ancestor did after the line was forked from it, are left out.
        """
        ...

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of changes after a version and up to another, by version."""
        ...

    def search(
        self, words: str, conversation: str | None, limit: int, *, owner: str | None = None
    ) -> list[Hit]:
        """Return the messages with all these words, best first.

        With an owner, only those that were written in conversations of that owner; then no
        conversation is given.
        """
        ...

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version (of a conversation) or a cursor (of the store)."""
        ...

    def newest(self) -> int:
        """Return the cursor of the last change of all."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, and no longer than this."""

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease for some seconds; `LeaseTaken` while another holds it.

        One clock that all users of the store share measures the seconds: the database server's, or
        the machine's monotonic one. The token rises with every holder, and when the same holder
        comes back after its lease expired.

        A backend may have a method `begin_work(conversation, holder, seconds, kinds)` too: it does
        the same, and returns a `Work` with the lease, and what is read then: the records of these
        kinds, and after them the head.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log (a tool call, a draft, an intent); None removes it."""

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records beside the log, all or none; see `put`.

        With the token of a lease that another worker holds by now it is refused with `LeaseLost`.
        """

    def records(
        self,
        conversation: str,
        kind: str,
        *,
        since: str = "",
        until: str | None = None,
        last: int | None = None,
    ) -> dict[str, bytes]:
        """Return the records of a kind, in the order of their names' code points.

        All of them, or those with names from `since` to before `until`, and of these only the
        `last` so many. Nothing else is read.
        """
        ...

    def kinds(self, conversation: str) -> list[str]:
        """Return the kinds of records that a conversation has, in order."""
        ...

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """Yield what is wrong with the rows of some messages that are this conversation's own."""
        ...

    def unsound(self, conversation: str) -> Iterator[str]:
        """Yield what is wrong with the rows of a conversation other than its messages."""
        ...

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """Return the messages that a search does not find, or not in full: positions and reasons.

        Only the conversation's own messages that the search index has reached are returned.
        """
        ...

    def check(self) -> Iterator[str]:
        """Yield everything that is wrong with the store as a whole, as text."""
        ...


class Opened(Struct, frozen=True):
    """What a history begins with: the head, all frames, and some messages at the view's end.

    `merged` are the records of merges, by name; `first` is the position of the first message.
    """

    head: Head
    frames: list[StoredFrame]
    merged: dict[str, bytes]
    first: int = 0
    messages: list[Message] = []


def open_conversation(backend: Backend, conversation: str, last: int) -> Opened:
    """Read what a history begins with, and the last so many messages."""
    opener: Callable[[str, int], Opened] | None = getattr(backend, "open", None)
    if opener is not None:
        return opener(conversation, last)
    head = backend.head(conversation)
    frames = backend.frames(conversation, -1, head.framed)
    merged = backend.records(conversation, MERGED_POSITIONS)
    first = max(head.stop - last, 0)
    messages = backend.messages(conversation, first, head.stop) if last else []
    return Opened(head, frames, merged, first, messages)


def id_from_key(key: str | None, parent: str | None) -> str | None:
    """Return an id that follows from an idempotency key, so that repeating gives the same id.

    >>> id_from_key("42", None) == id_from_key("42", None) != id_from_key("42", "a parent")
    True
    >>> id_from_key(None, None) is None
    True
    """
    return None if key is None else str(uuid5(_NAMESPACE, json.dumps([parent, key])))


def check_creation_key(name: str | None, key: str | None) -> None:
    """Refuse a key without an id: a second call could not find the first conversation."""
    check_idempotency_key(key)
    if key is not None and name is None:
        raise ValidationError("needs an id beside it", path="$.key")


def create_once(
    backend: Backend, head: Head, first: Change, *, as_parent: bool = True
) -> Opened | None:
    """Create a conversation, unless it was created with the same key and from the same parent.

    A fork has its parent's newest title, tags and owner, unless `as_parent` is false: then it has
    those of the head.

    Returns what a reader of the new one would find, or None if it was there and is to be read.
    """
    create: Callable[[Head, Change], Head | None] = backend.create
    if head.parent is not None and as_parent:
        create = getattr(backend, "create_fork", create)
    try:
        made = create(head, first) or head
    except AlreadyExists:
        if first.key is None or not was_created(backend, head.id, head.parent, first.key):
            raise
        return None
    merged = {name: data for kind, name, data in first.records if kind == MERGED_POSITIONS and data}
    frames = [StoredFrame(0, first.frame or b"")]
    return Opened(made, frames, merged, first.first, list(first.messages))


def was_created(backend: Backend, name: str, parent: str | None, key: str) -> bool:
    """Tell whether a conversation exists that was created from a parent with a key."""
    try:
        found = backend.head(name)
    except UnknownConversation:
        return False
    return (found.parent, backend.keys(name, -1, 0).get(0)) == (parent, key)


_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_END = re.compile(r";$", re.MULTILINE)


def load_queries(package: str) -> dict[str, str]:
    """Return the named statements of a package's `queries.sql`."""
    text = resources.files(package).joinpath("queries.sql").read_text("utf-8")
    _, *pieces = _NAME.split(text)
    return {
        name: _END.split(statement, maxsplit=1)[0].strip()  # a comment behind it would be run, too
        for name, statement in zip(pieces[::2], pieces[1::2], strict=True)
    }


def load_migrations(package: str) -> list[tuple[int, str]]:
    """Return the migrations of a package, in the order of their numbers."""
    folder = resources.files(package).joinpath("migrations")
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def decode_head(row: Sequence[Any], tags: Iterable[str]) -> Head:
    """Return a head from the 18 columns that both backends select, in this order."""
    (name, version, stop, length, system, user, assistant, framed, size, parent, base, origin,
     title, _, created, updated, erased, owner) = row  # fmt: skip
    counts = pack_counts(length, system, user, assistant)
    return Head(name, version, stop, length, counts, framed, size, parent, base, origin, title,
                tuple(tags), created, updated, erased, owner)  # fmt: skip


def parse_cursor(after: str | None) -> tuple[int, str]:
    """Return the time and id that a page of conversations comes after; None is the first page."""
    updated, _, name = (after or f"{FAR}:\U0010ffff").partition(":")
    return int(updated), name


def refuse_unknown(conversation: str) -> NoReturn:
    """Raise `UnknownConversation`."""
    msg = f"no conversation has the id {conversation!r}"
    raise UnknownConversation(msg)


def refuse_stale(conversation: str, after: int) -> NoReturn:
    """Raise `Stale`: a change was made for another version than the newest."""
    msg = f"{conversation} is no longer at version {after}"
    raise Stale(msg)


def refuse_lease() -> NoReturn:
    """Raise `LeaseLost`: a change carries the token of a lease that another worker took since."""
    msg = "the lease went to another worker meanwhile"
    raise LeaseLost(msg)


def refuse_forked(fork: str) -> NoReturn:
    """Raise `StoreError`: a conversation with forks can't be deleted."""
    msg = f"{fork} was forked from it, and reads its messages"
    raise StoreError(msg)


def check_family(conversation: str, expected: Iterable[str], found: Iterable[str]) -> None:
    """Raise `Stale` where a conversation has other relatives than expected."""
    if sorted(expected) != sorted(found):
        msg = f"{conversation} has other relatives meanwhile"
        raise Stale(msg)
