"""What a message weighs in tokens: its words, calls, results and files, and a little for itself.

Providers wrap every message in a few tokens of their own and count a picture by its size; both are
figures to set. Nothing here depends on a provider: the provider's own count, where there is one,
always comes first (see `palaver.conversation.usage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.messages.files import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart
from palaver.messages.toolstate import ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages.message import Message
    from palaver.messages.parts import Part
    from palaver.tokens.counters import Counter

__all__ = ["Weights", "weigh", "weigh_schema"]


class Weights(Struct, frozen=True):
    """What the things weigh that are no words."""

    message: int = 4
    call: int = 8
    image: int = 800
    file: int = 1_500
    cleared: int = 8


USUAL: Final = Weights()


def weigh(message: Message, count: Counter, weights: Weights = USUAL) -> int:
    """How many tokens a message adds to a request.

    >>> from palaver.messages import user
    >>> from palaver.tokens import estimate
    >>> weigh(user("ten letters"), estimate)
    9
    """
    if isinstance(message.content, str):
        return weights.message + count(message.content)
    return weights.message + _sum(message.content, count, weights)


def weigh_schema(schema: Any, count: Counter) -> int:  # noqa: ANN401 - any JSON
    """How many tokens a tool's description takes."""
    return count(msgspec.json.encode(schema).decode())


def _sum(parts: Iterable[Part], count: Counter, weights: Weights) -> int:
    total = 0
    for part in parts:
        if isinstance(part, TextPart):
            total += 0 if part.ignored else count(part.text)
        elif isinstance(part, ReasoningPart):
            total += count(part.text)
        elif isinstance(part, ToolCallPart):
            total += weights.call + count(part.tool) + count(part.raw)
        elif isinstance(part, ToolPart):
            total += weights.call + _result(part, count, weights)
        elif isinstance(part, FilePart):
            total += _file(part, weights)
    return total


def _result(part: ToolPart, count: Counter, weights: Weights) -> int:
    state = part.state
    if isinstance(state, ToolError):
        return count(state.error)
    if not isinstance(state, ToolCompleted):  # pragma: no cover - a message has no open calls
        return 0
    if state.time.compacted is not None:
        return weights.cleared
    files = state.attachments or ()
    return count(state.output) + sum(_file(file, weights) for file in files)


def _file(part: FilePart, weights: Weights) -> int:
    return weights.image if part.mime.startswith("image/") else weights.file
