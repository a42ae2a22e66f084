"""Google Gemini, through google-genai.

The SDK's own types are a part of what the API takes, so the body goes beside them
(`extra_body`, which the SDK lays over its request), and answers are written back as the API's
JSON: bytes as base64, names in camelCase. What the installed SDK does not know, it leaves out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from google import genai
from google.genai import errors, types

from palaver.conversation.models.base import merged
from palaver.conversation.models.failures import (
    Failure,
    Report,
    bad_answer,
    failure,
    retry_after,
    words_of,
)
from palaver.conversation.models.sdk import SdkModel
from palaver.errors import AuthError
from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from palaver.conversation.models.base import Ask

__all__ = ["Gemini"]

_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_NAMES: Final = {"temperature": "temperature", "top_p": "topP", "max_tokens": "maxOutputTokens"}
_CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class Gemini(SdkModel[genai.Client]):
    """A model behind Gemini's generateContent."""

    provider: ClassVar[str] = "google"
    format: str = "gemini"

    def open(self) -> genai.Client:
        """Make the SDK's client; the key is in GEMINI_API_KEY or GOOGLE_API_KEY."""
        options = types.HttpOptions(
            base_url=self.base_url,
            timeout=int(self.timeout * 1_000),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        # asked here, since a client that was refused leaves half of itself behind
        known = (self._api_key, *map(os.environ.get, (*_KEYS, "GOOGLE_GENAI_USE_VERTEXAI")))
        if not any(known):
            raise AuthError("there is no key: set GEMINI_API_KEY", provider=self.provider)
        try:
            return genai.Client(api_key=self._api_key, http_options=options)
        except ValueError as error:
            raise AuthError(str(error), provider=self.provider) from None

    async def shut(self, client: genai.Client) -> None:
        """Close the SDK's client."""
        await client.aio.aclose()
        client.close()

    def settings(self, ask: Ask) -> Mapping[str, Any]:
        """The options; the model's name is in the address."""
        wants = ask.wants
        config = {_NAMES[name]: wants[name] for name in _NAMES if name in wants}
        if "stop" in wants:
            stop = wants["stop"]
            config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
        if "schema" in wants:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = wants["schema"]
        fields: dict[str, Any] = {"generationConfig": config} if config else {}
        choice = wants.get("tool_choice")
        if choice is not None and ask.tools:
            calling: dict[str, Any] = {"mode": _CHOICES.get(choice, "ANY")}
            if choice not in _CHOICES:
                calling["allowedFunctionNames"] = [self.spelled(choice)]
            fields["toolConfig"] = {"functionCallingConfig": calling}
        return fields

    async def call(self, client: genai.Client, body: dict[str, Any]) -> object:
        """Ask for a whole answer."""
        answer = await client.aio.models.generate_content(
            model=self.ref.model_id, contents="", config=_beside(body)
        )
        return _as_json(answer)

    async def events(self, client: genai.Client, body: dict[str, Any]) -> AsyncGenerator[object]:
        """Ask for a stream."""
        answers = await client.aio.models.generate_content_stream(
            model=self.ref.model_id, contents="", config=_beside(body)
        )
        async for answer in answers:
            yield _as_json(answer)

    def ends(self, event: Mapping[str, Any]) -> bool:
        """A candidate says why it ended, or the prompt was refused."""
        candidates = event.get("candidates")
        ended = is_list(candidates) and any(
            is_object(candidate) and candidate.get("finishReason") for candidate in candidates
        )
        return ended or "promptFeedback" in event

    def failed(self, event: Mapping[str, Any]) -> Failure | None:
        """A prompt that was blocked has no candidates."""
        feedback = event.get("promptFeedback")
        if not is_object(feedback) or event.get("candidates"):
            return None
        reason = feedback.get("blockReason")
        if not reason:
            return None
        words = str(feedback.get("blockReasonMessage") or f"the prompt was blocked: {reason}")
        return failure(Report(self.provider, 400, words, "content_filter"))

    def secrets(self, client: genai.Client) -> Sequence[str | None]:
        """The key, wherever it came from."""
        del client
        return [os.environ.get(name) for name in _KEYS]

    def explain(self, error: Exception) -> Failure | None:
        """What an error of the SDK means."""
        if isinstance(error, errors.APIError):
            words, code = words_of(error.details)
            headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
            wait = retry_after(headers, error.details)
            return failure(Report(self.provider, error.code, words, code, wait))
        if isinstance(error, errors.UnknownApiResponseError):
            return bad_answer(self.provider, "what came is not JSON")
        return None


def _beside(body: Mapping[str, Any]) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(
        http_options=types.HttpOptions(extra_body=merged({}, body)),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )


def _as_json(answer: types.GenerateContentResponse) -> object:
    fields = answer.model_dump(
        by_alias=True, exclude_none=True, exclude={"sdk_http_response", "parsed"}
    )
    return msgspec.to_builtins(fields)
