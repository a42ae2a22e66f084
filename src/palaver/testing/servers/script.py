"""The script of a test server: answers and failures, and the four protocols that encode them.

Anthropic's events have names, with a ping among them and no mark at the end; Gemini has the method
in the path, events without a name, and lines ended by CR LF.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from palaver.messages.limits import is_list, is_object
from palaver.testing.prompt_cache import bills_cache_writes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ANTHROPIC",
    "CHAT",
    "GEMINI",
    "RESPONSES",
    "Answer",
    "Call",
    "Exchange",
    "Garbage",
    "HangUp",
    "PendingAnswer",
    "ProviderProtocol",
    "Refusal",
    "ReportedUsage",
    "Scripted",
    "Silence",
    "encode_data",
    "encode_event",
    "last_text",
    "split_text",
]


class Call(Struct, frozen=True):
    """A tool call. Arguments that are a text are sent unchanged."""

    name: str
    arguments: Mapping[str, Any] | str = ""
    id: str | None = None

    @property
    def raw(self) -> str:
        """The arguments as JSON."""
        if isinstance(self.arguments, str):
            return self.arguments or "{}"
        return msgspec.json.encode(self.arguments).decode()


class ReportedUsage(Struct, frozen=True):
    """The usage that an answer reports.

    `cached` and `written` are parts of `input`, read from the prompt cache and written to it;
    `reasoning` is part of `output`, and `written_1h` of `written`.
    """

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0
    written: int = 0
    written_1h: int = 0


class Answer(Struct, frozen=True):
    """An answer: reasoning, text and calls, streamed in pieces of `piece` characters.

    `finish` is the provider's own word; by default a matching one. With `refused`, the text is the
    model's refusal, said as the provider's models say it. `delay` is the time between two events,
    `start_after` the time before the first. `cut_after` closes the connection after so many events,
    or after half of a whole answer; `cleanly` as if all were well.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    usage: ReportedUsage | None = None
    finish: str | None = None
    piece: int = 8
    delay: float = 0.0
    start_after: float = 0.0
    cut_after: int | None = None
    cleanly: bool = False
    refused: bool = False


class Refusal(Struct, frozen=True):
    """An error in the provider's own form. `retry_after` is in seconds."""

    status: int
    message: str = "refused by the script"
    code: str | None = None
    retry_after: float | None = None


class Garbage(Struct, frozen=True):
    """Bytes that are no answer, with status 200."""

    data: bytes = b"data: {\x00\xff not json\n\n"


class Silence(Struct, frozen=True):
    """The request is accepted, and nothing is ever sent."""


class HangUp(Struct, frozen=True):
    """The connection is closed at once."""


class Exchange(Struct):
    """One request that a server got, and what became of it.

    `problems` says what the provider would have refused; `aborted`, that the client went away
    before it had the whole answer.
    """

    path: str
    headers: Mapping[str, str]
    body: Any
    problems: tuple[str, ...] = ()
    status: int | None = None
    aborted: bool = False


Scripted: TypeAlias = (
    Answer | Refusal | Garbage | Silence | HangUp | str | Callable[[Exchange], "Scripted"]
)


class PendingAnswer(NamedTuple):
    """An answer of the script, with what the server knows about the request."""

    answer: Answer
    number: int
    model: str
    usage: ReportedUsage
    body: Mapping[str, Any]

    def call_id(self, place: int, prefix: str) -> str:
        """The id of a call."""
        return self.answer.calls[place].id or f"{prefix}{self.number}_{place}"


def split_text(text: str, size: int) -> list[str]:
    """Split a text into pieces.

    >>> split_text("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [text[start : start + size] for start in range(0, len(text), max(1, size))]


class ProviderProtocol(ABC):
    """A provider's paths, headers, answers, streams and errors, so that a server can speak it."""

    base: ClassVar[str] = ""
    """The path that follows the host in the base address for clients."""

    @abstractmethod
    def has_path(self, path: str) -> bool:
        """Tell whether the provider has this path."""

    @abstractmethod
    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a key was sent."""

    def streams(self, path: str, body: Mapping[str, Any]) -> bool:
        """Tell whether the request asks for a stream."""
        del path
        return body.get("stream") is True

    def model(self, path: str, body: Mapping[str, Any]) -> str:
        """The model that the request names."""
        del path
        return str(body.get("model", ""))

    @abstractmethod
    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last text of the request, which the server repeats."""

    @abstractmethod
    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
        """The body of an answer that is not streamed."""

    @abstractmethod
    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """The events of a stream, encoded."""

    @abstractmethod
    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """The body of an error."""


def encode_data(value: object, end: str = "\n\n") -> bytes:
    r"""Encode an event without a name.

    >>> encode_data({"a": 1})
    b'data: {"a":1}\n\n'
    """
    return b"data: " + msgspec.json.encode(value) + end.encode()


