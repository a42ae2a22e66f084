"""What an agent is shown: the current message, and so many before it.

The current message is the newest one that the agent may see. Of the ones before it, the last is
left out where it only repeats the current one, from one AI to another.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.context.markers import strip_markers
from palaver.context.names import addressees_text, speaker_name
from palaver.context.sections import ContextMessage
from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Choice", "Shown", "choose"]

_log: Final = logging.getLogger("palaver.context")


class Shown(Struct, frozen=True):
    """A message as it is shown: without its markers."""

    message: Message
    line: ContextMessage


class Choice(Struct, frozen=True):
    """The current message and the context before it, the oldest first."""

    current: Shown | None
    context: tuple[Shown, ...] = ()
    duplicate: Shown | None = None


def choose(visible: Iterator[Message], window: int) -> Choice:
    """Choose from what an agent may see, the newest first.

    >>> from palaver.messages import assistant, user
    >>> choice = choose(iter([assistant("three"), user("two"), user("one")]), window=1)
    >>> choice.current.line.content, [shown.line.content for shown in choice.context]
    ('three', ['two'])
    """
    newest = next(visible, None)
    if newest is None:
        return Choice(None)
    current = _shown(newest)
    context = tuple(_shown(message) for message in islice(visible, window))[::-1]
    if context and _is_ai(newest) and _repeats(context[-1], current):
        _log.debug("[ContextManager] Deduplicated context for AI→AI")
        return Choice(current, context[:-1], context[-1])
    return Choice(current, context)


def _shown(message: Message) -> Shown:
    to = addressees_text(message.addressees)
    return Shown(message, ContextMessage(speaker_name(message), to, strip_markers(message.text)))


def _is_ai(message: Message) -> bool:
    if message.speaker is None:
        return message.role == "assistant"
    return message.speaker.type == "ai"


def _repeats(last: Shown, current: Shown) -> bool:
    if last.message.id == current.message.id:
        return True
    return (last.line.from_, last.line.content) == (current.line.from_, current.line.content)
