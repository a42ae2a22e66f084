"""Requests to OpenAI Responses: a flat `input` of items: reasoning, texts and calls side by side.

A result may come any time after its call. The API is strict about the ids it gave: each may be
there once, no id of an item without the reasoning before it, and no reasoning without what follows
from it. An item without an id is always accepted, so in doubt an id is not sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from palaver.messages.ids import new_id
from palaver.messages.limits import is_list, is_object
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.messages.tool_state import ToolCompleted
from palaver.wire.format import (
    Alphabet,
    Format,
    Linked,
    TextContent,
    attachments_of,
    freeform_text,
    is_freeform,
    is_image,
    known_fields,
    media_of,
    raw_block,
)
from palaver.wire.openai_responses.blocks import (
    CALLS,
    CONTENT,
    FIELDS,
    ITEMS,
    RESULTS,
    USER_BLOCKS,
    pair_of,
    read_content,
    read_item,
    read_output,
)
from palaver.wire.openai_responses.reply import ResponsesReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from palaver.messages.message import Message, Role
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element, ToolSpec, ValueSchema, Writer, WrittenElement
    from palaver.wire.pairing import PairedTurn
    from palaver.wire.reply import ReplyReader
    from palaver.wire.request import BodyReader

    PlainWriter = Callable[[Any, str], Element | None]

__all__ = [
    "OPENAI_RESPONSES",
    "PLAIN_ITEMS",
    "PLAIN_WRITERS",
    "SENDABLE_IDS",
    "ItemReader",
    "ResponsesFormat",
    "write_plain_answer",
]

_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_FILES: Final = frozenset(
    (
        *("application/pdf", "application/json", "application/msword", "application/rtf"),
        *("application/vnd.ms-excel", "application/vnd.ms-powerpoint"),
        "application/vnd.oasis.opendocument.text",
        f"{_OFFICE}presentationml.presentation",
        f"{_OFFICE}spreadsheetml.sheet",
        f"{_OFFICE}wordprocessingml.document",
        *("text/css", "text/csv", "text/html", "text/javascript", "text/markdown", "text/plain"),
        *("text/rtf", "text/tab-separated-values", "text/x-python", "text/xml"),
    )
)
"""The files that a model of OpenAI reads."""
_GIVEN: Final = frozenset(("item_reference", "additional_tools"))
"""Items that no model made: reasoning does not lead to one of these."""
_PHASES: Final = ("commentary", "final_answer")
_UNFINISHED: Final = ("incomplete", "in_progress")


class ResponsesFormat(Format):
    """OpenAI Responses, and every server that speaks it."""

    name: ClassVar[str] = "openai-responses"
    provider: ClassVar[str] = "openai"
    reply_reader: ClassVar[type[ReplyReader]] = ResponsesReply
    items: ClassVar[str] = "input"
    plain: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("instructions",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 128)
    call_ids: ClassVar[Alphabet] = Alphabet("[!-~]", 64)
    fields: ClassVar[Mapping[str, ValueSchema]] = FIELDS

    def write(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        """Return an item for a message; for an answer one for each thing in it, then results."""
        message = turn.message
        content = message.content
        if type(content) is str:
            return (({"role": message.role, "content": content}, message),)
        if message.role == "assistant":
            return _AssistantWriter(turn, writer).write()
        blocks = [
            block
            for part in writer.sendable_parts(turn)
            if (block := _block(part, message, writer)) is not None
        ]
        if not blocks:
            writer.note_nothing(message)
            return ()
        return (({"role": message.role, "content": blocks}, message),)

    def write_tools(self, tools: Sequence[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
        """Return a function for each tool."""
        # without `strict: false` this API holds every schema to its own narrower rules
        return [
            {"type": "function", **spec.named(name), "parameters": spec.schema, "strict": False}
            for name, spec in tools
        ]

    def text_element(self, role: str, text: str) -> Element:
        """Return a message of one text."""
        return {"role": role, "content": text}

    def is_head(self, turn: PairedTurn) -> bool:
        """Tell whether a message was read from `instructions`."""
        message = turn.message
        stored = message.metadata.get("openai") if message.metadata else None
        instructs = is_object(stored) and stored.get("instructions") is True
        return instructs and message.role == "system"

    def system_blocks(self, turn: PairedTurn, writer: Writer) -> list[Any]:
        """Return the text of the instructions."""
        parts = (part for part in writer.sendable_parts(turn) if type(part) is TextPart)
        content = turn.message.content
        return [content if isinstance(content, str) else "".join(part.text for part in parts)]

    def head(self, blocks: Sequence[Any]) -> Element:
        """Return the instructions."""
        return {"instructions": "\n\n".join(blocks)}

    def pair_keys(self, element: Element) -> Sequence[str]:
        """Return the call id of a call or of a result."""
        return [f"{element.get('type')} {element['call_id']}"] if "call_id" in element else []

    def may_omit(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """Tell whether a field may be missing: one that has a default may."""
        return path[-1:] in (["type"], ["detail"], ["annotations"])

    def field_schema(self, element: Element, path: Sequence[Any]) -> ValueSchema:
        """Return what a field may hold; of the content, by role."""
        if list(path) == ["content"] and "role" in element:
            return CONTENT[element["role"]]
        return super().field_schema(element, path)

    def normalize(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a body whose input is a list: a text alone is a message of the user."""
        given = body.get("input")
        if not isinstance(given, str):
            return body
        return {**body, "input": [{"role": "user", "content": given}]}

    def read(self, body: Mapping[str, Any], reader: BodyReader) -> None:
        """Read the instructions and the items."""
        instructions = body.get("instructions")
        if isinstance(instructions, str):
            reader.add("system", instructions, -1, new_id())
            metadata = {"openai": {"instructions": True}}
            reader.messages[-1] = replace(reader.messages[-1], metadata=metadata)
        elif instructions is not None:
            detail = "instructions that are no text are left out"
            reader.note_loss("$.instructions", "shape", detail)
        items = ItemReader(reader, body["input"])
        for position, item in enumerate(body["input"]):
            items.read(item, position)
        items.close()


