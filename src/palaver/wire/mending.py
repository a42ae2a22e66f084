"""Every call with exactly one result, in its place: the one rule that all providers share.

Messages come in one by one and become turns: an answer with its calls, each joined to its result
wherever that stood. A result belongs to the newest call of its id; one that stands before its call
waits for it. What finds no call is left out, and said so. A turn that was complete is never
touched again, so the beginning of a conversation is always written the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from palaver.messages.files import FilePart
from palaver.messages.message import Message
from palaver.messages.parts import TextPart, ToolCallPart, ToolPart
from palaver.wire.report import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages.parts import Part

_Slot: TypeAlias = tuple[int, int]

__all__ = ["INTERRUPTED", "PENDING", "Answered", "Mender", "Turn"]

INTERRUPTED: Final = "(no result: the call was interrupted)"
PENDING: Final = "(no result yet: the call is still running)"


class Answered(Struct, frozen=True, gc=False):
    """A result in its place, with the message that brought it and the call it answers."""

    call: int
    part: ToolPart
    message: Message
    moved: bool


class Turn(Struct, gc=False):  # no cycle leads through it, and there are many
    """One message as it will be sent; an answer's calls, and their results in order of arrival.

    `place` is the message's index in what was given; `occurrences` tells the calls of one id apart,
    and is empty where there are none; `simple` says that there is nothing but words and calls.
    """

    message: Message
    place: int
    calls: Sequence[ToolCallPart] = ()
    occurrences: Sequence[int] = ()
    results: list[Answered] = []
    simple: bool = False

    def unanswered(self) -> Iterator[int]:
        """The calls that have no result."""
        known = {result.call for result in self.results}
        return (index for index in range(len(self.calls)) if index not in known)


class Mender:
    """Makes turns of messages, one after the other."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.turns: list[Turn] = []
        self.spoken = -1
        """The last turn in which a user spoke."""
        self._count = 0
        self._open: dict[str, _Slot | list[_Slot] | None] = {}
        """The calls by id: where its result belongs, or theirs; None where all are answered."""
        self._again: dict[str, int] = {}
        self._numbers = count()
        self._waiting: dict[str, list[tuple[int, ToolPart, Message]]] = {}
        self._strays: dict[int, Note] = {}
        self._told: tuple[Note, ...] | None = ()

    def extend(self, messages: Sequence[Message]) -> int:
        """Take the next messages; answer with the first turn that is new or changed by them."""
        turns = self.turns
        first = len(turns)
        for place, message in enumerate(messages, self._count):
            content, role = message.content, message.role
            if isinstance(content, str):
                if role == "tool":
                    self._stray(None, message, place)
                    continue
                if role == "user" and content:
                    self.spoken = len(turns)
                turns.append(Turn(message, place))
            elif role == "assistant":
                self._answer(message, content, place)
            else:
                first = min(first, self._other(message, content, place))
        self._count += len(messages)
        return first

    def notes(self) -> tuple[Note, ...]:
        """What was left out for want of a call."""
        if self._told is None:
            self._told = tuple(self._strays.values())
        return self._told

    def _other(self, message: Message, parts: tuple[Part, ...], place: int) -> int:
        """A message of parts that is no answer: results go to their calls, the rest stays."""
        first, rest = len(self.turns), not parts
        for part in parts:
            if type(part) is not ToolPart:
                rest = True
            elif (changed := self._put(part, message)) is None:
                self._stray(part, message, place)
            elif changed < first:
                first = changed
        if not rest:
            return first
        if message.role == "tool":
            self._stray(None, message, place)
            return first
        if message.role == "user" and _speaks(parts):
            self.spoken = len(self.turns)
        self.turns.append(Turn(message, place))
        return first

    def _answer(self, message: Message, parts: tuple[Part, ...], place: int) -> None:
        index, known = len(self.turns), self._open
        calls: list[ToolCallPart] = []
        occurrences: list[int] | None = None
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
            elif type(part) is not TextPart or part.ignored:
                simple = False
        self.turns.append(Turn(message, place, calls, occurrences or (), simple=simple))
        if self._waiting:
            self._claim({call.call_id for call in calls})

    def _repeat(self, name: str, slot: _Slot) -> int:
        """Take a further call of an id: beside one of the same answer it waits, else instead."""
        slots = self._open[name]
        if isinstance(slots, list) and slots[0][0] == slot[0]:
            slots.append(slot)
        elif isinstance(slots, tuple) and slots[0] == slot[0]:
            self._open[name] = [slots, slot]
        else:
            self._open[name] = slot
        self._again[name] = number = self._again.get(name, 0) + 1
        return number

    def _claim(self, names: set[str]) -> None:
        """Give the new calls the results that stood before them, in the order they came in."""
        found: list[tuple[int, ToolPart, Message]] = []
        for name in names & self._waiting.keys():
            waiting, slots = self._waiting.pop(name), self._open[name]
            free = len(slots) if isinstance(slots, list) else 1
            found += waiting[:free]
            if waiting[free:]:
                self._waiting[name] = waiting[free:]
        for number, part, message in sorted(found, key=itemgetter(0)):
            del self._strays[number]
            self._told = None
            self._put(part, message, moved=True)

    def _put(self, part: ToolPart, message: Message, *, moved: bool = False) -> int | None:
        """Put a result to its call; answer with the turn that it changes, None without a call."""
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
        self.turns[index].results.append(Answered(position, part, message, moved))
        return index

    def _stray(self, part: ToolPart | None, message: Message, place: int) -> None:
        """Leave a result out; one that no call was there for may still be claimed."""
        number, rule = next(self._numbers), "result-without-call"
        if part is None:
            detail = "a tool message that answers no call was left out"
        elif part.call_id in self._open:
            rule = "duplicate-result"
            detail = f"a second result of call {part.call_id!r} ({part.tool}) was left out"
        else:
            detail = f"a result of {part.tool} was left out: call {part.call_id!r} is not there"
            self._waiting.setdefault(part.call_id, []).append((number, part, message))
        self._strays[number] = Note("repaired", f"messages[{place}]", rule, detail, message.id)
        self._told = None


def _speaks(parts: Iterable[Part]) -> bool:
    return any(
        isinstance(part, FilePart)
        or (isinstance(part, TextPart) and part.text != "" and not part.ignored)
        for part in parts
    )
