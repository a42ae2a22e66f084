"""OpenAI Chat Completions, and every server that speaks it: Ollama, vLLM, llama.cpp.

With a `base_url` a key is optional, for most of those servers want none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

import openai

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
from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from palaver.conversation.models.base import Ask

__all__ = ["OpenAIChat", "OpenAIModel"]

_NO_KEY: Final = "none"


class OpenAIModel(SdkModel[openai.AsyncOpenAI]):
    """What both of OpenAI's APIs have in common."""

    provider: ClassVar[str] = "openai"
    path: ClassVar[str]

    def open(self) -> openai.AsyncOpenAI:
        """Make the SDK's client; the key is in OPENAI_API_KEY."""
        key = self._api_key or os.environ.get("OPENAI_API_KEY") or None
        if key is None and self.base_url is not None:
            key = _NO_KEY
        if key is None:
            raise AuthError("there is no key: set OPENAI_API_KEY", provider=self.provider)
        return openai.AsyncOpenAI(
            api_key=key,
            base_url=self.base_url,
            timeout=openai.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout)),
            max_retries=0,
        )

    async def shut(self, client: openai.AsyncOpenAI) -> None:
        """Close the SDK's client."""
        await client.close()

    async def call(self, client: openai.AsyncOpenAI, body: dict[str, Any]) -> object:
        """Ask for a whole answer."""
        return await client.post(self.path, cast_to=object, body=body)

    async def events(
        self, client: openai.AsyncOpenAI, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Ask for a stream."""
        kind = openai.AsyncStream[object]
        async with await client.post(
            self.path, cast_to=object, body={**body, "stream": True}, stream=True, stream_cls=kind
        ) as events:
            async for event in events:
                yield event

    def secrets(self, client: openai.AsyncOpenAI) -> Sequence[str | None]:
        """The key."""
        return (client.api_key,)

    def explain(self, error: Exception) -> Failure | None:
        """What an error of the SDK means."""
        if isinstance(error, openai.APITimeoutError):
            return never_came(self.provider, self.timeout)
        if isinstance(error, openai.APIStatusError):
            words, code = words_of(error.body)
            headers = error.response.headers
            says = headers.get("x-should-retry")
            again = says == "true" if says in ("true", "false") else None
            wait = retry_after(headers)
            told = words or error.message
            return failure(
                Report(self.provider, error.status_code, told, error.code or code, wait, again)
            )
        if isinstance(error, openai.APIConnectionError):
            return unreachable(self.provider, str(error.__cause__ or error))
        if isinstance(error, openai.APIError):  # an error inside a stream
            _, code = words_of(error.body)
            return failure(Report(self.provider, None, error.message, error.code or code))
        return (
            bad_answer(self.provider, str(error)) if isinstance(error, openai.OpenAIError) else None
        )


class OpenAIChat(OpenAIModel):
    """A model behind Chat Completions."""

    path: ClassVar[str] = "/chat/completions"
    format: str = "openai-chat"

    def settings(self, ask: Ask) -> Mapping[str, Any]:
        """The model's name and the options."""
        wants = ask.wants
        fields: dict[str, Any] = {"model": self.ref.model_id}
        for name in ("temperature", "top_p", "stop"):
            if name in wants:
                fields[name] = wants[name]
        if "max_tokens" in wants:
            # OpenAI's newer models know only the new name, other servers often only the old one
            name = "max_completion_tokens" if self.base_url is None else "max_tokens"
            fields[name] = wants["max_tokens"]
        if "schema" in wants:
            form = {"name": "answer", "schema": wants["schema"]}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        choice = wants.get("tool_choice")
        if choice in ("auto", "none", "required"):
            fields["tool_choice"] = choice if ask.tools else None
        elif choice is not None:
            function = {"name": self.spelled(choice)}
            fields["tool_choice"] = {"type": "function", "function": function}
        return {name: value for name, value in fields.items() if value is not None}

    async def events(
        self, client: openai.AsyncOpenAI, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Ask for a stream that ends with the figures of usage."""
        counted = {"stream_options": {"include_usage": True}, **body}
        async for event in super().events(client, counted):
            yield event

    def ends(self, event: Mapping[str, Any]) -> bool:
        """The last choice says why it ended."""
        choices = event.get("choices")
        return is_list(choices) and any(
            is_object(choice) and choice.get("finish_reason") for choice in choices
        )

    def failed(self, event: Mapping[str, Any]) -> Failure | None:
        """Some servers answer 200 with an error inside."""
        if not is_object(event.get("error")):
            return None
        words, code = words_of(event)
        return failure(Report(self.provider, None, words, code))
