"""Blocks that palaver passes on without understanding them, and what each must look like.

They stand in messages as unknown parts, and messages come from anywhere. So a block goes out only
where its provider has such a type and all that it must have is there, of the right kind; what the
provider does not know in it is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.wire.shapes import all_of, either, text, typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.shapes import Shape

__all__ = [
    "CACHE",
    "CHAT",
    "DOCUMENT",
    "FILES",
    "ITEMS",
    "OF_ANSWERS",
    "OF_USERS",
    "PARTS",
    "STATUS",
    "WORDS",
]

CHAT: Final[Mapping[str, Shape]] = {
    "file": {"type": str, "file": {"file_id": str, "filename?": text}},
}
"""OpenAI Chat: what a user sends by its id."""

STATUS: Final = ("in_progress", "completed", "incomplete")
_ITEM: Final[Shape] = {"type": str, "id": str}
_CALL: Final[Shape] = {"type": str, "id?": str, "call_id": str, "status?": STATUS}
_RAN: Final[Shape] = {**_CALL, "caller?": typed("direct", "program")}
_ACTION: Final = typed(
    *("click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait")
)
_COMMANDS: Final[Shape] = {
    "commands": all_of(text),
    "max_output_length?": int,
    "timeout_ms?": int,
}
_SEARCHED: Final = typed("search", "open_page", "find_in_page")
_MAYBE: Final[Shape] = {"type": str, "id?": str}
FILES: Final[Mapping[str, Shape]] = {
    "input_image": {
        "type": ("input_image",),
        "file_id": str,
        "detail": ("auto", "low", "high", "original"),
    },
    "input_file": {"type": ("input_file",), "file_id": str, "filename?": str},
}
"""OpenAI Responses: what a user sends by its id."""
ITEMS: Final[Mapping[str, Shape]] = {
    "additional_tools": {**_MAYBE, "role": ("developer",), "tools": all_of(typed())},
    "apply_patch_call": {
        **_RAN,
        "operation": typed("create_file", "delete_file", "update_file"),
        "status": ("in_progress", "completed"),
    },
    "apply_patch_call_output": {**_RAN, "status": ("completed", "failed"), "output?": text},
    "code_interpreter_call": {
        **_ITEM,
        "status": (*STATUS, "interpreting", "failed"),
        "container_id": str,
        "code": either(text, type(None)),
        "outputs": either(all_of(typed()), type(None)),
    },
    "compaction": {
        **_MAYBE,
        "id?": re.compile(r"cmp[\w-]{0,61}", re.ASCII),
        "encrypted_content": str,
    },
    "computer_call": {
        **_CALL,
        "id": str,
        "status": STATUS,
        "pending_safety_checks": all_of({"id": str, "code?": text, "message?": text}),
        "action*": _ACTION,
        "actions*": all_of(_ACTION),
    },
    "computer_call_output": {
        **_CALL,
        "output": typed("computer_screenshot"),
        "acknowledged_safety_checks?": all_of(dict),
    },
    "configuration_update": {**_MAYBE, "reasoning*": dict, "text*": dict},
    "file_search_call": {
        **_ITEM,
        "queries": all_of(text),
        "results?": all_of(dict),
        "status": (*STATUS, "searching", "failed"),
    },
    "image_generation_call": {
        **_ITEM,
        "result": either(text, type(None)),
        "revised_prompt?": text,
        "status": ("in_progress", "completed", "generating", "failed"),
        **dict.fromkeys(("action?", "background?", "output_format?", "quality?", "size?"), str),
    },
    "item_reference": _ITEM,
    "local_shell_call": {**_ITEM, "action": typed("exec"), "call_id": str, "status": STATUS},
    "local_shell_call_output": {**_ITEM, "output": text, "status?": STATUS},
    "mcp_approval_request": {**_ITEM, "arguments": text, "name": str, "server_label": str},
    "mcp_approval_response": {
        **_MAYBE,
        "approval_request_id": str,
        "approve": bool,
        "reason?": text,
    },
    "mcp_call": {
        **_ITEM,
        "arguments": text,
        "name": str,
        "server_label": str,
        "output?": text,
        "approval_request_id?": str,
        "error?": typed("http_error", "mcp_protocol_error", "mcp_tool_execution_error"),
        "status*": (*STATUS, "calling", "failed"),
    },
    "mcp_list_tools": {**_ITEM, "server_label": str, "tools": all_of(dict), "error?": text},
    "program": {**_ITEM, "call_id": str, "code": text, "fingerprint": str},
    "program_output": {
        **_ITEM,
        "call_id": str,
        "result": text,
        "status": ("completed", "incomplete"),
    },
    "shell_call": {
        **_RAN,
        "action": _COMMANDS,
        "environment?": typed("local", "container_reference"),
    },
    "shell_call_output": {**_RAN, "output": all_of(dict), "max_output_length?": int},
    "tool_search_call": {
        **_CALL,
        "call_id?": str,
        "arguments": dict,
        "execution*": ("server", "client"),
    },
    "tool_search_output": {
        **_CALL,
        "call_id?": str,
        "tools": all_of(typed()),
        "execution*": ("server", "client"),
    },
    "web_search_call": {**_ITEM, "action": _SEARCHED, "status": (*STATUS, "searching", "failed")},
}
"""OpenAI Responses: what OpenAI or another program ran."""

CACHE: Final[Shape] = {"cache_control?": {"type": ("ephemeral",), "ttl?": ("5m", "1h")}}
_SERVED: Final = re.compile(r"srvtoolu_\w+", re.ASCII)
_HELD: Final[Shape] = {"type": ("file",), "file_id": str}
WORDS: Final[Shape] = {"type": ("text",), "text": str, "citations?": all_of(typed()), **CACHE}
DOCUMENT: Final[Shape] = {"title?": str, "context?": str, "citations?": dict, **CACHE}
"""What a document may have besides."""
OF_USERS: Final[Mapping[str, Shape]] = {
    "image": {"type": ("image",), "source": _HELD, "transformations?": dict, **CACHE},
    "document": {
        "type": ("document",),
        "source": either(
            _HELD, {"type": ("content",), "content": all_of(typed("text", "image"), least=1)}
        ),
        **DOCUMENT,
    },
    "search_result": {
        "type": ("search_result",),
        "source": text,
        "title": text,
        "content": all_of(WORDS, least=1),
        "citations?": dict,
        **CACHE,
    },
    "container_upload": {"type": ("container_upload",), "file_id": str, **CACHE},
}
"""Anthropic: what a user sends by its id, and what was found for an answer to cite."""
_TOOLS: Final = (
    *("web_search", "web_fetch", "code_execution", "bash_code_execution"),
    *("text_editor_code_execution", "tool_search_tool_regex", "tool_search_tool_bm25"),
)
_CALLER: Final[Shape] = {"caller*": typed()}


def _result(*kinds: str) -> Shape:
    return {"type": str, "tool_use_id": _SERVED, "content": typed(*kinds), **CACHE}


_RUN: Final = "code_execution"
_EDITED: Final = f"text_editor_{_RUN}"
OF_ANSWERS: Final[Mapping[str, Shape]] = {
    "server_tool_use": {
        "type": str,
        "id": _SERVED,
        "name": _TOOLS,
        "input": dict,
        **_CALLER,
        **CACHE,
    },
    "web_search_tool_result": {
        **_result(),
        "content": either(
            typed("web_search_tool_result_error"), all_of(typed("web_search_result"))
        ),
        **_CALLER,
    },
    "web_fetch_tool_result": {
        **_result("web_fetch_tool_result_error", "web_fetch_result"),
        **_CALLER,
    },
    "tool_search_tool_result": _result(
        "tool_search_tool_result_error", "tool_search_tool_search_result"
    ),
    f"{_RUN}_tool_result": _result(
        f"{_RUN}_tool_result_error", f"{_RUN}_result", f"encrypted_{_RUN}_result"
    ),
    f"bash_{_RUN}_tool_result": _result(f"bash_{_RUN}_tool_result_error", f"bash_{_RUN}_result"),
    f"{_EDITED}_tool_result": _result(
        f"{_EDITED}_tool_result_error",
        *(f"{_EDITED}_{way}_result" for way in ("view", "create", "str_replace")),
    ),
}
"""Anthropic: the tools that it runs itself."""

PARTS: Final[Mapping[str, Shape]] = {
    "executableCode": {"code": text, "language": str, "id?": str},
    "codeExecutionResult": {
        "outcome": ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"),
        "output?": text,
        "id?": str,
    },
    "toolCall": {"id?": str, "toolType?": str, "args?": dict},
    "toolResponse": {"id?": str, "toolType?": str, "response?": dict},
}
"""Gemini: what a part may carry that palaver has no part for, all of it the model's."""
