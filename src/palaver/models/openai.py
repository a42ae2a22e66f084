"""OpenAI's two APIs, Chat Completions and Responses, and every server that speaks one of them.

Ollama, vLLM and llama.cpp speak Chat Completions. With a `base_url` a key is optional, because most
of those servers need none. Responses is used without OpenAI's storage: `store` is false, and
reasoning is requested in its encrypted form, which the next request has to contain.
"""

from __future__ import annotations

import os
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Final

import openai

from palaver.errors import AuthError, ValidationError
from palaver.messages.limits import is_list, is_object
from palaver.models.base import CONNECT_SECONDS, SdkModel
from palaver.models.errors import (
    ErrorReply,
    Failure,
    bad_answer,
    classify,
    connection_failed,
    read_error_body,
    retry_after,
    timed_out,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from openai._types import RequestOptions

    from palaver.models.base import ModelRequest

__all__ = ["OpenAIChatModel", "OpenAIModel", "OpenAIResponsesModel"]


_NO_KEY: Final = "none"
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-.*)?")
_BREAKPOINTS_FROM: Final = (5, 6)
_TEXTS: Final = {"openai-chat": ("messages", "text"), "openai-responses": ("input", "input_text")}
"""The field of a format that holds the messages, and the type of a text in it."""
_FINAL_EVENTS: Final = frozenset(("response.completed", "response.incomplete"))
_RESPONSES_NAMES: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
}
_STRICT_FIELDS: Final = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf")
) | {"$ref", "$defs", "title", "description"}
"""The fields of a schema that OpenAI takes where it holds the model to it."""


