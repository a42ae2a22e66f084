"""What other providers' models said, for tests: reasoning, parallel calls, files, broken ends."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from palaver import wire

if TYPE_CHECKING:
    from palaver.messages import Message

__all__ = ["NOT_SENT", "SAID", "said_by_all"]

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
PDF = base64.b64encode(b"%PDF-1.4 tea").decode()
SIGNED = "c2lnbmVk"
THOUGHT = {"type": "thinking", "thinking": "Claude's thought.", "signature": SIGNED}
IMAGE = {"type": "base64", "media_type": "image/png", "data": PNG}
PAPER = {"type": "base64", "media_type": "application/pdf", "data": PDF}

ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": [
        {"type": "text", "text": "Oslo and Bergen?"}, {"type": "image", "source": IMAGE},
        {"type": "document", "source": PAPER},
    ]},
    {"role": "assistant", "content": [
        THOUGHT,
        {"type": "tool_use", "id": "a1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "a2", "name": "weather", "input": {"city": "Bergen"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a1", "is_error": True, "content": "No station."},
        {"type": "tool_result", "tool_use_id": "a2", "content": [
            {"type": "text", "text": "Rain in Bergen."}, {"type": "image", "source": IMAGE},
        ]},
    ]},
    {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "Search?"},
    {"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": SIGNED},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "Nothing found."},
    ]},
    {"role": "user", "content": "Cut off?"},
    {"role": "assistant", "content": [THOUGHT]},
]  # fmt: skip
RESPONSES: list[dict[str, Any]] = [
    {"role": "user", "content": "Lima?"},
    {"type": "reasoning", "id": "rs_9", "encrypted_content": "opaque",
     "summary": [{"type": "summary_text", "text": "GPT's thought."}]},
    {"type": "function_call", "id": "fc_9", "call_id": "b1", "name": "weather",
     "arguments": '{"city": "Lima"}'},
    {"type": "function_call_output", "call_id": "b1", "output": "Fog in Lima."},
    {"type": "reasoning", "id": "rs_8", "encrypted_content": "opaque", "summary": []},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "message", "id": "msg_9", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "It is foggy.", "annotations": []}]},
]  # fmt: skip
GEMINI: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "Rome?"}]},
    {"role": "model", "parts": [
        {"text": "Gemini's thought.", "thought": True},
        {"functionCall": {"name": "weather", "args": {"city": "Roma"}}, "thoughtSignature": SIGNED},
    ]},
    {"role": "user", "parts": [
        {"functionResponse": {"name": "weather", "response": {"result": "Sun in Roma."}}},
    ]},
    {"role": "model", "parts": [
        {"executableCode": {"code": "1 + 1", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "It is sunny."}, {"text": "", "thoughtSignature": SIGNED},
    ]},
]  # fmt: skip
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Quito?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "d1", "type": "function", "function": {"name": "weather", "arguments": '{"ci'}},
    ]},
    {"role": "tool", "tool_call_id": "d1", "content": "Broken arguments."},
    {"role": "assistant", "content": None, "refusal": "I can't."},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "Hanoi?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "d2", "type": "function",
         "function": {"name": "weather", "arguments": '{"city": "Hanoi"}'}},
    ]},
]  # fmt: skip

SAID = (
    "Oslo and Bergen?", "No station.", "Rain in Bergen.", "It rains.", "Search?", "Nothing found.",
    "Cut off?", "Lima?", "Fog in Lima.", "It is foggy.", "Rome?", "Sun in Roma.", "It is sunny.",
    "Quito?", "Broken arguments.", "I can't.", "And?", "Hanoi?", PDF,
)  # fmt: skip
"""What a model has to be sent, once."""
NOT_SENT = ("thought.", SIGNED, "opaque", "rs_8", "rs_9", "ws_1", "srvtoolu_1")
"""What no other model has to be sent."""


def said_by_all() -> list[Message]:
    """Return a conversation that went through the four formats; its last call has no result."""
    return [
        *wire.from_("anthropic", {"messages": ANTHROPIC}).messages,
        *wire.from_("openai-responses", {"input": RESPONSES}).messages,
        *wire.from_("gemini", {"contents": GEMINI}).messages,
        *wire.from_("openai-chat", {"messages": CHAT}).messages,
    ]
