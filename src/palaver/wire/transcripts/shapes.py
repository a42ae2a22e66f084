"""What a piece of JSON looks like: a line of which transcript, a document of which format.

Each answer rests on fields that only this format has; a name or an extension is never asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.messages.gate import is_list, is_object
from palaver.wire.transcripts.codex import BARE, WRAPPED
from palaver.wire.transcripts.fields import list_in, text_in

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["document_format", "line_format", "request_format"]

_CLAUDE: Final = frozenset(
    ("user", "assistant", "system", "attachment", "progress", "queue-operation", "custom-title",
     "ai-title", "agent-name", "permission-mode", "last-prompt", "pr-link", "tag")
)  # fmt: skip
_CHAT_ONLY: Final = frozenset(("tool_calls", "tool_call_id", "function_call", "refusal"))
_TEXTS: Final = frozenset(("input_text", "output_text", "input_image"))
_CHAT_ROLES: Final = frozenset(("developer", "function"))
_CHAT_BLOCKS: Final = frozenset(("image_url", "input_audio", "file"))
_ANTHROPIC_BLOCKS: Final = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
)
_ANTHROPIC_ONLY: Final = frozenset(
    ("system", "stop_sequences", "anthropic_version", "anthropic_beta", "thinking", "top_k")
)
_ITEMS: Final = frozenset(("function_call", "function_call_output", "reasoning", "item_reference"))
_EVERYTHING: Final = 2


def line_format(value: Mapping[str, Any]) -> str | None:
    """The format that one JSON line belongs to, or None where it could be anything.

    >>> line_format({"type": "response_item", "payload": {}})
    'codex'
    >>> line_format({"type": "user", "uuid": "u", "sessionId": "s", "message": {}})
    'claude-code'
    """
    kind = value.get("type")
    if "palaver" in value:
        return "palaver-lines"
    if _is_codex(value, kind):
        return "codex"
    if _is_claude(value, kind):
        return "claude-code"
    if is_object(value.get("request")) or request_format(value) is not None:
        return "requests"
    return "messages" if _is_message(value) else None


def document_format(value: object) -> str | None:
    """The format of a whole JSON document, or None.

    >>> document_format([{"role": "user", "content": "hi"}])
    'messages'
    """
    if is_list(value):
        first = value[0] if value else None
        if not is_object(first):
            return None
        if is_object(first.get("info")) and "parts" in first:
            return "opencode-export"
        return _messages_format(value) or "messages" if _is_message(first) else None
    return _object_format(value) if is_object(value) else None


def _object_format(value: Mapping[str, Any]) -> str | None:
    if "timestamp" in value and is_list(value.get("messages")):
        version = value.get("version")
        if type(version) is int and version == 1:
            return "palaver-1"
        if version == _EVERYTHING and "changes" in value:
            return "palaver-2"
    if is_object(value.get("info")) and (is_list(value.get("messages")) or "parts" in value):
        return "opencode-export"
    return request_format(value) or ("messages" if _is_message(value) else None)


def request_format(body: Mapping[str, Any]) -> str | None:
    """The provider's format of a request's body, or None.

    >>> request_format({"model": "claude-x", "max_tokens": 9, "messages": []})
    'anthropic'
    """
    if is_list(body.get("contents")) and "messages" not in body:
        return "gemini"
    if _is_responses(body):
        return "openai-responses"
    messages = body.get("messages")
    return _chat_format(body, messages) if is_list(messages) else None


def _chat_format(body: Mapping[str, Any], messages: list[Any] | tuple[Any, ...]) -> str | None:
    """Anthropic's or OpenAI's: both have `messages`."""
    known = _messages_format(messages)
    alike = all(is_object(item) and "role" in item for item in messages[:8])
    if known is not None or not alike or not (messages or "model" in body):
        return known
    claude = text_in(body, "model").rpartition("/")[2].startswith("claude")
    return "anthropic" if claude or not _ANTHROPIC_ONLY.isdisjoint(body) else "openai-chat"


def _is_codex(value: Mapping[str, Any], kind: object) -> bool:
    if isinstance(kind, str) and is_object(value.get("payload")):
        return kind in WRAPPED
    if isinstance(kind, str) and kind in BARE:
        return kind != "message" or any(
            is_object(item) and text_in(item, "type") in _TEXTS
            for item in list_in(value, "content")
        )
    if "record_type" in value:
        return True
    return kind is None and {"id", "timestamp", "instructions"} <= value.keys()


def _is_claude(value: Mapping[str, Any], kind: object) -> bool:
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "snapshot" in value
    return isinstance(kind, str) and "sessionId" in value and (kind in _CLAUDE or "uuid" in value)


def _is_responses(body: Mapping[str, Any]) -> bool:
    given = body.get("input")
    if isinstance(given, str):
        return "model" in body and "messages" not in body
    return is_list(given) and all(
        is_object(item) and ("role" in item or text_in(item, "type") in BARE | _ITEMS)
        for item in given[:8]
    )


def _is_message(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("role"), str) and "content" in value


def _messages_format(messages: list[Any] | tuple[Any, ...]) -> str | None:
    """What the messages themselves tell; None where every provider would write them so."""
    for message in messages:
        if not is_object(message):
            return None
        if text_in(message, "role") in _CHAT_ROLES or not _CHAT_ONLY.isdisjoint(message):
            return "openai-chat"
        for block in list_in(message, "content"):
            kind = block.get("type") if is_object(block) else None
            if not isinstance(kind, str) or "messageID" in block:
                continue  # a part of palaver's
            if kind in _CHAT_BLOCKS:
                return "openai-chat"
            if kind in _ANTHROPIC_BLOCKS and not (kind in block or "image_url" in block):
                return "anthropic"  # palaver's own list has {"type": "tool_use", "tool_use": {…}}
    return None
