"""Anthropic Messages.

The API requires `max_tokens` in every request; the default is `MAX_TOKENS`. With `cache=True` the
provider keeps the conversation up to its last message in its prompt cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import anthropic

from palaver.errors import AuthError
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

    from palaver.models.base import ModelRequest

__all__ = ["MAX_TOKENS", "AnthropicModel"]

MAX_TOKENS: Final = 8_192
"""The default: below what every current model allows, and enough for almost any answer."""

_NAMES: Final = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicModel(SdkModel[anthropic.AsyncAnthropic]):
    """A model behind Anthropic's Messages API."""

    provider: ClassVar[str] = "anthropic"
    format: str = "anthropic"

    def __init__(self, name: str, *, cache: bool = False, **rest: Any) -> None:  # noqa: ANN401 - SdkModel advice which
        """Take the options of every model, and whether the prompt cache is used."""
        super().__init__(name, **rest)
        self.cache = cache

    def open_client(self) -> anthropic.AsyncAnthropic:
        """Make the SDK's client; the key is read from ANTHROPIC_API_KEY."""
        client = anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self.base_url,
            timeout=anthropic.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout)),
            max_retries=0,
        )
        if not (client.api_key or client.auth_token or client.credentials):
            raise AuthError("there is no key: set ANTHROPIC_API_KEY", provider=self.provider)
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
        if "schema" in settings:
            fields["output_config"] = {
                "format": {"type": "json_schema", "schema": settings["schema"]}
            }
        choice = settings.get("tool_choice")
        if choice in _CHOICES:
            if request.tools:
                fields["tool_choice"] = {"type": _CHOICES[choice]}
        elif choice is not None:
            fields["tool_choice"] = {"type": "tool", "name": self.tool_name(choice)}
        if self.cache:
            fields["cache_control"] = {"type": "ephemeral"}
        return fields

    async def send(self, client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> object:
        """Request a complete answer."""
        return await client.post("/v1/messages", cast_to=object, body=body)

    async def send_stream(
        self, client: anthropic.AsyncAnthropic, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Request a stream, and yield its events."""
        kind = anthropic.AsyncStream[object]
        asked = {**body, "stream": True}
        async with await client.post(
            "/v1/messages", cast_to=object, body=asked, stream=True, stream_cls=kind
        ) as events:
            async for event in events:
                yield event

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
        """Return the key, or the token in its place."""
        return (client.api_key, client.auth_token)

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
            return connection_failed(self.provider, str(error.__cause__ or error))
        if isinstance(error, anthropic.CredentialsError):
            return Failure(AuthError(str(error), provider=self.provider))
        if isinstance(error, anthropic.AnthropicError):
            return bad_answer(self.provider, str(error))
        return None
