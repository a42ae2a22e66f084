"""Blocks that a provider knows and palaver does not, one of each type; and ways to spoil them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from palaver.messages import UnknownPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import DrawFn

    from palaver.messages import Part

__all__ = ["BY_MODELS", "BY_USERS", "ODDITIES", "kept_parts"]

_PATCH: Final = {"type": "delete_file", "path": "a.txt"}
_SHELL: Final = {"commands": ["ls"]}
_ENDED: Final = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
_SHOT: Final = {"type": "computer_screenshot", "image_url": "https://example.org/a.png"}
_ERROR: Final = {"error_code": "unavailable"}
_WORDS: Final = {"type": "text", "text": "tea"}
_LOOK: Final = {"type": "screenshot"}

BY_MODELS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "openai-chat": [{"audio": {"id": "audio_1"}}],
    "openai-responses": [
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "apply_patch_call", "call_id": "p1", "status": "completed", "operation": _PATCH},
        {"type": "apply_patch_call_output", "call_id": "p1", "status": "completed"},
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "container_id": "c",
            "code": "1",
            "outputs": None,
            "status": "completed",
        },
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"},
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "u1",
            "status": "completed",
            "pending_safety_checks": [],
            "action": _LOOK,
        },
        {"type": "computer_call_output", "call_id": "u1", "output": _SHOT},
        {"type": "configuration_update"},
        {"type": "file_search_call", "id": "fs_1", "queries": ["tea"], "status": "completed"},
        {"type": "image_generation_call", "id": "ig_1", "result": None, "status": "completed"},
        {"type": "item_reference", "id": "msg_9"},
        {"id": "msg_8"},
        {
            "type": "local_shell_call",
            "id": "ls_1",
            "call_id": "s1",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "s1", "output": "a"},
        {
            "type": "mcp_approval_request",
            "id": "mr_1",
            "arguments": "{}",
            "name": "x",
            "server_label": "y",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mr_1", "approve": True},
        {"type": "mcp_call", "id": "mc_1", "arguments": "{}", "name": "x", "server_label": "y"},
        {"type": "mcp_list_tools", "id": "ml_1", "server_label": "y", "tools": []},
        {"type": "program", "id": "pr_1", "call_id": "q1", "code": "1", "fingerprint": "f"},
        {
            "type": "program_output",
            "id": "po_1",
            "call_id": "q1",
            "result": "1",
            "status": "completed",
        },
        {"type": "shell_call", "call_id": "h1", "action": _SHELL},
        {"type": "shell_call_output", "call_id": "h1", "output": [_ENDED]},
        {"type": "tool_search_call", "call_id": "t1", "arguments": {}},
        {"type": "tool_search_output", "call_id": "t1", "tools": []},
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "tea"},
        },
    ],
    "anthropic": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "web_fetch_tool_result_error", **_ERROR},
        },
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "tool_search_tool_result_error", **_ERROR},
        },
        {
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "code_execution_tool_result_error", **_ERROR},
        },
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "bash_code_execution_tool_result_error", **_ERROR},
        },
        {
            "type": "text_editor_code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "text_editor_code_execution_tool_result_error", **_ERROR},
        },
    ],
    "gemini": [
        {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"id": "t1", "toolType": "URL_CONTEXT", "args": {}}},
        {"toolResponse": {"id": "t1", "toolType": "URL_CONTEXT", "response": {}}},
    ],
}
"""What stands in answers."""

BY_USERS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "openai-chat": [{"type": "file", "file": {"file_id": "file-1"}}],
    "openai-responses": [
        {"type": "input_image", "file_id": "file-1", "detail": "auto"},
        {"type": "input_file", "file_id": "file-1"},
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "document", "source": {"type": "content", "content": [_WORDS]}, "title": "a"},
        {"type": "search_result", "source": "a", "title": "b", "content": [_WORDS]},
        {
            "type": "container_upload",
            "file_id": "f1",
            "cache_control": {"type": "ephemeral", "ttl": "5m"},
        },
    ],
    "gemini": [],
}
"""What stands in a user's messages."""

ODDITIES: Final[list[Any]] = [None, 5, True, "", "x", [], [5], {}, {"type": 5}, {"type": "text"}]
"""What nobody would expect in a field, or in place of a block."""


@st.composite
def kept_parts(draw: DrawFn) -> Part:
    """An unknown part of a format: as it came, spoiled, or never right at all."""
    form = draw(st.sampled_from(list(BY_MODELS)))
    way = draw(st.sampled_from(["whole", "whole", "less", "other", "more", "odd"]))
    block: Any = draw(st.sampled_from([*BY_MODELS[form], *BY_USERS[form]]))
    field = draw(st.sampled_from(sorted(block)))
    if way == "less":
        block = {name: value for name, value in block.items() if name != field}
    elif way == "other":
        block = {**block, field: draw(st.sampled_from(ODDITIES))}
    elif way == "more":
        block = {**block, "role": "system", "hologram": 1}
    elif way == "odd":
        block = draw(st.sampled_from([*ODDITIES, {"type": "hologram"}, {"type": "tool_use"}]))
    after = {"after": "rs_1"} if draw(st.integers(0, 3)) == 0 else {}
    return UnknownPart({"type": form, "block": block, **after})
