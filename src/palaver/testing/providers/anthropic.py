"""Rules of Anthropic Messages: what the endpoint refuses in `system`, `messages` and `tools`.

The first turn is the user's and, for current models, so is the last. Results come first in the very
next user turn, all of them. Turns of the same role in a row count as one, so they need not
alternate. Rules differ by model only where a model is named and is an older one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from palaver.testing.prompt_cache import anthropic_breakpoints
from palaver.testing.providers.checks import (
    IMAGES,
    Form,
    Kinds,
    PairKey,
    anything,
    at,
    base64_data,
    boolean,
    check_json,
    closed_objects,
    filled,
    items,
    kind,
    listing,
    look,
    mapping,
    match_results,
    name_check,
    no_bounds,
    one_of,
    optional,
    string,
    unique_calls,
    unique_names,
    url,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.testing.providers.checks import Check, Findings

__all__ = ["check"]


LARGEST_IMAGE = 5 * 1024 * 1024
"""Of one image, in base64."""

TOOL_NAME = name_check("tool-name", r"[a-zA-Z0-9_-]+", longest=128)
CALL_ID = name_check("call-id", r"[a-zA-Z0-9_-]+", longest=1_000)
SERVER_ID = name_check("call-id", r"srvtoolu_[a-zA-Z0-9_]+", longest=1_000)

SERVER_RESULTS = frozenset(
    {
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)
"""What comes of the tools that Anthropic runs itself."""

_CACHE = {
    "cache_control": optional(Form({"type": one_of("ephemeral")}, {"ttl": one_of("5m", "1h")}))
}


def text(found: Findings, path: str, value: object) -> None:
    """A text with something in it."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif not value:
        found.add(path, "empty-text", "a text must not be empty")
    elif value.isspace():
        found.add(path, "empty-text", "a text must have more in it than white space")


def signed(found: Findings, path: str, value: object) -> None:
    """A signature, or sealed reasoning: whatever the model that made it gave."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif not value.strip():
        found.add(path, "foreign-reasoning", "reasoning without its signature can't be verified")


def arguments(found: Findings, path: str, value: object) -> None:
    """The arguments of a call: an object."""
    if not isinstance(value, dict):
        found.add(path, "call-arguments", f"must be an object, not {kind(value)}")


_TEXT = Form({"type": anything, "text": text}, {"citations": optional(anything), **_CACHE})
_FILE = Form({"type": anything, "file_id": filled})
_URL = Form({"type": anything, "url": url("https")})
_IMAGE = Form(
    {
        "type": anything,
        "source": Kinds(
            {
                "base64": Form(
                    {
                        "type": anything,
                        "media_type": one_of(*sorted(IMAGES), rule="media"),
                        "data": base64_data(limit=LARGEST_IMAGE),
                    }
                ),
                "url": _URL,
                "file": _FILE,
            }
        ),
    },
    {"transformations": optional(mapping), **_CACHE},
)
_PASSAGES = listing(Kinds({"text": _TEXT, "image": _IMAGE}), at_least=1)


def passages(found: Findings, path: str, value: object) -> None:
    """The content of a document: a string, or texts and images."""
    (text if isinstance(value, str) else _PASSAGES)(found, path, value)


_DOCUMENT = Form(
    {
        "type": anything,
        "source": Kinds(
            {
                "base64": Form(
                    {
                        "type": anything,
                        "media_type": one_of("application/pdf", rule="media"),
                        "data": base64_data(),
                    }
                ),
                "text": Form(
                    {
                        "type": anything,
                        "media_type": one_of("text/plain", rule="media"),
                        "data": text,
                    }
                ),
                "content": Form({"type": anything, "content": passages}),
                "url": _URL,
                "file": _FILE,
            }
        ),
    },
    {
        "citations": optional(mapping),
        "context": optional(string),
        "title": optional(string),
        **_CACHE,
    },
)
_SEARCH_RESULT = Form(
    {
        "type": anything,
        "source": string,
        "title": string,
        "content": listing(Kinds({"text": _TEXT}), at_least=1),
    },
    {"citations": mapping, **_CACHE},
)
_RESULT_BLOCKS = listing(
    Kinds(
        {
            "text": _TEXT,
            "image": _IMAGE,
            "document": _DOCUMENT,
            "search_result": _SEARCH_RESULT,
            "tool_reference": Form({"type": anything, "tool_name": TOOL_NAME}, _CACHE),
            "browser_state": mapping,
        }
    )
)


def outcome(found: Findings, path: str, value: object) -> None:
    """What a tool gave: a string, which may be empty, or blocks."""
    (string if isinstance(value, str) else _RESULT_BLOCKS)(found, path, value)


_TOOLSET = {"toolset_name": optional(string), **_CACHE}
_FOR_USER: dict[str, Check] = {
    "text": _TEXT,
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "tool_result": Form(
        {"type": anything, "tool_use_id": CALL_ID},
        {"content": outcome, "is_error": boolean, **_TOOLSET},
    ),
    "container_upload": Form({"type": anything, "file_id": filled}, _CACHE),
}
_FOR_ASSISTANT: dict[str, Check] = {
    "text": _TEXT,
    "thinking": Form({"type": anything, "thinking": string, "signature": signed}),
    "redacted_thinking": Form({"type": anything, "data": signed}),
    "tool_use": Form(
        {"type": anything, "id": CALL_ID, "name": TOOL_NAME, "input": arguments},
        {"caller": mapping, **_TOOLSET},
    ),
    "server_tool_use": Form(
        {"type": anything, "id": SERVER_ID, "name": string, "input": arguments},
        {"caller": mapping, **_CACHE},
    ),
    **dict.fromkeys(
        SERVER_RESULTS,
        Form(
            {"type": anything, "tool_use_id": SERVER_ID, "content": anything},
            {"caller": mapping, **_CACHE},
        ),
    ),
}
_ALL = frozenset(_FOR_USER) | frozenset(_FOR_ASSISTANT)

USER = Kinds(_FOR_USER, elsewhere=_ALL)
ASSISTANT = Kinds(_FOR_ASSISTANT, elsewhere=_ALL)
SYSTEM = Kinds({"text": _TEXT}, elsewhere=_ALL)

_CUSTOM_TOOL = Form(
    {"name": TOOL_NAME, "input_schema": mapping},
    {
        "type": optional(one_of("custom")),
        "description": string,
        "strict": boolean,
        **dict.fromkeys(
            ("allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"),
            anything,
        ),
        **_CACHE,
    },
)


def tool(found: Findings, path: str, value: object) -> None:
    """A tool of ours; Anthropic's own tools are its business."""
    if word(value, "type") in {None, "custom"}:
        _CUSTOM_TOOL(found, path, value)
    else:
        optional(string)(found, at(path, "name"), look(value, "name"))


