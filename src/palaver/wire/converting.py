"""Messages to a provider's elements, as they come: one more message costs that message.

The converter keeps the turns it has seen and the elements they gave. Only what a message changes is
written again: nearly always nothing, and the turn of a call when its result comes late. So the
beginning of a conversation always gives the same bytes, and the provider's cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.messages.message import Message
from palaver.wire.format import Element
from palaver.wire.memory import memories, recalled
from palaver.wire.mending import Mender
from palaver.wire.pen import Pen
from palaver.wire.report import Note
from palaver.wire.target import ANYONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from palaver.wire.format import Format
    from palaver.wire.target import Target

__all__ = ["BEGIN", "CONTINUE", "Converter", "Draft", "Request"]

BEGIN: Final = "(the conversation begins here)"
CONTINUE: Final = "(please continue)"


class Request(Struct, frozen=True):
    """What a provider is sent of a conversation, and what was done to make it right.

    `names` gives the tools' own names for those that had to be spelled otherwise. The elements are
    shared with the converter that made them: read them, send them, leave them as they are.
    """

    format: str
    head: Mapping[str, Any]
    notes: tuple[Note, ...]
    names: Mapping[str, str]
    field: str
    _elements: list[Element]
    _length: int
    _tail: list[Element]

    @property
    def items(self) -> list[Element]:
        """The elements, in order."""
        return self._elements[: self._length] + self._tail

    @property
    def body(self) -> dict[str, Any]:
        """The fields of the request that hold the conversation."""
        return {**self.head, self.field: self.items}

    @property
    def repairs(self) -> tuple[Note, ...]:
        """What had to be put right."""
        return tuple(note for note in self.notes if note.action == "repaired")

    @property
    def losses(self) -> tuple[Note, ...]:
        """What could not be carried."""
        return tuple(note for note in self.notes if note.action == "lost")


class Draft(Struct, frozen=True):
    """An element as palaver writes it: whose it is, and whether something was mended in it."""

    element: Element
    owner: Message
    ordinal: str
    mended: bool


class Converter:
    """Writes a growing conversation in one format.

    >>> from palaver import wire
    >>> from palaver.messages import user
    >>> converter = wire.converter("openai-chat")
    >>> converter.extend([user("Tea?")])
    >>> converter.request().body
    {'messages': [{'role': 'user', 'content': 'Tea?'}]}
    """

    def __init__(
        self, form: Format, target: Target = ANYONE, *, open_calls: Collection[str] = ()
    ) -> None:
        """Write in this format for this target; `open_calls` are the calls still at work."""
        self.form = form
        self._target = target
        self._mender = Mender()
        self._pen = Pen(form, target, open_calls, self._mender)
        self._systems: list[tuple[int, Message, list[Any]]] = []
        self._elements: list[Element] = []
        self._owners: list[Message] = []
        self._starts: list[int] = []
        self._ends: list[int] = []  # the last turn in an element, where neighbours join
        self._sealed = 0
        self._handed = 0
        self._written = 0
        self._lowest = 0

    def extend(self, messages: Iterable[Message]) -> None:
        """Take the next messages."""
        add, lowest = self._mender.add, self._lowest
        self._lowest = min(map(add, messages), default=lowest)
        self._lowest = min(self._lowest, lowest)
        if self._pen.unsettled is not None:
            self._lowest = min(self._lowest, self._pen.unsettled)

    def request(self) -> Request:
        """What the provider is sent now."""
        self.write()
        form, pen, count = self.form, self._pen, len(self._elements)
        notes = list[Note]()
        tail = [self._recall(index, notes, None) for index in range(self._sealed, count)]
        head = self._head(notes)
        free = not form.alternates or self._target.prefill
        if not count or (not free and form.role((tail or self._elements)[-1]) != "user"):
            why = "an answer can't come last" if count else "nothing was said"
            detail = f"{why}: {CONTINUE!r} was added"
            notes.append(Note("repaired", "end", "last-role", detail))
            tail.append(form.words("user", CONTINUE))
        elif tail:
            tail[-1] = self._closed(tail[-1], notes)
        found = (note for _, note in pen.notes)
        self._handed = max(self._handed, self._sealed)
        return Request(
            form.name,
            head,
            (*found, *notes, *pen.renamed, *self._mender.notes()),
            dict(pen.names),
            form.items,
            self._elements,
            self._sealed,
            tail,
        )

    def write(self) -> None:
        """Write what is new or changed since the last time."""
        if self._lowest < self._written:
            self._rewind(self._lowest)
        form, pen, turns = self.form, self._pen, self._mender.turns
        apart, elements, owners, starts = (
            form.alternates,
            self._elements,
            self._owners,
            self._starts,
        )
        for index in range(self._written, len(turns)):
            turn = turns[index]
            pen.turn, pen.place = index, turn.place
            if turn.message.metadata:
                pen.strangers(turn.message)
            if not elements and form.leads(turn):
                self._systems.append((index, turn.message, form.system(turn, pen)))
                continue
            if apart:
                for element, owner in form.write(turn, pen):
                    self._place(element, owner, index)
                continue
            for element, owner in form.write(turn, pen):
                elements.append(element)
                owners.append(owner)
                starts.append(index)
                if owner.metadata:
                    self._seal()
        if not apart:
            self._sealed = len(elements)
        self._written = self._lowest = len(turns)

    def drafts(self) -> list[Draft]:
        """The elements as palaver writes them, each with what made it."""
        self.write()
        mended = {turn for turn, note in self._pen.notes if note.action == "repaired"}
        ends = [*self._starts[1:], len(self._mender.turns)]
        return [
            Draft(
                element,
                owner,
                str(self._ordinal(index)),
                not mended.isdisjoint(range(first, max(ends[index], first + 1))),
            )
            for index, (element, owner, first) in enumerate(
                zip(self._elements, self._owners, self._starts, strict=True)
            )
        ]

    def draft_of_head(self) -> Draft | None:
        """The system text where it stands apart, with the message it begins with."""
        self.write()
        blocks = [block for _, _, found in self._systems for block in found]
        if not blocks:
            return None
        return Draft(self.form.head(blocks), self._systems[0][1], "head", mended=False)

    def _place(self, element: Element, owner: Message, turn: int) -> None:
        form, elements = self.form, self._elements
        if elements:
            if form.joins(elements[-1], element, owner):
                form.join(elements[-1], element)
                self._ends[-1] = turn
                return
        elif form.role(element) != "user":
            detail = f"an answer can't come first: {BEGIN!r} was added"
            self._pen.note("repaired", "first-role", detail, owner)
            self._append(form.words("user", BEGIN), owner, turn)
        self._seal(element)
        self._append(element, owner, turn)

    def _append(self, element: Element, owner: Message, turn: int) -> None:
        self._elements.append(element)
        self._owners.append(owner)
        self._starts.append(turn)
        self._ends.append(turn)

    def _seal(self, after: Element | None = None) -> None:
        """Nothing joins the elements so far any more: give them back what they remember."""
        notes = list[Note]()
        for index in range(self._sealed, len(self._elements)):
            if self._owners[index].metadata:
                self._elements[index] = self._recall(index, notes, after)
                self._pen.notes += ((self._starts[index], note) for note in notes)
                notes.clear()
        self._sealed = len(self._elements)

    def _recall(self, index: int, notes: list[Note], after: Element | None) -> Element:
        """An element as it was read, where it still says what it said then and may say it here."""
        elements, owner = self._elements, self._owners[index]
        element = elements[index]
        if memories(owner, self.form.name):
            found = self._recalled(element, str(self._ordinal(index)), owner, notes)
            around = elements[index - 1] if index else None, (*elements[index + 1 :], after)[0]
            if found is not element:
                if self.form.holds(found, around, owner, self._target):
                    return found
                detail = f"details of {self.form.name} are not put back: they can't stand here"
                notes.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        if self.form.alternates:
            # later neighbours may join the converter's own, not the one that was handed out
            return {
                key: list(value) if type(value) is list else value for key, value in element.items()
            }
        return element

    def _ordinal(self, index: int) -> int:
        """The how-manieth element of its message one is."""
        ordinal, owner = 0, self._owners[index]
        while index > ordinal and self._owners[index - ordinal - 1] is owner:
            ordinal += 1
        return ordinal

    def _recalled(self, element: Element, key: str, owner: Message, notes: list[Note]) -> Element:
        found = recalled(element, key, memories(owner, self.form.name))
        if found is False:
            detail = f"details of {self.form.name} are not put back: the message was edited"
            notes.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        return found if isinstance(found, dict) else element

    def _closed(self, element: Element, notes: list[Note]) -> Element:
        closed = self.form.close(element)
        if closed is not element:
            detail = "an answer to be continued can't end with white space: that is left out"
            notes.append(Note("repaired", "end", "trailing-space", detail))
        return closed

    def _head(self, notes: list[Note]) -> Element:
        head = self.draft_of_head()
        return self._recalled(head.element, head.ordinal, head.owner, notes) if head else {}

    def _rewind(self, turn: int) -> None:
        """Go back to before a turn; an element that it is a part of is written again whole."""
        starts = self._starts
        keep = len(starts)
        while keep and starts[keep - 1] >= turn:
            keep -= 1
        if keep and self.form.alternates:
            keep -= 1
            turn = starts[keep]
            while keep and self._ends[keep - 1] >= turn:
                keep -= 1
                turn = starts[keep]
        if keep < self._handed:
            self._elements = self._elements[:keep]  # requests made earlier hold the old list
            self._handed = keep
        del self._elements[keep:], self._owners[keep:], starts[keep:], self._ends[keep:]
        self._systems = [system for system in self._systems if system[0] < turn]
        self._sealed = min(self._sealed, keep)
        self._pen.rewind(turn)
        self._written = turn
