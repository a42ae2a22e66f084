"""OpenAI Chat Completions: `messages` of four roles, results as messages of their own.

A system message may stand anywhere and roles need not alternate; what it demands is that a call's
results follow it at once, one each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.content import image_mime
from palaver.messages.factories import file_part
from palaver.messages.files import FilePart
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire import details
from palaver.wire.format import Format
from palaver.wire.kept import CHAT as KEPT
from palaver.wire.media import Inline, is_image, is_text, media_of, text_of
from palaver.wire.names import Alphabet
from palaver.wire.pen import block_of
from palaver.wire.shapes import passed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message, Role
    from palaver.messages.parts import Part
    from palaver.wire.format import Element, Written
    from palaver.wire.mending import Turn
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source
    from palaver.wire.shapes import Kind

__all__ = ["CHAT"]

_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class Chat(Format):
    """OpenAI Chat Completions, and every server that speaks it."""

    name: ClassVar[str] = "openai-chat"
    provider: ClassVar[str] = "openai"
    items: ClassVar[str] = "messages"
    plain: ClassVar[bool] = True
    takes_attachments: ClassVar[bool] = False
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 64)
    call_ids: ClassVar[Alphabet] = Alphabet("[!-~]", 40)
    fields: ClassVar[Mapping[str, Kind]] = details.CHAT

    def write(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        """One element for a message, and one for each result of an answer's calls."""
        message = turn.message
        content = message.content
        if type(content) is str:
            return (({"role": message.role, "content": content}, message),)
        if message.role == "assistant":
            return self._answer(turn, pen)
        blocks = [
            block
            for part in pen.sendable(turn)
            if (block := self._block(part, message, pen)) is not None
        ]
        if not blocks:
            pen.nothing(message)
            return ()
        return (({"role": message.role, "content": blocks}, message),)

    def words(self, role: str, text: str) -> Element:
        """A message of palaver's own."""
        return {"role": role, "content": text}

    def omits(self, element: Element, path: Sequence[Any]) -> bool:
        """The content, where there is none."""
        return list(path) == ["content"] and element["content"] is None

    def kind(self, element: Element, path: Sequence[Any]) -> Kind:
        """What may stand in a field; of the content, by who says it."""
        if list(path) == ["content"]:
            return details.CHAT_CONTENT[element["role"]]
        return super().kind(element, path)

    def pairs(self, element: Element) -> Sequence[str]:
        """Call ids, of calls and of results."""
        calls = element.get("tool_calls")
        ids = [call.get("id") for call in calls if is_object(call)] if is_list(calls) else []
        return [str(found) for found in (*ids, element.get("tool_call_id"))]

    def _answer(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        message = turn.message
        texts: list[str] = []
        calls: list[Element] = []
        late = False
        element: Element = {"role": "assistant", "content": None}
        for part in pen.sendable(turn):
            if type(part) is ToolCallPart:
                calls.append(_call(part, turn, len(calls), pen))
            elif type(part) is TextPart:
                texts.append(part.text)
                late = late or bool(calls)
            elif type(part) is FilePart:
                texts.append(pen.left_out(part, message))
            elif type(part) is ReasoningPart:
                _thought(part, element, message, pen)
            else:
                _sound(part, element, message, pen)
        if texts:
            element["content"] = "".join(texts)
        if late:
            pen.note("lost", "order", "an answer's words stand before its calls here", message)
        if calls:
            element["tool_calls"] = calls
            outcomes = [
                ({"role": "tool", "tool_call_id": calls[position]["id"], "content": output}, owner)
                for position, output, _, _, owner in pen.results(turn)
            ]
            return [(element, message), *outcomes]
        if element["content"] is None and "audio" not in element:
            pen.nothing(message)
            return ()
        return ((element, message),)

    def _block(self, part: Part, message: Message, pen: Pen) -> Element | None:
        if type(part) is TextPart:
            return {"type": "text", "text": part.text} if part.text else None
        if type(part) is FilePart:
            return self._file_block(part, message, pen)
        if type(part) is UnknownPart and message.role == "user":
            raw = block_of(part)
            shape = KEPT.get(str(raw.get("type")))
            if shape is not None and (block := passed(raw, shape)) is not None:
                return block
        pen.misplaced(part, message)
        return None

    def _file_block(self, part: FilePart, message: Message, pen: Pen) -> Element:
        media = media_of(part) if message.role == "user" else None
        if is_image(media) and pen.target.images:
            return {"type": "image_url", "image_url": {"url": media.url}}
        if isinstance(media, Inline) and pen.target.files:
            if media.mime == "application/pdf":
                name = part.filename or "file.pdf"
                return {"type": "file", "file": {"filename": name, "file_data": media.url}}
            if media.mime in _SOUNDS:
                sound = {"data": media.data, "format": _SOUNDS[media.mime]}
                return {"type": "input_audio", "input_audio": sound}
            words = text_of(media) if is_text(media.mime) else None
            if words:
                pen.note("repaired", "media", f"a {media.mime} file is sent as text", message)
                return {"type": "text", "text": words}
        return {"type": "text", "text": pen.left_out(part, message)}

    def read(self, body: Mapping[str, Any], source: Source) -> None:
        """Read the messages."""
        for place, element in enumerate(body["messages"]):
            role = element.get("role") if is_object(element) else None
            message_id = new_id()
            if role in ("system", "developer", "user"):
                side: Role = "user" if role == "user" else "system"
                content = element.get("content")
                if not isinstance(content, str):
                    content = tuple(_parts(content, message_id, source))
                source.add(side, content, place, message_id)
            elif role == "assistant":
                source.add("assistant", _said(element, message_id, source), place, message_id)
            elif role == "tool":
                output = _plain(element.get("content"))
                part = source.result(message_id, str(element.get("tool_call_id")), output)
                source.add("tool", [part], place, message_id)
            else:
                where = f"$.messages[{place}]"
                source.lost(where, "role", f"a message of role {role!r} is not understood")


def _sound(part: Part, element: Element, message: Message, pen: Pen) -> None:
    """What was said aloud goes back by its id; an answer holds nothing else of this format."""
    sound = block_of(part).get("audio") if type(part) is UnknownPart else None
    name = sound.get("id") if is_object(sound) else None
    if isinstance(name, str) and name.strip():
        element["audio"] = {"id": name}
    else:
        pen.misplaced(part, message)


def _thought(part: ReasoningPart, element: Element, message: Message, pen: Pen) -> None:
    """A thought goes back under the name that its server gave it; OpenAI itself gives none."""
    kept = part.metadata.get("openai")
    field = kept.get("field") if is_object(kept) else None
    if field in ("reasoning_content", "reasoning") and pen.target.model is not None:
        element[str(field)] = part.text
        return
    detail = f"{pen.form.name} has no place for reasoning"
    pen.note("lost", "foreign-reasoning", detail, message)


def _call(call: ToolCallPart, turn: Turn, position: int, pen: Pen) -> Element:
    call_id, name = pen.call_id(turn, position), pen.tool(call.tool, turn.message)
    if call.metadata and is_custom(call):
        custom = {"name": name, "input": call.raw}
        return {"id": call_id, "type": "custom", "custom": custom}
    function = {"name": name, "arguments": pen.arguments(call, turn.message)}
    return {"id": call_id, "type": "function", "function": function}


def is_custom(call: ToolCallPart) -> bool:
    """Tell whether a call takes free text instead of JSON."""
    kept = call.metadata.get("openai")
    return is_object(kept) and kept.get("custom") is True


def _said(element: Mapping[str, Any], message_id: str, source: Source) -> str | list[Part]:
    """An answer's words and calls."""
    content, calls, refusal = (element.get(key) for key in ("content", "tool_calls", "refusal"))
    extra = {"audio": element["audio"]} if is_object(element.get("audio")) else {}
    if isinstance(content, str) and not calls and not refusal and not extra:
        return content
    parts: list[Part] = []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    parts.extend(_parts(content, message_id, source))
    if isinstance(refusal, str) and refusal:
        parts.append(source.text(message_id, refusal, metadata={"openai": {"refusal": True}}))
    if extra:
        parts.append(source.unknown(extra))
    for call in calls if is_list(calls) else ():
        shape = call.get(call.get("type", "function")) if is_object(call) else None
        if not is_object(shape):
            source.lost(f"message {message_id}", "call", "a call without a function was left out")
            continue
        custom = "input" in shape
        fields: dict[str, Any] = {"metadata": {"openai": {"custom": True}}} if custom else {}
        given = shape.get("input" if custom else "arguments", "")
        raw = given if is_object(given) else str(given)
        name, call_id = str(shape.get("name") or "unknown"), str(call.get("id") or new_id())
        parts.append(source.call(message_id, call_id, name, raw, **fields))
    return parts


def _parts(content: object, message_id: str, source: Source) -> Iterator[Part]:
    for block in content if is_list(content) else ():
        if not is_object(block):
            source.lost(f"message {message_id}", "unknown-part", "a block that is no object")
        elif block.get("type") == "text" and isinstance(block.get("text"), str):
            yield source.text(message_id, block["text"])
        elif block.get("type") == "refusal" and isinstance(block.get("refusal"), str):
            kept = {"openai": {"refusal": True}}
            yield source.text(message_id, block["refusal"], metadata=kept)
        else:
            yield _file(block, message_id, source) or source.unknown(block)


def _file(block: Mapping[str, Any], message_id: str, source: Source) -> FilePart | None:
    """An image, a sound or a file; None where it is something else or kept elsewhere."""
    inner = block.get(str(block.get("type")))
    if not is_object(inner):
        return None
    url, data, held = (inner.get(key) for key in ("url", "data", "file_data"))
    session = source.session
    if isinstance(url, str):
        return file_part(session, message_id, image_mime(url), url)
    if isinstance(data, str):
        mime = "audio/mpeg" if inner.get("format") == "mp3" else "audio/wav"
        return file_part(session, message_id, mime, f"data:{mime};base64,{data}")
    if isinstance(held, str) and held.startswith("data:"):
        mime = held[5:].partition(",")[0].partition(";")[0]
        name = inner.get("filename")
        return file_part(
            session, message_id, mime, held, filename=name if isinstance(name, str) else None
        )
    return None


def _plain(content: object) -> str:
    """A result's text."""
    if isinstance(content, str):
        return content
    blocks = content if is_list(content) else ()
    return "".join(str(block.get("text", "")) for block in blocks if is_object(block))


CHAT: Final = Chat()
