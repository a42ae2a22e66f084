"""What a provider would refuse in a history: the rules that one can break, in words for people.

Nothing is judged twice: what has to be repaired before a history may be sent is what the provider
would not have taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.report import Note

__all__ = ["OTHERWISE", "REFUSALS", "is_refused"]

REFUSALS: Final[Mapping[str, str]] = {
    "call-without-result": "a call that nothing answers",
    "result-without-call": "a result that answers nothing",
    "duplicate-result": "a second result for one call",
    "result-out-of-order": "a result in the wrong place",
    "duplicate-call-id": "two calls of one id",
    "call-id": "an id in the wrong letters",
    "tool-name": "a name in the wrong letters",
    "call-arguments": "arguments of the wrong kind",
    "empty-text": "a text with nothing in it",
    "empty-content": "a message with nothing in it",
    "first-role": "the wrong one begins",
    "last-role": "the wrong one ends",
    "trailing-space": "white space at the end of an answer begun",
    "system-placement": "system text in the wrong place",
    "unknown-field": "a field that does not exist",
    "foreign-reasoning": "reasoning that this model did not make",
    "reasoning-placement": "reasoning in the wrong place",
    "missing-signature": "a call without the reasoning it needs",
    "unknown-part": "a type of part that does not exist",
    "media": "an image or a file that can't be read",
}
"""The rules of docs/wire.md that a history can break, in the words that stand there."""

OTHERWISE: Final = "something that can't be sent as it is"


def is_refused(note: Note, form: str) -> bool:
    """Tell whether a note is about something that the provider would not take."""
    if note.action == "repaired":
        return True
    if note.rule == "foreign-reasoning" and form == "openai-chat":
        return False  # there is no reasoning in its requests at all
    return note.rule in REFUSALS and note.rule != "unknown-part"
