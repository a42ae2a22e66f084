"""Anthropic Messages.

`max_tokens` has to be in every request there; unless one is asked for, it is `MAX_TOKENS`. With
`cache=True` the provider keeps the conversation up to its last message in its prompt cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import anthropic

from palaver.conversation.models.failures import (
    Failure,
    Report,
    bad_answer,
    failure,
    never_came,
    retry_after,
    unreachable,
    words_of,
)
from palaver.conversation.models.sdk import CONNECT_SECONDS, SdkModel
from palaver.errors import AuthError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from palaver.conversation.models.base import Ask

__all__ = ["MAX_TOKENS", "Anthropic"]

MAX_TOKENS: Final = 8_192
"""Below what every current model allows, and enough for almost any answer."""

_NAMES: Final = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class Anthropic(SdkModel[anthropic.AsyncAnthropic]):
    """A model behind Anthropic's Messages."""

    provider: ClassVar[str] = "anthropic"
    format: str = "anthropic"

    def __init__(self, name: str, *, cache: bool = False, **rest: Any) -> None:  # noqa: ANN401 - SdkModel says which
        """Take what every model takes, and whether the prompt cache is to be used."""
        super().__init__(name, **rest)
        self.cache = cache

    def open(self) -> anthropic.AsyncAnthropic:
        """Make the SDK's client; the key is in ANTHROPIC_API_KEY."""
        client = anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self.base_url,
            timeout=anthropic.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout)),
            max_retries=0,
        )
        if not (client.api_key or client.auth_token or client.credentials):
            raise AuthError("there is no key: set ANTHROPIC_API_KEY", provider=self.provider)
        return client

    async def shut(self, client: anthropic.AsyncAnthropic) -> None:
        """Close the SDK's client."""
        await client.close()

    def settings(self, ask: Ask) -> Mapping[str, Any]:
        """The model's name and the options."""
        wants = ask.wants
        fields: dict[str, Any] = {"model": self.ref.model_id, "max_tokens": MAX_TOKENS}
        fields.update({_NAMES[name]: wants[name] for name in _NAMES if name in wants})
        if "stop" in wants:
            stop = wants["stop"]
            fields["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
        if "schema" in wants:
            fields["output_config"] = {"format": {"type": "json_schema", "schema": wants["schema"]}}
        choice = wants.get("tool_choice")
        if choice in _CHOICES:
            if ask.tools:
                fields["tool_choice"] = {"type": _CHOICES[choice]}
        elif choice is not None:
            fields["tool_choice"] = {"type": "tool", "name": self.spelled(choice)}
        if self.cache:
            fields["cache_control"] = {"type": "ephemeral"}
        return fields

    async def call(self, client: anthropic.AsyncAnthropic, body: dict[str, Any]) -> object:
        """Ask for a whole answer."""
        return await client.post("/v1/messages", cast_to=object, body=body)

    async def events(
        self, client: anthropic.AsyncAnthropic, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Ask for a stream."""
        kind = anthropic.AsyncStream[object]
        asked = {**body, "stream": True}
        async with await client.post(
            "/v1/messages", cast_to=object, body=asked, stream=True, stream_cls=kind
        ) as events:
            async for event in events:
                yield event

    def ends(self, event: Mapping[str, Any]) -> bool:
        """The last event says so."""
        return event.get("type") == "message_stop"

    def failed(self, event: Mapping[str, Any]) -> Failure | None:
        """An answer of type `error`; inside a stream the SDK raises it."""
        if event.get("type") != "error":
            return None
        words, code = words_of(event)
        return failure(Report(self.provider, None, words, code))

    def secrets(self, client: anthropic.AsyncAnthropic) -> Sequence[str | None]:
        """The key, or the token in its place."""
        return (client.api_key, client.auth_token)

    def explain(self, error: Exception) -> Failure | None:
        """What an error of the SDK means."""
        if isinstance(error, anthropic.APITimeoutError):
            return never_came(self.provider, self.timeout)
        if isinstance(error, anthropic.APIStatusError):
            words, code = words_of(error.body)
            headers = error.response.headers
            says = headers.get("x-should-retry")
            again = says == "true" if says in ("true", "false") else None
            # inside a stream the status is that of the stream, which began well
            status = None if error.status_code < 400 else error.status_code  # noqa: PLR2004
            told = words or error.message
            return failure(Report(self.provider, status, told, code, retry_after(headers), again))
        if isinstance(error, anthropic.APIConnectionError):
            return unreachable(self.provider, str(error.__cause__ or error))
        if isinstance(error, anthropic.CredentialsError):
            return Failure(AuthError(str(error), provider=self.provider))
        if isinstance(error, anthropic.AnthropicError):
            return bad_answer(self.provider, str(error))
        return None