SENDABLE_IDS: Final = {
    prefix: re.compile(rf"{prefix}[a-zA-Z0-9_-]{{1,{64 - len(prefix)}}}").fullmatch
    for prefix in ("rs", "msg", "fc", "ctc")
}
"""The ids of OpenAI's items that may be sent to it again, by what they begin with."""
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode  # parses, and builds no value


class _AssistantWriter:
    """Writes one answer; knows which reasoning it wrote last, and whether it needs a follower."""

    def __init__(self, turn: PairedTurn, writer: Writer) -> None:
        self._turn, self._writer = turn, writer
        self._ours = writer.target.takes_reasoning_of(turn.message)
        self._reasoning_id: str | None = None
        self._unfollowed = False
        self._calls = 0

    def write(self) -> Sequence[WrittenElement]:
        """Return the items of the answer and its results."""
        writer, message = self._writer, self._turn.message
        elements: list[Element] = []
        for group in self._groups():
            item = self._item(group)
            if item is not None:
                elements.append(item)
                self._unfollowed = item.get("type") == "reasoning"
        while elements and elements[-1].get("type") == "reasoning":
            elements.pop()
            detail = "reasoning that led to nothing is not sent"
            writer.note("lost", "reasoning-placement", detail, message)
        if not elements:
            writer.note_nothing(message)
        calls = [element for element in elements if element.get("type") in CALLS]
        written: list[WrittenElement] = [(element, message) for element in elements]
        for position, text, _, part, owner in writer.results(self._turn):
            call = calls[position]
            output = _output(text, part, owner, writer)
            kind = f"{call['type']}_output"
            result = {"type": kind, "call_id": call["call_id"], "output": output}
            written.append((result, owner))
        return written

    def _groups(self) -> list[list[Part]]:
        """Return the parts, grouped by the item they belong to."""
        groups: list[list[Part]] = []
        last: tuple[object, ...] | None = None
        for part in self._writer.sendable_parts(self._turn):
            stored = _stored(part)
            if type(part) is TextPart and not part.text and not stored:
                continue
            key = _key(part, stored)
            if key is not None and key == last and not stored.get("apart"):
                groups[-1].append(part)
            else:
                groups.append([part])
            last = key
        return groups

    def _item(self, group: list[Part]) -> Element | None:
        part = group[0]
        if type(part) is ReasoningPart:
            return self._reasoning(part, group)
        if type(part) is ToolCallPart:
            return self._call(part)
        return self._other(part) if type(part) is UnknownPart else self._message(part, group)

    def _message(self, part: Part, group: list[Part]) -> Element:
        stored = _stored(part)
        name = self._id(stored, "msg")
        phase = {"phase": stored["phase"]} if stored.get("phase") in _PHASES else {}
        if name is None:
            texts = (
                self._writer.placeholder(piece, self._turn.message)
                if type(piece) is FilePart
                else getattr(piece, "text", "")
                for piece in group
            )
            return {"role": "assistant", "content": "".join(texts), **phase}
        status = stored.get("status")
        return {
            "type": "message",
            "id": name,
            "role": "assistant",
            "status": status if status in _UNFINISHED else "completed",
            "content": [_output_block(piece) for piece in group if type(piece) is TextPart],
            **phase,
        }

    def _reasoning(self, part: ReasoningPart, group: list[Part]) -> Element | None:
        self._reasoning_id = None
        name = self._id(_stored(part), "rs")
        if name is None:
            detail = "reasoning without an id of its own in this request is not sent"
            self._writer.note("lost", "foreign-reasoning", detail, self._turn.message)
            return None
        element: Element = {"type": "reasoning", "id": name, "summary": []}
        for piece in group:
            stored, text = _stored(piece), getattr(piece, "text", "")
            sealed = stored.get("encrypted_content")
            if isinstance(sealed, str) and sealed.strip():
                element["encrypted_content"] = sealed
            if text and stored.get("content") is True:
                element.setdefault("content", []).append({"type": "reasoning_text", "text": text})
            elif text:
                element["summary"].append({"type": "summary_text", "text": text})
        self._reasoning_id = name
        return element

    def _call(self, call: ToolCallPart) -> Element:
        writer, turn, stored = self._writer, self._turn, _stored(call)
        call_id = writer.call_id(turn, self._calls)
        self._calls += 1
        custom = is_freeform(call)
        element: Element = {
            "type": "custom_tool_call" if custom else "function_call",
            "call_id": call_id,
            "name": writer.tool_name(call.tool, turn.message),
            "input" if custom else "arguments": (
                freeform_text(call) if custom else writer.arguments_text(call, turn.message)
            ),
        }
        name = self._id(stored, "ctc" if custom else "fc")
        if name is not None:
            element["id"] = name
        if isinstance(stored.get("namespace"), str) and stored["namespace"]:
            element["namespace"] = stored["namespace"]
        if self._ours and is_object(stored.get("caller")):
            element["caller"] = stored["caller"]
        return element

    def _other(self, part: UnknownPart) -> Element | None:
        """Return an item as it came; None where what it depends on is not sent."""
        block, after = _known_item(part), part.raw.get("after")
        if block is None:
            why = "is not as it should be"
        elif (pair := pair_of(block)) and pair not in self._pairs():
            why = "has a call or an output without the other"
        elif after is not None and after != self._reasoning_id:
            why = "came after reasoning that is not sent"
        elif self._unfollowed and block["type"] in _GIVEN:
            why = "can't follow reasoning"
        elif "id" in block and not self._writer.claim_id(str(block["id"])):
            why = "is in the request already"
        else:
            return block
        detail = f"an item of type {raw_block(part).get('type')!r} {why}: it is not sent"
        self._writer.note("lost", "unknown-part", detail, self._turn.message)
        return None

    def _pairs(self) -> set[tuple[str, str]]:
        """Return the calls and outputs of this answer that have each other."""
        parts = self._turn.message.parts
        blocks = (_known_item(part) for part in parts if type(part) is UnknownPart)
        found = {pair for block in blocks if block and (pair := pair_of(block))}
        return {(side, key) for side, key in found if {("call", key), ("output", key)} <= found}

    def _id(self, stored: Mapping[str, Any], prefix: str) -> str | None:
        """Return an item's id, where it may be sent: to its model, after its reasoning, once."""
        name, after = stored.get("id"), stored.get("after")
        if not isinstance(name, str) or not self._ours or (after and after != self._reasoning_id):
            return None
        if not SENDABLE_IDS[prefix](name):
            return None
        return name if self._writer.claim_id(name) else None


