"""Google Gemini, through google-genai.

The SDK's types cover only a part of what the API accepts, so the body is passed as `extra_body`,
which the SDK merges over its request. Answers are converted back to the API's JSON: bytes as
base64, names in camelCase. Fields that the installed SDK does not know are left out by it.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from google import genai
from google.genai import errors, types

from palaver.errors import AuthError
from palaver.messages.limits import is_list, is_object
from palaver.models.base import SdkModel, merge_fields
from palaver.models.errors import (
    ErrorReply,
    Failure,
    bad_answer,
    classify,
    read_error_body,
    retry_after,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from palaver.models.base import ModelRequest

__all__ = ["GeminiModel"]

_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_NAMES: Final = {"temperature": "temperature", "top_p": "topP", "max_tokens": "maxOutputTokens"}
_CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GeminiModel(SdkModel[genai.Client]):
    """A model behind Gemini's generateContent."""

    provider: ClassVar[str] = "google"
    format: str = "gemini"
    clients: ClassVar[tuple[type, ...]] = (genai.Client,)
    http_packages: ClassVar[tuple[str, ...]] = ("httpx2", "httpx")
    efforts: ClassVar[Sequence[str]] = ("minimal", "low", "medium", "high", "xhigh")

    def open_client(self, http_client: Any) -> genai.Client:  # noqa: ANN401 - as the SDK takes it
        """Make the SDK's client; the key is read from GEMINI_API_KEY or GOOGLE_API_KEY."""
        options = types.HttpOptions(base_url=self.base_url, httpx_async_client=http_client)
        # checked here, because a client that fails in its constructor is not closed
        known = (self._api_key, *map(os.environ.get, (*_KEYS, "GOOGLE_GENAI_USE_VERTEXAI")))
        if not any(known):
            raise AuthError(
                "there is no key: set GEMINI_API_KEY, or give api_key=…", provider=self.provider
            )
        try:
            return genai.Client(api_key=self._api_key, http_options=options)
        except ValueError as error:
            raise AuthError(str(error), provider=self.provider) from None

    async def close_client(self, client: genai.Client) -> None:
        """Close the SDK's client."""
        await client.aio.aclose()
        client.close()

    def request_fields(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the options; the model's name is in the URL."""
        settings = request.settings
        config = {_NAMES[name]: settings[name] for name in _NAMES if name in settings}
        if "stop" in settings:
            stop = settings["stop"]
            config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
        if "schema" in settings:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = settings["schema"]
        if "effort" in settings:
            config["thinkingConfig"] = {"thinkingLevel": settings["effort"].upper()}
        fields: dict[str, Any] = {"generationConfig": config} if config else {}
        choice = settings.get("tool_choice")
        if choice is not None and request.tools:
            calling: dict[str, Any] = {"mode": _CHOICES.get(choice, "ANY")}
            if choice not in _CHOICES:
                calling["allowedFunctionNames"] = [self.tool_name(choice)]
            fields["toolConfig"] = {"functionCallingConfig": calling}
        return fields

    async def send(self, client: genai.Client, body: dict[str, Any]) -> object:
        """Request a complete answer."""
        answer = await client.aio.models.generate_content(
            model=self.ref.model_id, contents="", config=self._config(body)
        )
        return _as_json(answer)

    async def send_stream(
        self, client: genai.Client, body: dict[str, Any]
    ) -> AsyncGenerator[object]:
        """Request a stream, and yield its events."""
        answers = await client.aio.models.generate_content_stream(
            model=self.ref.model_id, contents="", config=self._config(body)
        )
        async for answer in answers:
            yield _as_json(answer)

    def _config(self, body: Mapping[str, Any]) -> types.GenerateContentConfig:
        """Return the body, and what belongs to every request, also of a client of the caller's."""
        options = types.HttpOptions(
            extra_body=merge_fields({}, body),
            headers=self.headers,
            timeout=None if self.timeout is None else math.ceil(self.timeout * 1_000),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        return types.GenerateContentConfig(
            http_options=options,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )

    def is_final(self, event: Mapping[str, Any]) -> bool:
        """Tell whether a candidate has a finish reason, or the prompt was refused."""
        candidates = event.get("candidates")
        ended = is_list(candidates) and any(
            is_object(candidate) and candidate.get("finishReason") for candidate in candidates
        )
        return ended or "promptFeedback" in event

    def find_failure(self, event: Mapping[str, Any]) -> Failure | None:
        """Find a blocked prompt: it has no candidates."""
        feedback = event.get("promptFeedback")
        if not is_object(feedback) or event.get("candidates"):
            return None
        reason = feedback.get("blockReason")
        if not reason:
            return None
        text = str(feedback.get("blockReasonMessage") or f"the prompt was blocked: {reason}")
        return classify(ErrorReply(self.provider, 400, text, "content_filter"))

    def secrets(self, client: genai.Client) -> Sequence[str | None]:
        """Return the client's key, and those of the environment."""
        own: object = getattr(getattr(client, "_api_client", None), "api_key", None)
        return [own if isinstance(own, str) else None, *map(os.environ.get, _KEYS)]

    def classify_error(self, error: Exception) -> Failure | None:
        """Classify an error of the SDK."""
        if isinstance(error, errors.APIError):
            text, code = read_error_body(error.details)
            headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
            wait = retry_after(headers, error.details)
            return classify(ErrorReply(self.provider, error.code, text, code, wait))
        if isinstance(error, errors.UnknownApiResponseError):
            return bad_answer(self.provider, "what came is not JSON")
        return None


def _as_json(answer: types.GenerateContentResponse) -> object:
    fields = answer.model_dump(
        by_alias=True, exclude_none=True, exclude={"sdk_http_response", "parsed"}
    )
    return msgspec.to_builtins(fields)
