"""The items of OpenAI Responses' input, and what may stand in whose message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers import openai_parts as openai
from palaver.testing.providers.media import url
from palaver.testing.providers.naming import written
from palaver.testing.providers.values import (
    Form,
    Kinds,
    anything,
    at,
    boolean,
    filled,
    kind,
    listing,
    look,
    mapping,
    one_of,
    optional,
    string,
    word,
)

if TYPE_CHECKING:
    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.values import Check

__all__ = ["ITEMS", "given", "tool"]

FILES = frozenset(
    {
        "application/json",
        "application/msword",
        "application/pdf",
        "application/rtf",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "text/css",
        "text/csv",
        "text/html",
        "text/javascript",
        "text/markdown",
        "text/plain",
        "text/rtf",
        "text/tab-separated-values",
        "text/x-python",
        "text/xml",
    }
)
"""The files that can be sent as data."""

TOOL_NAME = written("tool-name", r"[a-zA-Z0-9_-]+", longest=128)
CALL_ID = written("call-id", r"(?s:.)+", longest=64)

STATUS = one_of("in_progress", "completed", "incomplete")
PHASE = optional(one_of("commentary", "final_answer"))
_CACHE = {"prompt_cache_breakpoint": optional(mapping)}
_TEXT = {"type": anything, "text": openai.text}


def item_id(prefix: str) -> Check:
    """An id that the API made for such an item: it begins with the item's prefix."""
    return written("item-id", rf"{prefix}[a-zA-Z0-9_-]*", longest=64)


def image(found: Findings, path: str, value: object) -> None:
    """An image is a URL or an id."""
    Form(
        {"type": anything},
        {
            "image_url": optional(openai.image_url),
            "file_id": optional(filled),
            "detail": optional(one_of("auto", "low", "high", "original")),
            **_CACHE,
        },
    )(found, path, value)
    openai.one_source(found, path, value, ("image_url", "file_id"))


def file(found: Findings, path: str, value: object) -> None:
    """A file is an id, a URL, or data with a name."""
    Form(
        {"type": anything},
        {
            "file_id": optional(filled),
            "file_url": optional(url("https", "http")),
            "file_data": optional(openai.file_data(FILES)),
            "filename": optional(string),
            "detail": one_of("auto", "low", "high"),
            **_CACHE,
        },
    )(found, path, value)
    openai.one_source(found, path, value, ("file_id", "file_url", "file_data"))


_INPUT: dict[str, Check] = {
    "input_text": Form(_TEXT, _CACHE),
    "input_image": image,
    "input_file": file,
}
_OUTPUT: dict[str, Check] = {
    "output_text": Form(_TEXT, {"annotations": listing(mapping), "logprobs": listing(mapping)}),
    "refusal": Form({"type": anything, "refusal": string}),
}
_PARTS = frozenset(_INPUT) | frozenset(_OUTPUT)
INPUT = Kinds(_INPUT, elsewhere=_PARTS)
OUTPUT = Kinds(_OUTPUT, elsewhere=_PARTS)


def content(parts: Check, *, at_least: int = 1) -> Check:
    """A string, or an array of parts."""
    array = listing(parts, at_least=at_least)

    def run(found: Findings, path: str, value: object) -> None:
        if isinstance(value, list):
            array(found, path, value)
        else:
            openai.text(found, path, value)

    return run


_MESSAGE = {"type": one_of("message"), "status": STATUS}
_GIVEN = Form({"role": anything, "content": content(INPUT)}, _MESSAGE)
ROLES: dict[str, Check] = {
    "user": _GIVEN,
    "system": _GIVEN,
    "developer": _GIVEN,
    "assistant": Form(
        {"role": anything, "content": content(OUTPUT)},
        {"id": item_id("msg"), "phase": PHASE, **_MESSAGE},
    ),
}


