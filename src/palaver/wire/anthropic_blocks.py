"""The blocks of Anthropic Messages that carry files, and the way from blocks to parts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from palaver.messages.content import image_mime
from palaver.messages.factories import file_part, reasoning_part
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.wire.media import IMAGES, Inline, Linked, is_image, is_text, media_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.files import FilePart
    from palaver.messages.message import Message, Role
    from palaver.messages.parts import Part
    from palaver.wire.format import Element
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source

__all__ = ["SERVED", "file_block", "is_blank", "read_messages", "words_block"]

SERVED: Final = frozenset(
    f"{tool}_tool_result"
    for tool in (
        *("web_search", "web_fetch", "tool_search", "code_execution", "bash_code_execution"),
        "text_editor_code_execution",
    )
)
"""Results of the tools that Anthropic runs itself."""
_LARGEST_IMAGE: Final = 10 * 1024 * 1024
_PDF: Final = "application/pdf"


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing in it that Anthropic takes."""
    return not text or text.isspace()


def words_block(text: str) -> Element:
    """A block of text."""
    return {"type": "text", "text": text}


def file_block(part: FilePart, message: Message, pen: Pen) -> Element:
    """A file as an image or a document, or a word that stands for it."""
    media = media_of(part)
    kind = "image" if is_image(media) else "document"
    source = None
    if isinstance(media, Linked):
        if media.url[:6].lower() == "https:" and (kind == "image" or media.mime == _PDF):
            source = {"type": "url", "url": media.url}
    elif isinstance(media, Inline):
        source = _source(media, part, message, pen)
    takes = pen.target.images if kind == "image" else pen.target.files
    if source is None or not takes:
        return words_block(pen.left_out(part, message))
    block: Element = {"type": kind, "source": source}
    if kind == "document" and part.filename:
        block["title"] = part.filename
    return block


def _source(media: Inline, part: FilePart, message: Message, pen: Pen) -> Element | None:
    if media.mime in IMAGES:
        fits = len(media.data) <= _LARGEST_IMAGE
        return {"type": "base64", "media_type": media.mime, "data": media.data} if fits else None
    if media.mime == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": media.data}
    words = text_of(media) if is_text(media.mime) else None
    if words is None or is_blank(words):
        return None
    if media.mime != "text/plain" and pen.target.files:
        detail = f"a file of type {part.mime} is sent as text/plain"
        pen.note("repaired", "media", detail, message)
    return {"type": "text", "media_type": "text/plain", "data": words}


def read_messages(body: Mapping[str, Any], source: Source) -> None:
    """Read the system text and the messages."""
    system = body.get("system")
    if system:
        _add("system", system, -1, source)
    for place, element in enumerate(body["messages"]):
        role = element.get("role") if is_object(element) else None
        if role not in ("user", "assistant", "system"):
            where = f"$.messages[{place}]"
            source.lost(where, "role", f"a message of role {role!r} is not understood")
            continue
        content = element.get("content")
        if role == "user" and is_list(content):
            content = [block for block in content if not _answered(block, place, source)]
            if not content and source.places[-1:] == [place]:
                continue
        _add(role, content, place, source)


def _add(role: Role, content: object, place: int, source: Source) -> None:
    message_id = new_id()
    if isinstance(content, str):
        source.add(role, content, place, message_id)
        return
    parts = list(_parts(content, message_id, source))
    if parts:
        source.add(role, parts, place, message_id)
    else:
        source.lost(f"$.messages[{place}]", "empty-content", "a message with nothing in it")


def _answered(block: object, place: int, source: Source) -> bool:
    """Take a result as a message of its own, if it is one."""
    if not is_object(block) or block.get("type") != "tool_result":
        return False
    message_id = new_id()
    content = block.get("content")
    texts: list[str] = []
    files: list[FilePart] = []
    for inner in [words_block(content)] if isinstance(content, str) else _objects(content):
        file = _file(inner, message_id, source)
        if file is not None:
            files.append(file)
        else:
            texts.extend(_words(inner))
    part = source.result(
        message_id,
        str(block.get("tool_use_id") or new_id()),
        "".join(texts),
        failed=block.get("is_error") is True,
        files=files,
    )
    source.add("tool", [part], place, message_id)
    return True


def _words(block: Mapping[str, Any]) -> Iterator[str]:
    """What a block in a result says in words."""
    if isinstance(block.get("text"), str):
        yield block["text"]
    elif block.get("type") == "search_result":
        for inner in _objects(block.get("content")):
            yield from _words(inner)


def _objects(content: object) -> list[Mapping[str, Any]]:
    return [block for block in content if is_object(block)] if is_list(content) else []


def _parts(content: object, message_id: str, source: Source) -> Iterator[Part]:
    for block in content if is_list(content) else ():
        part = _part(block, message_id, source) if is_object(block) else None
        if part is None:
            kind = block.get("type") if is_object(block) else None
            detail = f"a block of type {kind!r} that is not as it should be"
            source.lost(f"message {message_id}", "unknown-part", detail)
        else:
            yield part


def _part(block: Mapping[str, Any], message_id: str, source: Source) -> Part | None:
    kind, text, name = (block.get(key) for key in ("type", "text", "name"))
    if kind == "text":
        return source.text(message_id, text) if isinstance(text, str) else None
    if kind == "tool_use":
        call_id = str(block.get("id") or new_id())
        named = isinstance(name, str) and name
        return source.call(message_id, call_id, str(name), block.get("input")) if named else None
    if kind in ("thinking", "redacted_thinking"):
        return _thought(block, message_id, source)
    if not isinstance(kind, str) or kind == "tool_result":
        return None
    return _file(block, message_id, source) or source.unknown(block)


def _thought(block: Mapping[str, Any], message_id: str, source: Source) -> Part:
    kept = {"signature": block.get("signature"), "redacted": block.get("data")}
    said = block.get("thinking")
    return reasoning_part(
        source.session,
        message_id,
        said if isinstance(said, str) else "",
        metadata={"anthropic": {key: held for key, held in kept.items() if isinstance(held, str)}},
    )


def _file(block: Mapping[str, Any], message_id: str, source: Source) -> FilePart | None:
    """An image or a document; None where it is something else or kept elsewhere."""
    kind, held, title = block.get("type"), block.get("source"), block.get("title")
    if kind not in ("image", "document") or not is_object(held):
        return None
    mime, data, url = held.get("media_type"), held.get("data"), held.get("url")
    words = data if held.get("type") == "text" else held.get("content")
    if isinstance(words, str):
        mime, data = "text/plain", base64.b64encode(words.encode()).decode()
    if isinstance(data, str) and isinstance(mime, str):
        url = f"data:{mime};base64,{data}"
    elif isinstance(url, str):
        mime = image_mime(url) if kind == "image" else _PDF
    else:
        return None
    name = title if isinstance(title, str) and title else None
    return file_part(source.session, message_id, mime, url, filename=name)