def write_plain_answer(
    parts: Sequence[Any], writers: Mapping[type, PlainWriter] | None = None
) -> list[Element] | None:
    """Write an answer without detours: its items have their ids, and nothing that is unusual.

    `writers` are `PLAIN_WRITERS` for other classes that have the same fields as these parts. Return
    None for any other answer, which `OPENAI_RESPONSES` writes with care, to the same items.
    """
    items: list[Element] = []
    names: list[str] = []
    calls: list[str] = []
    writers, write, after = writers or PLAIN_WRITERS, None, None
    for part in parts:
        write = writers.get(type(part))
        if write is None:
            return None
        metadata = part.metadata
        stored = metadata.get("openai") if len(metadata) == 1 else None
        if not isinstance(stored, dict):
            return None
        name, came = stored.get("id"), stored.get("after")
        if type(name) is not str or name in names or (came is not None and came != after):
            return None
        item = write(part, name) if len(stored) == (1 if came is None else 2) else None
        if item is None:
            return None
        if write is _write_plain_reasoning:
            after = name
        elif write is _write_plain_call:
            if part.call_id in calls:
                return None
            calls.append(part.call_id)
        names.append(name)
        items.append(item)
    return None if write is None or write is _write_plain_reasoning else items


def _plain_call(part: ToolCallPart, name: str) -> Element:
    return {
        "type": "function_call", "call_id": part.call_id, "name": part.tool, "arguments": part.raw,
        "id": name,
    }  # fmt: skip


