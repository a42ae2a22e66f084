"""OpenAI Responses, without OpenAI's memory: nothing is stored there, and reasoning comes back.

The conversation is palaver's to keep, so `store` is false, and reasoning is asked for in its
encrypted form, which is what the next request has to bring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.conversation.models.failures import Failure, Report, failure, words_of
from palaver.conversation.models.openai_chat import OpenAIModel
from palaver.errors import ValidationError
from palaver.messages.gate import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.conversation.models.base import Ask

__all__ = ["OpenAIResponses"]

_ENDS: Final = frozenset(("response.completed", "response.incomplete"))
_NAMES: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
}


class OpenAIResponses(OpenAIModel):
    """A model behind Responses."""

    path: ClassVar[str] = "/responses"
    format: str = "openai-responses"

    def settings(self, ask: Ask) -> Mapping[str, Any]:
        """The model's name and the options."""
        wants = ask.wants
        if "stop" in wants:
            detail = "the Responses API has no stop sequences"
            raise ValidationError(detail, path="$.options.stop", rule="option")
        fields: dict[str, Any] = {
            "model": self.ref.model_id,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        fields.update({_NAMES[name]: wants[name] for name in _NAMES if name in wants})
        if "schema" in wants:
            form = {"type": "json_schema", "name": "answer", "schema": wants["schema"]}
            fields["text"] = {"format": form}
        choice = wants.get("tool_choice")
        if choice in ("auto", "none", "required"):
            if ask.tools:
                fields["tool_choice"] = choice
        elif choice is not None:
            fields["tool_choice"] = {"type": "function", "name": self.spelled(choice)}
        return fields

    def ends(self, event: Mapping[str, Any]) -> bool:
        """The last event has the whole response."""
        return event.get("type") in _ENDS

    def failed(self, event: Mapping[str, Any]) -> Failure | None:
        """An event `error`, and a response that failed."""
        told: object = None
        if event.get("type") == "error":
            told = event.get("error") or {**event, "type": ""}
        elif event.get("type") == "response.failed":
            told = event.get("response")
        elif event.get("status") == "failed":
            told = event
        if not is_object(told):
            return None
        words, code = words_of(told)
        return failure(Report(self.provider, None, words, code))
