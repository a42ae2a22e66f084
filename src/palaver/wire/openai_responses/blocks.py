"""Items of OpenAI Responses: what each says, and what each must look like.

This is the one reader of these items: request bodies, replies and Codex's transcripts all use it.
What an item says beyond its text is in the metadata of its parts under `openai`: its `id`, and with
`after` the reasoning without which OpenAI refuses that id. The schemas say which items and fields
palaver may send without understanding them.
"""

from __future__ import annotations

import mimetypes
import re
from typing import TYPE_CHECKING, Any, Final

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
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.wire.format import Content, Schema, ValueSchema

__all__ = [
    "CALLS",
    "CONTENT",
    "FIELDS",
    "ITEMS",
    "RESULTS",
    "USER_BLOCKS",
    "call_metadata",
    "pair_of",
    "read_content",
    "read_item",
    "read_output",
    "read_reasoning",
]

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that call a tool of ours, and the field of each that holds its arguments."""
RESULTS: Final = frozenset(f"{call}_output" for call in CALLS)
_PAIRS: Final = {
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "tool_search_call": "tool_search_output",
}
_OUTPUTS: Final = frozenset(_PAIRS.values())
_TEXTS: Final = frozenset(("input_text", "output_text", "text"))


def pair_of(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the side and the key of a call or an output that needs the other; else None.

    >>> pair_of({"type": "computer_call", "call_id": "c1"})
    ('call', 'c1')
    """
    kind = _type(item)
    key = item.get("call_id") or (kind == "local_shell_call_output" and item.get("id"))
    if not isinstance(key, str):
        return None
    return ("call", key) if kind in _PAIRS else ("output", key) if kind in _OUTPUTS else None


def read_item(item: Mapping[str, Any], after: str | None = None) -> Iterator[Content]:
    """Read an item that a model made; `after` is the id of the reasoning before it.

    >>> list(read_item({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}))
    [CallContent(call_id='c1', tool='f', arguments='{}', metadata={})]
    """
    kind = _type(item)
    if kind == "reasoning":
        yield from read_reasoning(item)
    elif kind in CALLS:
        raw, call_id = item.get(CALLS[kind]), item.get("call_id")
        yield CallContent(
            call_id if isinstance(call_id, str) and call_id else None,
            str(item.get("name") or "unknown"),
            raw if isinstance(raw, str) else "",
            call_metadata(item, after),
        )
    elif kind in ("", "message"):
        content = item.get("content")
        for block in content if is_list(content) else (content,):
            if isinstance(block, str):
                yield TextContent(block, _text_metadata(item, {}, after))
            elif is_object(block) and isinstance(text := _output_text(block), str):
                yield TextContent(text, _text_metadata(item, block, after))
            elif block is not None:
                yield _read_block(block)
    else:
        yield UnknownContent(item, {"after": after} if after else {})