def _write_plain_call(part: ToolCallPart, name: str) -> Element | None:
    fits = _fits_call(part.call_id) and _fits_tool(part.tool) and _is_call_item_id(name)
    return _plain_call(part, name) if fits and _is_object_text(part.raw) else None


def _plain_text(part: TextPart, name: str) -> Element:
    block: Element = {"type": "output_text", "text": part.text, "annotations": []}
    return {
        "type": "message", "id": name, "role": "assistant", "status": "completed",
        "content": [block],
    }  # fmt: skip


def _write_plain_text(part: TextPart, name: str) -> Element | None:
    return None if part.ignored or not _is_message_id(name) else _plain_text(part, name)


def _plain_reasoning(_part: ReasoningPart, name: str) -> Element:
    return {"type": "reasoning", "id": name, "summary": []}


def _write_plain_reasoning(part: ReasoningPart, name: str) -> Element | None:
    return None if part.text or not _is_reasoning_id(name) else _plain_reasoning(part, name)


PLAIN_WRITERS: Final[Mapping[type, PlainWriter]] = {
    ToolCallPart: _write_plain_call,
    TextPart: _write_plain_text,
    ReasoningPart: _write_plain_reasoning,
}
"""How the parts of an answer are written that have nothing but the ids of their items."""
PLAIN_ITEMS: Final[Mapping[type, Callable[[Any, str], Element]]] = {
    ToolCallPart: _plain_call,
    TextPart: _plain_text,
    ReasoningPart: _plain_reasoning,
}
"""The same items, without a check that a part has nothing else."""
_is_reasoning_id, _is_message_id, _is_call_item_id = (SENDABLE_IDS[k] for k in ("rs", "msg", "fc"))


