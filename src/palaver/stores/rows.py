"""A message as a row: its body as canonical JSON, its role as a number, and a hash of the row."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from palaver.errors import StoreDamaged, ValidationError
from palaver.history.erasing import tombstone
from palaver.history.rope import SHIFTS
from palaver.messages import ROLES, dump, parse_message

if TYPE_CHECKING:
    from palaver.messages import Message, Role

__all__ = [
    "ROLE_NUMBERS",
    "body_of",
    "counts_of",
    "message_of",
    "one",
    "packed",
    "row_hash",
    "tombstone",
]

ROLE_NUMBERS: Final[dict[Role, int]] = {role: number for number, role in enumerate(ROLES)}
_SYSTEM, _USER, _ASSISTANT, _TOOL = (SHIFTS[role] for role in ROLES)
_MASK: Final = 0xFFFFFFFF


def body_of(message: Message) -> str:
    """What is kept of a message."""
    return dump(message).decode()


def message_of(body: str) -> Message:
    """The message that was kept."""
    try:
        return parse_message(body)
    except ValidationError as error:
        msg = f"a message can't be read: {error}"
        raise StoreDamaged(msg) from error


def one(message: Message) -> int:
    """A message as a count, packed."""
    return 1 | 1 << SHIFTS[message.role]


def row_hash(position: int, body: str) -> int:
    """A number that changes when a row's position or a byte of its body does."""
    mark = blake2b(body.encode(), digest_size=8, salt=position.to_bytes(16, "big"))
    return int.from_bytes(mark.digest(), "big", signed=True)


def packed(position: int, system: int, user: int, assistant: int) -> int:
    """Counts as the rope has them, from the three that a row has; the rest are tools."""
    try:
        tool = position - system - user - assistant
    except TypeError as error:  # only a damaged file has rows without
        msg = f"the counts at {position} can't be read"
        raise StoreDamaged(msg) from error
    return position | system << _SYSTEM | user << _USER | assistant << _ASSISTANT | tool << _TOOL


def counts_of(counts: int) -> tuple[int, int, int]:
    """The three counts that a row has."""
    return counts >> _SYSTEM & _MASK, counts >> _USER & _MASK, counts >> _ASSISTANT & _MASK
