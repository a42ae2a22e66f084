"""Pairing: every call has exactly one result, right after it; the rule that all providers share.

Messages come in one by one and become turns: an assistant message with its calls, each joined to
its result wherever that was. A result belongs to the newest call of its id; a result before its
call waits for it. A result that finds no call is left out, with a note. A turn that was complete is
never changed again, so the beginning of a conversation is always written the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    CompactionPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    is_sendable,
)
from palaver.wire.notes import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages.parts import Part

_Slot: TypeAlias = tuple[int, int]

__all__ = ["INTERRUPTED", "PENDING", "PairedResult", "PairedTurn", "Pairing"]

INTERRUPTED: Final = "(no result: the call was interrupted)"
_BOOKKEEPING: Final = frozenset(
    (StepStartPart, StepFinishPart, SnapshotPart, CompactionPart, RetryPart)
)
PENDING: Final = "(no result yet: the call is still running)"


class PairedResult(Struct, frozen=True, gc=False):
    """A result beside its call, with the message that brought it; `call` is the call's index."""

    call: int
    part: ToolPart
    message: Message
    moved: bool


class PairedTurn(Struct, gc=False):  # no cycle leads through it, and there are many
    """One message as it will be sent, with its calls and their results in order of arrival.

    `position` is the message's index in what was given; `occurrences` tells calls of one id apart
    and is empty where there are none; `simple` says that there are only texts and calls.
    """

    message: Message
    position: int
    calls: Sequence[ToolCallPart] = ()
    occurrences: Sequence[int] = ()
    results: list[PairedResult] = []
    simple: bool = False

    def unanswered(self) -> Iterator[int]:
        """Return the indexes of the calls that have no result."""
        known = {result.call for result in self.results}
        return (index for index in range(len(self.calls)) if index not in known)


