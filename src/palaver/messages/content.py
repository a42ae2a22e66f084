"""The plain content list: `text`, `image`, `tool_use`, `tool_result`, read into parts and back.

An item of this list has no ids of its own; that is how it is told from a part. Reading it gives
parts; `to_content` writes parts as such a list again and says which ones it has no words for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.messages.decoding import convert
from palaver.messages.factories import file_part, text_part, tool_call_part, tool_part
from palaver.messages.files import FilePart
from palaver.messages.parts import TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.toolstate import (
    NO_OUTPUT,
    ToolCompleted,
    ToolError,
    complete,
    pending,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.message import Message
    from palaver.messages.parts import Part

__all__ = ["image_mime", "is_content_item", "read_content_item", "to_content"]

_TYPES: Final = frozenset(("text", "image", "tool_use", "tool_result"))
_IDS: Final = frozenset(("id", "sessionID", "messageID"))
_UNKNOWN_TOOL: Final = "unknown"


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class _Text(_Strict, frozen=True, tag="text"):
    text: str


class _Url(Struct, frozen=True, forbid_unknown_fields=True):
    url: str


class _Image(_Strict, frozen=True, tag="image"):
    image_url: _Url


class _Use(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    input: dict[str, Any]


class _ToolUse(_Strict, frozen=True, tag="tool_use"):
    tool_use: _Use


class _Piece(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    text: str


class _Result(Struct, frozen=True, forbid_unknown_fields=True):
    tool_use_id: str
    content: str | list[_Piece]


class _ToolResult(_Strict, frozen=True, tag="tool_result"):
    tool_result: _Result


_Item = _Text | _Image | _ToolUse | _ToolResult


def is_content_item(item: Mapping[str, Any]) -> bool:
    """Tell an item of the plain list from a part: it is of the list's types and has no ids.

    >>> is_content_item({"type": "text", "text": "hi"})
    True
    >>> is_content_item({"type": "text", "text": "hi", "messageID": "m"})
    False
    """
    kind = item.get("type")
    return isinstance(kind, str) and kind in _TYPES and _IDS.isdisjoint(item)


def read_content_item(
    item: Mapping[str, Any],
    *,
    session_id: str,
    message_id: str,
    role: str,
    at: int,
    tools: Mapping[str, str],
) -> Part:
    """Read one item into a part.

    `tools` names the tool of each call seen so far: a result in this list does not name its own.
    """
    value: _Item = convert(item, _Item)
    if isinstance(value, _Text):
        return text_part(session_id, message_id, value.text)
    if isinstance(value, _Image):
        return file_part(
            session_id, message_id, image_mime(value.image_url.url), value.image_url.url
        )
    if isinstance(value, _ToolUse):
        use = value.tool_use
        return tool_call_part(session_id, message_id, use.name, use.input, call_id=use.id)
    if role == "assistant":
        return UnknownPart(item)  # a result has no place in an answer: kept, not understood
    result = value.tool_result
    kept: dict[str, Any] = {}
    if isinstance(result.content, str):
        output = result.content
    else:
        output = "".join(piece.text for piece in result.content)
        kept["metadata"] = {"content": msgspec.to_builtins(result.content)}
    tool = tools.get(result.tool_use_id, _UNKNOWN_TOOL)
    done = complete(start(pending({}, ""), at=at), output, tool=tool, at=at)
    return tool_part(session_id, message_id, result.tool_use_id, tool, done, **kept)


def to_content(message: Message) -> tuple[str | list[dict[str, Any]], tuple[Part, ...]]:
    """Write a message's content as the plain list, and name the parts it has no words for.

    >>> from palaver.messages import parse_message
    >>> to_content(parse_message({"role": "user", "content": [{"type": "text", "text": "hi"}]}))
    ([{'type': 'text', 'text': 'hi'}], ())
    """
    if isinstance(message.content, str):
        return message.content, ()
    items: list[dict[str, Any]] = []
    left_out: list[Part] = []
    for part in message.content:
        item = _write(part)
        if item is None:
            left_out.append(part)
        else:
            items.append(item)
    return items, tuple(left_out)


def _write(part: Part) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart) and part.mime.startswith("image/"):
        return {"type": "image", "image_url": {"url": part.url}}
    if isinstance(part, ToolCallPart):
        use = {"id": part.call_id, "name": part.tool, "input": dict(part.input)}
        return {"type": "tool_use", "tool_use": use}
    if isinstance(part, ToolPart):
        result = {"tool_use_id": part.call_id, "content": _output(part)}
        return {"type": "tool_result", "tool_result": result}
    if isinstance(part, UnknownPart) and is_content_item(part.raw):
        return dict(part.raw)
    return None


def _output(part: ToolPart) -> Any:  # noqa: ANN401 - text, or the list it came as
    if "content" in part.metadata:
        return part.metadata["content"]
    if isinstance(part.state, ToolError):
        return part.state.error
    if not isinstance(part.state, ToolCompleted):  # pragma: no cover - a message has no open calls
        return ""
    raw = part.state.metadata.get("rawOutput")
    return "" if raw == "" and part.state.output == NO_OUTPUT else part.state.output


def image_mime(url: str) -> str:
    """The type of an image, as far as its url tells; `image/*` where it does not.

    >>> image_mime("https://example.org/a.jpg"), image_mime("https://example.org/a")
    ('image/jpeg', 'image/*')
    """
    if url.startswith("data:"):
        kind = url[5:].partition(",")[0].partition(";")[0]
        if kind.startswith("image/"):
            return kind
    extension = url.partition("?")[0].rpartition(".")[2].lower()
    known = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "gif": "gif", "webp": "webp"}
    return f"image/{known.get(extension, '*')}"
