"""A message as a row: its body as canonical JSON, its role as a number, counts of roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.errors import StoreDamaged, ValidationError
from palaver.history.erasing import tombstone
from palaver.history.rope import SHIFTS
from palaver.messages import ROLES, Message, dump
from palaver.messages.codec import decode_message

if TYPE_CHECKING:
    from palaver.messages import Role

__all__ = [
    "PRUNED",
    "ROLE_NUMBERS",
    "body_of",
    "counts_of",
    "message_of",
    "one",
    "packed",
    "pruned",
    "tombstone",
]

ROLE_NUMBERS: Final[dict[Role, int]] = {role: number for number, role in enumerate(ROLES)}
_SYSTEM, _USER, _ASSISTANT, _TOOL = (SHIFTS[role] for role in ROLES)
_MASK: Final = 0xFFFFFFFF


PRUNED: Final = "palaver.pruned"
"""The metadata key of what pruning left of a message: when it was done."""


def pruned(message: Message, at: int) -> Message:
    """What stays of a message that nothing reaches any more: its id, role and time."""
    return Message(
        message.role, "", id=message.id, timestamp=message.timestamp, metadata={PRUNED: at}
    )


def body_of(message: Message) -> str:
    """What is kept of a message."""
    return dump(message).decode()


def message_of(body: str | None) -> Message:
    """The message that was kept; a damaged file may lead to a row that has none.

    >>> message_of(None)
    Traceback (most recent call last):
    palaver.errors.StoreDamaged: a message can't be read: its row is not there, or has no body
    """
    if body is None:
        msg = "a message can't be read: its row is not there, or has no body"
        raise StoreDamaged(msg)
    try:
        return decode_message(body)
    except ValidationError as error:
        msg = f"a message can't be read: {error}"
        raise StoreDamaged(msg) from error


def one(message: Message) -> int:
    """A message as a count, packed."""
    return 1 | 1 << SHIFTS[message.role]


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
