"""A conversation as a strategy sees it: messages, tokens, what must stay, what belongs together.

A group is what can't be parted: an answer with its calls and the results that follow it. Whoever
drops or replaces, does so by whole groups; so no edit of theirs leaves a call without its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.history import View
from palaver.messages import Message, ToolCallPart, ToolPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.history import Piece
    from palaver.messages import Role

__all__ = ["Group", "Scene", "scene_of", "stretches"]


class Group(Struct, frozen=True):
    """Messages that stay or go together: from one index to before another."""

    start: int
    stop: int
    tokens: int
    stays: bool
    begins_turn: bool


class Scene(Struct, frozen=True):
    """What a strategy needs to know, read once."""

    view: View
    messages: list[Message]
    tokens: list[int]
    groups: tuple[Group, ...]
    weigh: Callable[[Message], int]

    @property
    def total(self) -> int:
        """How many tokens there are in all, by our own count."""
        return sum(self.tokens)


def scene_of(
    view: View,
    tokens: Sequence[int],
    weigh: Callable[[Message], int],
    *,
    open_calls: frozenset[str],
    keep_roles: frozenset[Role],
) -> Scene:
    """Look at a view: group it, and tell what must stay."""
    messages = list(view)
    marked = {message_id for ids in view.marks.values() for message_id in ids}
    kept = {
        index
        for index, message in enumerate(messages)
        if message.role in keep_roles or message.id in marked
    }
    groups = tuple(_groups(messages, tokens, kept, open_calls))
    return Scene(view, messages, list(tokens), groups, weigh)


def _groups(
    messages: Sequence[Message],
    tokens: Sequence[int],
    kept: set[int],
    open_calls: frozenset[str],
) -> Iterator[Group]:
    start = 0
    while start < len(messages):
        stop, waiting = start + 1, _calls(messages[start])
        is_open = not waiting.isdisjoint(open_calls)
        if waiting:
            while stop < len(messages) and not waiting.isdisjoint(_results(messages[stop])):
                stop += 1
        inside = range(start, stop)
        stays = is_open or not kept.isdisjoint(inside)
        begins = messages[start].role == "user"
        yield Group(start, stop, sum(tokens[start:stop]), stays, begins)
        start = stop


def _calls(message: Message) -> set[str]:
    return {part.call_id for part in message.parts if isinstance(part, ToolCallPart)}


def _results(message: Message) -> set[str]:
    return {part.call_id for part in message.parts if isinstance(part, ToolPart)}


def stretches(indexes: Sequence[int]) -> Iterator[Piece]:
    """Rising indexes as ranges."""
    start = stop = -1
    for index in indexes:
        if index != stop:
            if start < stop:
                yield range(start, stop)
            start = index
        stop = index + 1
    if start < stop:
        yield range(start, stop)
