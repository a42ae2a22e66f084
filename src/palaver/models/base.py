"""What a model is: a client that sends one request and returns the provider's own JSON.

A model knows nothing of histories. It gets the fields of a request that `palaver.wire` has written,
adds what the provider expects beside them, and returns the provider's events unchanged.

`GeneratingModel` makes a model of any object with `generate(messages, tools)`.

`SdkModel` is the common part of all models over a provider's SDK: clients, retries and errors. A
provider's module says how a request is written, how the SDK is called and what its errors mean. Raw
JSON goes in and comes out, so that fields a provider adds later are not lost. The SDKs' own retries
are off, because only this module knows whether a part of the answer has arrived.
"""

from __future__ import annotations

import inspect
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    cast,
    runtime_checkable,
)
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio
import msgspec
from anyio import to_thread
from anyio.lowlevel import RunVar
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from palaver.errors import BadAnswer, ModelError, NetworkError, ValidationError
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    check_argument,
    check_name,
    check_number,
    describe_argument,
    is_list,
    is_object,
    kind_of,
    not_pickled,
    quote_value,
    unexpected_keyword,
)
from palaver.messages.message import Message
from palaver.messages.parts import ModelRef, ReasoningPart, ToolCallPart
from palaver.models.errors import Failure, bad_answer, scrub, transport_failure
from palaver.models.retry import RetryPolicy, report_retry
from palaver.wire import ToolSpec, reply_reader, spell_tool, write_tools
from palaver.wire.request import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = [
    "CONNECT_SECONDS",
    "EFFORTS",
    "LOCAL_PROVIDER",
    "OPTIONS",
    "ClosingModel",
    "Generates",
    "GeneratingModel",
    "Model",
    "ModelRequest",
    "SdkModel",
    "as_policy",
    "check_defaults",
    "check_option",
    "merge_fields",
]

_LEVELS: Final = 8
"""How deep an SDK's object is read for JSON."""

LOCAL_PROVIDER: Final = "local"
"""The provider of the models on this machine."""
OPTIONS: Final = frozenset(
    ("temperature", "top_p", "max_tokens", "stop", "effort", "tool_choice", "schema", "extra")
)
"""The options that every model takes; `extra` holds fields of the provider's own."""
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model may think before it answers; a provider has some of these."""


class ModelRequest(Struct, frozen=True):
    """One request to a model.

    `body` holds the conversation in the provider's format (`wire.Request.body`), `names` the tools'
    own names by those in the body (`wire.Request.names`). `options` are those of `OPTIONS`:
    `effort` is one of `EFFORTS`, `tool_choice` is `auto`, `none`, `required` or a tool's own name,
    `schema` is a JSON schema for the answer's text, `extra` is merged over the request. Requests of
    which one begins as another share a `cache_key`; `compacted` is that of `wire.Request`.

    >>> ModelRequest({"messages": []}, options={"temprature": 1}).check()
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.options.temprature: unknown option; known are ... [option]
    """

    body: Mapping[str, Any]
    tools: tuple[ToolSpec, ...] = ()
    names: Mapping[str, str] = EMPTY
    options: Mapping[str, Any] = EMPTY
    cache_key: str = ""
    compacted: int = 0

    def check(self) -> ModelRequest:
        """Return this request; raise `ValidationError` for an option that no model has."""
        for name, value in self.options.items():
            if name not in OPTIONS:
                detail = f"unknown option; known are {', '.join(sorted(OPTIONS))}"
                raise ValidationError(detail, path=f"$.options.{name}", rule="option")
            check_option(name, value, f"$.options.{name}")
        choice = self.options.get("tool_choice")
        if choice is not None and choice not in ("auto", "none"):
            known = [tool.name for tool in self.tools]
            if choice not in known and not (choice == "required" and known):
                detail = f"{choice!r} is not among the tools: {', '.join(known) or 'none'}"
                raise ValidationError(detail, path="$.options.tool_choice", rule="option")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The options that are set: not None, and without `extra`."""
        given = self.options.items()
        return {name: value for name, value in given if value is not None and name != "extra"}

    @property
    def extra(self) -> Mapping[str, Any]:
        """The provider's own fields, to be merged over the request."""
        return self.options.get("extra") or EMPTY

    def with_defaults(self, defaults: Mapping[str, Any]) -> ModelRequest:
        """Return this request with a model's default options; an option that is None has none.

        >>> request = ModelRequest({}, options={"temperature": None, "max_tokens": 9})
        >>> request.with_defaults({"temperature": 0, "effort": "low"}).settings
        {'effort': 'low', 'max_tokens': 9}
        """
        if not defaults:
            return self
        options = {**defaults, **self.options}
        if "extra" in self.options:
            options["extra"] = merge_fields(defaults.get("extra") or EMPTY, self.extra)
        return replace(self, options=options)


