"""The content blocks of Anthropic Messages, and in whose turn each may stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers.media import IMAGES, base64_data, url
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

__all__ = ["ASSISTANT", "SERVER_RESULTS", "SYSTEM", "USER", "text", "tool"]

LARGEST_IMAGE = 5 * 1024 * 1024
"""Of one image, in base64."""

TOOL_NAME = written("tool-name", r"[a-zA-Z0-9_-]+", longest=128)
CALL_ID = written("call-id", r"[a-zA-Z0-9_-]+", longest=1_000)
SERVER_ID = written("call-id", r"srvtoolu_[a-zA-Z0-9_]+", longest=1_000)

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
