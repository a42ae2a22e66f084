"""Messages and content blocks of OpenAI Chat: what each says, and what each must look like.

This is the one reader of these messages: request bodies and logged replies use `read_assistant`.
Streamed replies come in pieces, which `reply` reads field by field to the same parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from palaver.messages.codec import dump, image_mime
from palaver.messages.limits import is_list, is_object
from palaver.wire.format import (
    CallContent,
    FileContent,
    ReasoningContent,
    ResultContent,
    TextContent,
    UnknownContent,
    any_of,
    any_text,
    list_of,
    never,
    not_null,
    nullable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.wire.format import Content, Schema, ValueSchema

__all__ = [
    "CONTENT",
    "FIELDS",
    "REASONING_FIELDS",
    "USER_BLOCKS",
    "read_assistant",
    "read_block",
    "read_calls",
    "read_result",
    "written_arguments",
]

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
"""The fields in which servers give reasoning; OpenAI itself gives none."""


def read_block(block: Mapping[str, Any]) -> Content:
    """Read a content block.

    >>> read_block({"type": "text", "text": "Tea?"})
    TextContent(text='Tea?', metadata={})
    """
    kind = block.get("type")
    if kind in (None, "text") and isinstance(block.get("text"), str):
        return TextContent(block["text"])
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return TextContent(block["refusal"], {"refusal": True})
    if kind == "thinking" and is_list(block.get("thinking")):  # as some servers send it
        pieces = (piece.get("text") for piece in block["thinking"] if is_object(piece))
        return ReasoningContent("".join(text for text in pieces if isinstance(text, str)))
    return _read_file(block) or UnknownContent(block)


def _read_file(block: Mapping[str, Any]) -> FileContent | None:
    """Read an image, a sound or a file; None where it is something else, or only an id."""
    inner = block.get(str(block.get("type")))
    if not is_object(inner):
        return None
    url, data, file = (inner.get(key) for key in ("url", "data", "file_data"))
    if isinstance(url, str):
        return FileContent(image_mime(url), url)
    if isinstance(data, str):
        mime = "audio/mpeg" if inner.get("format") == "mp3" else "audio/wav"
        return FileContent(mime, f"data:{mime};base64,{data}")
    if isinstance(file, str) and file.startswith("data:"):
        mime = file[5:].partition(",")[0].partition(";")[0]
        name = inner.get("filename")
        return FileContent(mime, file, name if isinstance(name, str) else None)
    return None


def read_assistant(message: Mapping[str, Any]) -> Iterator[Content | None]:
    """Read what an assistant says, of each kind once; None for a damaged block.

    A stream does not tell one block from the next, so the texts of blocks are one text: first the
    reasoning, then what is said, what is refused and what is spoken, then everything else.
    """
    found = list(_read_blocks(message))
    reasoned = [content for content in found if isinstance(content, ReasoningContent)]
    yield from _joined(reasoned, ReasoningContent)
    texts = [content for content in found if isinstance(content, TextContent)]
    for refused in (False, True):
        said = [content for content in texts if ("refusal" in content.metadata) is refused]
        yield from _joined(said, TextContent)
    yield from _read_audio(message)
    yield from (
        content for content in found if not isinstance(content, ReasoningContent | TextContent)
    )


_Texts = TypeVar("_Texts", TextContent, ReasoningContent)


def _joined(found: list[_Texts], kind: type[_Texts]) -> Iterator[_Texts]:
    """Yield one content for all of these; none where they say nothing."""
    text = "".join(content.text for content in found)
    metadata = {key: value for content in found for key, value in content.metadata.items()}
    if text or metadata:
        yield kind(text, metadata)


def _read_audio(message: Mapping[str, Any]) -> Iterator[Content]:
    """Read a spoken answer: its transcript, and the id by which it goes back."""
    audio = message.get("audio")
    if is_object(audio):
        if isinstance(audio.get("transcript"), str):
            yield TextContent(audio["transcript"], {"transcript": True})
        if isinstance(audio.get("id"), str) and audio["id"]:
            yield UnknownContent({"audio": {"id": audio["id"]}})


def read_calls(message: Mapping[str, Any]) -> Iterator[CallContent | None]:
    """Read the calls of an assistant message, also in the older form; None for a damaged one."""
    calls, old_call = message.get("tool_calls"), message.get("function_call")
    for call in calls if is_list(calls) else ():
        yield _read_call(call) if is_object(call) else None
    if is_object(old_call):
        yield _read_call({"function": old_call})


def _read_reasoning(message: Mapping[str, Any]) -> Iterator[ReasoningContent]:
    details = message.get("reasoning_details")
    known: dict[str, Any] = {"details": details} if is_list(details) and details else {}
    for field in REASONING_FIELDS:
        text = message.get(field)
        if isinstance(text, str) and text:
            yield ReasoningContent(text, {"field": field, **known})
            return
    if known:
        yield ReasoningContent("", known)


def _read_blocks(message: Mapping[str, Any]) -> Iterator[Content | None]:
    yield from _read_reasoning(message)
    content, refusal, notes = (message.get(key) for key in ("content", "refusal", "annotations"))
    for block in content if is_list(content) else (content,):
        if isinstance(block, str):
            yield TextContent(block)
        elif block is not None:
            yield read_block(block) if is_object(block) else None
    if is_list(notes) and notes:
        yield TextContent("", {"annotations": notes})
    if isinstance(refusal, str) and refusal:
        yield TextContent(refusal, {"refusal": True})


def _read_call(call: Mapping[str, Any]) -> CallContent | None:
    """Read a call of a function or of a custom tool; None where it is neither."""
    custom = is_object(call.get("custom"))
    called = call.get("custom" if custom else "function")
    if not is_object(called):
        return None
    call_id = call.get("id")
    return CallContent(
        str(call_id) if call_id else None,
        str(called.get("name") or "unknown"),
        written_arguments(called.get("input" if custom else "arguments")),
        {"custom": True} if custom else {},
    )


def written_arguments(given: object) -> str:
    """Return what a model wrote for a call; some servers send it as a value instead of text."""
    if given is None:
        return ""
    return given if isinstance(given, str) else dump(given).decode()


def read_result(message: Mapping[str, Any]) -> ResultContent:
    """Read a `tool` message; texts are joined by line breaks, other blocks are in `metadata`."""
    call_id, content = message.get("tool_call_id"), message.get("content")
    if isinstance(content, str):
        return ResultContent(str(call_id) if call_id else None, content)
    texts: list[str] = []
    files: list[FileContent] = []
    others: list[Any] = []
    for block in content if is_list(content) else (content,):
        text = block.get("text") if is_object(block) else block
        if isinstance(text, str):
            texts.append(text)
        elif is_object(block) and (file := _read_file(block)):
            files.append(file)
        elif block is not None:
            others.append(block)
    return ResultContent(
        str(call_id) if call_id else None,
        "\n".join(texts),
        files=tuple(files),
        metadata={"content": others} if others else {},
    )


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────

USER_BLOCKS: Final[Mapping[str, Schema]] = {
    "file": {"type": str, "file": {"file_id": str, "filename?": any_text}},
}
"""Blocks of a user that palaver has no part for: files by id."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE_URL: Final = re.compile(
    r"(?:https?://[^\s/]\S*|data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2})",
    re.IGNORECASE,
)
_DETAIL: Final = ("auto", "low", "high", "original")
_BREAK: Final[Schema] = {"prompt_cache_breakpoint*": dict}
_TEXT: Final[Schema] = {"type": ("text",), "text": any_text, **_BREAK}
_REFUSAL: Final[Schema] = {"type": ("refusal",), "refusal": any_text}
_IMAGE: Final[Schema] = {
    "type": ("image_url",),
    "image_url": {"url": _IMAGE_URL, "detail*": _DETAIL},
    **_BREAK,
}
_ONLY_TEXT: Final = any_of(any_text, list_of(_TEXT, at_least=1))
CONTENT: Final[Mapping[str, ValueSchema]] = {
    "system": _ONLY_TEXT,
    "tool": _ONLY_TEXT,
    "user": any_of(any_text, list_of(any_of(_TEXT, _IMAGE), at_least=1)),
    "assistant": nullable(any_text, list_of(any_of(_TEXT, _REFUSAL), at_least=1)),
}
"""The content of a message of each role."""
FIELDS: Final[Mapping[str, ValueSchema]] = {
    "role": ("system", "developer", "user", "assistant", "tool"),
    "content": never,
    "name": _NAME,
    "refusal": nullable(any_text),
    "audio": nullable({"id": str}),
    **dict.fromkeys(("tool_calls", "tool_call_id", "id", "function", "custom", "type"), never),
    **dict.fromkeys(("arguments", "input", "text", "filename"), any_text),
    **dict.fromkeys(("image_url", "input_audio", "file", "file_data", "file_id"), never),
    "url": _IMAGE_URL,
    "detail": _DETAIL,
    "data": str,
    "format": ("wav", "mp3"),
    "prompt_cache_breakpoint": dict,
    **dict.fromkeys(("mode", "ttl"), not_null),
}
"""What each field of an element may hold, so that a detail may be put back."""
