"""Instrumentation of steps and tool calls, and OpenTelemetry spans as one (`palaver[otel]`).

An instrumentation provides a context manager around each request to a model and each tool call, so
that what happens inside (the SDK's HTTP requests, a tool's own work) belongs to its span. By the
gen_ai conventions a step is a span `chat MODEL`, a tool call a span `execute_tool NAME`; usage,
models and finish reasons are attributes. Content is left out unless it is asked for, because spans
are often stored elsewhere.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from palaver.conversation.prompt_cache import cache_use_of
from palaver.errors import PalaverError, ValidationError
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
from palaver.messages.limits import EMPTY, describe_argument
from palaver.wire import write_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span, SpanKind, TracerProvider

    from palaver.conversation.conversation import Conversation
    from palaver.messages import Part, ToolState
    from palaver.models.base import Model
    from palaver.wire import ToolSpec

__all__ = ["Instrumentation", "Telemetry", "observe"]

_log: Final = logging.getLogger("palaver.conversation")
_T = TypeVar("_T")

_PROVIDERS: Final = {"google": "gcp.gemini", "gemini": "gcp.gemini"}
"""Where the conventions have another name for a provider."""

_OPTIONS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
}


class Instrumentation(Protocol):
    """Observes steps and tool calls. Each context manager yields a function for the outcome."""

    def step(
        self,
        conversation: Conversation,
        model: Model,
        tools: tuple[ToolSpec, ...],
        options: Mapping[str, Any],
        /,
    ) -> AbstractContextManager[Callable[[Message], None]]:
        """Wrap one request to a model; the yielded function gets the answer."""
        ...

    def call(
        self, conversation: str, call: ToolCallPart, spec: ToolSpec | None, /
    ) -> AbstractContextManager[Callable[[ToolState], None]]:
        """Wrap one tool call; the yielded function gets the state that it ended in."""
        ...


@contextmanager
def observe(
    enter: Callable[[], AbstractContextManager[Callable[[_T], None]]],
) -> Generator[Callable[[_T], None]]:
    """Enter what an instrumentation provides, and yield the function for the outcome.

    What the instrumentation raises is logged and changes nothing.
    """
    entered: list[AbstractContextManager[Any]] = []
    functions: list[Callable[[_T], None]] = []

    def leave(error: BaseException | None) -> None:
        for manager in entered:
            with _logged(error):
                trace = None if error is None else error.__traceback__
                manager.__exit__(None if error is None else type(error), error, trace)

    def report(outcome: _T) -> None:
        for function in functions:
            with _logged():
                function(outcome)

    with _logged():
        manager = enter()
        function = manager.__enter__()
        entered.append(manager)
        functions.append(function)
    try:
        yield report
    except BaseException as error:
        leave(error)
        raise
    leave(None)


@contextmanager
def _logged(expected: BaseException | None = None) -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an observer must not change what it observes
        if error is not expected:
            _log.exception("an instrumentation failed")


class Telemetry:
    """OpenTelemetry spans: `Conversation(store, instrumentation=Telemetry())`.

    `provider` is the tracer provider, by default the process's own. With `content`, messages,
    arguments and results are attributes of the spans too.

    >>> telemetry = Telemetry()
    >>> telemetry.content
    False
    """

    def __init__(self, provider: TracerProvider | None = None, *, content: bool = False) -> None:
        """Get a tracer; `opentelemetry` is imported here and not before."""
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            detail = "spans need more packages: pip install 'palaver[otel]'"
            raise PalaverError(detail) from error
        if provider is not None and not callable(getattr(provider, "get_tracer", None)):
            detail = f"must be a TracerProvider, not {describe_argument(provider)}"
            raise ValidationError(detail, path="$.provider", rule="argument")
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
        """Make a span around one request to a model."""
        name = model.ref.model_id
        options = {**getattr(model, "defaults", EMPTY), **options}
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(model.ref.provider_id, model.ref.provider_id),
            "gen_ai.request.model": name,
            "gen_ai.request.stream": True,
            "gen_ai.conversation.id": conversation.id,
            "gen_ai.output.type": "json" if options.get("schema") else "text",
        }
        about |= {
            name: options[own] for own, name in _OPTIONS.items() if options.get(own) is not None
        }
        if self.content:
            about |= _request_content(conversation.messages, model.format, tools)
        with self._span(f"chat {name}", self._trace.SpanKind.CLIENT, about) as span:
            yield lambda message: self._answered(span, message)

    @contextmanager
    def call(
        self, conversation: str, call: ToolCallPart, spec: ToolSpec | None
    ) -> Generator[Callable[[ToolState], None]]:
        """Make a span around one tool call."""
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
        """Make a span that is current inside; an error sets its type and perhaps its text."""
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=about, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                self._failed(span, type(error).__qualname__, str(error))
                raise

    def _failed(self, span: Span, kind: str, text: str) -> None:
        span.set_attribute("error.type", kind)
        description = text if self.content else None
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, description))

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
        use = cache_use_of(message)
        if use is not None:
            span.set_attribute("palaver.cache.expected_tokens", use.expected)
            if use.cause is not None:
                about = {"palaver.cache.cause": use.cause, "palaver.cache.lost_tokens": use.lost}
                span.set_attributes(about)
                span.add_event("palaver.cache.break", about)
        if self.content:
            content = {**_message_content(message), "finish_reason": info.finish or "stop"}
            span.set_attribute("gen_ai.output.messages", _json([content]))

    def _ended(self, span: Span, state: ToolState) -> None:
        if isinstance(state, ToolError):
            kind = "timeout" if state.metadata.get("timedOut") else "tool_error"
            self._failed(span, kind, state.error)
        elif self.content:
            span.set_attribute("gen_ai.tool.call.result", str(getattr(state, "output", "")))


def _request_content(
    messages: Iterable[Message], form: str, tools: tuple[ToolSpec, ...]
) -> dict[str, str]:
    """Return the content of a request, in the JSON of the conventions."""
    system, others = list[Any](), list[Any]()
    for message in messages:
        content = _message_content(message)
        if message.role == "system":
            system += content["parts"]
        else:
            others.append(content)
    about = {"gen_ai.input.messages": _json(others)}
    if system:
        about["gen_ai.system_instructions"] = _json(system)
    if tools:
        about["gen_ai.tool.definitions"] = _json(write_tools(form, tools))
    return about


def _message_content(message: Message) -> dict[str, Any]:
    if isinstance(message.content, str):
        parts = [{"type": "text", "content": message.content}]
    else:
        parts = [part for part in map(_part, message.sendable_parts) if part is not None]
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
                "arguments": msgspec.to_builtins(part.arguments),
            }
        case ToolPart():
            text = getattr(part.state, "output", None) or getattr(part.state, "error", "")
            return {"type": "tool_call_response", "id": part.call_id, "response": text}
        case FilePart():
            # the bytes are in the store, and too large for a span
            modality = part.mime.partition("/")[0]
            return {"type": "uri", "mime_type": part.mime, "modality": modality, "uri": _uri(part)}
        case _:
            return None


def _uri(part: FilePart) -> str:
    return part.url.partition(",")[0] if part.url.startswith("data:") else part.url


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
