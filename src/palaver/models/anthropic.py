"""Anthropic Messages.

The API requires `max_tokens` in every request; the default is `MAX_TOKENS`. Every request has the
breakpoints of the prompt cache, unless the model was made with `cache=False`: the provider keeps
what was said for five minutes, or with `cache="1h"` for an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import anthropic
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.lib.vertex import AsyncAnthropicVertex

from palaver.errors import AuthError, ModelError, ValidationError
from palaver.messages.limits import describe_argument, is_list, is_object
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
from palaver.wire.anthropic.request import mark_breakpoints

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from anthropic._types import RequestOptions

    from palaver.models.base import ModelRequest

__all__ = ["MAX_TOKENS", "AnthropicModel"]

MAX_TOKENS: Final = 8_192
"""The default: below what every current model allows, and enough for almost any answer."""

_NAMES: Final = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_LIVES: Final = ("5m", "1h")
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_NEWER: Final = ("AsyncAnthropicBedrockMantle",)
"""Clients that the oldest SDK does not have; the others are derived from these."""
_SECRETS: Final = (
    *("api_key", "auth_token", "access_token"),
    *("aws_access_key", "aws_secret_key", "aws_session_token"),
)
"""Where the SDK's clients have their keys."""


class AnthropicModel(SdkModel[anthropic.AsyncAnthropic]):
    """A model behind Anthropic's Messages API."""

    provider: ClassVar[str] = "anthropic"
    format: str = "anthropic"
    clients: ClassVar[tuple[type, ...]] = (
        anthropic.AsyncAnthropic,
        AsyncAnthropicBedrock,
        AsyncAnthropicVertex,
        *(getattr(anthropic, name) for name in _NEWER if hasattr(anthropic, name)),
    )
    efforts: ClassVar[Sequence[str]] = ("low", "medium", "high", "xhigh", "max")

    def __init__(self, name: str, *, cache: bool | str = True, **rest: Any) -> None:  # noqa: ANN401 - SdkModel advice which
        """Take the options of every model, and how the prompt cache is used: `5m`, `1h` or not."""
        if type(cache) is not bool and cache not in _LIVES:
            detail = f"must be True or False, '5m' or '1h', not {describe_argument(cache)}"
            raise ValidationError(detail, path="$.cache", rule="argument")
        self.cache = cache
        super().__init__(name, **rest)

    def request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request, with breakpoints unless `extra` has one of its own."""
        body = super().request(request)
        if self.cache is False or "cache_control" in body or not body.get("messages"):
            return body
        ttl = self.cache if isinstance(self.cache, str) else "5m"
        grows = bool(request.cache_key)  # it is one of a conversation's requests
        return mark_breakpoints(body, compacted=request.compacted, ttl=ttl, grows=grows)

    def open_client(self, http_client: Any) -> anthropic.AsyncAnthropic:  # noqa: ANN401 - as the SDK takes it
        """Make the SDK's client; the key is read from ANTHROPIC_API_KEY."""
        client = anthropic.AsyncAnthropic(
            api_key=self._api_key, base_url=self.base_url, http_client=http_client
        )
        if not (client.api_key or client.auth_token or client.credentials):
            raise AuthError(
                "there is no key: set ANTHROPIC_API_KEY, or give api_key=…", provider=self.provider
            )
        return client

    async def close_client(self, client: anthropic.AsyncAnthropic) -> None:
        """Close the SDK's client."""
        await client.close()

    def request_fields(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the model's name and the options."""
        settings = request.settings
        fields: dict[str, Any] = {"model": self.ref.model_id, "max_tokens": MAX_TOKENS}
        fields.update({_NAMES[name]: settings[name] for name in _NAMES if name in settings})
        if "stop" in settings:
            stop = settings["stop"]
            fields["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
        output: dict[str, Any] = {}
        if "effort" in settings:
            output["effort"] = settings["effort"]
        if "schema" in settings:
            output["format"] = {"type": "json_schema", "schema": _closed(settings["schema"])}
        if output:
            fields["output_config"] = output
        choice = settings.get("tool_choice")
        if choice in _CHOICES:
            if request.tools:
                fields["tool_choice"] = {"type": _CHOICES[choice]}
        elif choice is not None:
            fields["tool_choice"] = {"type": "tool", "name": self.tool_name(choice)}
        return fields

    async def send(self, client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> object:
        """Request a complete answer."""
        return await client.post("/v1/messages", cast_to=object, body=body, options=self._http())

    async def send_stream(
        self, client: anthropic.AsyncAnthropic, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Request a stream, and yield its events."""
        async with await client.post(
            "/v1/messages",
            cast_to=object,
            body={**body, "stream": True},
            options=self._http(),
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        ) as events:
            async for event in events:
                yield event

    def _http(self) -> RequestOptions:
        """Return what belongs to every request, also of a client that the caller has set up."""
        found: RequestOptions = {"max_retries": 0, "headers": self.headers}
        if self.timeout is not None:
            connect = min(CONNECT_SECONDS, self.timeout)
            found["timeout"] = anthropic.Timeout(self.timeout, connect=connect)
        return found

    def is_final(self, event: Mapping[str, Any]) -> bool:
        """Tell whether this is `message_stop`."""
        return event.get("type") == "message_stop"

    def find_failure(self, event: Mapping[str, Any]) -> Failure | None:
        """Find an answer of type `error`; inside a stream the SDK raises it."""
        if event.get("type") != "error":
            return None
        text, code = read_error_body(event)
        return classify(ErrorReply(self.provider, None, text, code))

    def secrets(self, client: anthropic.AsyncAnthropic) -> Sequence[str | None]:
        """Return the key, or what a client of a cloud has in its place."""
        return [getattr(client, name, None) for name in _SECRETS]

    def classify_error(self, error: Exception) -> Failure | None:
        """Classify an error of the SDK."""
        if isinstance(error, anthropic.APITimeoutError):
            return timed_out(self.provider, self.timeout)
        if isinstance(error, anthropic.APIStatusError):
            text, code = read_error_body(error.body)
            headers = error.response.headers
            advice = headers.get("x-should-retry")
            retryable = advice == "true" if advice in ("true", "false") else None
            # inside a stream the status is that of the stream, which had begun with success
            status = None if error.status_code < 400 else error.status_code  # noqa: PLR2004
            reported = text or error.message
            return classify(
                ErrorReply(self.provider, status, reported, code, retry_after(headers), retryable)
            )
        if isinstance(error, anthropic.APIConnectionError):
            return connection_failed(self.provider, error)
        return _other_failure(error, self.provider)


def _other_failure(error: Exception, provider: str) -> Failure | None:
    """Classify an error of the SDK that no request has had."""
    missing = None
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("boto"):
        missing = "bedrock"
    elif type(error).__name__ == "MissingDependencyError":  # the SDK has no public name for it
        missing = "vertex"
    if missing is not None:
        detail = f"this client needs more packages: pip install 'palaver[{missing}]'"
        return Failure(ModelError(detail, provider=provider))
    if isinstance(error, anthropic.CredentialsError):
        return Failure(AuthError(str(error), provider=provider))
    if isinstance(error, anthropic.AnthropicError):
        return bad_answer(provider, str(error))
    return None


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as Anthropic takes it: with closed objects, and limits as descriptions."""
    where = _open_object(schema, "$.options.schema")
    if where is not None:
        detail = "Anthropic takes objects with named fields only; use a type with fields, or a list"
        raise ValidationError(detail, path=where, rule="option")
    try:
        return anthropic.transform_schema(schema)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        detail = f"Anthropic can't hold a model to this schema: {error}"
        raise ValidationError(detail, path="$.options.schema", rule="option") from None


def _open_object(schema: object, path: str) -> str | None:
    """Return the path of an object of any fields: closed, it could only be empty."""
    if is_list(schema):
        inner = ((f"{path}[{index}]", value) for index, value in enumerate(schema))
    elif is_object(schema):
        some = schema.get("additionalProperties", "properties" not in schema)
        if schema.get("type") == "object" and some is not False:
            return path
        inner = ((f"{path}.{name}", value) for name, value in schema.items())
    else:
        return None
    return next((found for where, value in inner if (found := _open_object(value, where))), None)