def _type(value: Mapping[str, Any]) -> str:
    """Return the type of an item or a block; an empty text where it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else "" if kind is None else str(kind)


def _output_text(block: Mapping[str, Any]) -> object:
    return block.get("text", block.get("refusal"))


def read_reasoning(item: Mapping[str, Any]) -> Iterator[ReasoningContent]:
    """Read a reasoning item: each summary, then each text of the reasoning itself."""
    texts = [
        (block["text"], key == "content")
        for key in ("summary", "content")
        for block in (item[key] if is_list(item.get(key)) else ())
        if is_object(block) and isinstance(block.get("text"), str)
    ]
    for index, (text, inner) in enumerate(texts or [("", False)]):
        yield ReasoningContent(text, _reasoning_metadata(item, first=not index, inner=inner))


def read_content(content: object) -> Iterator[Content]:
    """Read the content of a message that a user, a system or another program wrote."""
    for block in content if is_list(content) else (content,):
        if isinstance(block, str):
            yield TextContent(block)
        elif block is not None:
            yield _read_block(block)


def _read_block(block: object) -> Content:
    if not is_object(block):
        return UnknownContent({"type": "unknown", "value": block})
    if _type(block) in _TEXTS and isinstance(block.get("text"), str):
        return TextContent(block["text"])
    return _read_file(block) or UnknownContent(block)


def read_output(item: Mapping[str, Any]) -> ResultContent:
    """Read the output of a call; texts are joined by line breaks, other blocks in `metadata`.

    >>> read_output({"call_id": "c1", "output": [{"type": "input_text", "text": "4"}]}).output
    '4'
    """
    output, call_id = item.get("output"), item.get("call_id")
    call_id = call_id if isinstance(call_id, str) and call_id else None
    if is_object(output):  # an older form: {content, success}
        content = output.get("content")
        text = content if isinstance(content, str) and content else dump(output).decode()
        return ResultContent(call_id, text, failed=output.get("success") is False)
    if not is_list(output):
        text = (
            output if isinstance(output, str) else "" if output is None else dump(output).decode()
        )
        return ResultContent(call_id, text)
    found = list(read_content(output))
    others = [content.block for content in found if isinstance(content, UnknownContent)]
    return ResultContent(
        call_id,
        "\n".join(content.text for content in found if isinstance(content, TextContent)),
        files=tuple(content for content in found if isinstance(content, FileContent)),
        metadata={"output": others} if others else {},
    )


def _read_file(block: Mapping[str, Any]) -> FileContent | None:
    """Read an image or a file; None where it is something else, or only an id."""
    image, data, linked = (block.get(key) for key in ("image_url", "file_data", "file_url"))
    name, mime, url = block.get("filename"), "", ""
    if isinstance(image, str) and image:
        mime, url = image_mime(image), image
    elif isinstance(data, str) and data.startswith("data:"):
        mime, url = data[5:].partition(",")[0].partition(";")[0], data
    elif isinstance(linked, str) and linked:
        mime, url = mimetypes.guess_type(linked)[0] or "application/pdf", linked
    if not mime:
        return None
    return FileContent(mime, url, name if isinstance(name, str) and name else None)


def _text_metadata(
    item: Mapping[str, Any], block: Mapping[str, Any], after: str | None
) -> dict[str, Any]:
    """Return what a text of the model stores of its item and its block."""
    stored = {key: item[key] for key in ("id", "phase") if isinstance(item.get(key), str)}
    if item.get("status") in ("incomplete", "in_progress"):
        stored["status"] = item["status"]
    if block.get("type") == "refusal":
        stored["refusal"] = True
    notes = block.get("annotations")
    if is_list(notes) and notes:
        stored["annotations"] = notes
    return _with_after(stored, after)


def call_metadata(item: Mapping[str, Any], after: str | None) -> dict[str, Any]:
    """Return what a call stores of its item."""
    stored = {key: item[key] for key in ("id", "namespace") if isinstance(item.get(key), str)}
    if is_object(item.get("caller")):
        stored["caller"] = item["caller"]
    if item.get("type") == "custom_tool_call":
        stored["custom"] = True
    return _with_after(stored, after)


def _reasoning_metadata(item: Mapping[str, Any], *, first: bool, inner: bool) -> dict[str, Any]:
    """Return what reasoning stores of its item; only the first text has the encrypted content."""
    keys = ("id", "encrypted_content") if first else ("id",)
    stored = {key: item[key] for key in keys if isinstance(item.get(key), str)}
    return {**stored, "content": True} if inner else stored


def _with_after(stored: dict[str, Any], after: str | None) -> dict[str, Any]:
    return {**stored, "after": after} if after and "id" in stored else stored


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────

_STATUS: Final = ("in_progress", "completed", "incomplete")
_ITEM: Final[Schema] = {"type": str, "id": str}
_CALL: Final[Schema] = {"type": str, "id?": str, "call_id": str, "status?": _STATUS}
_RUN: Final[Schema] = {**_CALL, "caller?": typed("direct", "program")}
_ACTION: Final = typed(
    *("click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait")
)
_COMMANDS: Final[Schema] = {
    "commands": list_of(any_text),
    "max_output_length?": int,
    "timeout_ms?": int,
}
_SEARCH: Final = typed("search", "open_page", "find_in_page")
_OPTIONAL_ID: Final[Schema] = {"type": str, "id?": str}
USER_BLOCKS: Final[Mapping[str, Schema]] = {
    "input_image": {
        "type": ("input_image",),
        "file_id": str,
        "detail": ("auto", "low", "high", "original"),
    },
    "input_file": {"type": ("input_file",), "file_id": str, "filename?": str},
}
"""Blocks of a user that palaver has no part for: files by id."""
ITEMS: Final[Mapping[str, Schema]] = {
    "additional_tools": {**_OPTIONAL_ID, "role": ("developer",), "tools": list_of(typed())},
    "apply_patch_call": {
        **_RUN,
        "operation": typed("create_file", "delete_file", "update_file"),
        "status": ("in_progress", "completed"),
    },
    "apply_patch_call_output": {**_RUN, "status": ("completed", "failed"), "output?": any_text},
    "code_interpreter_call": {
        **_ITEM,
        "status": (*_STATUS, "interpreting", "failed"),
        "container_id": str,
        "code": any_of(any_text, type(None)),
        "outputs": any_of(list_of(typed()), type(None)),
    },
    "compaction": {
        **_OPTIONAL_ID,
        "id?": re.compile(r"cmp[\w-]{0,61}", re.ASCII),
        "encrypted_content": str,
    },
    "computer_call": {
        **_CALL,
        "id": str,
        "status": _STATUS,
        "pending_safety_checks": list_of({"id": str, "code?": any_text, "message?": any_text}),
        "action*": _ACTION,
        "actions*": list_of(_ACTION),
    },
    "computer_call_output": {
        **_CALL,
        "output": typed("computer_screenshot"),
        "acknowledged_safety_checks?": list_of(dict),
    },
    "configuration_update": {**_OPTIONAL_ID, "reasoning*": dict, "text*": dict},
    "file_search_call": {
        **_ITEM,
        "queries": list_of(any_text),
        "results?": list_of(dict),
        "status": (*_STATUS, "searching", "failed"),
    },
    "image_generation_call": {
        **_ITEM,
        "result": any_of(any_text, type(None)),
        "revised_prompt?": any_text,
        "status": ("in_progress", "completed", "generating", "failed"),
        **dict.fromkeys(("action?", "background?", "output_format?", "quality?", "size?"), str),
    },
    "item_reference": _ITEM,
    "local_shell_call": {**_ITEM, "action": typed("exec"), "call_id": str, "status": _STATUS},
    "local_shell_call_output": {**_ITEM, "output": any_text, "status?": _STATUS},
    "mcp_approval_request": {**_ITEM, "arguments": any_text, "name": str, "server_label": str},
    "mcp_approval_response": {
        **_OPTIONAL_ID,
        "approval_request_id": str,
        "approve": bool,
        "reason?": any_text,
    },
    "mcp_call": {
        **_ITEM,
        "arguments": any_text,
        "name": str,
        "server_label": str,
        "output?": any_text,
        "approval_request_id?": str,
        "error?": typed("http_error", "mcp_protocol_error", "mcp_tool_execution_error"),
        "status*": (*_STATUS, "calling", "failed"),
    },
    "mcp_list_tools": {**_ITEM, "server_label": str, "tools": list_of(dict), "error?": any_text},
    "program": {**_ITEM, "call_id": str, "code": any_text, "fingerprint": str},
    "program_output": {
        **_ITEM,
        "call_id": str,
        "result": any_text,
        "status": ("completed", "incomplete"),
    },
    "shell_call": {
        **_RUN,
        "action": _COMMANDS,
        "environment?": typed("local", "container_reference"),
    },
    "shell_call_output": {**_RUN, "output": list_of(dict), "max_output_length?": int},
    "tool_search_call": {
        **_CALL,
        "call_id?": str,
        "arguments": dict,
        "execution*": ("server", "client"),
    },
    "tool_search_output": {
        **_CALL,
        "call_id?": str,
        "tools": list_of(typed()),
        "execution*": ("server", "client"),
    },
    "web_search_call": {**_ITEM, "action": _SEARCH, "status": (*_STATUS, "searching", "failed")},
}
"""Items that palaver has no part for: what OpenAI or another program ran."""

_IMAGE_URL: Final = re.compile(
    r"(?:https?://[^\s/]\S*|data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2})",
    re.IGNORECASE,
)
_DETAIL: Final = ("auto", "low", "high", "original")
_BREAK: Final[Schema] = {"prompt_cache_breakpoint*": dict}
_REFUSAL: Final[Schema] = {"type": ("refusal",), "refusal": any_text}
_INPUT: Final[Schema] = {"type": ("input_text",), "text": any_text, **_BREAK}
_OUTPUT: Final[Schema] = {
    "type": ("output_text",),
    "text": any_text,
    "annotations*": list_of(typed()),
    "logprobs*": list_of(dict),
}
_IMAGE_BLOCK: Final[Schema] = {
    "type": ("input_image",),
    "image_url": _IMAGE_URL,
    "detail": _DETAIL,
    **_BREAK,
}
_BLOCK: Final = any_of(_INPUT, _IMAGE_BLOCK, *USER_BLOCKS.values())
_INPUT_CONTENT: Final = any_of(any_text, list_of(_BLOCK, at_least=1))
CONTENT: Final[Mapping[str, ValueSchema]] = {
    "system": _INPUT_CONTENT,
    "user": _INPUT_CONTENT,
    "assistant": any_of(any_text, list_of(any_of(_OUTPUT, _REFUSAL), at_least=1)),
}
"""The content of a message of each role."""
FIELDS: Final[Mapping[str, ValueSchema]] = {
    "type": ("message",),
    "role": ("system", "developer", "user", "assistant"),
    "content": nullable(list_of({"type": ("reasoning_text",), "text": any_text})),
    "id": re.compile(r"(?:fc|ctc)[a-zA-Z0-9_-]{1,61}"),
    "status": _STATUS,
    "phase": nullable(("commentary", "final_answer")),
    **dict.fromkeys(("text", "refusal", "arguments", "input"), any_text),
    "summary": list_of({"type": ("summary_text",), "text": any_text}),
    "annotations": list_of(typed()),
    "logprobs": list_of(dict),
    **dict.fromkeys(("file_id", "title", "url", "container_id", "token", "filename"), str),
    **dict.fromkeys(("index", "start_index", "end_index"), int),
    **dict.fromkeys(("bytes", "logprob", "top_logprobs", "mode", "ttl"), not_null),
    "prompt_cache_breakpoint": nullable(dict),
    "image_url": nullable(_IMAGE_URL),
    "detail": nullable(_DETAIL),
    **dict.fromkeys(("file_data", "file_url", "call_id"), never),
    "name": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "namespace": str,
    "caller": nullable(typed("direct", "program")),
    "caller_id": str,
    "async": bool,
    "output": any_of(any_text, list_of(_BLOCK)),
    "encrypted_content": nullable(str),
    "instructions": str,
}
"""What each field of an element may hold, so that a detail may be put back."""