class OpenAIModel(SdkModel[openai.AsyncOpenAI]):
    """The common part of OpenAI's two APIs."""

    provider: ClassVar[str] = "openai"
    path: ClassVar[str]
    clients: ClassVar[tuple[type, ...]] = (openai.AsyncOpenAI, openai.AsyncAzureOpenAI)
    http_packages: ClassVar[tuple[str, ...]] = ("httpx2", "httpx")

    def open_client(self, http_client: Any) -> openai.AsyncOpenAI:  # noqa: ANN401 - as the SDK takes it
        """Make the SDK's client; the key is read from OPENAI_API_KEY."""
        key = self._api_key or os.environ.get("OPENAI_API_KEY") or None
        if key is None and self._is_elsewhere():
            key = _NO_KEY
        if key is None:
            raise AuthError(
                "there is no key: set OPENAI_API_KEY, or give api_key=…", provider=self.provider
            )
        return openai.AsyncOpenAI(api_key=key, base_url=self.base_url, http_client=http_client)

    def _is_elsewhere(self) -> bool:
        """Tell whether another server than OpenAI's is asked; the SDK reads the variable too."""
        return bool(self.base_url or os.environ.get("OPENAI_BASE_URL"))

    def _is_openai(self) -> bool:
        """Tell whether OpenAI or Azure is asked, and no other server that speaks the protocol."""
        given = self._given
        if isinstance(given, openai.AsyncOpenAI):
            host = given.base_url.host
            return isinstance(given, openai.AsyncAzureOpenAI) or host.endswith("openai.com")
        return not self._is_elsewhere()

    def _cache_fields(self, request: ModelRequest) -> dict[str, Any]:
        """Return what brings a family to one prompt cache; other servers may refuse it."""
        key = request.cache_key if self._is_openai() else ""
        return {"prompt_cache_key": key} if key else {}

    def request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request; newer models are told where the system text ends.

        They find a prefix in the prompt cache only at a breakpoint, and set one by themselves at
        the newest message alone: after a compaction nothing would be found.
        """
        body = super().request(request)
        found = _GPT.fullmatch(self.ref.model_id)
        if found is None or (int(found[1]), int(found[2] or 0)) < _BREAKPOINTS_FROM:
            return body
        if isinstance(self._given, openai.AsyncAzureOpenAI) or not self._is_openai():
            return body
        field, kind = _TEXTS[self.format]
        items = body.get(field, ())
        systems = takewhile(lambda item: item.get("role") in ("system", "developer"), items)
        end = sum(1 for _ in systems)
        return body if not end else {**body, field: _with_breakpoint(items, end - 1, kind)}

    async def close_client(self, client: openai.AsyncOpenAI) -> None:
        """Close the SDK's client."""
        await client.close()

    async def send(self, client: openai.AsyncOpenAI, body: dict[str, Any]) -> object:
        """Request a complete answer."""
        return await client.post(self.path, cast_to=object, body=body, options=self._http())

    async def send_stream(
        self, client: openai.AsyncOpenAI, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Request a stream, and yield its events."""
        async with await client.post(
            self.path,
            cast_to=object,
            body={**body, "stream": True},
            options=self._http(),
            stream=True,
            stream_cls=openai.AsyncStream[object],
        ) as events:
            async for event in events:
                yield event

    def _http(self) -> RequestOptions:
        """Return what belongs to every request, also of a client that the caller has set up."""
        found: RequestOptions = {"max_retries": 0, "headers": self.headers}
        if self.timeout is not None:
            connect = min(CONNECT_SECONDS, self.timeout)
            found["timeout"] = openai.Timeout(self.timeout, connect=connect)
        return found

    def secrets(self, client: openai.AsyncOpenAI) -> Sequence[str | None]:
        """Return the key, or Azure's token in its place."""
        names = ("api_key", "_azure_ad_token")
        found = (getattr(client, name, None) for name in names)
        return [one for one in found if isinstance(one, str)]

    def classify_error(self, error: Exception) -> Failure | None:
        """Classify an error of the SDK."""
        if isinstance(error, openai.APITimeoutError):
            return timed_out(self.provider, self.timeout)
        if isinstance(error, openai.APIStatusError):
            text, code = read_error_body(error.body)
            headers = error.response.headers
            advice = headers.get("x-should-retry")
            retryable = advice == "true" if advice in ("true", "false") else None
            wait = retry_after(headers)
            reported = text or error.message
            return classify(
                ErrorReply(
                    self.provider, error.status_code, reported, error.code or code, wait, retryable
                )
            )
        if isinstance(error, openai.APIConnectionError):
            return connection_failed(self.provider, error)
        if isinstance(error, openai.APIError):  # an error inside a stream
            _, code = read_error_body(error.body)
            return classify(ErrorReply(self.provider, None, error.message, error.code or code))
        return (
            bad_answer(self.provider, str(error)) if isinstance(error, openai.OpenAIError) else None
        )


def _with_breakpoint(items: Sequence[Any], index: int, kind: str) -> list[Any]:
    """Return messages with a breakpoint of the prompt cache after the last text of one of them."""
    content = items[index]["content"]
    blocks: list[dict[str, Any]]
    blocks = [{"type": kind, "text": content}] if isinstance(content, str) else list(content)
    if blocks and blocks[-1].get("type") == kind:
        blocks[-1] = {**blocks[-1], "prompt_cache_breakpoint": {"mode": "explicit"}}
    return [*items[:index], {**items[index], "content": blocks}, *items[index + 1 :]]


class OpenAIChatModel(OpenAIModel):
    """A model behind Chat Completions."""

    path: ClassVar[str] = "/chat/completions"
    format: str = "openai-chat"

    def request_fields(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the model's name and the options."""
        settings = request.settings
        fields: dict[str, Any] = {"model": self.ref.model_id, **self._cache_fields(request)}
        for name in ("temperature", "top_p", "stop"):
            if name in settings:
                fields[name] = settings[name]
        if "max_tokens" in settings:
            # OpenAI's newer models know only the new name, other servers often only the old one
            name = "max_completion_tokens" if self._is_openai() else "max_tokens"
            fields[name] = settings["max_tokens"]
        if "effort" in settings:
            fields["reasoning_effort"] = settings["effort"]
        if "schema" in settings:
            form = _answer_format(settings["schema"])
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        choice = settings.get("tool_choice")
        if choice in ("auto", "none", "required"):
            fields["tool_choice"] = choice if request.tools else None
        elif choice is not None:
            function = {"name": self.tool_name(choice)}
            fields["tool_choice"] = {"type": "function", "function": function}
        return {name: value for name, value in fields.items() if value is not None}

    async def send_stream(
        self, client: openai.AsyncOpenAI, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Request a stream that ends with the token usage."""
        with_usage = {"stream_options": {"include_usage": True}, **body}
        async for event in super().send_stream(client, with_usage):
            yield event

    def is_final(self, event: Mapping[str, Any]) -> bool:
        """Tell whether a choice has a finish reason."""
        choices = event.get("choices")
        return is_list(choices) and any(
            is_object(choice) and choice.get("finish_reason") for choice in choices
        )

    def find_failure(self, event: Mapping[str, Any]) -> Failure | None:
        """Find an error in the body: some servers send it with status 200."""
        if not is_object(event.get("error")):
            return None
        text, code = read_error_body(event)
        return classify(ErrorReply(self.provider, None, text, code))


class OpenAIResponsesModel(OpenAIModel):
    """A model behind the Responses API."""

    path: ClassVar[str] = "/responses"
    format: str = "openai-responses"

    def request_fields(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the model's name and the options."""
        settings = request.settings
        if "stop" in settings:
            detail = "the Responses API has no stop sequences"
            raise ValidationError(detail, path="$.options.stop", rule="option")
        fields: dict[str, Any] = {
            "model": self.ref.model_id,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            **self._cache_fields(request),
        }
        fields.update(
            {
                _RESPONSES_NAMES[name]: settings[name]
                for name in _RESPONSES_NAMES
                if name in settings
            }
        )
        if "effort" in settings:
            fields["reasoning"] = {"effort": settings["effort"]}
        if "schema" in settings:
            form = _answer_format(settings["schema"])
            fields["text"] = {"format": {"type": "json_schema", **form}}
        choice = settings.get("tool_choice")
        if choice in ("auto", "none", "required"):
            if request.tools:
                fields["tool_choice"] = choice
        elif choice is not None:
            fields["tool_choice"] = {"type": "function", "name": self.tool_name(choice)}
        return fields

    def is_final(self, event: Mapping[str, Any]) -> bool:
        """Tell whether this is the event with the complete response."""
        return event.get("type") in _FINAL_EVENTS

    def find_failure(self, event: Mapping[str, Any]) -> Failure | None:
        """Find an event `error`, or a response that failed."""
        reported: object = None
        if event.get("type") == "error":
            reported = event.get("error") or {**event, "type": ""}
        elif event.get("type") == "response.failed":
            reported = event.get("response")
        elif event.get("status") == "failed":
            reported = event
        if not is_object(reported):
            return None
        text, code = read_error_body(reported)
        return classify(ErrorReply(self.provider, None, text, code))


# ── answers of a schema ─────────────────────────────────────────────────────────────────────────


def _answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of an answer; the model is held to the schema where that is possible.

    OpenAI does so where every field is required and every object has named fields only. Elsewhere
    a model is only told of the schema.
    """
    try:
        return {"name": "answer", "schema": _strict(schema), "strict": True}
    except _NotStrictError:
        return {"name": "answer", "schema": schema}


class _NotStrictError(Exception):
    """OpenAI would not hold a model to this schema, and refuse the request."""


def _strict(schema: object) -> dict[str, Any]:
    """Return a schema with its objects closed.

    >>> _strict({"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]})
    {'type': 'object', 'properties': {'a': {'enum': [1], 'type': 'integer'}}, ...}
    """
    if not is_object(schema) or not schema.keys() <= _STRICT_FIELDS:
        raise _NotStrictError
    found: dict[str, Any] = dict(schema)
    values = found.get("enum", ())
    for kind, name in ((str, "string"), (int, "integer")):
        if values and all(type(value) is kind for value in values):
            found.setdefault("type", name)
    _check_strict(found)
    if found.get("type") == "object":
        found["additionalProperties"] = False
    for field in ("properties", "$defs"):
        if field in found:
            found[field] = {name: _strict(value) for name, value in found[field].items()}
    if "items" in found:
        found["items"] = _strict(found["items"])
    if "anyOf" in found:
        found["anyOf"] = [_strict(one) for one in found["anyOf"]]
    return found


def _check_strict(schema: Mapping[str, Any]) -> None:
    """Raise an error if one level of a schema leaves something open."""
    kinds = schema.keys() & {"type", "anyOf", "$ref"}
    if len(kinds) != 1 or ("$ref" in kinds and schema.keys() - {"$ref"}):
        raise _NotStrictError
    if schema.get("type") == "object":
        named = schema.get("properties")
        if not is_object(named) or sorted(named) != sorted(schema.get("required", ())):
            raise _NotStrictError
        if schema.get("additionalProperties", False) is not False:
            raise _NotStrictError
    if schema.get("type") == "array" and "items" not in schema:
        raise _NotStrictError
    # objects among the variants may not begin with the same field
    variants = schema.get("anyOf", ())
    if sum(one.get("type", "object") == "object" for one in variants) > 1:
        raise _NotStrictError
