"""Requests: messages written as a provider takes them, and a request's body read to messages.

A `Converter` writes a conversation as it grows, so that one more message costs that message. It
stores the turns it has seen and the elements they gave, and writes again only what a message
changes: nearly always nothing, and the turn of a call when its result comes late. So the beginning
of a conversation always gives the same bytes, and the provider's cache holds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.messages.codec import to_dict
from palaver.messages.ids import NIL_ID, new_id, now_ms
from palaver.messages.limits import is_list, is_object, path_step
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import (
    ModelRef,
    UnknownPart,
    file_part,
    read_arguments,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import complete, fail, pending, start
from palaver.wire.format import (
    CallContent,
    Element,
    FileContent,
    ReasoningContent,
    TextContent,
    Writer,
    notes_before,
)
from palaver.wire.notes import Note, ParsedConversation
from palaver.wire.pairing import Pairing
from palaver.wire.reply import metadata_of_call
from palaver.wire.round_trip import (
    KEY,
    details_of,
    diff,
    fingerprint,
    has_details,
    restore,
    stands_apart,
    unknown_fields,
    with_details,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from palaver.messages.message import Role
    from palaver.messages.part_base import FilePart
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Content, Format, ResultContent
    from palaver.wire.pairing import PairedTurn

__all__ = [
    "ANY_TARGET",
    "BEGIN",
    "CONTINUE",
    "NO_DESCRIPTION",
    "BodyReader",
    "Converter",
    "DraftElement",
    "Request",
    "Target",
    "read_body",
]

BEGIN: Final = "(the conversation begins here)"
CONTINUE: Final = "(please continue)"
NO_DESCRIPTION: Final = "(no description)"
"""The error of a call that failed without a text."""
_OTHER_SIDE: Final = {"user": "assistant", "assistant": "user"}
_TAIL: Final = 16
"""So many elements at the end are a request's own: what changes is nearly always one of them."""


class Target(Struct, frozen=True):
    """The model that will read a request, and what it accepts.

    `prefill` says that the request may end with an assistant's text, to be continued: most models
    of today refuse that, and a transcript needs it. Without a `model`, reasoning is sent to any
    model of the provider that made it; with one, only to that very model.
    """

    model: ModelRef | None = None
    images: bool = True
    files: bool = True
    prefill: bool = False

    def takes_reasoning_of(self, message: Message) -> bool:
        """Tell whether the model may get back its reasoning in this message."""
        if self.model is None:
            return True
        made_by = getattr(message.info, "model", None)
        return (
            made_by is not None
            and made_by.provider_id == self.model.provider_id
            and made_by.model_id == self.model.model_id
        )


ANY_TARGET: Final = Target()
"""A target of which nothing is known."""


class Request(Struct, frozen=True):
    """What a provider is sent of a conversation, and what was done to make it valid.

    `names` gives the tools' own names for those that had to be spelled otherwise, `compacted` how
    many elements end with the summary of a compaction: what comes before later messages and stays.
    The elements are shared with the converter that made them: read them, send them, and don't
    change them.
    """

    format: str
    head: Mapping[str, Any]
    names: Mapping[str, str]
    field: str
    _elements: list[Element]
    _length: int
    _tail: list[Element]
    _noted: tuple[tuple[list[tuple[int, Note]], int], ...]
    _own_notes: tuple[Note, ...]
    compacted: int = 0

    def __repr__(self) -> str:
        """Return the format and the number of elements, as text."""
        return f"<Request: {self._length + len(self._tail):,} {self.field} as {self.format}>"

    @property
    def items(self) -> list[Element]:
        """The elements, in order."""
        return self._elements[: self._length] + self._tail

    @property
    def body(self) -> dict[str, Any]:
        """The fields of the request that hold the conversation."""
        return {**self.head, self.field: self.items}

    @property
    def parts(self) -> tuple[list[Element], int, list[Element]]:
        """A list that later requests share, how many of its elements are this one's, and the rest.

        The elements before that number never change in that list.
        """
        return self._elements, self._length, self._tail

    @property
    def notes(self) -> tuple[Note, ...]:
        """Every repair and every loss."""
        found = (note for noted, count in self._noted for _, note in noted[:count])
        return (*found, *self._own_notes)

    @property
    def repairs(self) -> tuple[Note, ...]:
        """What had to be repaired."""
        return tuple(note for note in self.notes if note.action == "repaired")

    @property
    def losses(self) -> tuple[Note, ...]:
        """What could not be carried over."""
        return tuple(note for note in self.notes if note.action == "lost")


