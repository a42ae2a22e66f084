"""Replies of Gemini: every event of a stream is a reply, whose parts continue the last one.

Neighbours of one kind are one part, except where a thought signature is on one of them: that
belongs to just the part it came on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from palaver.messages.ids import new_id
from palaver.messages.limits import is_list, is_object
from palaver.wire.format import CallContent, FileContent, ReasoningContent, TextContent
from palaver.wire.gemini.blocks import SIGNATURE, camel_case, read_part
from palaver.wire.reply import ReplyReader, split_tokens, token_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts
    from palaver.wire.reply import FinishReason

__all__ = ["GeminiReply"]

_BLOCKED: Final = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
    *("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION", "MODEL_ARMOR"),
)
_BROKEN: Final = (
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    *("MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "PUP_LIMITED_DISABLED"),
)


class GeminiReply(ReplyReader):
    """Reads one reply of Gemini: its first candidate."""

    form: ClassVar[str] = "gemini"
    provider: ClassVar[str] = "google"
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        "CONTINUATION": "length",
        **dict.fromkeys(_BLOCKED, "content-filter"),
        **dict.fromkeys(_BROKEN, "error"),
    }

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in ReplyReader
        """Start without parts."""
        super().__init__(**fields)
        self._parts = 0
        self._open = ""

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read a reply, or a piece of one."""
        self.answer.model(_get(event, "modelVersion"))
        self.add_about(id=_get(event, "responseId"))
        candidates = _get(event, "candidates")
        for place, candidate in enumerate(candidates if is_list(candidates) else ()):
            if not is_object(candidate):
                continue
            if candidate.get("index", place) not in (None, 0):
                self.note_loss("candidates", "choice", "only the first candidate is kept")
                continue
            self._candidate(candidate)
        self.add_usage(_get(event, "usageMetadata"))
        feedback = _get(event, "promptFeedback")
        reason = _get(feedback, "blockReason") if is_object(feedback) else None
        if reason:
            self.add_about(finish=str(reason), blocked=_get(feedback, "blockReasonMessage"))
            self.answer.finish("content-filter")
        if event.get("error"):
            error = event["error"]
            self.add_error({**error, "type": error.get("status")} if is_object(error) else error)

    def read_body(self, body: Mapping[str, Any]) -> bool:
        """Read a whole reply."""
        self.read_event(body)
        return self.finished or bool(_get(body, "candidates"))

    @staticmethod
    def count_tokens(usage: Mapping[str, Any]) -> TokenCounts | None:
        """The prompt includes the cached; reasoning and what tools gave are counted apart."""

        def found(name: str) -> int | None:
            count = token_count(usage, name)
            return token_count(usage, _snake(name)) if count is None else count

        prompt, tools = found("promptTokenCount"), found("toolUsePromptTokenCount")
        return split_tokens(
            prompt=(prompt or 0) + tools if tools else prompt,
            completion=found("candidatesTokenCount"),
            total=found("totalTokenCount"),
            read=found("cachedContentTokenCount"),
            write=None,
            reasoning=found("thoughtsTokenCount"),
            beside=True,
        )

    def _candidate(self, candidate: Mapping[str, Any]) -> None:
        content = candidate.get("content")
        if is_object(content):
            content = camel_case({"contents": [content]})["contents"][0]
            parts = content.get("parts")
            for part in parts if is_list(parts) else ():
                if is_object(part):
                    self._part(part)
        for name in ("groundingMetadata", "citationMetadata", "finishMessage"):
            self.add_about(**{name: _get(candidate, name)})
        reason = _get(candidate, "finishReason")
        if isinstance(reason, str) and reason != "FINISH_REASON_UNSPECIFIED":
            self.finish(reason)

    def _part(self, part: Mapping[str, Any]) -> None:
        found = read_part(part)
        if isinstance(found, TextContent | ReasoningContent):
            self._text(found)
        elif isinstance(found, CallContent):
            self._call(found)
        elif "functionCall" in part and found is None:
            self.note_loss("parts", "call", "a call without a name is left out")
        elif part:
            self._next("")
            if isinstance(found, FileContent) and SIGNATURE not in part:
                self.answer.file((self._parts,), found.mime, found.url)
            else:
                self.answer.unknown((self._parts,), part)

    def _text(self, found: TextContent | ReasoningContent) -> None:
        kind, metadata = type(found).__name__, found.metadata
        if not found.text and not metadata:
            return
        if metadata or self._open != kind:
            self._next(kind if not metadata else "")
        reasons = isinstance(found, ReasoningContent)
        add = self.answer.reasoning if reasons else self.answer.text
        add((self._parts,), found.text, **metadata)

    def _call(self, call: CallContent) -> None:
        self._next("")
        self.answer.call(
            (self._parts,),
            call_id=call.call_id or new_id(),
            name=call.tool,
            piece=msgspec.json.encode(call.arguments).decode(),
            **call.metadata,
        )
        self.answer.ready((self._parts,))

    def _next(self, kind: str) -> None:
        self._parts += 1
        self._open = kind


def _get(event: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - JSON
    """Return a field in camelCase, as on the wire, or in snake_case, as Google's SDK prints it."""
    return event.get(name, event.get(_snake(name)))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
