"""Ids of responses and items: each says where what it names is stored.

A response's id holds its conversation and the name of its record, an item's id its conversation,
its message and which item of the message it is. So any process finds what a client names with one
read, and there is no table of ids. To a client they are opaque.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple
from uuid import UUID

from palaver.messages import new_id

__all__ = [
    "ItemId",
    "ResponseId",
    "new_conversation_id",
    "new_record_name",
    "read_item_id",
    "read_response_id",
]

_OURS: Final = re.compile(r"conv_[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_KINDS: Final = ("cmp", "ctc", "cto", "fc", "fco", "mcp", "mcpr", "msg", "rs")
_RECORD: Final = 9
"""Bytes of a record's name: the version that the response follows, and a random number."""


class ResponseId(NamedTuple):
    """A response: its conversation, and the name of its record there.

    >>> name = ResponseId("talk", new_record_name(41))
    >>> read_response_id(str(name)) == name
    True
    """

    conversation: str
    record: str

    def __str__(self) -> str:
        """Return the id as clients see it."""
        return "resp_" + _encode(bytes.fromhex(self.record) + _pack(self.conversation))


class ItemId(NamedTuple):
    """An item: its kind, its conversation, its message, and its number among those of its kind.

    >>> name = ItemId("msg", "talk", new_id(), 0)
    >>> read_item_id(str(name)) == name
    True
    """

    kind: str
    conversation: str
    message: str
    number: int

    def __str__(self) -> str:
        """Return the id as clients see it."""
        message = _pack(self.message)
        head = self.number.to_bytes(2) + len(message).to_bytes(2)
        return f"{self.kind}_{_encode(head + message + _pack(self.conversation))}"


def new_conversation_id() -> str:
    """Return the id of a conversation that a client of this API begins."""
    return f"conv_{UUID(new_id()).hex}"


def new_record_name(version: int) -> str:
    """Return the name of a response's record: names sort by the versions they follow.

    >>> new_record_name(9) < new_record_name(10)
    True
    """
    return version.to_bytes(6).hex() + secrets.token_hex(_RECORD - 6)


def read_response_id(text: str) -> ResponseId | None:
    """Read a response's id; None if it is none.

    >>> read_response_id("resp_x") is None
    True
    """
    data = _decode(text, "resp")
    if data is None or len(data) <= _RECORD:
        return None
    conversation = _unpack(data[_RECORD:])
    return None if conversation is None else ResponseId(conversation, data[:_RECORD].hex())


def read_item_id(text: str) -> ItemId | None:
    """Read an item's id; None if it is none."""
    kind = text.partition("_")[0]
    data = _decode(text, kind) if kind in _KINDS else None
    if data is None or len(data) < 4:  # noqa: PLR2004 - the two numbers in front
        return None
    index, stop = int.from_bytes(data[:2]), 4 + int.from_bytes(data[2:4])
    message, conversation = _unpack(data[4:stop]), _unpack(data[stop:])
    if message is None or conversation is None:
        return None
    return ItemId(kind, conversation, message, index)


def _pack(name: str) -> bytes:
    """Return a name as bytes; a UUID as its number, since nearly every name is one."""
    if _OURS.fullmatch(name):
        return b"\0" + bytes.fromhex(name[5:])
    if _UUID.fullmatch(name):
        return b"\1" + UUID(name).bytes
    return b"\2" + name.encode()


def _unpack(data: bytes) -> str | None:
    kind, rest = data[:1], data[1:]
    try:
        if kind == b"\2":
            return rest.decode() or None
        number = UUID(bytes=rest)
    except ValueError:
        return None
    return f"conv_{number.hex}" if kind == b"\0" else str(number) if kind == b"\1" else None


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str, kind: str) -> bytes | None:
    """Return the bytes of an id; None unless this is the only way to write them."""
    body = text.removeprefix(f"{kind}_")
    if body == text or not body.isascii():
        return None
    try:
        data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except ValueError:
        return None
    return data if _encode(data) == body else None
