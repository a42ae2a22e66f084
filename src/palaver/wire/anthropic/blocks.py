"""Content blocks of Anthropic Messages: what each says, and what each must look like.

This is the one reader of these blocks: request bodies, replies and Claude Code's transcripts all
use `read_block` and `read_result`. The schemas say which blocks and fields palaver may send without
understanding them; messages come from anywhere, so anything else is left out.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from palaver.messages.codec import dump, image_mime
from palaver.messages.limits import is_list, is_object
from palaver.wire.format import (
    IMAGES,
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
    nullable,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.wire.format import Content, Schema, ValueSchema

__all__ = [
    "ASSISTANT_BLOCKS",
    "FIELDS",
    "PDF",
    "RESULT_CONTENT",
    "SERVER_RESULTS",
    "USER_BLOCKS",
    "read_block",
    "read_result",
]

PDF: Final = "application/pdf"
_CALL_DETAILS: Final = ("caller", "toolset_name")


def read_block(block: Mapping[str, Any]) -> Content | None:
    """Read a content block; None where it is a result, or not as it should be.

    >>> read_block({"type": "text", "text": "Tea?"})
    TextContent(text='Tea?', metadata={})
    """
    kind = block.get("type")
    if kind == "text":
        return _text(block)
    if kind == "thinking":
        return _reasoning(block)
    if kind == "redacted_thinking":
        data = block.get("data")
        return ReasoningContent("", {"redacted": data}) if isinstance(data, str) else None
    if kind == "tool_use":
        return _call(block)
    if not isinstance(kind, str) or kind == "tool_result":
        return None
    return _file(block) or UnknownContent(block)


def _text(block: Mapping[str, Any]) -> TextContent | None:
    text, citations = block.get("text"), block.get("citations")
    if not isinstance(text, str):
        return None
    cited = [one for one in citations if is_object(one)] if is_list(citations) else []
    return TextContent(text, {"citations": cited} if cited else {})


def _reasoning(block: Mapping[str, Any]) -> ReasoningContent | None:
    text, signature = block.get("thinking"), block.get("signature")
    signed = {"signature": signature} if isinstance(signature, str) and signature else {}
    if not isinstance(text, str) and not signed:
        return None
    return ReasoningContent(text if isinstance(text, str) else "", signed)


def _call(block: Mapping[str, Any]) -> CallContent | None:
    name, call_id, given = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(name, str) or not name:
        return None
    metadata = {key: block[key] for key in _CALL_DETAILS if block.get(key)}
    arguments: Mapping[str, Any] | str = {}
    if given is not None:
        arguments = given if is_object(given) else dump(given).decode()
    return CallContent(str(call_id) if call_id else None, name, arguments, metadata)


def _file(block: Mapping[str, Any]) -> FileContent | None:
    """Read an image or a document; None where it is something else, or only an id."""
    kind, source, title = block.get("type"), block.get("source"), block.get("title")
    if kind not in ("image", "document") or not is_object(source):
        return None
    mime, data, url = source.get("media_type"), source.get("data"), source.get("url")
    text = data if source.get("type") == "text" else source.get("content")
    if isinstance(text, str):
        mime, data = "text/plain", base64.b64encode(text.encode()).decode()
    if isinstance(data, str):
        unnamed = "image/*" if kind == "image" else "application/octet-stream"
        mime = mime if isinstance(mime, str) and mime else unnamed
        url = f"data:{mime};base64,{data}"
    elif isinstance(url, str) and url:
        mime = image_mime(url) if kind == "image" else PDF
    else:
        return None
    return FileContent(mime, url, title if isinstance(title, str) and title else None)


def read_result(block: Mapping[str, Any]) -> ResultContent | None:
    """Read a `tool_result` block; None where it is none.

    Texts are joined by line breaks. Blocks that are neither text nor file are in `metadata`.

    >>> said = {"type": "tool_result", "tool_use_id": "c1", "content": "9 °C"}
    >>> read_result(said).output
    '9 °C'
    """
    if block.get("type") != "tool_result":
        return None
    call_id, content = block.get("tool_use_id"), block.get("content")
    texts: list[str] = []
    files: list[FileContent] = []
    others: list[Any] = []
    for inner in content if is_list(content) else (content,):
        if isinstance(inner, str):
            texts.append(inner)
        elif not is_object(inner):
            others += [] if inner is None else [inner]
        elif (file := _file(inner)) is not None:
            files.append(file)
        else:
            texts += _texts(inner)
            others += [] if inner.get("type") == "text" else [inner]
    return ResultContent(
        str(call_id) if call_id else None,
        "\n".join(texts),
        block.get("is_error") is True,
        tuple(files),
        {"content": others} if others else {},
    )


def _texts(block: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a block in a result."""
    if isinstance(block.get("text"), str):
        yield block["text"]
    elif block.get("type") == "search_result" and is_list(block.get("content")):
        for inner in block["content"]:
            if is_object(inner):
                yield from _texts(inner)


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────