class Pairing:
    """Makes turns of messages, one after the other."""

    def __init__(self) -> None:
        """Start without turns."""
        self.turns: list[PairedTurn] = []
        self.last_user_turn = -1
        """The last turn in which a user spoke."""
        self._count = 0
        self._open: dict[str, _Slot | list[_Slot] | None] = {}
        """The calls by id: the slots that wait for a result; None where all are answered."""
        self._repeats: dict[str, int] = {}
        self._numbers = count()
        self._waiting: dict[str, list[tuple[int, ToolPart, Message]]] = {}
        self._strays: dict[int, Note] = {}
        self._notes: tuple[Note, ...] | None = ()

    def extend(self, messages: Sequence[Message]) -> int:
        """Take the next messages; return the first turn that is new or changed by them."""
        turns = self.turns
        first = len(turns)
        for position, message in enumerate(messages, self._count):
            content, role = message.content, message.role
            if isinstance(content, str):
                if role == "tool":
                    self._leave_out(None, message, position)
                    continue
                if role == "user" and content:
                    self.last_user_turn = len(turns)
                turns.append(PairedTurn(message, position))
            elif role == "assistant":
                self._add_assistant(message, content, position)
            else:
                first = min(first, self._add_other(message, content, position))
        self._count += len(messages)
        return first

    def notes(self) -> tuple[Note, ...]:
        """Return a note for each result that was left out for want of a call."""
        if self._notes is None:
            self._notes = tuple(self._strays.values())
        return self._notes

    def _add_other(self, message: Message, parts: tuple[Part, ...], position: int) -> int:
        """Add a message that is not the assistant's: results go to their calls, the rest stays."""
        first, rest = len(self.turns), not parts
        for part in parts:
            if type(part) is not ToolPart:
                rest = True
            elif (changed := self._add_result(part, message)) is None:
                self._leave_out(part, message, position)
            elif changed < first:
                first = changed
        if not rest:
            return first
        if message.role == "tool":
            self._leave_out(None, message, position)
            return first
        if message.role == "user" and _has_content(parts):
            self.last_user_turn = len(self.turns)
        self.turns.append(PairedTurn(message, position))
        return first

    def _add_assistant(self, message: Message, parts: tuple[Part, ...], position: int) -> None:
        index, known = len(self.turns), self._open
        calls: list[ToolCallPart] = []
        occurrences: list[int] | None = None
        if not _BOOKKEEPING.isdisjoint(map(type, parts)):
            message = without_bookkeeping(message)
            parts = message.parts
        simple = True
        for part in parts:
            if type(part) is ToolCallPart:
                name, slot = part.call_id, (index, len(calls))
                if name in known:
                    occurrences = occurrences or [0] * len(calls)
                    occurrences.append(self._repeat(name, slot))
                else:
                    known[name] = slot
                    if occurrences:
                        occurrences.append(0)
                calls.append(part)
            elif type(part) is not TextPart or not is_sendable(part):
                simple = False
        self.turns.append(PairedTurn(message, position, calls, occurrences or (), simple=simple))
        if self._waiting:
            self._claim({call.call_id for call in calls})

    def _repeat(self, name: str, slot: _Slot) -> int:
        """Take a further call of an id; return how many calls of this id came before it.

        Beside a call of the same message it waits too; otherwise it takes the earlier call's place.
        """
        slots = self._open[name]
        if isinstance(slots, list) and slots[0][0] == slot[0]:
            slots.append(slot)
        elif isinstance(slots, tuple) and slots[0] == slot[0]:
            self._open[name] = [slots, slot]
        else:
            self._open[name] = slot
        self._repeats[name] = number = self._repeats.get(name, 0) + 1
        return number

    def _claim(self, names: set[str]) -> None:
        """Give the new calls the results that came before them, in the order of arrival."""
        found: list[tuple[int, ToolPart, Message]] = []
        for name in names & self._waiting.keys():
            waiting, slots = self._waiting.pop(name), self._open[name]
            free = len(slots) if isinstance(slots, list) else 1
            found += waiting[:free]
            if waiting[free:]:
                self._waiting[name] = waiting[free:]
        for number, part, message in sorted(found, key=itemgetter(0)):
            del self._strays[number]
            self._notes = None
            self._add_result(part, message, moved=True)

    def _add_result(self, part: ToolPart, message: Message, *, moved: bool = False) -> int | None:
        """Add a result to its call; return the turn that it changes, or None without a call."""
        name = part.call_id
        slots = self._open.get(name)
        if slots is None:
            return None
        if isinstance(slots, tuple):
            (index, position), self._open[name] = slots, None
        else:
            index, position = slots.pop(0)
            if len(slots) == 1:
                self._open[name] = slots[0]
        moved = moved or index < len(self.turns) - 1
        self.turns[index].results.append(PairedResult(position, part, message, moved))
        return index

    def _leave_out(self, part: ToolPart | None, message: Message, position: int) -> None:
        """Leave a result out, with a note; a call that comes later may still claim it."""
        number, rule = next(self._numbers), "result-without-call"
        if part is None:
            detail = "a tool message that answers no call was left out"
        elif part.call_id in self._open:
            rule = "duplicate-result"
            detail = f"a second result of call {part.call_id!r} ({part.tool}) was left out"
        else:
            detail = f"a result of {part.tool} was left out: call {part.call_id!r} is not there"
            self._waiting.setdefault(part.call_id, []).append((number, part, message))
        self._strays[number] = Note("repaired", f"messages[{position}]", rule, detail, message.id)
        self._notes = None


def without_bookkeeping(message: Message) -> Message:
    """Return a message without the parts that describe a step: they are not for a model.

    What is left is written as the answer was before a step put these parts around it.
    """
    parts = tuple(part for part in message.parts if type(part) not in _BOOKKEEPING)
    only = parts[0] if len(parts) == 1 else None
    plain = isinstance(only, TextPart) and not (only.metadata or only.ignored)
    content = only.text if plain and isinstance(only, TextPart) else parts or ""
    return replace(message, content=content)


def _has_content(parts: Iterable[Part]) -> bool:
    return any(
        isinstance(part, FilePart)
        or (isinstance(part, TextPart) and part.text != "" and is_sendable(part))
        for part in parts
    )
