"""What a store must be able to do. Everything is synchronous, and everything is all or nothing.

Three stores come with palaver: `memory`, `sqlite`, `postgres`. Another one is a class with these
methods that passes `palaver.testing.store_conformance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.records import (
        Change,
        Erased,
        Frames,
        Head,
        Hit,
        Journaled,
        Lease,
        Listing,
        Record,
    )

__all__ = ["Keeper"]


@runtime_checkable
class Keeper(Protocol):
    """The store underneath: it keeps changes, and gives back what it was given."""

    @property
    def migrated(self) -> tuple[int, int]:
        """The schema's version when the store was opened, and since it was brought up to date."""
        ...

    @property
    def erasures(self) -> int:
        """How often something was destroyed through this keeper: then what was read may be gone."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages, frame and records, in one change.

        `AlreadyExists` where the id is taken.
        """

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first.

        When it returns, the change is on disk. A change whose key is known already is not made
        again: its version is answered, as an `Again`.
        """
        ...

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Keep changes of one conversation that were made elsewhere: all of them, or none.

        One transaction, however many there are. With a head, the first change begins the
        conversation, as `create` does; without, they go on where it stands, as `commit` does. The
        `records` of every change are kept too, the first's as well. Answers the last version.
        What `changes` itself raises ends it like any other error.
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

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Forget a conversation that nothing was forked from; `after` is as in `describe`."""

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        ...

    def forks(self, conversation: str) -> list[Head]:
        """Where those conversations stand that were forked from this one, oldest first."""
        ...

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> Erased:
        """Put tombstones in the place of messages, here and in all relatives; destroy the bytes.

        Records that give them away (see `traces`) go too. `note` is the change that says so: it is
        kept in the same step, or neither is.
        """
        ...

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Put tombstones in the place of messages that nothing reaches any more; see `pruning`.

        `note` is kept in the same step. `Stale`, too, where the family is no longer this one.
        """

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Where a conversation stands; `UnknownConversation` if it is not there."""
        ...

    def listing(self, *, after: str | None, limit: int, tag: str | None) -> Listing:
        """Conversations, the latest changed first, page by page."""
        ...

    def named(self, beginning: str, limit: int) -> list[str]:
        """The ids that begin with a text, by their code points, and no more than so many."""
        ...

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        ...

    def before(self, conversation: str, position: int) -> int:
        """How many messages there are before a position, in all and by role, packed."""
        ...

    def befores(self, conversation: str, start: int, stop: int) -> list[int]:
        """What `before` says of every position from one to before another, all at once."""
        ...

    def select(self, conversation: str, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages from its start-th to before its stop-th."""
        ...

    def positions_of(self, conversation: str, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        ...

    def between_times(self, conversation: str, since: int | None, until: int | None) -> list[int]:
        """The positions of the messages of a time, in the log's order."""
        ...

    def replaced(self, conversation: str, position: int) -> int | None:
        """The position whose message was replaced by the one at a position."""
        ...

    def stop(self, conversation: str, version: int) -> int:
        """Where the view's tail ended at a version."""
        ...

    def frames(self, conversation: str, after: int, upto: int) -> list[Frames]:
        """The frames after one version and up to another, oldest first."""
        ...

    def generation(self, conversation: str) -> int:
        """How many ancestors a conversation has: 0 for one that was not forked.

        However many there are, it takes few statements, and no more memory than they need.
        """
        ...

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Frames of a conversation's ancestors, as generation, version and bytes, in any order.

        Wanted are, for some generations (0 is the first ancestor), the frames after a version and
        up to another. What is not there is left out: a generation that this conversation's line
        does not have, and what an ancestor did after the line was forked from it.
        """
        ...

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """The idempotency keys of the changes after one version and up to another, by version."""
        ...

    def search(self, words: str, conversation: str | None, limit: int) -> list[Hit]:
        """The messages with all these words, best first."""
        ...

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def journal(self, conversation: str | None, after: int, limit: int) -> list[Journaled]:
        """Changes after a version (of a conversation) or a cursor (of the whole store)."""
        ...

    def newest(self) -> int:
        """The cursor of the last change of all."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until there may be news, and no longer than this."""

    # ── beside the log ──────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """Take or renew the lease for some seconds; `LeaseTaken` while another holds it.

        The seconds are measured by one clock that all users of the store share and that nobody's
        wall clock can move: the database server's, or the machine's monotonic one. The token rises
        with every holder, and where the same holder comes back after its lease ran out.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back."""

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Keep a record beside the log (a tool call, a draft, an intent); None removes it."""

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Keep or remove several records beside the log, all or none; see `put`.

        With the token of a lease that another holds meanwhile it is refused with `LeaseLost`.
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
        """The records of a kind, in the order of their names' code points.

        All of them, or those whose names stand from `since` to before `until`, and of these no more
        than the `last` so many. What is asked for is what is read.
        """
        ...

    def kinds(self, conversation: str) -> list[str]:
        """The kinds of records there are, in order."""
        ...

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def damaged(self, conversation: str, start: int, stop: int) -> Iterator[str]:
        """What is wrong with the rows of some messages that this conversation has itself."""
        ...

    def unsound(self, conversation: str) -> Iterator[str]:
        """What is wrong with the rows of a conversation beside those of its messages."""
        ...

    def unindexed(self, conversation: str) -> list[tuple[int, str]]:
        """The messages that a search does not find, or not by all they say: positions, and why.

        Of those that this conversation has itself, as far as the search index goes.
        """
        ...

    def check(self) -> Iterator[str]:
        """Everything that is wrong with the store as a whole, in words."""
        ...