LARGEST = 32 * 1024 * 1024
MOST_MESSAGES = 100_000

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_NEWEST = (99, 0)
NO_PREFILL = (4, 6)
"""From here on a request may not end with the assistant's own words."""
SYSTEM_INSIDE = (4, 8)
"""From here on a system message may stand among the messages."""


def content(blocks: Check) -> Check:
    """A string, or an array of blocks with at least one."""
    array = listing(blocks, at_least=1)

    def run(found: Findings, path: str, value: object) -> None:
        if isinstance(value, str):
            text(found, path, value)
        elif isinstance(value, list):
            array(found, path, value)
        else:
            found.add(path, "shape", f"must be a string or an array, not {kind(value)}")

    return run


ROLES: dict[str, Check] = {
    "user": Form({"role": anything, "content": content(USER)}),
    "assistant": Form({"role": anything, "content": content(ASSISTANT)}),
    "system": Form({"role": anything, "content": content(SYSTEM)}),
}


def message(found: Findings, path: str, value: object) -> None:
    """One message, by its role."""
    role = word(value, "role")
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")
    elif role not in ROLES:
        found.add(at(path, "role"), "role", f"must be one of {', '.join(ROLES)}")
    else:
        ROLES[role](found, path, value)


BODY = Form(
    {"messages": listing(message, at_least=1)},
    {
        "system": content(SYSTEM),
        "tools": listing(tool),
        **dict.fromkeys(
            [
                "cache_control",
                "container",
                "context_management",
                "diagnostics",
                "inference_geo",
                "max_tokens",
                "mcp_servers",
                "metadata",
                "model",
                "output_config",
                "service_tier",
                "speed",
                "stop_sequences",
                "stream",
                "temperature",
                "thinking",
                "tool_choice",
                "top_k",
                "top_p",
                "user_profile_id",
            ],
            anything,
        ),
    },
)


def check(found: Findings, body: object) -> None:
    """Add a violation for everything that the endpoint would refuse."""
    check_json(found, body, limit=LARGEST)
    BODY(found, "$", body)
    unique_names(found, items(look(body, "tools"), "tools"))
    schema = look(body, "output_config", "format", "schema")
    if schema is not None:
        closed_objects(found, "output_config.format.schema", schema, complete=False)
        no_bounds(found, "output_config.format.schema", schema)
    messages = list(items(look(body, "messages"), "messages"))
    if len(messages) > MOST_MESSAGES:
        found.add("messages", "size", f"{len(messages)} messages are more than {MOST_MESSAGES}")
    version = version_of(word(body, "model") or "")
    turns(found, messages, version)
    systems(found, messages, version)
    pairs(found, messages)
    reasoning(found, messages, demanded=word(body, "thinking", "type") == "enabled")
    for problem in anthropic_breakpoints(body) if isinstance(body, dict) else ():
        found.add("$", "cache-breakpoints", problem)