def check_option(name: str, value: object, path: str) -> None:
    """Raise `ValidationError` for a value that no model takes for this option.

    >>> check_option("top_p", 7, "$.top_p")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.top_p: must be a number from 0 to 1, not 7 [option]
    """
    wanted = _WANTED.get(name)
    if value is not None and wanted is not None and not wanted[1](value):
        detail = f"must be {wanted[0]}, not {describe_argument(value)}"
        raise ValidationError(detail, path=path, rule="option")
    if name == "extra" and (own := _OWN & cast("Any", value or EMPTY).keys()):
        detail = "holds the conversation, and can't be overridden; change its messages instead"
        raise ValidationError(detail, path=f"{path}.{min(own)}", rule="option")


def _is_number(value: object, most: float = MAX_INT) -> bool:
    return type(value) in (int, float) and 0 <= cast("float", value) <= most


def _is_stop(value: object) -> bool:
    given = [value] if isinstance(value, str) else value
    return is_list(given) and bool(given) and all(isinstance(one, str) and one for one in given)


_WANTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "temperature": ("a number from 0 on", _is_number),
    "top_p": ("a number from 0 to 1", partial(_is_number, most=1)),
    "max_tokens": ("a whole number from 1 on", lambda value: type(value) is int and value > 0),
    "stop": ("text or a list of texts, none of them empty", _is_stop),
    "effort": (f"one of {', '.join(EFFORTS)}", EFFORTS.__contains__),
    "schema": ("a JSON schema, which is an object", is_object),
    "extra": ("an object with fields of the provider's own", is_object),
}
"""What each option's value may be; `tool_choice` depends on the tools."""
_OWN: Final = {"messages", "system", "input", "instructions", "contents", "systemInstruction"}
"""The fields of requests that hold the conversation: `extra` can't have them."""


def check_defaults(given: Mapping[str, Any], *takers: Callable[..., object]) -> Mapping[str, Any]:
    """Return the default options of a model; raise an error for what is none.

    `takers` are the functions that have the other arguments of the model.
    """
    for name, value in given.items():
        if name == "tool_choice":
            detail = "can't be a default: with it every answer, also the last, would make a call; "
            detail += "give it to a question, options={'tool_choice': …}"
            raise ValidationError(detail, path="$.tool_choice", rule="option")
        if name not in OPTIONS:
            taken = {
                one.name
                for taker in takers
                for one in inspect.signature(taker).parameters.values()
                if one.kind is one.KEYWORD_ONLY
            }
            raise unexpected_keyword("model", name, (taken | OPTIONS) - {"tool_choice"})
        check_option(name, value, f"$.{name}")
    return {name: value for name, value in given.items() if value is not None}


class Model(Protocol):
    """A model that can be asked. To add one, write a class with these seven members."""

    @property
    def ref(self) -> ModelRef:
        """The provider's id and the model's id."""
        ...

    @property
    def format(self) -> str:
        """The name of the wire format that it speaks."""
        ...

    @property
    def window(self) -> int | None:
        """The size of its context window in tokens, if it is known."""
        ...

    @property
    def target(self) -> Target:
        """Which kinds of content it accepts."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[Mapping[str, Any]]:
        """Send a request and yield the provider's stream events as they arrive."""
        ...

    async def complete(self, request: ModelRequest, /) -> Mapping[str, Any]:
        """Send a request and return the provider's complete answer."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class ClosingModel(Model, Protocol):
    """A model that `async with` closes, as all are that `palaver.model` makes of its own."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...


@runtime_checkable
class ChecksOptions(Protocol):
    """A model that refuses options before it is asked."""

    def check_options(self, request: ModelRequest, /) -> None:
        """Raise `ValidationError` for an option that it does not have."""
        ...


class Generates(Protocol):
    """The least that a conversation takes for a model."""

    def generate(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], /) -> Any:  # noqa: ANN401 - see GeneratingModel
        """Return an answer; see `GeneratingModel`."""
        ...


