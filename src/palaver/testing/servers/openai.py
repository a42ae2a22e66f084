"""OpenAI's two protocols, as a server speaks them.

Chat Completions streams unnamed events with `[DONE]` at the end. Responses streams named and
numbered events without an end mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.limits import is_list, is_object
from palaver.testing.servers.script import (
    ProviderProtocol,
    encode_data,
    encode_event,
    last_text,
    split_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import PendingAnswer, Refusal

__all__ = ["CHAT", "RESPONSES"]


_KINDS: Final = {401: "invalid_request_error", 429: "requests", 500: "server_error"}
_CREATED: Final = 1_760_000_000


class _OpenAIProtocol(ProviderProtocol):
    """What OpenAI's two protocols have in common."""

    base: ClassVar[str] = "/v1"

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """A bearer token."""
        return headers.get("authorization", "").startswith("Bearer ")

    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """An error object."""
        kind = _KINDS.get(refusal.status, "invalid_request_error")
        error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
        return {"error": error}


class ChatProtocol(_OpenAIProtocol):
    """Chat Completions."""

    def has_path(self, path: str) -> bool:
        """One path."""
        return path == "/v1/chat/completions"

    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last message's text."""
        return last_text(body["messages"][-1].get("content"))

    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
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

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Chunks; the figures in one of their own, if they were asked for."""
        options = turn.body.get("stream_options")
        counted = is_object(options) and options.get("include_usage") is True
        head = _head(turn, "chat.completion.chunk")
        extra: dict[str, Any] = {"usage": None} if counted else {}
        for delta in _deltas(turn):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield encode_data({**head, "choices": [choice], **extra, "obfuscation": "x7Q"})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(turn)}
        yield encode_data({**head, "choices": [last], **extra, "obfuscation": "k"})
        if counted:
            yield encode_data({**head, "choices": [], "usage": _usage(turn), "obfuscation": ""})
        yield b"data: [DONE]\n\n"


def _deltas(turn: PendingAnswer) -> Iterator[dict[str, Any]]:
    answer = turn.answer
    yield {"role": "assistant", "content": "" if answer.text else None, "refusal": None}
    for piece in split_text(answer.reasoning, answer.piece):
        yield {"reasoning_content": piece}
    for piece in split_text(answer.text, answer.piece):
        yield {"content": piece}
    for place, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        call_id = turn.call_id(place, "call_")
        opened = {"index": place, "id": call_id, "type": "function", "function": function}
        yield {"tool_calls": [opened]}
        for piece in split_text(call.raw, answer.piece):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _head(turn: PendingAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.number}",
        "object": kind,
        "created": _CREATED,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_palaver",
    }


def _finish(turn: PendingAnswer) -> str:
    return turn.answer.finish or ("tool_calls" if turn.answer.calls else "stop")


def _usage(turn: PendingAnswer) -> dict[str, Any]:
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


class ResponsesProtocol(_OpenAIProtocol):
    """Responses."""

    def has_path(self, path: str) -> bool:
        """One path."""
        return path == "/v1/responses"

    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last item's text."""
        given = body["input"]
        if is_list(given) and given:
            return last_text(given[-1].get("content", given[-1].get("output")))
        return str(given)

    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
        """A response."""
        return _response(turn, done=True)

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Events from `response.created` to `response.completed`."""
        for number, (name, fields) in enumerate(_events(turn)):
            yield encode_event(name, {"type": name, "sequence_number": number, **fields})


def _events(turn: PendingAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("response.created", "response.in_progress"):
        yield name, {"response": _response(turn, done=False)}
    writers = {
        "reasoning": _stream_reasoning,
        "message": _stream_text,
        "function_call": _stream_call,
    }
    for place, item in enumerate(_items(turn)):
        at = {"item_id": item["id"], "output_index": place}
        opened = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            opened["arguments"] = ""
        elif item["type"] == "message":
            opened["content"] = []
        else:
            opened = {**item, "summary": []}
        yield "response.output_item.added", {"output_index": place, "item": opened}
        yield from writers[item["type"]](turn, item, at)
        yield "response.output_item.done", {"output_index": place, "item": item}
    last = _response(turn, done=True)
    yield f"response.{last['status']}", {"response": last}


def _stream_reasoning(
    turn: PendingAnswer, item: dict[str, Any], at: dict[str, Any]
) -> Iterator[Any]:
    at = {**at, "summary_index": 0}
    part = item["summary"][0]
    prefix = "response.reasoning_summary"
    yield f"{prefix}_part.added", {**at, "part": {"type": "summary_text", "text": ""}}
    for piece in split_text(part["text"], turn.answer.piece):
        yield f"{prefix}_text.delta", {**at, "delta": piece, "obfuscation": "pQ"}
    yield f"{prefix}_text.done", {**at, "text": part["text"]}
    yield f"{prefix}_part.done", {**at, "part": part}


def _stream_text(turn: PendingAnswer, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    at = {**at, "content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
    for piece in split_text(part["text"], turn.answer.piece):
        fields = {**at, "delta": piece, "logprobs": [], "obfuscation": "aZ3"}
        yield "response.output_text.delta", fields
    yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**at, "part": part}


def _stream_call(turn: PendingAnswer, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    prefix = "response.function_call_arguments"
    for piece in split_text(item["arguments"], turn.answer.piece):
        yield f"{prefix}.delta", {**at, "delta": piece, "obfuscation": "m"}
    yield f"{prefix}.done", {**at, "name": item["name"], "arguments": item["arguments"]}


def _items(turn: PendingAnswer) -> list[dict[str, Any]]:
    answer, number = turn.answer, turn.number
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append(
            {
                "id": f"rs_{number}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": answer.reasoning}],
                "encrypted_content": f"sealed-{number}",
            }
        )
    if answer.text:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": answer.text}
        items.append(
            {
                "id": f"msg_{number}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    items += [
        {
            "id": f"fc_{number}_{place}",
            "type": "function_call",
            "status": "completed",
            "call_id": turn.call_id(place, "call_"),
            "name": call.name,
            "arguments": call.raw,
        }
        for place, call in enumerate(answer.calls)
    ]
    return items


def _response(turn: PendingAnswer, *, done: bool) -> dict[str, Any]:
    usage, finish = turn.usage, turn.answer.finish
    status = ("completed" if finish is None else "incomplete") if done else "in_progress"
    return {
        "id": f"resp_{turn.number}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": finish} if done and finish else None,
        "instructions": turn.body.get("instructions"),
        "model": turn.model,
        "output": _items(turn) if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": turn.body.get("store", True),
        "tools": turn.body.get("tools", []),
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
        if done
        else None,
    }


CHAT: Final = ChatProtocol()
RESPONSES: Final = ResponsesProtocol()
