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
from palaver.wire.memory import memories, recalled, remembers
from palaver.wire.mending import Mender
from palaver.wire.pen import Pen, rewound
from palaver.wire.report import Note
from palaver.wire.target import ANYONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from palaver.wire.format import Format
    from palaver.wire.mending import Turn
    from palaver.wire.target import Target

__all__ = ["BEGIN", "CONTINUE", "Converter", "Draft", "Request"]

BEGIN: Final = "(the conversation begins here)"
CONTINUE: Final = "(please continue)"
_OTHER: Final = {"user": "assistant", "assistant": "user"}
_LOOSE: Final = 16
"""So many elements at the end are a request's own: what changes is nearly always one of them."""


class Request(Struct, frozen=True):
    """What a provider is sent of a conversation, and what was done to make it right.

    `names` gives the tools' own names for those that had to be spelled otherwise. The elements are
    shared with the converter that made them: read them, send them, leave them as they are.
    """

    format: str
    head: Mapping[str, Any]
    names: Mapping[str, str]
    field: str
    _elements: list[Element]
    _length: int
    _tail: list[Element]
    _noted: tuple[tuple[list[tuple[int, Note]], int], ...]
    _told: tuple[Note, ...]

    @property
    def items(self) -> list[Element]:
        """The elements, in order."""
        return self._elements[: self._length] + self._tail

    @property
    def body(self) -> dict[str, Any]:
        """The fields of the request that hold the conversation."""
        return {**self.head, self.field: self.items}

    @property
    def notes(self) -> tuple[Note, ...]:
        """All that was done."""
        found = (note for noted, count in self._noted for _, note in noted[:count])
        return (*found, *self._told)

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
        self._side = ""  # who speaks in the last element
        self._sealed = 0
        self._edited: list[tuple[int, Note]] = []  # notes about what was sealed
        self._handed = 0
        self._written = 0
        self._lowest = 0

    def extend(self, messages: Iterable[Message]) -> None:
        """Take the next messages."""
        given = messages if isinstance(messages, list | tuple) else list(messages)
        self._lowest = min(self._lowest, self._mender.extend(given))
        if given and self._pen.unsettled is not None:
            self._lowest = min(self._lowest, self._pen.unsettled)

    def request(self) -> Request:
        """What the provider is sent now."""
        self.write()
        form, pen, count = self.form, self._pen, len(self._elements)
        told = list[Note]()
        shared = min(self._sealed, max(count - _LOOSE, 0))
        tail = self._elements[shared : self._sealed]
        tail += [self._recall(index, nth, told) for index, nth in self._ordinals(self._sealed)]
        head = self._head(told)
        free = not form.alternates or self._target.prefill
        if not count or (not free and form.role(tail[-1]) != "user"):
            why = "an answer can't come last" if count else "nothing was said"
            detail = f"{why}: {CONTINUE!r} was added"
            told.append(Note("repaired", "end", "last-role", detail))
            tail.append(form.words("user", CONTINUE))
        elif form.alternates:
            tail[-1] = self._closed(tail[-1], told)
        self._handed = max(self._handed, shared)
        return Request(
            form.name,
            head,
            dict(pen.names),
            form.items,
            self._elements,
            shared,
            tail,
            ((pen.notes, len(pen.notes)), (self._edited, len(self._edited))),
            (*told, *pen.renamed, *self._mender.notes()),
        )

    def write(self) -> None:
        """Write what is new or changed since the last time."""
        if self._lowest < self._written:
            self._rewind(self._lowest)
        if self.form.alternates:
            self._write_joining()
        else:
            self._write_apart()
        self._written = self._lowest = len(self._mender.turns)

    def _write_apart(self) -> None:
        """Write turns in a format where each element stands for itself."""
        form, pen, turns = self.form, self._pen, self._mender.turns
        elements, owners, starts = self._elements, self._owners, self._starts
        write, plain = form.write, form.plain
        for index in range(self._written, len(turns)):
            turn = turns[index]
            message = turn.message
            if message.metadata or not elements:
                pen.turn = index
                if self._leads(turn):
                    continue
            elif plain and type(message.content) is str:
                elements.append({"role": message.role, "content": message.content})
                owners.append(message)
                starts.append(index)
                continue
            pen.turn = index
            remembers = False
            for element, owner in write(turn, pen):
                elements.append(element)
                owners.append(owner)
                starts.append(index)
                if owner.metadata:
                    remembers = True
            if remembers:
                self._seal()
        self._sealed = len(elements)

    def _write_joining(self) -> None:
        """Write turns in a format where neighbours of one role become one element."""
        form, pen, turns = self.form, self._pen, self._mender.turns
        elements, owners, starts, ends = self._elements, self._owners, self._starts, self._ends
        write, role, plain = form.write, form.role, form.plain
        for index in range(self._written, len(turns)):
            turn = turns[index]
            message = turn.message
            if message.metadata or not elements:
                pen.turn = index
                if self._leads(turn):
                    continue
            elif plain and type(text := message.content) is str:
                side = message.role
                if _OTHER.get(side) == self._side and text and not text.isspace():
                    element: Element = {"role": side, "content": text}
                    if owners[-1].metadata:
                        self._seal(element)
                    elements.append(element)
                    owners.append(message)
                    starts.append(index)
                    ends.append(index)
                    self._side = side
                    continue
            pen.turn = index
            for element, owner in write(turn, pen):
                speaker = role(element)
                near = speaker == self._side or not elements
                if not (near and self._joined(element, speaker, owner, index)):
                    self._append(element, speaker, owner, index)
        self._sealed = max(self._sealed, len(elements) - 1)  # neighbours may still join the last

    def _leads(self, turn: Turn) -> bool:
        """Take a message into the head, where it belongs there; say what it can't say here."""
        form, pen, message = self.form, self._pen, turn.message
        if message.metadata:
            pen.strangers(message)
        if self._elements or not form.leads(turn):
            return False
        self._systems.append((pen.turn, message, form.system(turn, pen)))
        return True

    def drafts(self) -> list[Draft]:
        """The elements as palaver writes them, each with what made it."""
        self.write()
        mended = {turn for turn, note in self._pen.notes if note.action == "repaired"}
        ends = [*self._starts[1:], len(self._mender.turns)] if self._starts else []
        return [
            Draft(
                element,
                self._owners[index],
                str(ordinal),
                not mended.isdisjoint(range(first, max(end, first + 1))),
            )
            for (index, ordinal), element, first, end in zip(
                self._ordinals(0), self._elements, self._starts, ends, strict=True
            )
        ]

    def draft_of_head(self) -> Draft | None:
        """The system text where it stands apart, with the message it begins with."""
        self.write()
        blocks = [block for _, _, found in self._systems for block in found]
        if not blocks:
            return None
        return Draft(self.form.head(blocks), self._systems[0][1], "head", mended=False)

    def _joined(self, element: Element, side: str, owner: Message, turn: int) -> bool:
        """Join an element with the last one, where they may; begin with a word of the user."""
        form, elements = self.form, self._elements
        if elements and form.joins(elements[-1], element, owner):
            form.join(elements[-1], element)
            self._ends[-1] = turn
            if owner.metadata and remembers(owner, form.name):
                detail = f"details of {form.name} are not put back: it became one with another"
                self._pen.note("lost", "edited", detail, owner)
            return True
        if not elements and side != "user":
            detail = f"an answer can't come first: {BEGIN!r} was added"
            self._pen.note("repaired", "first-role", detail, owner)
            self._append(form.words("user", BEGIN), "user", owner, turn)
        return False

    def _append(self, element: Element, side: str, owner: Message, turn: int) -> None:
        owners = self._owners
        if owners and owners[-1].metadata:
            self._seal(element)
        self._side = side
        self._elements.append(element)
        owners.append(owner)
        self._starts.append(turn)
        self._ends.append(turn)

    def _seal(self, after: Element | None = None) -> None:
        """Nothing joins the elements so far any more: give them back what they remember."""
        for index, ordinal in self._ordinals(self._sealed):
            if self._owners[index].metadata:
                told = list[Note]()
                self._elements[index] = self._recall(index, ordinal, told, after)
                self._edited += ((self._starts[index], note) for note in told)
        self._sealed = len(self._elements)

    def _ordinals(self, first: int) -> Iterator[tuple[int, int]]:
        """The elements from one on, and the how-manieth of its message each is."""
        owners, begin = self._owners, first
        while 0 < begin < len(owners) and owners[begin - 1] is owners[begin]:
            begin -= 1
        ordinal = -1
        for index in range(begin, len(owners)):
            ordinal = ordinal + 1 if index and owners[index] is owners[index - 1] else 0
            if index >= first:
                yield index, ordinal

    def _recall(
        self, index: int, ordinal: int, told: list[Note], after: Element | None = None
    ) -> Element:
        """An element as it was read, where it still says what it said then and may say it here."""
        elements, owner = self._elements, self._owners[index]
        element = elements[index]
        if memories(owner, self.form.name):
            found = self._recalled(element, str(ordinal), owner, told)
            following = elements[index + 1] if index + 1 < len(elements) else after
            around = elements[index - 1] if index else None, following
            if found is not element:
                if self.form.holds(found, around, owner, self._target):
                    return found
                detail = f"details of {self.form.name} are not put back: they can't stand here"
                told.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        if self.form.alternates:
            # later neighbours may join the converter's own, not the one that was handed out
            return {
                key: list(value) if type(value) is list else value for key, value in element.items()
            }
        return element

    def _recalled(self, element: Element, key: str, owner: Message, told: list[Note]) -> Element:
        found = recalled(element, key, memories(owner, self.form.name), self.form)
        if found is False:
            detail = f"details of {self.form.name} are not put back: the message was edited"
            told.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        return found if isinstance(found, dict) else element

    def _closed(self, element: Element, told: list[Note]) -> Element:
        closed = self.form.close(element)
        if closed is not element:
            detail = "an answer to be continued can't end with white space: that is left out"
            told.append(Note("repaired", "end", "trailing-space", detail))
        return closed

    def _head(self, told: list[Note]) -> Element:
        head = self.draft_of_head()
        if head is None:
            return {}
        found = self._recalled(head.element, head.ordinal, head.owner, told)
        return found if found.keys() == head.element.keys() else head.element

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
        if keep and self.form.alternates:
            self._side = self.form.role(self._elements[-1])
        self._systems = [system for system in self._systems if system[0] < turn]
        self._sealed = min(self._sealed, keep)
        self._edited = rewound(self._edited, turn)
        self._pen.rewind(turn)
        self._written = turn