class DraftElement(Struct, frozen=True):
    """An element as palaver writes it, the message it belongs to, and whether it was repaired."""

    element: Element
    owner: Message
    ordinal: str
    repaired: bool


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
        self, form: Format, target: Target = ANY_TARGET, *, open_calls: Collection[str] = ()
    ) -> None:
        """Write in this format for this target; `open_calls` are the calls still running."""
        self.form = form
        self._target = target
        self._pairing = Pairing()
        self._writer = Writer(form, target, open_calls, self._pairing)
        self._systems: list[tuple[int, Message, list[Any]]] = []
        self._elements: list[Element] = []
        self._owners: list[Message] = []
        self._starts: list[int] = []
        self._ends: list[int] = []  # the last turn in an element, where neighbours merge
        self._side = ""  # who speaks in the last element
        self._summaries: list[int] = []  # the turns that a compaction wrote
        self._sealed = 0
        self._edited: list[tuple[int, Note]] = []  # notes about sealed elements
        self._handed_out = 0
        self._written = 0
        self._lowest = 0

    def extend(self, messages: Iterable[Message]) -> None:
        """Take the next messages."""
        given = messages if isinstance(messages, list | tuple) else list(messages)
        self._lowest = min(self._lowest, self._pairing.extend(given))
        if given and self._writer.unsettled is not None:
            self._lowest = min(self._lowest, self._writer.unsettled)

    def request(self) -> Request:
        """Return what the provider is sent now."""
        self.write()
        form, writer, count = self.form, self._writer, len(self._elements)
        notes = list[Note]()
        shared = min(self._sealed, max(count - _TAIL, 0))
        tail = self._elements[shared : self._sealed]
        tail += [self._restore(index, nth, notes) for index, nth in self._ordinals(self._sealed)]
        head = self._head(notes)
        free = not form.alternates or self._target.prefill
        if not count or (not free and form.role(tail[-1]) != "user"):
            why = "an answer can't come last" if count else "nothing was said"
            detail = f"{why}: {CONTINUE!r} was added"
            notes.append(Note("repaired", "end", "last-role", detail))
            tail.append(form.text_element("user", CONTINUE))
        elif form.alternates:
            tail[-1] = self._close(tail[-1], notes)
        self._handed_out = max(self._handed_out, shared)
        return Request(
            form.name,
            head,
            dict(writer.names),
            form.items,
            self._elements,
            shared,
            tail,
            ((writer.notes, len(writer.notes)), (self._edited, len(self._edited))),
            (*notes, *writer.renamed, *self._pairing.notes()),
            bisect_right(self._starts, self._summaries[-1]) if self._summaries else 0,
        )

    def write(self) -> None:
        """Write what is new or changed since the last time."""
        if self._lowest < self._written:
            self._rewind(self._lowest)
        if self.form.alternates:
            self._write_merging()
        else:
            self._write_apart()
        self._written = self._lowest = len(self._pairing.turns)

    def _write_apart(self) -> None:
        """Write turns in a format where each element stands for itself."""
        form, writer, turns = self.form, self._writer, self._pairing.turns
        elements, owners, starts = self._elements, self._owners, self._starts
        write, plain = form.write, form.plain
        for index in range(self._written, len(turns)):
            turn = turns[index]
            message = turn.message
            if message.metadata or not elements:
                writer.turn = index
                if self._take_head(turn):
                    continue
            elif plain and type(message.content) is str:
                elements.append({"role": message.role, "content": message.content})
                owners.append(message)
                starts.append(index)
                continue
            writer.turn = index
            detailed = False
            for element, owner in write(turn, writer):
                elements.append(element)
                owners.append(owner)
                starts.append(index)
                if owner.metadata:
                    detailed = True
            if detailed:
                self._seal()
        self._sealed = len(elements)

    def _write_merging(self) -> None:
        """Write turns in a format where neighbours of one role become one element."""
        form, writer, turns = self.form, self._writer, self._pairing.turns
        elements, owners, starts, ends = self._elements, self._owners, self._starts, self._ends
        write, role, plain = form.write, form.role, form.plain
        for index in range(self._written, len(turns)):
            turn = turns[index]
            message = turn.message
            if message.metadata or not elements:
                writer.turn = index
                if self._take_head(turn):
                    continue
            elif plain and type(text := message.content) is str:
                side = message.role
                if _OTHER_SIDE.get(side) == self._side and text and not text.isspace():
                    element: Element = {"role": side, "content": text}
                    if owners[-1].metadata:
                        self._seal(element)
                    elements.append(element)
                    owners.append(message)
                    starts.append(index)
                    ends.append(index)
                    self._side = side
                    continue
            writer.turn = index
            for element, owner in write(turn, writer):
                speaker = role(element)
                near = speaker == self._side or not elements
                if not (near and self._merge(element, speaker, owner, index)):
                    self._append(element, speaker, owner, index)
        self._sealed = max(self._sealed, len(elements) - 1)  # neighbours may still join the last

    def _take_head(self, turn: PairedTurn) -> bool:
        """Take a message into the head where it belongs there; note what is not expressible."""
        form, writer, message = self.form, self._writer, turn.message
        if message.metadata:
            if KEY in message.metadata:
                writer.note_foreign_details(message)
            if isinstance(message.info, AssistantInfo) and message.info.summary:
                self._summaries.append(writer.turn)
        if self._elements or not form.is_head(turn):
            return False
        self._systems.append((writer.turn, message, form.system_blocks(turn, writer)))
        return True

    def drafts(self) -> list[DraftElement]:
        """Return the elements as palaver writes them, without restored details."""
        self.write()
        repaired = {turn for turn, note in self._writer.notes if note.action == "repaired"}
        ends = [*self._starts[1:], len(self._pairing.turns)] if self._starts else []
        return [
            DraftElement(
                element,
                self._owners[index],
                str(ordinal),
                not repaired.isdisjoint(range(first, max(end, first + 1))),
            )
            for (index, ordinal), element, first, end in zip(
                self._ordinals(0), self._elements, self._starts, ends, strict=True
            )
        ]

    def draft_of_head(self) -> DraftElement | None:
        """Return the system text where it stands apart, with the message it begins with."""
        self.write()
        blocks = [block for _, _, found in self._systems for block in found]
        if not blocks:
            return None
        return DraftElement(self.form.head(blocks), self._systems[0][1], "head", repaired=False)

    def _merge(self, element: Element, side: str, owner: Message, turn: int) -> bool:
        """Merge an element into the last one, where they may; begin with a text of the user."""
        form, elements = self.form, self._elements
        if elements and form.can_merge(elements[-1], element, owner):
            form.merge(elements[-1], element)
            self._ends[-1] = turn
            if owner.metadata and has_details(owner, form.name):
                detail = f"details of {form.name} are not restored: it was merged"
                self._writer.note("lost", "edited", detail, owner)
            return True
        if not elements and side != "user":
            detail = f"an answer can't come first: {BEGIN!r} was added"
            self._writer.note("repaired", "first-role", detail, owner)
            self._append(form.text_element("user", BEGIN), "user", owner, turn)
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
        """Restore the details of the elements so far: nothing is merged into them any more."""
        for index, ordinal in self._ordinals(self._sealed):
            if self._owners[index].metadata:
                notes = list[Note]()
                self._elements[index] = self._restore(index, ordinal, notes, after)
                self._edited += ((self._starts[index], note) for note in notes)
        self._sealed = len(self._elements)

    def _ordinals(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the elements from one on, each with its number among those of its message."""
        owners, begin = self._owners, first
        while 0 < begin < len(owners) and owners[begin - 1] is owners[begin]:
            begin -= 1
        ordinal = -1
        for index in range(begin, len(owners)):
            ordinal = ordinal + 1 if index and owners[index] is owners[index - 1] else 0
            if index >= first:
                yield index, ordinal

    def _restore(
        self, index: int, ordinal: int, notes: list[Note], after: Element | None = None
    ) -> Element:
        """Return an element as it was read, where it is unedited and may be sent so here."""
        elements, owner = self._elements, self._owners[index]
        element = elements[index]
        if KEY in owner.metadata and details_of(owner, self.form.name):
            found = self._restored(element, str(ordinal), owner, notes)
            following = elements[index + 1] if index + 1 < len(elements) else after
            around = elements[index - 1] if index else None, following
            if found is not element:
                if self.form.allows(found, around, owner, self._target):
                    return found
                detail = f"details of {self.form.name} are not restored: they are not allowed here"
                notes.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        if self.form.alternates:
            # later neighbours may merge into the converter's own, not the one handed out
            return {
                key: list(value) if type(value) is list else value for key, value in element.items()
            }
        return element

    def _restored(self, element: Element, key: str, owner: Message, notes: list[Note]) -> Element:
        found = restore(element, key, details_of(owner, self.form.name), self.form)
        if found is False:
            detail = f"details of {self.form.name} are not restored: the message was edited"
            notes.append(Note("lost", f"message {owner.id}", "edited", detail, owner.id))
        return found if isinstance(found, dict) else element

    def _close(self, element: Element, notes: list[Note]) -> Element:
        closed = self.form.close(element)
        if closed is not element:
            detail = "an answer to be continued can't end with white space: that is left out"
            notes.append(Note("repaired", "end", "trailing-space", detail))
        return closed

    def _head(self, notes: list[Note]) -> Element:
        head = self.draft_of_head()
        if head is None:
            return {}
        if not head.owner.metadata:
            return head.element
        found = self._restored(head.element, head.ordinal, head.owner, notes)
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
        if keep < self._handed_out:
            self._elements = self._elements[:keep]  # requests made earlier hold the old list
            self._handed_out = keep
        del self._elements[keep:], self._owners[keep:], starts[keep:], self._ends[keep:]
        if keep and self.form.alternates:
            self._side = self.form.role(self._elements[-1])
        self._systems = [system for system in self._systems if system[0] < turn]
        del self._summaries[bisect_left(self._summaries, turn) :]
        self._sealed = min(self._sealed, keep)
        self._edited = notes_before(self._edited, turn)
        self._writer.rewind(turn)
        self._written = turn


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def read_body(
    form: Format,
    body: object,
    *,
    session: str = NIL_ID,
    names: Mapping[str, str] | None = None,
) -> ParsedConversation:
    """Read a request's body in this format; a list is taken for its elements.

    What is read is written again and compared, and what messages have no field for is stored in
    their metadata (see `round_trip`).
    """
    if is_list(body):
        body = {form.items: body}
    if is_object(body):
        body = form.normalize(body)
    if not is_object(body) or not is_list(body.get(form.items)):
        detail = f"is no {form.name} request: it needs a list of {form.items}"
        raise ValidationError(detail, path="$", rule="schema")
    named = body.get("model")
    model = ModelRef(form.provider, named) if isinstance(named, str) and named else None
    reader = BodyReader(form, session=session, model=model, names=names or {})
    form.read(body, reader)
    messages = _with_details(reader, body)
    rest = {key: body[key] for key in body if key not in (form.items, *form.heads)}
    about: dict[str, Any] = {"request": rest} if rest else {}
    if model is not None:
        about["model"] = named
    return ParsedConversation(messages, tuple(reader.notes), about)


class BodyReader:
    """Collects what a body gives: messages, the elements they came from, notes, tools' names."""

    def __init__(
        self, form: Format, *, session: str, model: ModelRef | None, names: Mapping[str, str]
    ) -> None:
        """Read for a session; `names` gives tools their own names back."""
        self.form = form
        self.session = session
        self.model = model
        self.messages: list[Message] = []
        self.positions: list[int] = []
        """The element that each message was read from; -1 for the system text."""
        self.notes: list[Note] = []
        self.tools: dict[str, str] = {}
        self._names = names
        self._at = now_ms()

    def add(
        self, role: Role, content: str | Iterable[Part], position: int, message_id: str
    ) -> None:
        """Add one message, read from the element at this position (-1: the system text)."""
        parts = content if isinstance(content, str) else tuple(content)
        info = None
        if role == "assistant" and self.model is not None:
            info = AssistantInfo(model=self.model)
        self.messages.append(Message(role, parts, id=message_id, timestamp=self._at, info=info))
        self.positions.append(position)

    def add_result(self, result: ResultContent, position: int, tool: str | None = None) -> None:
        """Add the message of a result."""
        message_id = new_id()
        self.add("tool", [self.result(message_id, result, tool)], position, message_id)

    def note_loss(self, where: str, rule: str, detail: str) -> None:
        """Note what was not kept."""
        self.notes.append(Note("lost", where, rule, detail))

    def note_repair(self, where: str) -> None:
        """Note that something can't be sent again exactly as it was."""
        detail = "can't be sent again exactly as it is: it needs repairs"
        self.notes.append(Note("repaired", where, "inexact", detail))

    def part(self, message_id: str, content: Content) -> Part:
        """Make the part of a message that says this."""
        session, provider = self.session, self.form.provider
        if isinstance(content, TextContent):
            fields = {"metadata": {provider: content.metadata}} if content.metadata else {}
            return text_part(session, message_id, content.text, **fields)
        if isinstance(content, ReasoningContent):
            metadata = {provider: content.metadata}
            return reasoning_part(session, message_id, content.text, metadata=metadata)
        if isinstance(content, CallContent):
            return self._call(message_id, content)
        if isinstance(content, FileContent):
            return self._file(message_id, content)
        return self.unknown(content.block, **content.context)

    def _call(self, message_id: str, call: CallContent) -> Part:
        """Make a call, under the tool's own name; its result will need to know it."""
        call_id = call.call_id or new_id()
        name = self._names.get(call.tool, call.tool)
        self.tools[call_id] = name
        given = read_arguments(call.arguments)
        metadata = metadata_of_call(self.form.provider, call.metadata, wrapped=given.wrapped)
        return tool_call_part(
            self.session,
            message_id,
            name,
            given.input,
            call_id=call_id,
            raw=given.raw,
            **({"metadata": metadata} if metadata else {}),
        )

    def _file(self, message_id: str, file: FileContent) -> FilePart:
        return file_part(self.session, message_id, file.mime, file.url, filename=file.filename)

    def result(self, message_id: str, result: ResultContent, tool: str | None = None) -> ToolPart:
        """Make the result of a call; in most formats it does not name its `tool`."""
        call_id = result.call_id or new_id()
        name = self.tools.get(call_id) or self._names.get(tool or "", tool) or "unknown"
        running = start(pending({}, ""), at=self._at)
        files = [self._file(message_id, file) for file in result.files] if result.files else ()
        metadata: dict[str, Any] = {}
        if result.metadata:
            metadata[self.form.provider] = result.metadata
        if result.failed:
            error = result.output if result.output.strip() else NO_DESCRIPTION
            state: Any = fail(running, error, at=self._at)
            if files:
                metadata["attachments"] = to_dict(files)
        else:
            state = complete(running, result.output, tool=name, attachments=files, at=self._at)
        fields = {"metadata": metadata} if metadata else {}
        return tool_part(self.session, message_id, call_id, name, state, **fields)

    def unknown(self, block: Mapping[str, Any], **context: Any) -> UnknownPart:  # noqa: ANN401 - JSON
        """Make a part of a block that palaver stores without understanding it."""
        return UnknownPart({"type": self.form.name, "id": new_id(), "block": block, **context})


def _with_details(reader: BodyReader, body: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the messages, each with what its element says beyond it."""
    form, messages = reader.form, reader.messages
    for index in _apart(reader):
        message = messages[index]
        metadata = with_details(message.metadata, form.name, {}, apart=True)
        messages[index] = replace(message, metadata=metadata)
    converter = Converter(form, Target(reader.model, prefill=True))
    converter.extend(messages)
    details: dict[str, dict[str, Any]] = {}
    theirs = body[form.items]
    drafts = converter.drafts()
    if len(drafts) != len(theirs):
        reader.note_repair(f"$.{form.items}")
        theirs = drafts = []
    pairs = [
        (f"$.{form.items}[{i}]", *pair) for i, pair in enumerate(zip(drafts, theirs, strict=True))
    ]
    head = converter.draft_of_head()
    if head is not None and all(body.get(key) for key in head.element):
        pairs.append(("$", head, {key: body[key] for key in head.element}))
    for where, draft, their in pairs:
        changes = diff(draft.element, their)
        if not changes:
            continue
        if draft.repaired or form.pair_keys(draft.element) != form.pair_keys(their):
            reader.note_repair(where)
            continue
        known = [change for change in changes if _is_known(change, reader, where)]
        if not all(form.accepts(draft.element, change) for change in known):
            reader.note_repair(where)
        elif known:
            items = details.setdefault(draft.owner.id, {})
            items[draft.ordinal] = [fingerprint(draft.element), *known]
    return tuple(_with(message, form.name, details) for message in messages)


def _with(message: Message, form: str, details: Mapping[str, Mapping[str, Any]]) -> Message:
    if message.id not in details:
        return message
    apart = stands_apart(message, form)
    return replace(
        message, metadata=with_details(message.metadata, form, details[message.id], apart=apart)
    )


def _is_known(change: list[Any], reader: BodyReader, where: str) -> bool:
    """Tell whether a change is a detail of fields that the provider knows; others are lost."""
    if change[0] and change[0][-1] in reader.form.carried:
        return False
    unknown = unknown_fields(change[0], reader.form)
    if unknown:
        path = "".join(path_step(step) for step in change[0])
        detail = f"{reader.form.name} knows no such field"
        reader.note_loss(f"{where}{path}", "unknown-field", detail)
    return not unknown


def _apart(reader: BodyReader) -> list[int]:
    """Return the messages that had an element of their own beside a neighbour of their role."""
    if not reader.form.may_repeat:
        return []
    sides = [message.role == "assistant" for message in reader.messages]
    positions = reader.positions
    return [
        index
        for index in range(1, len(positions))
        if (positions[index] != positions[index - 1] >= 0 and sides[index] == sides[index - 1])
        or (reader.messages[index].role == "system" and positions[index] > 0)
    ]
