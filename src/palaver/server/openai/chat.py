"""Chat Completions: the stateless neighbour of a response, over the same models.

Everything is in the request, and nothing is stored unless `store` is true; then it is an ordinary
conversation with its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import anyio
import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from palaver import wire
from palaver.conversation import Conversation, Toolbox
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.messages.limits import is_list, is_object
from palaver.server.errors import RequestRefused, describe_error
from palaver.server.openai.ids import new_conversation_id
from palaver.server.openai.plan import ClientTool
from palaver.server.openai.shapes import encode_error, refuse
from palaver.server.requests import convert_at
from palaver.server.services.models import default_options
from palaver.stores import open_store
from palaver.wire import ToolSpec
from palaver.wire.reply import CallDelta, CallReady, CallStarted, TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.conversation.step import Step
    from palaver.messages import Message
    from palaver.models.base import Model
    from palaver.server.openai.plan import Planner
    from palaver.server.services import Service
    from palaver.server.services.steps import StepOutcome
    from palaver.wire.reply import Delta

__all__ = ["ChatCompletions", "ChatRequest"]

_FORM: Final = "openai-chat"
_FINISH: Final = {"tool-calls": "tool_calls", "content-filter": "content_filter"}
_OF_ANSWERS: Final = ("annotations", "audio", "function_call", "refusal", "tool_calls")
"""The fields that an answer may have beside its content."""
_PATHS: Final = {
    "$.options.max_tokens": "$.max_completion_tokens",
    "$.options.effort": "$.reasoning_effort",
    "$.options.schema": "$.response_format.json_schema.schema",
}


class _Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all requests: unknown fields are refused."""


