"""What a conversion had to change or leave out: one note for each thing, never a silent loss.

A *repair* makes a request valid (a call gets the result it lacks); a *loss* is something that the
other side has no words for. Both say where it was, what was done and why, in words for people,
with a rule's name for programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from palaver.messages.codec import to_dict
from palaver.messages.gate import EMPTY
from palaver.messages.message import Message

__all__ = ["Note", "Reading", "are_lost", "counted"]


class Note(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One thing that was repaired or lost.

    `where` is a JSON path in what was read or the place of a message in what was written;
    `rule` names the rule in docs/wire.md; `message_id` is the message's, where there is one.
    """

    action: Literal["repaired", "lost"]
    where: str
    rule: str
    detail: str
    message_id: str | None = None

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.where}: {self.detail} ({self.rule})"


class Reading(Struct, frozen=True):
    """What was read from outside: the messages, and a note for each thing that was not kept.

    `about` holds what the source says of the conversation as a whole: `title`, `model`, `id`,
    `cwd`, `tools` and the like, by those names.
    """

    messages: tuple[Message, ...]
    notes: tuple[Note, ...] = ()
    about: Mapping[str, Any] = EMPTY


def are_lost(notes: Sequence[Note]) -> int:
    """How many things are lost.

    >>> are_lost([Note("lost", "$.a", "rule", "why"), Note("repaired", "$.b", "rule", "why")])
    1
    """
    return sum(note.action == "lost" for note in notes)


def counted(notes: Sequence[Note]) -> dict[str, Any]:
    """The notes for programs, with their counts."""
    lost = are_lost(notes)
    return {"repaired": len(notes) - lost, "lost": lost, "notes": to_dict(list(notes))}