class GeneratingModel:
    """A model made of any object with `generate(messages, tools)`, sync or async.

    `generate` gets the conversation and the tools as Chat Completions takes them: lists of JSON
    objects. It returns text, an assistant's `Message`, a completion (`choices`, `usage`) or its
    message (`content`, `tool_calls`, `usage`), as JSON or as objects with these attributes; or,
    to stream, an iterator of pieces: texts and chunks of a completion. The options of a step are
    passed as `options`, if it takes that. A function that is not async runs in a worker thread.

    >>> import anyio
    >>> class Parrot:
    ...     def generate(self, messages, tools):
    ...         return messages[-1]["content"].upper()
    >>> body = {"messages": [{"role": "user", "content": "tea"}]}
    >>> answer = anyio.run(GeneratingModel(Parrot()).complete, ModelRequest(body))
    >>> answer["choices"][0]["message"]["content"]
    'TEA'
    """

    format: str = "openai-chat"
    window: int | None = None

    def __init__(self, wrapped: Generates) -> None:
        """Take the object; it is known by its `name` or its class's."""
        name: object = getattr(wrapped, "name", None)
        self.name = name if isinstance(name, str) and name else type(wrapped).__name__
        self.wrapped = wrapped
        self.ref = ModelRef("custom", self.name)
        self.target = Target()

    def __repr__(self) -> str:
        return f"<GeneratingModel {self.name}>"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask for an answer and yield it as chunks of a completion."""
        empty = True
        async with aclosing(self._pieces(await self._generate(request))) as pieces:
            async for piece in pieces:
                chunk = piece if isinstance(piece, str | Message) else _as_json(piece)
                if is_object(chunk) and chunk.get("error"):
                    raise self._bad_answer(f"reported an error: {quote_value(chunk['error'])}")
                if isinstance(chunk, str):
                    yield {"choices": [{"delta": {"content": chunk}}]}
                elif is_object(chunk) and _has_delta(chunk):
                    yield chunk
                    if not chunk["choices"]:  # figures, or nothing
                        continue
                else:
                    yield _as_chunk(self._completion(chunk))
                empty = False
        if empty:
            raise self._bad_answer("returned no answer")
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}  # the first reason counts

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """Ask for an answer and return it as a completion; pieces are joined."""
        reader = reply_reader(self.format)
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                reader.feed(chunk)
        return self._completion(reader.message())

    async def close(self) -> None:
        """Close nothing: the object is the caller's."""

    async def _generate(self, request: ModelRequest) -> Any:  # noqa: ANN401 - the object's own
        request.check()
        generate: Any = self.wrapped.generate
        given = partial(
            generate,
            _copy(request.body["messages"]),
            _copy(write_tools(self.format, request.tools)),
            **self.options(request),
        )
        answer = given() if inspect.iscoroutinefunction(generate) else await _in_thread(given)
        return await answer if inspect.isawaitable(answer) else answer

    @property
    def takes_options(self) -> bool:
        """Whether `generate` has a parameter `options`."""
        try:
            parameters = inspect.signature(self.wrapped.generate).parameters.values()
        except (TypeError, ValueError):  # it is not written in Python
            return False
        return any(one.name == "options" or one.kind is one.VAR_KEYWORD for one in parameters)

    def options(self, request: ModelRequest) -> dict[str, Any]:
        """Return the options of a request as `generate` takes them."""
        options = {name: value for name, value in request.options.items() if value is not None}
        if not options or self.takes_options:
            return {"options": options} if options else {}
        names = ", ".join(options)
        detail = f"generate() of {self.name} takes no options, and {names} is set; "
        detail += "give it a parameter `options`"
        raise ValidationError(detail, path="$.options", rule="option")

    async def _pieces(self, answer: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - as above
        if hasattr(answer, "__aiter__"):
            async for piece in answer:
                yield piece
        elif isinstance(answer, Iterator):
            end = object()
            while (piece := await _in_thread(partial(next, answer, end))) is not end:
                yield piece
        else:
            yield answer

    def _completion(self, answer: object) -> dict[str, Any]:
        """Return an answer as a completion; raise `BadAnswer` for what is none."""
        found = answer
        if isinstance(answer, Message) and answer.role == "assistant":
            found = _message_fields(answer)
        if is_object(found):
            choices = found.get("choices")
            if is_list(choices) and choices and is_object(choices[0]):
                message = choices[0].get("message")
                if is_object(message):
                    return _completion(message, {**found, **choices[0]})
            elif isinstance(found.get("content"), str | list | tuple) or _calls(found):
                return _completion(found, found)
        raise self._bad_answer(f"returned {kind_of(answer)}")

    def _bad_answer(self, what: str) -> BadAnswer:
        detail = f"generate() of {self.name} {what}; expected text, a Message, or a completion or "
        detail += "its message with `content` or `tool_calls`"
        return BadAnswer(detail, provider=self.ref.provider_id)


def _copy(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a copy of JSON, which its receiver may change."""
    return msgspec.json.decode(msgspec.json.encode(value))


async def _in_thread(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    return await to_thread.run_sync(work, abandon_on_cancel=True)


def _has_delta(chunk: Mapping[str, Any]) -> bool:
    """Tell whether it is a chunk of a stream: deltas, or none beside figures."""
    choices = chunk.get("choices")
    return is_list(choices) and all(
        is_object(choice) and is_object(choice.get("delta")) for choice in choices
    )


def _as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = completion["choices"]
    return {**completion, "choices": [{**choice, "delta": choice["message"]}]}


def _completion(message: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    calls = _calls(message)
    said = {**message, "tool_calls": calls} if calls else dict(message)
    reason = about.get("finish_reason") or ("tool_calls" if calls else "stop")
    found = {"choices": [{"message": said, "finish_reason": reason}]}
    return found | {name: about[name] for name in ("id", "model", "usage") if about.get(name)}


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message in the form of Chat Completions; flat ones are taken too."""
    calls = message.get("tool_calls") or message.get("toolCalls")
    found: list[dict[str, Any]] = []
    for index, call in enumerate(calls if is_list(calls) else ()):
        if is_object(call):
            function = call.get("function") or call
            arguments = function.get("arguments") if is_object(function) else None
            if not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments or {}).decode()
            name = function.get("name") if is_object(function) else None
            called = {"name": name, "arguments": arguments}
            found.append({"index": index, "id": call.get("id"), "function": called})
    return found


def _message_fields(message: Message) -> dict[str, Any]:
    """Return an answer's text, reasoning, calls and usage as a message of Chat Completions."""
    calls = [
        {"id": part.call_id, "name": part.tool, "arguments": part.raw}
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    reasoning = [part.text for part in message.parts if isinstance(part, ReasoningPart)]
    found: dict[str, Any] = {"content": message.text, "tool_calls": calls}
    found["reasoning_content"] = "\n".join(reasoning)
    tokens = getattr(message.info, "tokens", None)
    if tokens is not None:
        found["usage"] = {"prompt_tokens": tokens.prompt, "completion_tokens": tokens.completion}
    return found


def _as_json(value: object, levels: int = _LEVELS) -> object:
    """Return JSON made of an SDK's objects: by `model_dump`, or of their attributes."""
    dump: object = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    if value is None or isinstance(value, str | int | float) or not levels:
        return value
    if is_list(value):
        return [_as_json(item, levels - 1) for item in value]
    fields: object = value if is_object(value) else getattr(value, "__dict__", None)
    if not is_object(fields):
        return value
    return {
        name: _as_json(item, levels - 1)
        for name, item in fields.items()
        if not name.startswith("_")
    }


def merge_fields(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one JSON object over another, and the objects inside them likewise.

    >>> merge_fields({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if is_object(below) and is_object(value):
            value = merge_fields(below, value)  # noqa: PLW2901 - the merged one
        merged[name] = value
    return merged


ClientT = TypeVar("ClientT")

CONNECT_SECONDS: Final = 10.0
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class _Loop:
    """An event loop: connections of one can't be used in another. It ends with the loop."""


_LOOP: Final[RunVar[_Loop]] = RunVar("palaver.models.loop")
"""The event loop that runs here."""


_TIMEOUT: Final = 600.0
_SHOWN_URL: Final = "an address such as https://example.com/v1"


class SdkModel(ABC, Generic[ClientT]):
    """A model that is reached through its provider's SDK.

    `timeout` is the longest wait for the next piece of an answer, in seconds. The SDK reads the API
    key from the provider's usual environment variables, unless `api_key` is given. `client` is the
    SDK's own async client, set up by the caller, who also closes it; `http_client` is only what it
    sends requests with. The connections of either belong to one event loop. A function in its place
    is called for every event loop, and what it returns is closed by `close`. `retries` is a number
    or a `RetryPolicy`; the SDK's own retries are off. All further arguments are default options.
    """

    provider: ClassVar[str]
    format: str
    clients: ClassVar[tuple[type, ...]]
    """The SDK's async clients."""
    http_packages: ClassVar[tuple[str, ...]] = ("httpx2",)
    """The packages whose `AsyncClient` the SDK can send requests with."""
    efforts: ClassVar[Sequence[str]] = EFFORTS
    timeout: float | None

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: ClientT | Callable[[], ClientT] | None = None,
        http_client: object | Callable[[], object] | None = None,
        default_headers: Mapping[str, str] | None = None,
        window: int | None = None,
        target: Target | None = None,
        timeout: float | UnsetType = UNSET,
        retries: RetryPolicy | int | None = None,
        **options: Any,  # noqa: ANN401 - those of OPTIONS
    ) -> None:
        """Set up the model; nothing is connected before the first request."""
        check_name(name, "$.name")
        check_argument(api_key, (str, NoneType), "$.api_key", "text")
        check_argument(base_url, (str, NoneType), "$.base_url", _SHOWN_URL)
        if base_url is not None and not _is_url(base_url):
            detail = f"must be {_SHOWN_URL}, not {quote_value(base_url)}"
            raise ValidationError(detail, path="$.base_url", rule="argument")
        self._check_given("client", client)
        self._check_given("http_client", http_client)
        if client is not None:
            for other, where in (
                (api_key, "api_key"), (base_url, "base_url"), (http_client, "http_client")
            ):  # fmt: skip
                if other is not None:
                    detail = f"can't be given beside client=; give {where} to that client"
                    raise ValidationError(detail, path=f"$.{where}", rule="argument")
        self.headers = _check_headers(default_headers)
        check_argument(target, (Target, NoneType), "$.target", "a Target(…)")
        if timeout is UNSET:  # a client has a timeout of its own
            self.timeout = _TIMEOUT if client is None else None
        else:
            check_number(timeout, "$.timeout", least=0.001)
            self.timeout = timeout
        if window is not None:
            check_number(window, "$.window", least=1, whole=True)
        self.defaults = check_defaults(options, SdkModel.__init__, type(self).__init__)
        self.ref = ModelRef(provider_id=self.provider, model_id=name)
        self.window = window
        self.target = replace(target or Target(), model=self.ref)
        self.base_url = base_url
        self.retries = as_policy(retries)
        self._api_key = api_key
        self._given, self._given_http = client, http_client
        self._clients = WeakKeyDictionary[_Loop, _Opened[ClientT]]()
        self._opening = threading.Lock()
        self._loop: object = None  # where the caller's own client is used
        try:
            self.check_options(ModelRequest(EMPTY))
        except ValidationError as error:
            path = error.path.replace("$.options.", "$.")
            raise ValidationError(error.detail, path=path, rule=error.rule) from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ref.model_id}>"

    __reduce_ex__ = not_pickled("make it again by its name: palaver.model('openai:gpt-5')")

    # ── what a provider's module defines ──────────────────────────────────────────────────────────

    @abstractmethod
    def open_client(self, http_client: Any) -> ClientT:  # noqa: ANN401 - of the SDK's own library
        """Make the SDK's client; without an `http_client` it has its own."""

    @abstractmethod
    async def close_client(self, client: ClientT) -> None:
        """Close the SDK's client."""

    @abstractmethod
    def request_fields(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the fields of a request beside the conversation and the tools."""

    @abstractmethod
    async def send(self, client: ClientT, body: dict[str, Any]) -> object:
        """Request a complete answer."""

    @abstractmethod
    def send_stream(self, client: ClientT, body: dict[str, Any]) -> AsyncGenerator[object]:
        """Request a stream, and yield its events."""

    @abstractmethod
    def is_final(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event says that the answer is complete."""

    @abstractmethod
    def find_failure(self, event: Mapping[str, Any]) -> Failure | None:
        """Return the failure that an event reports, if it does."""

    @abstractmethod
    def classify_error(self, error: Exception) -> Failure | None:
        """Classify an error of the SDK; None if it is not one of its errors."""

    @abstractmethod
    def secrets(self, client: ClientT) -> Sequence[str | None]:
        """Return the keys that must not appear in any text."""

    # ── what every model does ─────────────────────────────────────────────────────────────────────

    def request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request: the conversation, the tools, the options and the extras."""
        request = self._with_defaults(request)
        body = {**request.body, **self.request_fields(request)}
        if request.tools:
            body["tools"] = write_tools(self.format, request.tools)
        return merge_fields(body, request.extra)

    def check_options(self, request: ModelRequest) -> None:
        """Raise `ValidationError` for options that this provider does not have."""
        self.request_fields(self._with_defaults(request))

    def _with_defaults(self, request: ModelRequest) -> ModelRequest:
        full = request.check().with_defaults(self.defaults)
        effort = full.options.get("effort")
        if effort is not None and effort not in self.efforts:
            detail = f"{self.provider} has no effort {effort!r}; it has {', '.join(self.efforts)}"
            raise ValidationError(detail, path="$.options.effort", rule="option")
        return full

    def tool_name(self, tool: str) -> str:
        """Return a tool's name as it is written in a request."""
        return spell_tool(self.format, tool)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Send a request and yield the provider's stream events as they arrive."""
        body = self.request(request)
        repeats = 0
        while True:
            arrived = ended = False
            try:
                async with aclosing(self.send_stream(await self._open(), body)) as events:
                    async for event in events:
                        checked = self._check(event)
                        arrived = True
                        ended = ended or self.is_final(checked)
                        yield checked
                self._check_complete(ended=ended)
                return  # noqa: TRY300 - the way out of the loop
            except Exception as error:  # noqa: BLE001 - classified and raised again
                wait = self._retry_wait(error, repeats, arrived=arrived)
            repeats += 1
            await anyio.sleep(wait)

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """Send a request and return the provider's complete answer."""
        body = self.request(request)
        repeats = 0
        while True:
            try:
                return self._check(await self.send(await self._open(), body))
            except Exception as error:  # noqa: BLE001 - classified and raised again
                wait = self._retry_wait(error, repeats, arrived=False)
            repeats += 1
            await anyio.sleep(wait)

    async def close(self) -> None:
        """Close the connections that were opened here; the next request opens new ones."""
        loop = _LOOP.get(None)
        current = None if loop is None else self._clients.pop(loop, None)
        if current is None:
            return
        shared = (self._given, self._given_http)
        if all(given is None or callable(given) for given in shared):
            await self.close_client(current.client)
        if current.http_client is not None and callable(self._given_http):
            await current.http_client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> ClientT:
        loop = _LOOP.get(None)
        if loop is None:
            loop = _Loop()
            _LOOP.set(loop)
        if (opened := self._clients.get(loop)) is not None:
            return opened.client
        return await to_thread.run_sync(self._open_for, loop)  # reading certificates takes a while

    def _open_for(self, loop: _Loop) -> ClientT:
        with self._opening:
            if (opened := self._clients.get(loop)) is None:
                http_client = self._make("http_client", self._given_http, loop)
                client = self._make("client", self._given, loop)
                if client is None:
                    client = self.open_client(http_client)
                opened = self._clients[loop] = _Opened(client, http_client)
            return opened.client

    def _make(self, name: str, given: Any, loop: object) -> Any:  # noqa: ANN401 - a client
        """Return the client for this event loop: the caller's own, or what the function makes."""
        if given is None:
            return None
        if callable(given):
            made = given()
            if self._fits(name, made):
                return made
            detail = f"{name}() returned {describe_argument(made)}; expected {self._wanted(name)}"
            raise ModelError(detail, provider=self.provider)
        if self._loop not in (None, loop):
            detail = f"{name} was used in another event loop, where its connections are; "
            detail += f"give a function that makes one: {name}=lambda: {type(given).__name__}(…)"
            raise ModelError(detail, provider=self.provider)
        self._loop = loop
        return given

    def _fits(self, name: str, value: object) -> bool:
        if name == "client":
            return isinstance(value, self.clients)
        return any(
            base.__name__ == "AsyncClient" and base.__module__.split(".")[0] in self.http_packages
            for base in type(value).__mro__
        )

    def _wanted(self, name: str) -> str:
        if name == "client":
            names = list(dict.fromkeys(kind.__name__ for kind in self.clients))
            return f"{' or '.join(f'{kind}(…)' for kind in names)} of the provider's SDK"
        return " or ".join(f"{package}.AsyncClient(…)" for package in self.http_packages)

    def _check_given(self, name: str, value: object) -> None:
        if value is not None and not callable(value) and not self._fits(name, value):
            detail = f"must be {self._wanted(name)}, or a function that returns one, "
            detail += f"not {describe_argument(value)}"
            raise ValidationError(detail, path=f"$.{name}", rule="argument")

    def _check(self, event: object) -> Mapping[str, Any]:
        if not is_object(event):
            raise BadAnswer("what came is not a JSON object", provider=self.provider)
        failure = self.find_failure(event)
        if failure is not None:
            raise _ReportedFailure(failure)
        return event

    def _check_complete(self, *, ended: bool) -> None:
        if not ended:
            raise BadAnswer("the answer broke off", provider=self.provider)

    def _retry_wait(self, error: Exception, repeats: int, *, arrived: bool) -> float:
        """Return the seconds to wait before a repeat; raise the error if there is no repeat."""
        failure = self._failure(error)
        if failure is None:
            raise error
        typed = failure.error
        if arrived and isinstance(typed, NetworkError):
            typed = BadAnswer(f"the answer broke off: {typed.detail}", provider=self.provider)
        may_repeat = failure.retryable and not arrived
        wait = self.retries.wait(repeats, typed.retry_after) if may_repeat else None
        if wait is None:
            raise typed from None  # the SDK's own error may contain secrets
        report_retry(typed, wait)
        return wait

    def _failure(self, error: Exception) -> Failure | None:
        if isinstance(error, _ReportedFailure):
            failure: Failure | None = error.failure
        elif isinstance(error, ModelError):
            failure = Failure(error)
        else:
            failure = self.classify_error(error)
            failure = failure or transport_failure(error, self.provider, self.timeout)
            if failure is None and isinstance(error, ValueError):
                failure = bad_answer(self.provider, f"what came is not JSON: {error}")
        if failure is None:
            return None
        raw = failure.error
        text = scrub(raw.detail, self._secrets())
        clean = type(raw)(
            text, provider=raw.provider, status=raw.status, retry_after=raw.retry_after
        )
        return Failure(clean, failure.retryable)

    def _secrets(self) -> Sequence[str | None]:
        loop = _LOOP.get(None)
        opened = None if loop is None else self._clients.get(loop)
        found = () if opened is None else self.secrets(opened.client)
        return (self._api_key, *self.headers.values(), *found)


class _Opened(NamedTuple, Generic[ClientT]):
    """A client, and what it sends requests with, if given."""

    client: ClientT
    http_client: Any


def as_policy(retries: RetryPolicy | int | None) -> RetryPolicy:
    """Return how requests are repeated: `retries` is a policy, or how often.

    >>> as_policy(3).limit
    3
    """
    if retries is None:
        return RetryPolicy()
    if isinstance(retries, RetryPolicy):
        return retries
    if type(retries) is not int or retries < 0:
        detail = "must be a whole number from 0 on, or RetryPolicy(limit=…), not "
        raise ValidationError(
            detail + describe_argument(retries), path="$.retries", rule="argument"
        )
    return RetryPolicy(limit=retries)


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and bool(found.hostname)


def _check_headers(given: object) -> dict[str, str]:
    if given is None:
        return {}
    check_argument(given, Mapping, "$.default_headers", "an object, such as {'X-Team': 'tea'}")
    headers: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            detail = f"{describe_argument(name)} can't be the name of a header"
            raise ValidationError(detail, path="$.default_headers", rule="argument")
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            detail = "must be a text of printable ASCII characters"
            raise ValidationError(detail, path=f"$.default_headers.{name}", rule="argument")
        headers[name] = value
    return headers


def check_options(model: Model, tools: tuple[ToolSpec, ...], options: Mapping[str, Any]) -> None:
    """Raise `ValidationError` for options that a model of palaver refuses, before it is asked."""
    request = ModelRequest(EMPTY, tools, options=options)
    if isinstance(model, GeneratingModel):
        request.check()
        model.options(request)
    elif isinstance(model, ChecksOptions):
        model.check_options(request)


class _ReportedFailure(Exception):  # noqa: N818 - it never leaves this module
    """A failure that the provider reported inside a stream or an answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
