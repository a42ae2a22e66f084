"""Anthropic Messages, as a server speaks it: named events, a ping among them, no end mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.testing.servers.script import ProviderProtocol, encode_event, last_text, split_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import PendingAnswer, Refusal

__all__ = ["ANTHROPIC"]

_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class AnthropicProtocol(ProviderProtocol):
    """Messages."""

    def has_path(self, path: str) -> bool:
        """One path; a client that asks for betas says so behind it."""
        return path in {"/v1/messages", "/v1/messages?beta=true"}

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """A key, and the version of the API."""
        key = headers.get("x-api-key") or headers.get("authorization")
        return bool(key) and bool(headers.get("anthropic-version"))

    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last message's text."""
        return last_text(body["messages"][-1].get("content"))

    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
        """A message."""
        return {
            **_head(turn),
            "content": [block for block, _ in _blocks(turn)],
            "stop_reason": _finish(turn),
            "stop_sequence": None,
            "usage": _usage(turn) | _output_usage(turn),
        }

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Events from `message_start` to `message_stop`."""
        for name, fields in _events(turn):
            yield encode_event(name, {"type": name, **fields})

    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """An error, in an object that says so."""
        kind = refusal.code or _KINDS.get(refusal.status, "invalid_request_error")
        error = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": "req_palaver"}


def _events(turn: PendingAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    start = {**_head(turn), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = _usage(turn) | {"output_tokens": 1}
    yield "message_start", {"message": start}
    for place, (block, raw) in enumerate(_blocks(turn)):
        empty, deltas = _open_block(block, raw, turn.answer.piece)
        yield "content_block_start", {"index": place, "content_block": empty}
        if place == 0:
            yield "ping", {}
        for delta in deltas:
            yield "content_block_delta", {"index": place, "delta": delta}
        yield "content_block_stop", {"index": place}
    delta = {"stop_reason": _finish(turn), "stop_sequence": None}
    yield "message_delta", {"delta": delta, "usage": _usage(turn) | _output_usage(turn)}
    yield "message_stop", {}


def _open_block(
    block: dict[str, Any], raw: str, size: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in split_text(raw, size)]
        return {**block, "text": ""}, deltas
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(raw, size)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    deltas = [
        {"type": "input_json_delta", "partial_json": piece}
        for piece in ["", *split_text(raw, size)]
    ]
    return {**block, "input": {}}, deltas


def _blocks(turn: PendingAnswer) -> Iterator[tuple[dict[str, Any], str]]:
    """The blocks of the answer, each with what is streamed of it."""
    answer = turn.answer
    if answer.reasoning:
        signed = {"thinking": answer.reasoning, "signature": f"signed-{turn.number}"}
        yield {"type": "thinking", **signed}, answer.reasoning
    if answer.text:
        yield {"type": "text", "text": answer.text}, answer.text
    for place, call in enumerate(answer.calls):
        call_id = turn.call_id(place, "toolu_")
        block = {"type": "tool_use", "id": call_id, "name": call.name, "input": _input(call.raw)}
        yield block, call.raw


def _input(raw: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}


def _head(turn: PendingAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_{turn.number}",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
    }


def _finish(turn: PendingAnswer) -> str:
    return turn.answer.finish or ("tool_use" if turn.answer.calls else "end_turn")


def _usage(turn: PendingAnswer) -> dict[str, Any]:
    return {
        "input_tokens": turn.usage.input - turn.usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": turn.usage.cached,
        "service_tier": "standard",
    }


def _output_usage(turn: PendingAnswer) -> dict[str, Any]:
    details = {"thinking_tokens": turn.usage.reasoning}
    return {"output_tokens": turn.usage.output, "output_tokens_details": details}


ANTHROPIC: Final = AnthropicProtocol()
