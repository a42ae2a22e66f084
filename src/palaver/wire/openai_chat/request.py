"""Requests to OpenAI Chat Completions: `messages` of four roles, results as their own messages.

A system message may stand anywhere and roles need not alternate; what the API demands is that the
results of a call follow it at once, one each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from palaver.messages.ids import new_id
from palaver.messages.limits import is_list, is_object
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire.format import (
    Alphabet,
    Format,
    Inline,
    freeform_text,
    is_freeform,
    is_image,
    is_text,
    known_fields,
    media_of,
    raw_block,
    text_of,
)
from palaver.wire.openai_chat.blocks import (
    CONTENT,
    FIELDS,
    REASONING_FIELDS,
    USER_BLOCKS,
    read_assistant,
    read_block,
    read_calls,
    read_result,
)
from palaver.wire.openai_chat.reply import ChatReply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message, Role
    from palaver.messages.parts import Part
    from palaver.wire.format import Element, ToolSpec, ValueSchema, Writer, WrittenElement
    from palaver.wire.pairing import PairedTurn
    from palaver.wire.reply import ReplyReader
    from palaver.wire.request import BodyReader

__all__ = ["OPENAI_CHAT", "ChatFormat"]

_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatFormat(Format):
    """OpenAI Chat Completions, and every server that speaks it."""

    name: ClassVar[str] = "openai-chat"
    provider: ClassVar[str] = "openai"
    reply_reader: ClassVar[type[ReplyReader]] = ChatReply
    items: ClassVar[str] = "messages"
    plain: ClassVar[bool] = True
    takes_attachments: ClassVar[bool] = False
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 64)
    call_ids: ClassVar[Alphabet] = Alphabet("[!-~]", 40)
    fields: ClassVar[Mapping[str, ValueSchema]] = FIELDS
    carried: ClassVar[frozenset[str]] = frozenset(REASONING_FIELDS)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def write(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        """Return one element for a message, and one for each result of an answer's calls."""
        message = turn.message
        content = message.content
        if type(content) is str:
            return (({"role": message.role, "content": content}, message),)
        if message.role == "assistant":
            return self._assistant(turn, writer)
        blocks = [
            block
            for part in writer.sendable_parts(turn)
            if (block := self._block(part, message, writer)) is not None
        ]
        if not blocks:
            writer.note_nothing(message)
            return ()
        return (({"role": message.role, "content": blocks}, message),)

    def write_tools(self, tools: Sequence[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
        """Return a function for each tool."""
        return [
            {"type": "function", "function": {**spec.named(name), "parameters": spec.schema}}
            for name, spec in tools
        ]

    def text_element(self, role: str, text: str) -> Element:
        """Return a message of one text."""
        return {"role": role, "content": text}

    def may_omit(self, element: Element, path: Sequence[Any]) -> bool:
        """Tell whether a field may be missing: the content, where there is none."""
        return list(path) == ["content"] and element["content"] is None

    def field_schema(self, element: Element, path: Sequence[Any]) -> ValueSchema:
        """Return what a field may hold; of the content, by role."""
        if list(path) == ["content"]:
            return CONTENT[element["role"]]
        return super().field_schema(element, path)

    def pair_keys(self, element: Element) -> Sequence[str]:
        """Return the call ids of calls and results."""
        calls = element.get("tool_calls")
        ids = [call.get("id") for call in calls if is_object(call)] if is_list(calls) else []
        return [str(found) for found in (*ids, element.get("tool_call_id"))]

    def _assistant(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        message = turn.message
        texts: list[str] = []
        calls: list[Element] = []
        late = False
        element: Element = {"role": "assistant", "content": None}
        for part in writer.sendable_parts(turn):
            if type(part) is ToolCallPart:
                calls.append(_call(part, turn, len(calls), writer))
            elif type(part) is TextPart:
                texts.append(part.text)
                late = late or bool(calls)
            elif type(part) is FilePart:
                texts.append(writer.placeholder(part, message))
            elif type(part) is ReasoningPart:
                _add_reasoning(part, element, message, writer)
            else:
                _add_audio(part, element, message, writer)
        if texts:
            element["content"] = "".join(texts)
        if late:
            writer.note("lost", "order", "here an answer's text comes before its calls", message)
        if calls:
            element["tool_calls"] = calls
            results = [
                ({"role": "tool", "tool_call_id": calls[position]["id"], "content": output}, owner)
                for position, output, _, _, owner in writer.results(turn)
            ]
            return [(element, message), *results]
        if element["content"] is None and "audio" not in element:
            writer.note_nothing(message)
            return ()
        return ((element, message),)

    def _block(self, part: Part, message: Message, writer: Writer) -> Element | None:
        if type(part) is TextPart:
            return {"type": "text", "text": part.text} if part.text else None
        if type(part) is FilePart:
            return self._file_block(part, message, writer)
        if type(part) is UnknownPart and message.role == "user":
            raw = raw_block(part)
            schema = USER_BLOCKS.get(str(raw.get("type")))
            if schema is not None and (block := known_fields(raw, schema)) is not None:
                return block
        writer.note_misplaced(part, message)
        return None

    def _file_block(self, part: FilePart, message: Message, writer: Writer) -> Element:
        media = media_of(part) if message.role == "user" else None
        if is_image(media) and writer.target.images:
            return {"type": "image_url", "image_url": {"url": media.url}}
        if isinstance(media, Inline) and writer.target.files:
            if media.mime == "application/pdf":
                name = part.filename or "file.pdf"
                return {"type": "file", "file": {"filename": name, "file_data": media.url}}
            if media.mime in _SOUNDS:
                sound = {"data": media.data, "format": _SOUNDS[media.mime]}
                return {"type": "input_audio", "input_audio": sound}
            text = text_of(media) if is_text(media.mime) else None
            if text:
                writer.note("repaired", "media", f"a {media.mime} file is sent as text", message)
                return {"type": "text", "text": text}
        return {"type": "text", "text": writer.placeholder(part, message)}

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def read(self, body: Mapping[str, Any], reader: BodyReader) -> None:
        """Read the messages."""
        function_calls: dict[str, str] = {}  # of the older API, whose results name the function
        for position, element in enumerate(body["messages"]):
            role = element.get("role") if is_object(element) else None
            message_id = new_id()
            if role in ("system", "developer", "user"):
                side: Role = "user" if role == "user" else "system"
                content = element.get("content")
                if not isinstance(content, str):
                    content = tuple(_read_parts(content, message_id, reader))
                reader.add(side, content, position, message_id)
            elif role == "assistant":
                said = _read_answer(element, message_id, reader)
                if is_object(old_call := element.get("function_call")):
                    last = getattr(said[-1], "call_id", "")
                    function_calls[str(old_call.get("name"))] = last
                reader.add("assistant", said, position, message_id)
            elif role == "tool":
                reader.add_result(read_result(element), position)
            elif role == "function" and element.get("name") in function_calls:
                call_id = function_calls.pop(element["name"])
                reader.add_result(replace(read_result(element), call_id=call_id), position)
            else:
                where = f"$.messages[{position}]"
                reader.note_loss(where, "role", f"a message of role {role!r} is not understood")


def _add_audio(part: Part, element: Element, message: Message, writer: Writer) -> None:
    """Add a spoken answer by its id; an answer holds nothing else of this format."""
    audio = raw_block(part).get("audio") if type(part) is UnknownPart else None
    name = audio.get("id") if is_object(audio) else None
    if isinstance(name, str) and name.strip():
        element["audio"] = {"id": name}
    else:
        writer.note_misplaced(part, message)


def _add_reasoning(part: ReasoningPart, element: Element, message: Message, writer: Writer) -> None:
    """Add reasoning under the name that its server gave it; OpenAI itself gives none."""
    stored = part.metadata.get("openai")
    field = stored.get("field") if is_object(stored) else None
    if field in REASONING_FIELDS and writer.target.model is not None:
        element[str(field)] = part.text
        return
    detail = f"{writer.form.name} has no place for reasoning"
    writer.note("lost", "foreign-reasoning", detail, message)


def _call(call: ToolCallPart, turn: PairedTurn, position: int, writer: Writer) -> Element:
    call_id, name = writer.call_id(turn, position), writer.tool_name(call.tool, turn.message)
    if is_freeform(call):
        custom = {"name": name, "input": freeform_text(call)}
        return {"id": call_id, "type": "custom", "custom": custom}
    function = {"name": name, "arguments": writer.arguments_text(call, turn.message)}
    return {"id": call_id, "type": "function", "function": function}


def _read_parts(content: object, message_id: str, reader: BodyReader) -> Iterator[Part]:
    for block in content if is_list(content) else ():
        if is_object(block):
            yield reader.part(message_id, read_block(block))
        else:
            detail = "a block that is no object"
            reader.note_loss(f"message {message_id}", "unknown-part", detail)


def _read_answer(
    message: Mapping[str, Any], message_id: str, reader: BodyReader
) -> str | list[Part]:
    """Read an assistant message: its text alone where there is nothing else."""
    content = message.get("content")
    if isinstance(content, str) and len(message) == 2:  # noqa: PLR2004 - role and content
        return content
    parts: list[Part] = []
    for said in read_assistant(message):
        if said is not None:
            parts.append(reader.part(message_id, said))
        else:
            detail = "a block that is no object"
            reader.note_loss(f"message {message_id}", "unknown-part", detail)
    for call in read_calls(message):
        if call is not None:
            parts.append(reader.part(message_id, call))
        else:
            detail = "a call without a function was left out"
            reader.note_loss(f"message {message_id}", "call", detail)
    only = parts[0] if len(parts) == 1 else None
    if isinstance(content, str) and (
        not parts or (isinstance(only, TextPart) and not only.metadata)
    ):
        return content
    return parts


OPENAI_CHAT: Final = ChatFormat()
