"""OpenAI Chat Completions, as a server speaks it: unnamed events, `[DONE]` at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.gate import is_list, is_object
from palaver.testing.servers.script import pieces
from palaver.testing.servers.tongue import Tongue, data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import Refusal, Turn

__all__ = ["CHAT", "OpenAITongue", "text_in"]

_KINDS: Final = {401: "invalid_request_error", 429: "requests", 500: "server_error"}
CREATED: Final = 1_760_000_000


class OpenAITongue(Tongue):
    """What both of OpenAI's protocols have in common."""

    base: ClassVar[str] = "/v1"

    def authorised(self, headers: Mapping[str, str]) -> bool:
        """A bearer token."""
        return headers.get("authorization", "").startswith("Bearer ")

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """An error object."""
        kind = _KINDS.get(refusal.status, "invalid_request_error")
        error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
        return {"error": error}


class Chat(OpenAITongue):
    """Chat Completions."""

    def knows(self, path: str) -> bool:
        """One path."""
        return path == "/v1/chat/completions"

    def said(self, body: Mapping[str, Any]) -> str:
        """The last message's text."""
        return text_in(body["messages"][-1].get("content"))

    def whole(self, turn: Turn) -> dict[str, Any]:
        """A completion."""
        answer = turn.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": turn.call_id(place, "call_"),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.raw},
                }
                for place, call in enumerate(answer.calls)
            ]
        message |= {"refusal": None, "annotations": []}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}
        return {**_head(turn, "chat.completion"), "choices": [choice], "usage": _usage(turn)}

    def stream(self, turn: Turn) -> Iterator[bytes]:
        """Chunks; the figures in one of their own, if they were asked for."""
        options = turn.body.get("stream_options")
        counted = is_object(options) and options.get("include_usage") is True
        head = _head(turn, "chat.completion.chunk")
        extra: dict[str, Any] = {"usage": None} if counted else {}
        for delta in _deltas(turn):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield data({**head, "choices": [choice], **extra, "obfuscation": "x7Q"})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(turn)}
        yield data({**head, "choices": [last], **extra, "obfuscation": "k"})
        if counted:
            yield data({**head, "choices": [], "usage": _usage(turn), "obfuscation": ""})
        yield b"data: [DONE]\n\n"


def _deltas(turn: Turn) -> Iterator[dict[str, Any]]:
    answer = turn.answer
    yield {"role": "assistant", "content": "" if answer.text else None, "refusal": None}
    for piece in pieces(answer.reasoning, answer.piece):
        yield {"reasoning_content": piece}
    for piece in pieces(answer.text, answer.piece):
        yield {"content": piece}
    for place, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        call_id = turn.call_id(place, "call_")
        opened = {"index": place, "id": call_id, "type": "function", "function": function}
        yield {"tool_calls": [opened]}
        for piece in pieces(call.raw, answer.piece):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _head(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.number}",
        "object": kind,
        "created": CREATED,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_palaver",
    }


def _finish(turn: Turn) -> str:
    return turn.answer.finish or ("tool_calls" if turn.answer.calls else "stop")


def _usage(turn: Turn) -> dict[str, Any]:
    usage = turn.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def text_in(content: object) -> str:
    """The text of a content: of a string, or of a list's last entry that has any.

    >>> text_in([{"type": "text", "text": "Tea?"}])
    'Tea?'
    """
    if isinstance(content, str):
        return content
    found = ""
    for block in content if is_list(content) else ():
        text = block.get("text") if is_object(block) else None
        found = text if isinstance(text, str) else found
    return found


CHAT: Final = Chat()
