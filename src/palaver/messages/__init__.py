"""Messages, the parts they are made of, and the states of tool calls, as immutable values.

Make a `Message` with `user`, `assistant` or `system`, read JSON with `parse_message` and write it
with `dump`. A value is checked when it is made and can't change afterwards, so it is safe to share
between threads.

This package shows what most programs need. The rarer parts and their type guards are in
`palaver.messages.parts`, file sources in `part_base`, further states in `tool_state`, turns in
`turns`, opencode's export in `foreign`, and the limits on text, numbers and depth in `limits`.
"""

from __future__ import annotations

from palaver.messages.codec import dump, parse_message, parse_messages, parse_part, to_dict
from palaver.messages.ids import new_id
from palaver.messages.message import (
    ROLES,
    AssistantInfo,
    Message,
    Role,
    Routing,
    Speaker,
    UserInfo,
    assistant,
    system,
    user,
)
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    CacheCounts,
    ModelRef,
    Part,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    file_part,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import (
    ToolCompleted,
    ToolError,
    ToolPending,
    ToolRunning,
    ToolState,
    complete,
    completed,
    fail,
    failed,
    pending,
    running,
    start,
)
from palaver.messages.turns import WithParts, fold, unfold
from palaver.messages.validation import Validation, validate

__all__ = [
    "ROLES",
    "AssistantInfo",
    "CacheCounts",
    "FilePart",
    "Message",
    "ModelRef",
    "Part",
    "ReasoningPart",
    "Role",
    "Routing",
    "Speaker",
    "TextPart",
    "TokenCounts",
    "ToolCallPart",
    "ToolCompleted",
    "ToolError",
    "ToolPart",
    "ToolPending",
    "ToolRunning",
    "ToolState",
    "UnknownPart",
    "UserInfo",
    "Validation",
    "WithParts",
    "assistant",
    "complete",
    "completed",
    "dump",
    "fail",
    "failed",
    "file_part",
    "fold",
    "new_id",
    "parse_message",
    "parse_messages",
    "parse_part",
    "pending",
    "reasoning_part",
    "running",
    "start",
    "system",
    "text_part",
    "to_dict",
    "tool_call_part",
    "tool_part",
    "unfold",
    "user",
    "validate",
]
