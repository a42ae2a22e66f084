"""Anthropic's content blocks, as Claude Code writes them down: to parts and to tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.messages.codec import dump
from palaver.messages.gate import is_list, is_object
from palaver.wire.transcripts.building import Call
from palaver.wire.transcripts.fields import name_in, object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.wire.transcripts.building import Conversation, Sheet

__all__ = ["FORMAT", "Result", "blocks_of", "put_block", "result_of"]

FORMAT: Final = "anthropic"


class Result(NamedTuple):
    """What a `tool_result` block says."""

    call_id: str
    output: str
    is_error: bool
    files: tuple[tuple[str, str], ...]
    metadata: dict[str, Any]


def blocks_of(content: object) -> Iterator[Mapping[str, Any]]:
    """The blocks of a message; text alone is one, and what is no block is kept as text.

    >>> list(blocks_of("hi"))
    [{'type': 'text', 'text': 'hi'}]
    """
    for item in content if is_list(content) else (content,):
        if is_object(item):
            yield item
        elif isinstance(item, str):
            yield {"type": "text", "text": item}
        elif item is not None:
            yield {"type": "text", "text": dump(item).decode()}


def put_block(
    sheet: Sheet, block: Mapping[str, Any], talk: Conversation, at: int, **fields: bool
) -> None:
    """Put a block on a sheet, as the part that says the same, or whole."""
    kind = text_in(block, "type")
    if kind == "text" and isinstance(block.get("text"), str):
        sheet.text(block["text"], **fields)
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        signature = text_in(block, "signature")
        metadata = {FORMAT: {"signature": signature}} if signature else {}
        sheet.reasoning(block["thinking"], at, metadata)
    elif kind == "redacted_thinking" and text_in(block, "data"):
        sheet.reasoning("", at, {FORMAT: {"redacted": block["data"]}})
    elif kind == "tool_use" and (call_id := name_in(block, "id")) and name_in(block, "name"):
        given = object_in(block, "input")
        call = Call(block["name"], given, dump(block.get("input")).decode(), at)
        talk.calls[call_id] = call
        sheet.call(call_id, call)
    elif file := _file(block):
        sheet.file(*file)
    else:
        sheet.unknown(FORMAT, block)


def result_of(block: Mapping[str, Any]) -> Result | None:
    """Read a `tool_result` block; None where it does not say which call it is for."""
    call_id = name_in(block, "tool_use_id")
    if block.get("type") != "tool_result" or call_id is None:
        return None
    texts: list[str] = []
    files: list[tuple[str, str]] = []
    others: list[Mapping[str, Any]] = []
    for item in blocks_of(block.get("content")):
        if item.get("type") == "text" and isinstance(item.get("text"), str):
            texts.append(item["text"])
        elif file := _file(item):
            files.append(file[:2])
        else:
            others.append(item)
    metadata: dict[str, Any] = {FORMAT: {"content": others}} if others else {}
    return Result(call_id, "\n".join(texts), block.get("is_error") is True, tuple(files), metadata)


def _file(block: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
    """An image or a document, as type, url and name."""
    if text_in(block, "type") not in {"image", "document"}:
        return None
    source = object_in(block, "source")
    usual = "image/*" if block["type"] == "image" else "application/octet-stream"
    mime = text_in(source, "media_type") or usual
    title = name_in(block, "title")
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return mime, f"data:{mime};base64,{source['data']}", title
    if source.get("type") == "url" and text_in(source, "url"):
        return mime, source["url"], title
    return None