def message(found: Findings, path: str, value: object) -> None:
    """A message, by its role."""
    role = word(value, "role")
    if role in ROLES:
        ROLES[role](found, path, value)
    else:
        found.add(at(path, "role"), "role", f"must be one of {', '.join(ROLES)}")


def arguments(found: Findings, path: str, value: object) -> None:
    """The arguments to the letter."""
    if not isinstance(value, str):
        found.add(path, "call-arguments", f"must be a string, not {kind(value)}")


def sealed(found: Findings, path: str, value: object) -> None:
    """What only the model that made it can read: never empty."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif not value.strip():
        found.add(path, "foreign-reasoning", "encrypted content can't be verified when it is empty")


_SUMMARY = Kinds({"summary_text": Form(_TEXT)})
_THOUGHT = Kinds({"reasoning_text": Form(_TEXT)})
_CALLED = {"id": item_id("fc"), "caller": optional(mapping), "namespace": filled, "status": STATUS}
_RESULT = {"type": anything, "call_id": CALL_ID, "output": content(INPUT, at_least=0)}
_RESULT_MAY = {"id": optional(item_id("(?:fc|ctc)")), "caller": optional(mapping)}

ITEMS: dict[str, Check] = {
    "message": message,
    "function_call": Form(
        {"type": anything, "call_id": CALL_ID, "name": TOOL_NAME, "arguments": arguments},
        {**_CALLED, "async": boolean},
    ),
    "function_call_output": Form(
        _RESULT,
        {
            "name": optional(TOOL_NAME),
            "namespace": optional(filled),
            "status": optional(STATUS),
            **_RESULT_MAY,
        },
    ),
    "custom_tool_call": Form(
        {"type": anything, "call_id": CALL_ID, "name": TOOL_NAME, "input": string},
        {**_CALLED, "id": item_id("ctc"), "async": boolean},
    ),
    "custom_tool_call_output": Form(_RESULT, _RESULT_MAY),
    "reasoning": Form(
        {"type": anything, "id": item_id("rs"), "summary": listing(_SUMMARY)},
        {
            "content": optional(listing(_THOUGHT)),
            "encrypted_content": optional(sealed),
            "status": optional(STATUS),
        },
    ),
    "compaction": Form(
        {"type": anything, "encrypted_content": sealed}, {"id": optional(item_id("cmp"))}
    ),
    "item_reference": Form({"type": anything, "id": filled}),
    **dict.fromkeys(
        [
            "additional_tools",
            "apply_patch_call",
            "apply_patch_call_output",
            "code_interpreter_call",
            "compaction_trigger",
            "computer_call",
            "computer_call_output",
            "configuration_update",
            "file_search_call",
            "image_generation_call",
            "local_shell_call",
            "local_shell_call_output",
            "mcp_approval_request",
            "mcp_approval_response",
            "mcp_call",
            "mcp_list_tools",
            "program",
            "program_output",
            "shell_call",
            "shell_call_output",
            "tool_search_call",
            "tool_search_output",
            "web_search_call",
        ],
        mapping,
    ),
}
"""What OpenAI runs itself is passed back as it came; only its type is looked at."""

ITEM = Kinds(ITEMS)


def item(found: Findings, path: str, value: object) -> None:
    """One item; a message need not say that it is one."""
    (message if look(value, "type") is None and look(value, "role") else ITEM)(found, path, value)


def given(found: Findings, path: str, value: object) -> None:
    """The input: a string, or items."""
    content(item)(found, path, value)
    if value == "":
        found.add(path, "empty-content", "there is nothing to answer")


_FUNCTION = Form(
    {"type": anything, "name": TOOL_NAME},
    {
        "parameters": optional(mapping),
        "strict": optional(boolean),
        "description": optional(string),
        **dict.fromkeys(("allowed_callers", "async", "defer_loading", "output_schema"), anything),
    },
)


def tool(found: Findings, path: str, value: object) -> None:
    """A function of ours; OpenAI's own tools are its business."""
    (_FUNCTION if word(value, "type") == "function" else mapping)(found, path, value)
