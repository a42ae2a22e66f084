"""A checkpoint and a task's writes as records: small, and complete without their neighbours.

A checkpoint's record holds all of it but two things: a list of messages is a version of a
conversation, and a large value lies in a record of its own, under the channel's version. What was
written is in the log a moment later, so its record then says where and no longer what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Struct

from palaver.errors import StoreDamaged

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol

__all__ = ["SMALL", "Ref", "Saved", "Typed", "Write", "is_small", "read_writes", "writes_record"]

SMALL: Final = 64
"""Bytes up to which a value is kept in every checkpoint that has it."""

Typed: TypeAlias = tuple[str, bytes]
"""A value as a serializer leaves it: what kind of bytes, and the bytes."""


class Ref(NamedTuple):
    """A version of a conversation; the thread's own has no name."""

    conversation: str
    version: int


class Saved(Struct, frozen=True, array_like=True):
    """A checkpoint as it is kept."""

    parent: str | None
    checkpoint: Typed
    metadata: Typed
    messages: dict[str, Ref]
    small: dict[str, Typed]
    large: tuple[str, ...]
    """The channels whose values lie in records of their own."""

    def body(self, serde: SerializerProtocol) -> dict[str, Any]:
        """The checkpoint without its channels' values."""
        return cast("dict[str, Any]", serde.loads_typed(self.checkpoint))

    def about(self, serde: SerializerProtocol) -> CheckpointMetadata:
        """Its metadata."""
        return cast("CheckpointMetadata", serde.loads_typed(self.metadata))

    def record(self) -> bytes:
        """The bytes of its record."""
        return _encode(self)

    @classmethod
    def read(cls, data: bytes) -> Saved:
        """A checkpoint from its record."""
        try:
            return _SAVED.decode(data)
        except msgspec.MsgspecError as error:
            msg = f"a checkpoint can't be read: {error}"
            raise StoreDamaged(msg) from None


class Write(Struct, frozen=True, array_like=True):
    """One write of a task: where, and the value, or where in the log its messages stand."""

    index: int
    channel: str
    value: Typed | None
    conversation: str = ""
    positions: tuple[int, ...] = ()
    alone: bool = False
    """Whether it was a message, and no list of one."""
    path: str | None = None
    """The task's path, where it is not the one of the first."""


class _Written(Struct, array_like=True):
    path: str
    writes: list[Write]


_encode: Final = msgspec.msgpack.Encoder().encode
_SAVED: Final = msgspec.msgpack.Decoder(Saved)
_WRITTEN: Final = msgspec.msgpack.Decoder(_Written)


def is_small(value: Typed) -> bool:
    """Tell whether a value is kept in every checkpoint that has it."""
    return len(value[1]) <= SMALL


def writes_record(path: str, writes: list[Write]) -> bytes:
    """The bytes of a task's writes."""
    return _encode(_Written(path, writes))


def read_writes(data: bytes) -> tuple[str, list[Write]]:
    """A task's path, and its writes."""
    try:
        written = _WRITTEN.decode(data)
    except msgspec.MsgspecError as error:
        msg = f"what a task wrote can't be read: {error}"
        raise StoreDamaged(msg) from None
    return written.path, written.writes
