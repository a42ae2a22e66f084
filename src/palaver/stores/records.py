"""What a store is told and what it tells: plain values, the same for every store.

A store knows nothing of ropes and operations. It keeps messages by conversation and position, one
journal record for each change, and for each conversation a head: where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct

from palaver.messages import Message
from palaver.messages.gate import EMPTY

__all__ = [
    "NONE",
    "Again",
    "Change",
    "Erased",
    "Frames",
    "Head",
    "Hit",
    "Journaled",
    "Lease",
    "Listing",
    "Record",
]


Record: TypeAlias = tuple[str, str, bytes | None]
"""Something kept beside the log: kind, name, value; None takes it away."""

NONE: Final = cast("Mapping[int, int]", EMPTY)
"""No message replaces another."""


class Head(Struct, frozen=True, gc=False):
    """Where a conversation stands.

    `stop` is where the view's tail ends, `length` how many messages the log has, `counts` how many
    by role (packed, see `palaver.history.rope`), `framed` the version of the frame in force. A fork
    reads the first `base` messages from its `parent`, as it was at version `origin`. `erased`
    counts the erasures: when it rises, what was read before may be gone.
    """

    id: str
    version: int
    stop: int
    length: int
    counts: int
    framed: int
    size: int
    parent: str | None = None
    base: int = 0
    origin: int = 0
    title: str | None = None
    tags: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    erased: int = 0


class Change(Struct, frozen=True, gc=False):
    """One change of a conversation, to be kept whole or not at all.

    It applies to the version `after` and makes the next one; `first` and `counts` say where the log
    ended then, which is true whenever the version is. `frame` is there for every change but
    an append that goes on where the last one ended. `replaces` says which of the messages were put
    in the place of which positions. `key` makes a repetition harmless; `token` is that of the lease
    it is made under; `records` are kept with it, by kind and name (None: taken away).
    """

    conversation: str
    after: int
    kind: str
    at: int
    stop: int
    size: int
    first: int = 0
    counts: int = 0
    messages: tuple[Message, ...] = ()
    frame: bytes | None = None
    replaces: Mapping[int, int] = NONE
    key: str | None = None
    token: int | None = None
    data: Mapping[str, Any] = EMPTY
    records: tuple[Record, ...] = ()

    @property
    def plain(self) -> bool:
        """Tell whether it only goes on where the last change ended: an append, and no more."""
        return self.frame is None and self.kind == "append" and not self.data


class Journaled(Struct, frozen=True, gc=False):
    """A change that was kept: what a follower is told."""

    conversation: str
    version: int
    kind: str
    at: int
    first: int
    count: int
    data: Mapping[str, Any] = EMPTY
    cursor: int = 0


class Again(int):
    """The version of a change that was kept before, under the same key."""

    __slots__ = ()


class Erased(Struct, frozen=True, gc=False):
    """What an erasure came to: how many rows, and which records (conversation, kind, name)."""

    places: int
    records: tuple[tuple[str, str, str], ...] = ()


class Frames(Struct, frozen=True, gc=False):
    """A frame as it is kept: the first version it is in force at, and its bytes."""

    version: int
    data: bytes


class Lease(Struct, frozen=True, gc=False):
    """The right to take a step, with a token that rises with every holder.

    `seconds` is how long it was given for, from the moment it was taken or renewed. `expires` is
    when that ends, in milliseconds on the store's own clock: the server's time on PostgreSQL, the
    machine's monotonic clock (`time.monotonic`) elsewhere. It can be compared with other leases of
    the same store, not with the wall clock of whoever holds it.
    """

    conversation: str
    holder: str
    token: int
    expires: int
    seconds: float


class Listing(Struct, frozen=True):
    """Some conversations, and where the next page begins (None after the last)."""

    conversations: tuple[Head, ...]
    next: str | None


class Hit(Struct, frozen=True, gc=False):
    """A message that a search found."""

    conversation: str
    position: int
    message: Message
    snippet: str
