"""OpenTelemetry spans for steps and tool calls, by the gen_ai conventions (`palaver[otel]`).

A step is a span `chat MODEL`, a tool call a span `execute_tool NAME`; usage, models and finish
reasons are its attributes. What was said is left out unless it is asked for: spans travel far.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.errors import PalaverError
from palaver.messages import (
    AssistantInfo,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolError,
    ToolPart,
)
from palaver.wire.tools import write_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from opentelemetry.trace import Span, SpanKind, TracerProvider

    from palaver.conversation.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.messages import Part, ToolState
    from palaver.wire.tools import ToolSpec

__all__ = ["Telemetry"]

_PROVIDERS: Final = {"google": "gcp.gemini", "gemini": "gcp.gemini"}
"""Where the conventions have another name for a provider."""

_OPTIONS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
}


class Telemetry:
    """Spans for a conversation: `Conversation(store, watch=Telemetry())`.

    `provider` is the tracer provider, by default the process's own. With `content`, what was said,
    the arguments and the results go into the spans too.

    >>> telemetry = Telemetry()
    >>> telemetry.content
    False
    """

    def __init__(self, provider: TracerProvider | None = None, *, content: bool = False) -> None:
        """Get a tracer; `opentelemetry` is loaded here and not before."""
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            detail = "spans need more packages: pip install 'palaver[otel]'"
            raise PalaverError(detail) from error
        self.content = content
        self._trace = trace
        self._tracer = trace.get_tracer("palaver", tracer_provider=provider)

    @contextmanager
    def step(
        self,
        conversation: Conversation,
        model: Model,
        tools: tuple[ToolSpec, ...],
        options: Mapping[str, Any],
    ) -> Generator[Callable[[Message], None]]:
        """A span around one question to a model."""
        name = model.ref.model_id
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(model.ref.provider_id, model.ref.provider_id),
            "gen_ai.request.model": name,
            "gen_ai.request.stream": True,
            "gen_ai.conversation.id": conversation.id,
            "gen_ai.output.type": "json" if options.get("schema") else "text",
        }
        about |= {name: options[own] for own, name in _OPTIONS.items() if own in options}
        if self.content:
            about |= _asked(conversation.messages, model.format, tools)
        with self._span(f"chat {name}", self._trace.SpanKind.CLIENT, about) as span:
            yield lambda message: self._answered(span, message)

    @contextmanager
    def call(
        self, conversation: str, call: ToolCallPart, spec: ToolSpec | None
    ) -> Generator[Callable[[ToolState], None]]:
        """A span around one tool call."""
        about: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": conversation,
        }
        if spec is not None and spec.description:
            about["gen_ai.tool.description"] = spec.description
        if self.content:
            about["gen_ai.tool.call.arguments"] = call.raw or _json(call.input)
        with self._span(f"execute_tool {call.tool}", self._trace.SpanKind.INTERNAL, about) as span:
            yield lambda state: self._ended(span, state)

    @contextmanager
    def _span(self, name: str, kind: SpanKind, about: dict[str, Any]) -> Generator[Span]:
        """A span that is current inside; an error is told by its type, and by its words if so."""
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=about, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                self._failed(span, type(error).__qualname__, str(error))
                raise

    def _failed(self, span: Span, kind: str, words: str) -> None:
        span.set_attribute("error.type", kind)
        told = words if self.content else None
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, told))

    def _answered(self, span: Span, message: Message) -> None:
        info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
        if info.model is not None:
            span.set_attribute("gen_ai.response.model", info.model.model_id)
        if info.finish is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [info.finish])
        tokens = info.tokens
        if tokens is not None:
            span.set_attribute("gen_ai.usage.input_tokens", tokens.prompt)
            span.set_attribute("gen_ai.usage.output_tokens", tokens.completion)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", tokens.cache.read)
            span.set_attribute("gen_ai.usage.cache_creation.input_tokens", tokens.cache.write)
            span.set_attribute("gen_ai.usage.reasoning.output_tokens", tokens.reasoning)
        if self.content:
            said = {**_written(message), "finish_reason": info.finish or "stop"}
            span.set_attribute("gen_ai.output.messages", _json([said]))

    def _ended(self, span: Span, state: ToolState) -> None:
        if isinstance(state, ToolError):
            kind = "timeout" if state.metadata.get("timedOut") else "tool_error"
            self._failed(span, kind, state.error)
        elif self.content:
            span.set_attribute("gen_ai.tool.call.result", str(getattr(state, "output", "")))


def _asked(messages: Iterable[Message], form: str, tools: tuple[ToolSpec, ...]) -> dict[str, str]:
    """What a model is asked, in the conventions' own JSON."""
    told, said = list[Any](), list[Any]()
    for message in messages:
        written = _written(message)
        if message.role == "system":
            told += written["parts"]
        else:
            said.append(written)
    about = {"gen_ai.input.messages": _json(said)}
    if told:
        about["gen_ai.system_instructions"] = _json(told)
    if tools:
        about["gen_ai.tool.definitions"] = _json(write_tools(form, tools))
    return about


def _written(message: Message) -> dict[str, Any]:
    if isinstance(message.content, str):
        parts = [{"type": "text", "content": message.content}]
    else:
        parts = [part for part in map(_part, message.content) if part is not None]
    return {"role": message.role, "parts": parts}


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "content": part.text}
        case ToolCallPart():
            return {
                "type": "tool_call",
                "id": part.call_id,
                "name": part.tool,
                "arguments": msgspec.to_builtins(part.input),
            }
        case ToolPart():
            said = getattr(part.state, "output", None) or getattr(part.state, "error", "")
            return {"type": "tool_call_response", "id": part.call_id, "response": said}
        case FilePart():
            # the bytes themselves are in the store, and no business of a span
            modality = part.mime.partition("/")[0]
            return {"type": "uri", "mime_type": part.mime, "modality": modality, "uri": _uri(part)}
        case _:
            return None


def _uri(part: FilePart) -> str:
    return part.url.partition(",")[0] if part.url.startswith("data:") else part.url


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
