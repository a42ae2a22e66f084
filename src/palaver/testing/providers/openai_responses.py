"""Rules of OpenAI Responses: what the endpoint refuses in `input`, `instructions` and `tools`.

`input` is a flat list of items. A result may come any time after its call, once; items that the API
made have their ids, each once; a reasoning item is followed by what it led to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers.checks import (
    Form,
    Kinds,
    anything,
    at,
    boolean,
    check_json,
    filled,
    items,
    kind,
    listing,
    look,
    mapping,
    name_check,
    number,
    one_of,
    one_source,
    openai_answer_format,
    openai_file_data,
    openai_image_url,
    openai_text,
    optional,
    string,
    unique_names,
    url,
    word,
)

if TYPE_CHECKING:
    from palaver.testing.providers.checks import Check, Findings

__all__ = ["check"]


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

TOOL_NAME = name_check("tool-name", r"[a-zA-Z0-9_-]+", longest=128)
CALL_ID = name_check("call-id", r"(?s:.)+", longest=64)

STATUS = one_of("in_progress", "completed", "incomplete")
PHASE = optional(one_of("commentary", "final_answer"))
_CACHE = {"prompt_cache_breakpoint": optional(mapping)}
_TEXT = {"type": anything, "text": openai_text}


def item_id(prefix: str) -> Check:
    """An id that the API made for such an item: it begins with the item's prefix."""
    return name_check("item-id", rf"{prefix}[a-zA-Z0-9_-]*", longest=64)


def image(found: Findings, path: str, value: object) -> None:
    """An image is a URL or an id."""
    Form(
        {"type": anything},
        {
            "image_url": optional(openai_image_url),
            "file_id": optional(filled),
            "detail": optional(one_of("auto", "low", "high", "original")),
            **_CACHE,
        },
    )(found, path, value)
    one_source(found, path, value, ("image_url", "file_id"))


def file(found: Findings, path: str, value: object) -> None:
    """A file is an id, a URL, or data with a name."""
    Form(
        {"type": anything},
        {
            "file_id": optional(filled),
            "file_url": optional(url("https", "http")),
            "file_data": optional(openai_file_data(FILES)),
            "filename": optional(string),
            "detail": one_of("auto", "low", "high"),
            **_CACHE,
        },
    )(found, path, value)
    one_source(found, path, value, ("file_id", "file_url", "file_data"))


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
            openai_text(found, path, value)

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
    """One item; a message need not say that it is one, nor a reference to an item."""
    if look(value, "type") is None and look(value, "role"):
        message(found, path, value)
    else:
        (REFERENCE if is_reference(value) else ITEM)(found, path, value)


REFERENCE = Form({"id": filled}, {"type": anything})


def is_reference(value: object) -> bool:
    """Tell whether an item refers to a stored one: by its type, or by having an id alone."""
    kind_ = look(value, "type")
    untyped = kind_ is None and not look(value, "role") and word(value, "id") is not None
    return untyped or kind_ == "item_reference"


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


LARGEST = 50_000_000

BODY = Form(
    {"input": given},
    {
        "model": filled,
        "instructions": optional(openai_text),
        "tools": listing(tool),
        "store": optional(boolean),
        "max_output_tokens": optional(number),
        **dict.fromkeys(
            [
                "access_programs",
                "background",
                "context_management",
                "conversation",
                "image",
                "include",
                "max_tool_calls",
                "metadata",
                "moderation",
                "parallel_tool_calls",
                "previous_response_id",
                "prompt",
                "prompt_cache_key",
                "prompt_cache_options",
                "prompt_cache_retention",
                "reasoning",
                "safety_identifier",
                "service_tier",
                "stream",
                "stream_options",
                "temperature",
                "text",
                "tool_choice",
                "top_logprobs",
                "top_p",
                "truncation",
                "user",
            ],
            anything,
        ),
    },
)

OUTCOMES = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""Which item answers which."""

MADE = frozenset(ITEMS) - {"function_call_output", "custom_tool_call_output", "item_reference"}


def check(found: Findings, body: object) -> None:
    """Add a violation for everything that the endpoint would refuse."""
    check_json(found, body, limit=LARGEST)
    BODY(found, "$", body)
    unique_names(found, items(look(body, "tools"), "tools"))
    openai_answer_format(found, "text.format", look(body, "text", "format"))
    line = list(items(look(body, "input"), "input"))
    stored = any(look(body, name) is not None for name in ("previous_response_id", "conversation"))
    pairs(found, line, stored=stored)
    unique_ids(found, line)
    reasoning(found, line, stateless=look(body, "store") is False)


def pairs(found: Findings, line: list[tuple[str, object]], *, stored: bool) -> None:
    """Match each result against the calls before it, and each call against all results.

    `stored` says that the API knows calls which are not in the input.
    """
    for call_type, result_type in OUTCOMES.items():
        pairs_of(
            found,
            [
                (path, key, word(value, "type") == call_type)
                for path, value in line
                if word(value, "type") in {call_type, result_type}
                and (key := word(value, "call_id")) is not None
            ],
            stored=stored,
        )


def pairs_of(found: Findings, line: list[tuple[str, str, bool]], *, stored: bool) -> None:
    """The same for one kind of call: each entry has a path, an id, and whether it is a call."""
    known = {key for _, key, is_call in line if is_call}
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for path, key, is_call in line:
        if is_call:
            if key in calls:
                found.add(path, "duplicate-call-id", f"another call has the id {key[:80]}")
            calls.setdefault(key, path)
            continue
        if key in answered:
            found.add(path, "duplicate-result", f"{key[:80]} has a result already")
        elif key not in calls and key in known:
            found.add(path, "result-out-of-order", f"{key[:80]} is called only after this")
        elif key not in calls and not stored:
            found.add(path, "result-without-call", f"no call has the id {key[:80]}")
        answered.add(key)
    for key, path in calls.items():
        if key not in answered:
            found.add(path, "call-without-result", f"no output was given for {key[:80]}")


def unique_ids(found: Findings, line: list[tuple[str, object]]) -> None:
    """Require no item's id twice."""
    seen: set[str] = set()
    for path, value in line:
        name = word(value, "id")
        if name is not None and name in seen:
            found.add(at(path, "id"), "item-id", f"another item has the id {name[:80]}")
        seen.add(name or "")


def reasoning(found: Findings, line: list[tuple[str, object]], *, stateless: bool) -> None:
    """Require each reasoning item to lead to something the model did, and to be readable."""
    for (path, value), following in zip(line, [*line[1:], ("", None)], strict=False):
        kind_ = word(value, "type")
        if is_reference(value) and stateless:
            found.add(path, "item-id", "nothing is stored, so no item can be referred to")
        if kind_ != "reasoning":
            continue
        if stateless and not word(value, "encrypted_content"):
            found.add(path, "foreign-reasoning", "where nothing is stored, its content is needed")
        after = following[1]
        spoken = word(after, "role") == "assistant"
        if not spoken and (word(after, "type") not in MADE or word(after, "role") is not None):
            found.add(path, "reasoning-placement", "the item that the reasoning led to is missing")