def encode_event(name: str, value: object) -> bytes:
    r"""Encode an event with a name.

    >>> encode_event("ping", {})
    b'event: ping\ndata: {}\n\n'
    """
    return f"event: {name}\n".encode() + encode_data(value)


def last_text(content: object) -> str:
    """The text of a content: a string, or the text of the last block that has one.

    >>> last_text([{"type": "text", "text": "Tea?"}])
    'Tea?'
    """
    if isinstance(content, str):
        return content
    found = ""
    for block in content if is_list(content) else ():
        text = block.get("text") if is_object(block) else None
        found = text if isinstance(text, str) else found
    return found


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
        said = None if answer.refused else answer.text or None
        message: dict[str, Any] = {"role": "assistant", "content": said}
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
        message |= {"refusal": answer.text if answer.refused else None, "annotations": []}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _chat_finish(turn),
        }
        return {
            **_chat_head(turn, "chat.completion"),
            "choices": [choice],
            "usage": _openai_usage(turn),
        }

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Chunks; the figures in one of their own, if they were asked for."""
        options = turn.body.get("stream_options")
        counted = is_object(options) and options.get("include_usage") is True
        head = _chat_head(turn, "chat.completion.chunk")
        extra: dict[str, Any] = {"usage": None} if counted else {}
        for delta in _chat_deltas(turn):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield encode_data({**head, "choices": [choice], **extra, "obfuscation": "x7Q"})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _chat_finish(turn)}
        yield encode_data({**head, "choices": [last], **extra, "obfuscation": "k"})
        if counted:
            yield encode_data(
                {**head, "choices": [], "usage": _openai_usage(turn), "obfuscation": ""}
            )
        yield b"data: [DONE]\n\n"


def _chat_deltas(turn: PendingAnswer) -> Iterator[dict[str, Any]]:
    answer = turn.answer
    field = "refusal" if answer.refused else "content"
    yield {
        "role": "assistant",
        "content": None,
        "refusal": None,
        field: "" if answer.text else None,
    }
    for piece in split_text(answer.reasoning, answer.piece):
        yield {"reasoning_content": piece}
    for piece in split_text(answer.text, answer.piece):
        yield {field: piece}
    for place, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        call_id = turn.call_id(place, "call_")
        opened = {"index": place, "id": call_id, "type": "function", "function": function}
        yield {"tool_calls": [opened]}
        for piece in split_text(call.raw, answer.piece):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _chat_head(turn: PendingAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.number}",
        "object": kind,
        "created": _CREATED,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_palaver",
    }


def _chat_finish(turn: PendingAnswer) -> str:
    return turn.answer.finish or ("tool_calls" if turn.answer.calls else "stop")


def _openai_cache(turn: PendingAnswer) -> dict[str, int]:
    """What was read and, by models that bill it, what was written."""
    found = {"cached_tokens": turn.usage.cached}
    if bills_cache_writes(turn.model):
        found["cache_write_tokens"] = turn.usage.written
    return found


def _openai_usage(turn: PendingAnswer) -> dict[str, Any]:
    usage = turn.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {**_openai_cache(turn), "audio_tokens": 0},
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
        return _responses_object(turn, done=True)

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Events from `response.created` to `response.completed`."""
        for number, (name, fields) in enumerate(_responses_events(turn)):
            yield encode_event(name, {"type": name, "sequence_number": number, **fields})


def _responses_events(turn: PendingAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("response.created", "response.in_progress"):
        yield name, {"response": _responses_object(turn, done=False)}
    writers = {
        "reasoning": _stream_reasoning,
        "message": _stream_text,
        "function_call": _stream_call,
    }
    for place, item in enumerate(_responses_items(turn)):
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
    last = _responses_object(turn, done=True)
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
    if part["type"] == "refusal":
        yield from _stream_refusal(turn, part, at)
        return
    yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
    for piece in split_text(part["text"], turn.answer.piece):
        fields = {**at, "delta": piece, "logprobs": [], "obfuscation": "aZ3"}
        yield "response.output_text.delta", fields
    yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**at, "part": part}