def _is_object_text(raw: str) -> bool:
    try:
        _check_json(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return raw.lstrip()[:1] == "{"


def _known_item(part: UnknownPart) -> Element | None:
    """Return an item as far as OpenAI knows such an item."""
    raw = raw_block(part)
    block = raw if raw.get("type") is not None else {**raw, "type": "item_reference"}
    schema = ITEMS.get(str(block["type"])) if part.type == OPENAI_RESPONSES.name else None
    return None if schema is None else known_fields(block, schema)


def _stored(part: Part) -> Mapping[str, Any]:
    """Return what a part stores of OpenAI's."""
    metadata: Mapping[str, Any] | None = getattr(part, "metadata", None)
    stored = metadata.get("openai") if metadata else None
    return stored if is_object(stored) else {}


def _key(part: Part, stored: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return what parts of one item have in common."""
    if type(part) is ReasoningPart:
        return (ReasoningPart, stored.get("id"))
    if type(part) is TextPart or type(part) is FilePart:
        return (TextPart, stored.get("id"), stored.get("phase"))
    return None


def _output_block(part: TextPart) -> Element:
    stored = _stored(part)
    if stored.get("refusal") is True:
        return {"type": "refusal", "refusal": part.text}
    found = stored.get("annotations")
    notes = [note for note in found if is_object(note)] if is_list(found) else []
    return {"type": "output_text", "text": part.text, "annotations": notes}


def _block(part: Part, message: Message, writer: Writer) -> Element | None:
    """Return a block of a user's or a system message."""
    if type(part) is TextPart:
        return {"type": "input_text", "text": part.text}
    if type(part) is UnknownPart and message.role == "user":
        raw = raw_block(part)
        schema = USER_BLOCKS.get(str(raw.get("type")))
        if schema is not None and (block := known_fields(raw, schema)) is not None:
            return block
    if type(part) is FilePart:
        if message.role == "user" and (block := _file_block(part, writer)) is not None:
            return block
        return {"type": "input_text", "text": writer.placeholder(part, message)}
    writer.note_misplaced(part, message)
    return None


def _file_block(part: FilePart, writer: Writer) -> Element | None:
    media = media_of(part)
    if is_image(media):
        image = {"type": "input_image", "detail": "auto", "image_url": media.url}
        return image if writer.target.images else None
    if media is None or media.mime not in _FILES or not writer.target.files:
        return None
    if isinstance(media, Linked):
        return (
            None if media.url.startswith("gs:") else {"type": "input_file", "file_url": media.url}
        )
    name = part.filename or f"file.{media.mime.rpartition('/')[2]}"
    return {"type": "input_file", "filename": name, "file_data": media.url}


def _output(
    text: str, part: ToolPart | None, owner: Message, writer: Writer
) -> str | list[Element]:
    """Return the output of a call: text, or blocks where there are files."""
    files = attachments_of(part)
    if not files:
        return text
    state = part.state if part is not None else None
    silent = type(state) is ToolCompleted and state.metadata.get("rawOutput") == ""
    blocks: list[Element] = [] if silent else [{"type": "input_text", "text": text}]
    for file in files:
        block = _file_block(file, writer)
        blocks.append(block or {"type": "input_text", "text": writer.placeholder(file, owner)})
    return blocks


class ItemReader:
    """Reads the items of a body one by one into a `BodyReader`.

    What the model made in one go (reasoning, texts, calls, what OpenAI ran itself) is one message,
    up to the next text of a user or the next result.
    """

    def __init__(self, reader: BodyReader, items: Iterable[object]) -> None:
        """Read into this reader; the items are searched for outputs that come late."""
        self._reader = reader
        self._outputs = {
            key[1]: item
            for item in items
            if is_object(item) and (key := pair_of(item)) and key[0] == "output"
        }
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._placed: set[str] = set()
        self._parts: list[Part] | None = None
        self._plain: str | None = None
        self._message_id = ""
        self._position = 0
        self._after: str | None = None
        self._calls = 0

    def read(self, item: object, position: int) -> None:
        """Read the item at this position."""
        kind = item.get("type") if is_object(item) else None
        kind = kind if kind is None or isinstance(kind, str) else str(kind)
        if not is_object(item):
            self._note_loss(position, "shape", "an item that is no object was left out")
        elif kind in (None, "message") and "role" in item:
            self._read_message(item, position)
        elif kind == "reasoning" or kind in CALLS:
            self._read_made(item, position)
        elif kind in RESULTS:
            self.close()
            self._reader.add_result(read_output(item), position)
        elif kind in ITEMS or (kind is None and "id" in item):
            self._read_other(item, position)
        else:
            detail = f"an item of type {kind!r} is not understood"
            self._note_loss(position, "unknown-part", detail)

    def close(self) -> None:
        """End the answer that is being read."""
        if self._parts is not None:
            for key, output in self._waiting.items():
                self._store(output, self._parts)  # it came late: it belongs with its call
                self._placed.add(key)
            self._waiting.clear()
            plain = self._plain if len(self._parts) == 1 else None
            content = self._parts if plain is None else plain
            self._reader.add("assistant", content, self._position, self._message_id)
        self._parts = self._plain = self._after = None
        self._calls = 0

    def _note_loss(self, position: int, rule: str, detail: str) -> None:
        self._reader.note_loss(f"$.input[{position}]", rule, detail)

    def _answer(self, position: int) -> list[Part]:
        if self._parts is None:
            self._parts, self._message_id, self._position = [], new_id(), position
        return self._parts

    def _read_message(self, item: Mapping[str, Any], position: int) -> None:
        role, content, reader = item["role"], item.get("content"), self._reader
        if role == "assistant":
            self._read_texts(item, position)
        elif role in ("user", "system", "developer"):
            self.close()
            message_id = new_id()
            side: Role = "user" if role == "user" else "system"
            if not isinstance(content, str):
                content = tuple(reader.part(message_id, found) for found in read_content(content))
            reader.add(side, content, position, message_id)
        else:
            self._note_loss(position, "role", f"a message of role {role!r} is not understood")

    def _read_texts(self, item: Mapping[str, Any], position: int) -> None:
        """Read texts of the model: part of its answer, unless they would flow into it."""
        named = isinstance(item.get("id"), str)
        beside = any(type(part) is TextPart for part in (self._parts or ())[-1:])
        if beside and not named and not self._calls:
            self.close()
            beside = False
        parts, content = self._answer(position), item.get("content")
        for found in read_item(item, self._after):
            if isinstance(found, TextContent) and not named and (beside or not found.text):
                # else it would flow into its neighbour, or be left out
                apart = {**found.metadata, "apart": True}
                parts.append(self._reader.part(self._message_id, replace(found, metadata=apart)))
                beside = False
            else:
                parts.append(self._reader.part(self._message_id, found))
        if isinstance(content, str) and not named and "phase" not in item and len(parts) == 1:
            self._plain = content

    def _read_made(self, item: Mapping[str, Any], position: int) -> None:
        """Read reasoning or a call."""
        parts, name = self._answer(position), item.get("id")
        parts += [
            self._reader.part(self._message_id, found) for found in read_item(item, self._after)
        ]
        if item["type"] == "reasoning":
            self._after = name if isinstance(name, str) else None
        else:
            self._calls += 1

    def _read_other(self, item: Mapping[str, Any], position: int) -> None:
        """Read what OpenAI ran, or another program for it."""
        key = pair_of(item)
        if key and key[0] == "output":
            if key[1] in self._placed:
                return
            if self._waiting.pop(key[1], None) is None:
                detail = f"an item of type {item['type']!r} has no call before it"
                self._note_loss(position, "result-without-call", detail)
                return
            self._placed.add(key[1])
        self._store(item, self._answer(position))
        if key and key[0] == "call" and key[1] in self._outputs:
            self._waiting[key[1]] = self._outputs[key[1]]

    def _store(self, item: Mapping[str, Any], parts: list[Part]) -> None:
        after = {"after": self._after} if self._after else {}
        parts.append(self._reader.unknown(item, **after))


OPENAI_RESPONSES: Final = ResponsesFormat()
_fits_call: Final = OPENAI_RESPONSES.call_ids.fits
_fits_tool: Final = OPENAI_RESPONSES.tool_names.fits
