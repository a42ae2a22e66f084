"""Messages of a conversation, each in its place.

A message that comes in stays the bytes it is: palaver's own reader takes every form that the
design's documents show, and says what is wrong with the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType

from palaver.messages import Message, Role
from palaver.server.bodies import Shape

__all__ = [
    "Added",
    "Addition",
    "Asked",
    "Found",
    "FoundItem",
    "Item",
    "Items",
    "RawMessages",
]

MESSAGE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "id": {"type": "string", "minLength": 1, "maxLength": 200},
        "timestamp": {"type": "integer", "minimum": 0},
        "metadata": {"type": "object"},
    },
}
"""What a message looks like at least; the reference of messages has all of it."""

RawMessages: TypeAlias = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": MESSAGE})]
"""Messages that nobody has read yet."""

Ms = Annotated[int, Meta(ge=0)]


class Item(Shape, frozen=True):
    """A message in its place; `handle` is `msg-3` and the like, None where there is none."""

    index: int
    handle: str | None
    message: Message
    marks: list[str]
    tokens: int | UnsetType = UNSET


class Items(Shape, frozen=True):
    """A stretch of a view, from `start` on; `length` is that of the whole view."""

    version: int
    length: int
    start: int
    items: list[Item]


class Addition(Shape, frozen=True):
    """Messages to add at the end."""

    messages: RawMessages


class Added(Shape, frozen=True):
    """What was added, and where the conversation stands then."""

    version: int
    length: int
    items: list[Item]


class Asked(Shape, frozen=True):
    """Which messages are wanted: all that is given must fit (QR-01)."""

    role: Role | None = None
    roles: list[Role] | None = None
    mark: str | None = None
    recent: Ms | None = None
    range: tuple[Ms, Ms] | None = None
    since: Ms | None = None
    until: Ms | None = None
    text: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class FoundItem(Shape, frozen=True):
    """A message that was found, and its index in the view."""

    index: int | None
    message: Message


class Found(Shape, frozen=True):
    """What was found, and how much there is in all."""

    version: int
    total: int
    items: list[FoundItem]