SERVER_RESULTS: Final = frozenset(
    f"{tool}_tool_result"
    for tool in (
        *("web_search", "web_fetch", "tool_search", "code_execution", "bash_code_execution"),
        "text_editor_code_execution",
    )
)
"""Results of the tools that Anthropic runs itself."""
_CACHE: Final[Schema] = {"cache_control?": {"type": ("ephemeral",), "ttl?": ("5m", "1h")}}
_SERVER_ID: Final = re.compile(r"srvtoolu_\w+", re.ASCII)
_BY_ID: Final[Schema] = {"type": ("file",), "file_id": str}
_TEXT: Final[Schema] = {"type": ("text",), "text": str, "citations?": list_of(typed()), **_CACHE}
_OF_DOCUMENTS: Final[Schema] = {"title?": str, "context?": str, "citations?": dict, **_CACHE}
USER_BLOCKS: Final[Mapping[str, Schema]] = {
    "image": {"type": ("image",), "source": _BY_ID, "transformations?": dict, **_CACHE},
    "document": {
        "type": ("document",),
        "source": any_of(
            _BY_ID, {"type": ("content",), "content": list_of(typed("text", "image"), at_least=1)}
        ),
        **_OF_DOCUMENTS,
    },
    "search_result": {
        "type": ("search_result",),
        "source": any_text,
        "title": any_text,
        "content": list_of(_TEXT, at_least=1),
        "citations?": dict,
        **_CACHE,
    },
    "container_upload": {"type": ("container_upload",), "file_id": str, **_CACHE},
}
"""Blocks of a user that palaver has no part for: files by id, and search results to cite."""
_TOOLS: Final = (
    *("web_search", "web_fetch", "code_execution", "bash_code_execution"),
    *("text_editor_code_execution", "tool_search_tool_regex", "tool_search_tool_bm25"),
)
_CALLER: Final[Schema] = {"caller*": typed()}


def _server_result(*kinds: str) -> Schema:
    return {"type": str, "tool_use_id": _SERVER_ID, "content": typed(*kinds), **_CACHE}


_RUN: Final = "code_execution"
_EDITED: Final = f"text_editor_{_RUN}"
ASSISTANT_BLOCKS: Final[Mapping[str, Schema]] = {
    "server_tool_use": {
        "type": str,
        "id": _SERVER_ID,
        "name": _TOOLS,
        "input": dict,
        **_CALLER,
        **_CACHE,
    },
    "web_search_tool_result": {
        **_server_result(),
        "content": any_of(
            typed("web_search_tool_result_error"), list_of(typed("web_search_result"))
        ),
        **_CALLER,
    },
    "web_fetch_tool_result": {
        **_server_result("web_fetch_tool_result_error", "web_fetch_result"),
        **_CALLER,
    },
    "tool_search_tool_result": _server_result(
        "tool_search_tool_result_error", "tool_search_tool_search_result"
    ),
    f"{_RUN}_tool_result": _server_result(
        f"{_RUN}_tool_result_error", f"{_RUN}_result", f"encrypted_{_RUN}_result"
    ),
    f"bash_{_RUN}_tool_result": _server_result(
        f"bash_{_RUN}_tool_result_error", f"bash_{_RUN}_result"
    ),
    f"{_EDITED}_tool_result": _server_result(
        f"{_EDITED}_tool_result_error",
        *(f"{_EDITED}_{way}_result" for way in ("view", "create", "str_replace")),
    ),
}
"""Blocks of an answer that palaver has no part for: the tools that Anthropic runs itself."""

_DATA: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_LINK: Final[Schema] = {"type": ("url",), "url": re.compile(r"https://[^\s/]\S*")}
_IN_RESULT: Final = any_of(
    _TEXT,
    *USER_BLOCKS.values(),
    {
        "type": ("image",),
        "source": any_of(
            _LINK, {"type": ("base64",), "media_type": tuple(sorted(IMAGES)), "data": _DATA}
        ),
        **_CACHE,
    },
    {
        "type": ("document",),
        "source": any_of(
            _LINK,
            {"type": ("base64",), "media_type": (PDF,), "data": _DATA},
            {"type": ("text",), "media_type": ("text/plain",), "data": str},
        ),
        **_OF_DOCUMENTS,
    },
)
RESULT_CONTENT: Final[ValueSchema] = any_of(any_text, list_of(_IN_RESULT))
"""The content of a result."""


FIELDS: Final[Mapping[str, ValueSchema]] = {
    "system": any_of(str, list_of(_TEXT, at_least=1)),
    "role": ("user", "assistant", "system"),
    "content": any_of(str, list_of(_TEXT, at_least=1)),
    **dict.fromkeys(("type", "id", "tool_use_id"), never),
    **dict.fromkeys(("text", "data", "media_type", "url", "file_id", "signature"), str),
    "thinking": any_text,
    "cache_control": _CACHE["cache_control?"],
    "ttl": ("5m", "1h"),
    "source": {"type": ("content",), "content": str},  # what palaver writes as text
    **dict.fromkeys(("title", "context", "toolset_name"), nullable(str)),
    "name": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "transformations": nullable(dict),
    "is_error": bool,
    "input": dict,
    "citations": nullable(dict, list_of(typed())),
    "caller": dict,
}
"""What each field of an element may hold, so that a detail may be put back."""
