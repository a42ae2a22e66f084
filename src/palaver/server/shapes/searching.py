"""What a search found."""

from __future__ import annotations

from palaver.messages import Message
from palaver.server.bodies import Shape

__all__ = ["Hit", "Hits"]


class Hit(Shape, frozen=True):
    """A message with the words in it; `index` is None where it is not in view now."""

    conversation: str
    title: str | None
    index: int | None
    message: Message
    snippet: str


class Hits(Shape, frozen=True):
    """The best first."""

    items: list[Hit]
