"""Answers to be cut to pieces, and what two messages must have in common to be the same answer."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    UnknownPart,
    user,
)
from palaver.messages.message import Message
from palaver.messages.parts import tool_part
from palaver.messages.tool_state import complete, pending, start
from palaver.testing import check_request
from palaver.wire import Target
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import DrawFn

    from palaver.messages import ModelRef
    from palaver.testing.providers import FormatName

__all__ = ["cut", "folded", "info_of", "parts_of", "said", "sent_back", "words"]

words = st.text('ab \n"\\é{}:,你', max_size=12)


def cut(draw: DrawFn, text: str) -> list[str]:
    """The text in pieces, an empty one among them at times."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    bounds = [0, *places, len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


def folded(form: str, events: Iterable[Any], **fields: Any) -> Message:  # noqa: ANN401 - as in wire.fold
    """The message of a stream."""
    reader = wire.reply_reader(form, **fields)
    for event in events:
        reader.feed(event)
    assert () == reader.notes
    return reader.message()


def info_of(message: Message) -> AssistantInfo:
    """What an answer carries."""
    assert isinstance(message.info, AssistantInfo)
    return message.info


def parts_of(message: Message) -> list[Any]:
    """The parts of an answer, of whatever kinds they are."""
    return list(message.parts)


def said(message: Message) -> list[Any]:
    """All of an answer but its own ids and times."""
    info = info_of(message)
    parts: list[Any] = [message.content] if isinstance(message.content, str) else []
    for part in message.parts:
        if isinstance(part, TextPart | ReasoningPart):
            parts.append((part.type, part.text, part.metadata))
        elif isinstance(part, ToolCallPart):
            parts.append((part.call_id, part.tool, part.input, part.raw, part.metadata))
        elif isinstance(part, UnknownPart):
            parts.append({key: value for key, value in part.raw.items() if key != "id"})
        elif isinstance(part, FilePart):
            parts.append((part.mime, part.url))
    facts = (info.finish, info.tokens, info.cost, info.model, info.error, message.metadata)
    return [*parts, *facts, info.completed is not None]


def sent_back(form: FormatName, message: Message, model: ModelRef) -> list[Any]:
    """What the model that gave an answer gets to see of it, with results; it must be valid."""
    results = [
        Message(
            "tool",
            (
                tool_part(
                    part.session_id,
                    part.message_id,
                    part.call_id,
                    part.tool,
                    complete(start(pending({}, "")), "done", tool=part.tool),
                ),
            ),
        )
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    talk = [user("Go."), message, *(results or [user("On.")])]
    request = wire.to(form, talk, Target(model))
    assert () == check_request(form, request.body)
    assert () == check_types(form, request.body)
    return request.items