def _stream_refusal(turn: PendingAnswer, part: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    yield "response.content_part.added", {**at, "part": {**part, "refusal": ""}}
    for piece in split_text(part["refusal"], turn.answer.piece):
        yield "response.refusal.delta", {**at, "delta": piece}
    yield "response.refusal.done", {**at, "refusal": part["refusal"]}
    yield "response.content_part.done", {**at, "part": part}


def _stream_call(turn: PendingAnswer, item: dict[str, Any], at: dict[str, Any]) -> Iterator[Any]:
    prefix = "response.function_call_arguments"
    for piece in split_text(item["arguments"], turn.answer.piece):
        yield f"{prefix}.delta", {**at, "delta": piece, "obfuscation": "m"}
    yield f"{prefix}.done", {**at, "name": item["name"], "arguments": item["arguments"]}


def _responses_items(turn: PendingAnswer) -> list[dict[str, Any]]:
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
        if answer.refused:
            part = {"type": "refusal", "refusal": answer.text}
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


def _responses_object(turn: PendingAnswer, *, done: bool) -> dict[str, Any]:
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
        "output": _responses_items(turn) if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": turn.body.get("store", True),
        "tools": turn.body.get("tools", []),
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": _openai_cache(turn),
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
        if done
        else None,
    }


CHAT: Final = ChatProtocol()
RESPONSES: Final = ResponsesProtocol()


_ANTHROPIC_KINDS: Final = {
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
            **_anthropic_head(turn),
            "content": [block for block, _ in _anthropic_blocks(turn)],
            "stop_reason": _anthropic_finish(turn),
            "stop_sequence": None,
            "usage": _anthropic_usage(turn) | _output_usage(turn),
        }

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Events from `message_start` to `message_stop`."""
        for name, fields in _anthropic_events(turn):
            yield encode_event(name, {"type": name, **fields})

    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """An error, in an object that says so."""
        kind = refusal.code or _ANTHROPIC_KINDS.get(refusal.status, "invalid_request_error")
        error = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": "req_palaver"}


def _anthropic_events(turn: PendingAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    start = {**_anthropic_head(turn), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = _anthropic_usage(turn) | {"output_tokens": 1}
    yield "message_start", {"message": start}
    for place, (block, raw) in enumerate(_anthropic_blocks(turn)):
        empty, deltas = _open_block(block, raw, turn.answer.piece)
        yield "content_block_start", {"index": place, "content_block": empty}
        if place == 0:
            yield "ping", {}
        for delta in deltas:
            yield "content_block_delta", {"index": place, "delta": delta}
        yield "content_block_stop", {"index": place}
    delta = {"stop_reason": _anthropic_finish(turn), "stop_sequence": None}
    yield "message_delta", {"delta": delta, "usage": _anthropic_usage(turn) | _output_usage(turn)}
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


def _anthropic_blocks(turn: PendingAnswer) -> Iterator[tuple[dict[str, Any], str]]:
    """The blocks of the answer, each with what is streamed of it."""
    answer = turn.answer
    if answer.reasoning:
        signed = {"thinking": answer.reasoning, "signature": f"signed-{turn.number}"}
        yield {"type": "thinking", **signed}, answer.reasoning
    if answer.text:
        yield {"type": "text", "text": answer.text}, answer.text
    for place, call in enumerate(answer.calls):
        call_id = turn.call_id(place, "toolu_")
        block = {
            "type": "tool_use",
            "id": call_id,
            "name": call.name,
            "input": _anthropic_input(call.raw),
        }
        yield block, call.raw


def _anthropic_input(raw: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}


def _anthropic_head(turn: PendingAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_{turn.number}",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
    }


def _anthropic_finish(turn: PendingAnswer) -> str:
    usual = "refusal" if turn.answer.refused else "end_turn"
    return turn.answer.finish or ("tool_use" if turn.answer.calls else usual)


def _anthropic_usage(turn: PendingAnswer) -> dict[str, Any]:
    usage = turn.usage
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written - usage.written_1h,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "service_tier": "standard",
    }


def _output_usage(turn: PendingAnswer) -> dict[str, Any]:
    details = {"thinking_tokens": turn.usage.reasoning}
    return {"output_tokens": turn.usage.output, "output_tokens_details": details}


ANTHROPIC: Final = AnthropicProtocol()


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
        return _gemini_response(turn, list(_gemini_parts(turn, whole=True)), done=True)

    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """Responses, each with some parts; the last says why it ended."""
        parts = list(_gemini_parts(turn, whole=False)) or [{"text": ""}]
        for place, part in enumerate(parts):
            done = place == len(parts) - 1
            yield encode_data(_gemini_response(turn, [part], done=done), end="\r\n\r\n")

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


def _gemini_parts(turn: PendingAnswer, *, whole: bool) -> Iterator[dict[str, Any]]:
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


def _gemini_response(
    turn: PendingAnswer, parts: list[dict[str, Any]], *, done: bool
) -> dict[str, Any]:
    usage = turn.usage
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    counted: dict[str, Any] = {"promptTokenCount": usage.input, "totalTokenCount": usage.input}
    if done:
        usual = "PROHIBITED_CONTENT" if turn.answer.refused else "STOP"
        candidate["finishReason"] = turn.answer.finish or usual
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