def version_of(model: str) -> tuple[int, int]:
    """A model's version by its name; the newest where the name has none.

    >>> version_of("claude-opus-4-20250514"), version_of("claude-sonnet-4-5"), version_of("")
    ((4, 0), (4, 5), (99, 0))
    """
    match = _VERSION.search(model)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST


def turns(found: Findings, messages: list[tuple[str, object]], version: tuple[int, int]) -> None:
    """The first turn is the user's, and so is the last."""
    spoken = [(path, value) for path, value in messages if word(value, "role") != "system"]
    if not spoken:
        return
    if word(spoken[0][1], "role") == "assistant":
        found.add(spoken[0][0], "first-role", "the first message must be the user's")
    path, last = spoken[-1]
    if word(last, "role") != "assistant":
        return
    if version >= NO_PREFILL:
        found.add(path, "last-role", "the conversation must end with a user message")
    said = look(last, "content")
    if isinstance(said, list) and said:
        said = word(said[-1], "text")
    if isinstance(said, str) and said != said.rstrip():
        found.add(path, "trailing-space", "the assistant's last text can't end with white space")


def systems(found: Findings, messages: list[tuple[str, object]], version: tuple[int, int]) -> None:
    """A system message stands after a user turn, and before an assistant's or at the end."""
    roles = [word(value, "role") for _, value in messages]
    for place, (path, _) in enumerate(messages):
        if roles[place] != "system":
            continue
        if version < SYSTEM_INSIDE:
            found.add(path, "system-placement", "this model takes system text only in `system`")
        elif place == 0:
            found.add(path, "system-placement", "the first system text belongs into `system`")
        elif roles[place - 1] != "user" and not awaits_server(messages[place - 1][1]):
            found.add(path, "system-placement", "a system message must follow a user turn")
        elif roles[place + 1 : place + 2] not in ([], ["assistant"]):
            found.add(path, "system-placement", "only an assistant turn may come next")


def awaits_server(message: object) -> bool:
    """Tell whether a turn ends in a tool that the provider runs itself."""
    blocks = list(items(look(message, "content"), ""))
    return bool(blocks) and word(blocks[-1][1], "type") in {"server_tool_use", *SERVER_RESULTS}


def pairs(found: Findings, messages: list[tuple[str, object]]) -> None:
    """Match the calls of each assistant turn against the user turn right after it."""
    known = unique_calls(found, (call for at_ in messages for call in calls_of(*at_)))
    calls: list[PairKey] = []
    for path, value in messages:
        answers = word(value, "role") == "user"
        match_results(found, calls, results_of(found, path, value) if answers else (), known)
        calls = list(calls_of(path, value))
    match_results(found, calls, (), known)
    served: set[str | None] = set()
    for path, value in messages:
        for place, block in items(look(value, "content"), at(path, "content")):
            if word(block, "type") == "server_tool_use":
                served.add(word(block, "id"))
            elif word(block, "type") in SERVER_RESULTS and word(block, "tool_use_id") not in served:
                found.add(place, "result-without-call", "no server tool was used before it")


def calls_of(path: str, value: object) -> Iterator[PairKey]:
    """The calls of an assistant turn."""
    if word(value, "role") != "assistant":
        return
    for place, block in items(look(value, "content"), at(path, "content")):
        key = word(block, "id")
        if key is not None and word(block, "type") == "tool_use":
            yield PairKey(key, place)


def results_of(found: Findings, path: str, value: object) -> Iterator[PairKey]:
    """The results of a user turn, which stand before everything else in it."""
    others = False
    for place, block in items(look(value, "content"), at(path, "content")):
        if word(block, "type") != "tool_result":
            others = True
            continue
        if others:
            found.add(place, "result-out-of-order", "results stand at the head of their turn")
        key = word(block, "tool_use_id")
        if key is not None:
            yield PairKey(key, place)


def reasoning(found: Findings, messages: list[tuple[str, object]], *, demanded: bool) -> None:
    """Reasoning leads to something; and where it is demanded, the open turn begins with it."""
    latest: tuple[str, list[str | None]] = ("", [])
    for path, value in messages:
        if word(value, "role") != "assistant":
            continue
        blocks = list(items(look(value, "content"), at(path, "content")))
        types = [word(block, "type") for _, block in blocks]
        latest = (path, types)
        if types and types[-1] in {"thinking", "redacted_thinking"}:
            found.add(blocks[-1][0], "reasoning-placement", "a turn can't end with its reasoning")
    path, types = latest
    if demanded and "tool_use" in types and types[0] not in {"thinking", "redacted_thinking"}:
        found.add(path, "missing-signature", "with thinking enabled, it begins with thinking")
