"""Notes: what reading or writing a conversation had to repair or could not carry over.

A *repair* makes a request valid (a call gets the result it lacks); a *loss* is something that the
other side has no field for. Every repair and every loss has a note, so nothing is lost silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from palaver.messages.codec import to_dict
from palaver.messages.limits import EMPTY
from palaver.messages.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "OTHER_REFUSAL",
    "REFUSALS",
    "Note",
    "NoteCollector",
    "ParsedConversation",
    "count_losses",
    "is_refused",
    "notes_report",
]


class Note(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One thing that was repaired or lost.

    `where` is a JSON path in what was read or the position of a message in what was written;
    `rule` names the rule in docs/wire.md; `message_id` is the message's, where there is one.
    """

    action: Literal["repaired", "lost"]
    where: str
    rule: str
    detail: str
    message_id: str | None = None

    def __str__(self) -> str:
        """The note as one line for a person."""
        return f"{self.where}: {self.detail} ({self.rule})"


class ParsedConversation(Struct, frozen=True):
    """A conversation read from a foreign format, with a note for each thing that was not kept.

    `about` holds what the source says of the conversation: `title`, `model`, `id`, `cwd`, `tools`
    and the like, by those names.
    """

    messages: tuple[Message, ...]
    notes: tuple[Note, ...] = ()
    about: Mapping[str, Any] = EMPTY


_LEFT_OUT: Final = frozenset(("result-without-call", "duplicate-result"))
"""The repairs that leave something out."""


def count_losses(notes: Sequence[Note]) -> int:
    """Count the notes about something lost; a result that was left out is lost, too.

    >>> count_losses([Note("lost", "$.a", "rule", "why"), Note("repaired", "$.b", "rule", "why")])
    1
    """
    return sum(note.action == "lost" or note.rule in _LEFT_OUT for note in notes)


def notes_report(notes: Sequence[Note]) -> dict[str, Any]:
    """Return the notes as JSON for programs, with their counts."""
    lost = count_losses(notes)
    return {"repaired": len(notes) - lost, "lost": lost, "notes": to_dict(list(notes))}


_LISTED: Final = 100
"""Notes of one rule that are listed one by one."""
_KINDS: Final = 200
"""Kinds of skipped records that are counted apart."""


class NoteCollector:
    """Collects the notes of one file; a flood of one kind becomes a number.

    A damaged file may have a million bad lines. The first of each rule are listed one by one, the
    rest are counted. Records that are no part of the conversation are always counted by kind.
    """

    def __init__(self) -> None:
        """Start without notes."""
        self._listed: list[Note] = []
        self._counts: dict[tuple[Literal["repaired", "lost"], str], int] = {}
        self._skipped: dict[tuple[str, str], tuple[str, int]] = {}

    def lost(self, where: str, rule: str, detail: str, message_id: str | None = None) -> None:
        """Note something that could not be kept."""
        self._add(Note("lost", where, rule, detail, message_id))

    def repaired(self, where: str, rule: str, detail: str, message_id: str | None = None) -> None:
        """Note something that had to be changed to be kept."""
        self._add(Note("repaired", where, rule, detail, message_id))

    def skipped(self, where: str, kind: str, why: str) -> None:
        """Count a record that is no part of the conversation.

        >>> notes = NoteCollector()
        >>> for line in (3, 7):
        ...     notes.skipped(f"line {line}", "progress", "tells how a tool got on")
        >>> print(*notes.all())
        line 3 and 1 more: progress: tells how a tool got on (transcript.record)
        """
        key = (kind[:80], why)
        if key not in self._skipped and len(self._skipped) >= _KINDS:
            key = ("other records", "of too many kinds to name")
        first, count = self._skipped.get(key, (where, 0))
        self._skipped[key] = first, count + 1

    def all(self) -> tuple[Note, ...]:
        """Return every note, then the counts of what was not listed."""
        return (*self._listed, *self._further(), *self._records())

    def _add(self, note: Note) -> None:
        key = (note.action, note.rule)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if count <= _LISTED:
            self._listed.append(note)

    def _further(self) -> Iterator[Note]:
        for (action, rule), count in self._counts.items():
            if count > _LISTED:
                yield Note(action, "further on", rule, f"{count - _LISTED:,} more of these")

    def _records(self) -> Iterator[Note]:
        for (kind, why), (where, count) in self._skipped.items():
            more = f" and {count - 1:,} more" if count > 1 else ""
            yield Note("lost", f"{where}{more}", "transcript.record", f"{kind}: {why}")


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
"""What providers refuse in a history: each rule of docs/wire.md that a history can break."""

OTHER_REFUSAL: Final = "something that can't be sent as it is"
"""The description of a rule that is not in `REFUSALS`."""


def is_refused(note: Note, form: str) -> bool:
    """Tell whether a note is about something that the provider would refuse.

    A provider would refuse exactly what has to be repaired before a history may be sent. Free text
    that a model wrote for a call is none of that: it is as it should be, and only sent wrapped.
    """
    if note.action == "repaired":
        return note.rule != "freeform-input"
    if note.rule == "foreign-reasoning" and form == "openai-chat":
        return False  # there is no reasoning in its requests at all
    return note.rule in REFUSALS and note.rule != "unknown-part"
