"""Every call with exactly one result, in its place: the one rule that all providers share.

Messages come in one by one and become turns: an answer with its calls, each joined to its result
wherever that stood. A result belongs to the newest call of its id; one that stands before its call
waits for it. What finds no call is left out, and said so. A turn that was complete is never
touched again, so the beginning of a conversation is always written the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.messages.files import FilePart
from palaver.messages.message import Message
from palaver.messages.parts import TextPart, ToolCallPart, ToolPart
from palaver.wire.report import Note

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["INTERRUPTED", "PENDING", "Answered", "Mender", "Turn"]

INTERRUPTED: Final = "(no result: the call was interrupted)"
PENDING: Final = "(no result yet: the call is still running)"


class Answered(Struct, frozen=True):
    """A result in its place, with the message that brought it and the call it answers."""

    call: int
    part: ToolPart
    message: Message
    moved: bool


class Turn(Struct):
    """One message as it will be sent; an answer's calls, and their results in order of arrival.

    `place` is the message's index in what was given; `occurrences` tells the calls of one id apart.
    """

    message: Message
    place: int
    calls: tuple[ToolCallPart, ...] = ()
    occurrences: tuple[int, ...] = ()
    results: tuple[Answered, ...] | list[Answered] = ()

    def unanswered(self) -> Iterator[int]:
        """The calls that have no result."""
        known = {result.call for result in self.results}
        return (index for index in range(len(self.calls)) if index not in known)


class _Stray(Struct, frozen=True):
    part: ToolPart | None
    message: Message
    place: int
    rule: str


class Mender:
    """Makes turns of messages, one after the other."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.turns: list[Turn] = []
        self.spoken = -1
        """The last turn in which a user spoke."""
        self._count = 0
        self._asked: dict[str, int] = {}
        self._open: dict[str, list[tuple[int, int]]] = {}
        self._answered: set[str] = set()
        self._strays: list[_Stray] = []

    def add(self, message: Message) -> int:
        """Take the next message; answer with the first turn that is new or changed by it."""
        place, role = self._count, message.role
        self._count += 1
        first = len(self.turns)
        if role == "user" and _speaks(message):
            self.spoken = first
        if isinstance(message.content, str):
            if role == "tool":
                self._strays.append(_Stray(None, message, place, "result-without-call"))
            else:
                self.turns.append(Turn(message, place))
        elif role == "assistant":
            self._answer(message, place)
        else:
            others = role != "tool"
            if others and not any(type(part) is ToolPart for part in message.content):
                self.turns.append(Turn(message, place))
                return first
            first = min(self._results(message, place), default=first)
            if any(type(part) is not ToolPart for part in message.content):
                if others:
                    self.turns.append(Turn(message, place))
                else:
                    self._strays.append(_Stray(None, message, place, "result-without-call"))
        return first

    def notes(self) -> Iterator[Note]:
        """What was left out for want of a call."""
        for stray in self._strays:
            part = stray.part
            if part is None:
                detail = "a tool message that answers no call was left out"
            elif stray.rule == "duplicate-result":
                detail = f"a second result of call {part.call_id!r} ({part.tool}) was left out"
            else:
                detail = f"a result of {part.tool} was left out: call {part.call_id!r} is not there"
            yield Note("repaired", f"messages[{stray.place}]", stray.rule, detail, stray.message.id)

    def _answer(self, message: Message, place: int) -> None:
        calls = tuple(part for part in message.parts if type(part) is ToolCallPart)
        if not calls:
            self.turns.append(Turn(message, place))
            return
        index, occurrences = len(self.turns), list[int]()
        fresh: dict[str, list[tuple[int, int]]] = {}
        for position, call in enumerate(calls):
            number = self._asked.get(call.call_id, 0)
            self._asked[call.call_id] = number + 1
            occurrences.append(number)
            fresh.setdefault(call.call_id, []).append((index, position))
        self._open.update(fresh)
        self._answered.difference_update(fresh)
        self.turns.append(Turn(message, place, calls, tuple(occurrences)))
        if self._strays:
            self._claim(fresh)

    def _claim(self, fresh: dict[str, list[tuple[int, int]]]) -> None:
        """Give the new calls the results that stood before them."""
        left = list[_Stray]()
        for stray in self._strays:
            part = stray.part
            waits = part is not None and stray.rule == "result-without-call"
            if part is None or not waits or not fresh.get(part.call_id):
                left.append(stray)
            else:
                self._put(part, stray.message, moved=True)
        self._strays = left

    def _results(self, message: Message, place: int) -> Iterator[int]:
        for part in message.parts:
            if type(part) is not ToolPart:
                continue
            slots = self._open.get(part.call_id)
            if slots:
                moved = slots[0][0] < len(self.turns) - 1
                yield self._put(part, message, moved=moved)
            else:
                known = part.call_id in self._answered
                rule = "duplicate-result" if known else "result-without-call"
                self._strays.append(_Stray(part, message, place, rule))

    def _put(self, part: ToolPart, message: Message, *, moved: bool) -> int:
        slots = self._open[part.call_id]
        index, position = slots.pop(0)
        if not slots:
            del self._open[part.call_id]
            self._answered.add(part.call_id)
        turn = self.turns[index]
        result = Answered(position, part, message, moved)
        if isinstance(turn.results, list):
            turn.results.append(result)
        else:
            turn.results = [result]
        return index


def _speaks(message: Message) -> bool:
    content = message.content
    if isinstance(content, str):
        return content != ""
    return any(
        isinstance(part, FilePart)
        or (isinstance(part, TextPart) and part.text != "" and not part.ignored)
        for part in content
    )