class _Function(_Shape, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _ToolShape(_Shape, frozen=True, tag_field="type", tag="function"):
    function: _Function


class _Named(_Shape, frozen=True):
    name: str


class _Choice(_Shape, frozen=True, tag_field="type", tag="function"):
    function: _Named


class _StreamOptions(_Shape, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _TextFormat(_Shape, frozen=True, tag_field="type", tag="text"):
    pass


class _JsonFormat(_Shape, frozen=True, tag_field="type", tag="json_object"):
    pass


class _Schema(_Shape, frozen=True):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class _SchemaFormat(_Shape, frozen=True, tag_field="type", tag="json_schema"):
    json_schema: _Schema


class _Block(_Shape, frozen=True, tag_field="type"):
    """A part of a message."""

    prompt_cache_breakpoint: dict[str, Any] | None = None


class _Text(_Block, frozen=True, kw_only=True, tag="text"):
    text: str


class _Refusal(_Block, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class _ImageAddress(_Shape, frozen=True):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class _Image(_Block, frozen=True, kw_only=True, tag="image_url"):
    image_url: _ImageAddress


class _AudioData(_Shape, frozen=True):
    data: str
    format: Literal["wav", "mp3"]


class _Audio(_Block, frozen=True, kw_only=True, tag="input_audio"):
    input_audio: _AudioData


class _FileData(_Shape, frozen=True):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class _File(_Block, frozen=True, kw_only=True, tag="file"):
    file: _FileData


class _Called(_Shape, frozen=True):
    name: str
    arguments: str
    parsed_arguments: Any = None  # the SDKs' helpers leave it in an answer


class _CalledCustom(_Shape, frozen=True):
    name: str
    input: str


class _CallShape(_Shape, frozen=True):
    id: str
    type: Literal["function", "custom"] = "function"
    function: _Called | None = None
    custom: _CalledCustom | None = None
    index: int | None = None  # as above


class _SpokenAnswer(Struct, frozen=True):
    id: str


class _Said(_Shape, frozen=True, tag_field="role"):
    """A message."""

    name: str | None = None


class _SystemSaid(_Said, frozen=True, kw_only=True, tag="system"):
    content: str | list[_Text]


class _DeveloperSaid(_SystemSaid, frozen=True, kw_only=True, tag="developer"):
    pass


class _UserSaid(_Said, frozen=True, kw_only=True, tag="user"):
    content: str | list[_Text | _Image | _Audio | _File]


class _AssistantSaid(_Said, frozen=True, kw_only=True, tag="assistant"):
    content: str | list[_Text | _Refusal] | None = None
    refusal: str | None = None
    tool_calls: list[_CallShape] | None = None
    function_call: _Called | None = None
    audio: _SpokenAnswer | None = None
    annotations: list[dict[str, Any]] | None = None
    parsed: Any = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None


class _ToolSaid(_Said, frozen=True, kw_only=True, tag="tool"):
    content: str | list[_Text]
    tool_call_id: str


_Message: Any = _SystemSaid | _DeveloperSaid | _UserSaid | _AssistantSaid | _ToolSaid


class ChatRequest(_Shape, frozen=True):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = None
    tools: list[_ToolShape] | None = None
    tool_choice: Literal["none", "auto", "required"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _TextFormat | _JsonFormat | _SchemaFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None

    def check(self) -> None:
        """Refuse what this server can't carry out, by its name."""
        for name in ("logprobs", "top_logprobs", "presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                raise refuse("is not supported", name)
        if self.n not in (None, 1):
            raise refuse("must be 1: there is one answer", "n")
        if self.logit_bias:
            raise refuse("is not supported", "logit_bias")
        if self.seed is not None:
            raise refuse("is not supported: not every provider has seeds", "seed")
        if self.service_tier not in (None, "auto", "default"):
            raise refuse("must be auto or default: there is one tier", "service_tier")

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that the answer has to fit."""
        wanted = self.response_format
        if isinstance(wanted, _SchemaFormat):
            return wanted.json_schema.schema or {"type": "object"}
        return {"type": "object"} if isinstance(wanted, _JsonFormat) else None


class _Run:
    """One completion at work."""

    def __init__(self, model: str, store: bool) -> None:  # noqa: FBT001 - as in the request
        self.id = f"chatcmpl-{new_id().replace('-', '')}"
        self.model = model
        self.created = now_ms() // 1000
        self.stored = store
        self.message: Message | None = None
        self.failure: Exception | None = None
        self.chunks: list[dict[str, Any]] = []
        self.done = anyio.Event()
        self.news = anyio.Event()
        self._deltas: dict[int, bool] = {}

    def on_delta(self, delta: Delta) -> None:
        """Write what has arrived as a chunk."""
        if isinstance(delta, TextDelta):
            self.chunk({"refusal" if delta.refused else "content": delta.text})
        elif isinstance(delta, CallStarted):
            self._deltas[delta.index] = False
            function = {"name": delta.tool, "arguments": ""}
            call = {"index": delta.index, "id": delta.call_id, "type": "function"}
            self.chunk({"tool_calls": [{**call, "function": function}]})
        elif isinstance(delta, CallDelta):
            self._deltas[delta.index] = True
            piece = {"index": delta.index, "function": {"arguments": delta.text}}
            self.chunk({"tool_calls": [piece]})
        elif isinstance(delta, CallReady) and not self._deltas.get(delta.index):
            piece = {"index": delta.index, "function": {"arguments": delta.raw or "{}"}}
            self.chunk({"tool_calls": [piece]})

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> None:
        """Add a chunk with one choice."""
        first = {} if self.chunks else {"role": "assistant"}
        choice = {"index": 0, "delta": {**first, **delta}, "finish_reason": finish}
        self.chunks.append({**self._about("chat.completion.chunk"), "choices": [choice]})
        self.tell()

    def tell(self) -> None:
        """Wake whoever waits for a chunk."""
        news, self.news = self.news, anyio.Event()
        news.set()

    def _about(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    @property
    def finish(self) -> str:
        """Why the answer ended, in OpenAI's words."""
        found = str(getattr(self.message and self.message.info, "finish", None) or "stop")
        return _FINISH.get(found, found if found in ("stop", "length") else "stop")

    def usage(self) -> dict[str, Any]:
        """The tokens of the completion."""
        tokens = getattr(self.message and self.message.info, "tokens", None)
        prompt, completion = (tokens.prompt, tokens.completion) if tokens else (0, 0)
        cached, reasoning = (tokens.cache.read, tokens.reasoning) if tokens else (0, 0)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def completion(self) -> dict[str, Any]:
        """The whole completion."""
        message = self.message
        written = wire.to(_FORM, [] if message is None else [message], wire.Target(prefill=True))
        found: dict[str, Any] = {"content": None, **(written.items[0] if message else {})}
        said = {
            "role": "assistant",
            "content": found["content"],
            "refusal": found.get("refusal"),
            **({"tool_calls": found["tool_calls"]} if found.get("tool_calls") else {}),
        }
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": self.finish}
        about = self._about("chat.completion")
        return {**about, "choices": [choice], "usage": self.usage(), "service_tier": "default"}

    async def stream(self, *, usage: bool, heartbeat: float) -> AsyncGenerator[bytes, None]:
        """The chunks as they come, and the mark of the end."""
        number = 0
        while True:
            news = self.news
            for chunk in self.chunks[number:]:
                shown = {**chunk, "usage": None} if usage else chunk
                yield b"data: %s\n\n" % msgspec.json.encode(shown)
                number += 1
            if self.done.is_set() and number >= len(self.chunks):
                break
            with anyio.move_on_after(heartbeat) as waiting:
                await news.wait()
            if waiting.cancelled_caught:
                yield b":\n\n"
        if self.failure is not None:
            _, body = encode_error(describe_error(self.failure)[0])
            yield b"data: %s\n\n" % body
        elif usage:
            last = {**self._about("chat.completion.chunk"), "choices": [], "usage": self.usage()}
            yield b"data: %s\n\n" % msgspec.json.encode(last)
        yield b"data: [DONE]\n\n"


class ChatCompletions:
    """The chat completions of a server."""

    def __init__(self, service: Service, planner: Planner) -> None:
        """Ask the models of a service, as responses do."""
        self._service = service
        self._planner = planner

    async def create(self, request: ChatRequest) -> _Run:
        """Begin to answer."""
        request.check()
        _check_messages(request.messages)
        name = request.model or self._service.models.default
        model, tools, options = await to_thread.run_sync(self._plan, request, name)
        parsed = wire.from_(_FORM, {"messages": _drop_parsed(request.messages)})
        for note in parsed.notes:
            if note.action == "lost":
                path = note.where.removeprefix("$.")
                raise refuse(note.detail, path, "invalid_value")
        stored = bool(request.store)
        store = self._service.store if stored else await to_thread.run_sync(open_store, ":memory:")
        conversation = new_conversation_id()
        running = self._service.steps.claim(conversation, name)
        run = _Run(name, stored)
        try:
            await to_thread.run_sync(lambda: store.create(parsed.messages, id=conversation))
            chat = Conversation(store, conversation)
        except BaseException:
            self._service.steps.release(running)
            raise

        async def work() -> StepOutcome:
            try:
                step: Step = await chat.step(
                    model, tools=tools, options=options, on_delta=run.on_delta
                )
                run.message = step.message
                run.chunk({}, run.finish)
            except Exception as error:
                run.failure = error
                raise
            except BaseException:
                run.failure = RequestRefused(503, "the server was stopped while it answered")
                raise
            finally:
                run.done.set()
                run.tell()
                if not stored:
                    store.close()
            return "calls" if step.calls else "answered"

        launch = self._service.steps.launch if stored else self._service.steps.launch_quietly
        launch(running, work)
        return run

    def _plan(self, request: ChatRequest, name: str) -> tuple[Model, Toolbox, dict[str, Any]]:
        model = self._planner.find_model(name)
        found = [each.function for each in request.tools or ()]
        tools = Toolbox(
            ClientTool(ToolSpec(each.name, each.description or "", each.parameters or {}))
            for each in found
        )
        choice = request.tool_choice
        wanted = choice.function.name if isinstance(choice, _Choice) else choice
        given = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_completion_tokens or request.max_tokens,
            "stop": request.stop,
            "effort": request.reasoning_effort,
            "schema": request.schema,
            "tool_choice": None if wanted == "auto" else wanted,
        }
        options = {key: value for key, value in given.items() if value is not None}
        options = {**default_options(model), **options}
        if request.parallel_tool_calls is False and request.tools:
            options |= self._planner.one_call_at_a_time(model, wanted)
        self._planner.check_options(model, tools, options, _PATHS)
        return model, tools, options


def _check_messages(messages: list[dict[str, Any]]) -> None:
    """Refuse what is no message, and a result without its call, by its path."""
    called: set[str] = set()
    for index, given in enumerate(messages):
        message: Any = convert_at(given, _Message, f"$.messages[{index}]")
        if isinstance(message, _AssistantSaid):
            called |= {call.id for call in message.tool_calls or ()}
        elif isinstance(message, _ToolSaid) and message.tool_call_id not in called:
            detail = f"no message before it has a call {message.tool_call_id!r}"
            raise refuse(detail, f"messages[{index}].tool_call_id", "call_not_found")


def _drop_parsed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without what OpenAI's SDKs add to the answers that they have read.

    `parsed` and `parsed_arguments` repeat the content and the arguments, `index` is a call's place
    among the others, and fields that an answer doesn't have are null. The SDKs' helpers leave all
    of it in a message, which then comes back.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        kept = {
            name: value
            for name, value in message.items()
            if name != "parsed" and not (name in _OF_ANSWERS and value in (None, []))
        }
        calls = kept.get("tool_calls")
        if is_list(calls):
            kept["tool_calls"] = [_drop_parsed_call(call) for call in calls]
        found.append(kept)
    return found


def _drop_parsed_call(call: Any) -> Any:  # noqa: ANN401 - JSON, checked later
    if not is_object(call):
        return call
    kept = {name: value for name, value in call.items() if name != "index"}
    function = kept.get("function")
    if is_object(function):
        named = {name: value for name, value in function.items() if name != "parsed_arguments"}
        kept["function"] = named
    return kept
