"""Gemini, as a server speaks it: the method in the path, unnamed events, lines ended by CR LF."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.testing.servers.script import ProviderProtocol, encode_data, last_text, split_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import PendingAnswer, Refusal

__all__ = ["GEMINI"]

_PATH: Final = re.compile(
    r"/v1(?:beta)?/models/([^/:]+):(?:generateContent|(streamGenerateContent)\?alt=sse)"
)
_SIGNED: Final = b"\xfb\xef\xbe\xff\xff\xff"
"""Bytes that base64 writes with `+` and `/`, so that a client which changes them is found out."""

_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GeminiProtocol(ProviderProtocol):
    """generateContent and streamGenerateContent."""

    def has_path(self, path: str) -> bool:
        """A path for each model and method."""
        return _PATH.fullmatch(path) is not None

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """A key."""
        return bool(headers.get("x-goog-api-key"))

    def streams(self, path: str, body: Mapping[str, Any]) -> bool:
        """The path says so."""
        del body
        found = _PATH.fullmatch(path)
        return found is not None and found[2] is not None

    def model(self, path: str, body: Mapping[str, Any]) -> str:
        """The path says which."""
        del body
        found = _PATH.fullmatch(path)
        return found[1] if found else ""

    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last turn's text."""
        return last_text(body["contents"][-1].get("parts"))

    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
        """A response."""
        return _response(turn, list(_parts(turn, whole=True)), done=True)

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Responses, each with some parts; the last says why it ended."""
        parts = list(_parts(turn, whole=False)) or [{"text": ""}]
        for place, part in enumerate(parts):
            done = place == len(parts) - 1
            yield encode_data(_response(turn, [part], done=done), end="\r\n\r\n")

    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """An error with a status in words."""
        status = refusal.code or _STATUSES.get(refusal.status, "UNKNOWN")
        error: dict[str, Any] = {
            "code": refusal.status,
            "message": refusal.message,
            "status": status,
        }
        if refusal.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{refusal.retry_after:g}s"}]
        return {"error": error}


def _parts(turn: PendingAnswer, *, whole: bool) -> Iterator[dict[str, Any]]:
    answer = turn.answer
    size = max(1, len(answer.text), len(answer.reasoning)) if whole else answer.piece
    for piece in split_text(answer.reasoning, size):
        yield {"text": piece, "thought": True}
    for piece in split_text(answer.text, size):
        yield {"text": piece}
    for place, call in enumerate(answer.calls):
        function = {"name": call.name, "args": msgspec.json.decode(call.raw)}
        if call.id is not None:
            function["id"] = call.id
        # of calls made at once, the first carries the signature
        signature = base64.b64encode(_SIGNED + str(turn.number).encode()).decode()
        signed = {"thoughtSignature": signature} if place == 0 else {}
        yield {"functionCall": function, **signed}


def _response(turn: PendingAnswer, parts: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    usage = turn.usage
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    counted: dict[str, Any] = {"promptTokenCount": usage.input, "totalTokenCount": usage.input}
    if done:
        candidate["finishReason"] = turn.answer.finish or "STOP"
        counted |= {
            "candidatesTokenCount": usage.output - usage.reasoning,
            "totalTokenCount": usage.input + usage.output,
        }
        if usage.reasoning:
            counted["thoughtsTokenCount"] = usage.reasoning
    if usage.cached:
        counted["cachedContentTokenCount"] = usage.cached
    return {
        "candidates": [candidate],
        "usageMetadata": counted,
        "modelVersion": turn.model,
        "responseId": f"resp-{turn.number}",
    }


GEMINI: Final = GeminiProtocol()
