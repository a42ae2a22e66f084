"""Replies of Gemini: every event of a stream is a reply, whose parts go on where the last ended.

Neighbours of one kind are one part, except where a thought signature stands on one of them: that
belongs to just the part it came on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.wire.gemini_parts import SIGNATURE, camel_body
from palaver.wire.replies.fold import Fold, count, counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts
    from palaver.wire.folding import Finish

__all__ = ["GeminiFold"]

_BLOCKED: Final = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
    *("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
_BROKEN: Final = (
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    "MALFORMED_RESPONSE",
)
_FINISH: Final[dict[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_BLOCKED, "content-filter"),
    **dict.fromkeys(_BROKEN, "error"),
}


class GeminiFold(Fold):
    """Folds one reply of Gemini: its first candidate."""

    form: ClassVar[str] = "gemini"
    provider: ClassVar[str] = "google"

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in Fold
        """Start with no parts."""
        super().__init__(**fields)
        self._parts = 0
        self._open = ""

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in a reply, or a part of one."""
        self.answer.model(_of(event, "modelVersion"))
        self.about(id=_of(event, "responseId"))
        candidates = _of(event, "candidates")
        for place, candidate in enumerate(candidates if is_list(candidates) else ()):
            if not is_object(candidate):
                continue
            if candidate.get("index", place) not in (None, 0):
                self.lost("candidates", "choice", "only the first candidate is kept")
                continue
            self._candidate(candidate)
        self.used(_of(event, "usageMetadata"))
        feedback = _of(event, "promptFeedback")
        reason = _of(feedback, "blockReason") if is_object(feedback) else None
        if reason:
            self.about(finish=str(reason), blocked=_of(feedback, "blockReasonMessage"))
            self.answer.finish("content-filter")
        if event.get("error"):
            error = event["error"]
            known = {**error, "type": error.get("status")} if is_object(error) else error
            self.failed(known)

    def take_whole(self, body: Mapping[str, Any]) -> bool:
        """Fold in a reply."""
        self.take(body)
        return self.finished or bool(_of(body, "candidates"))

    def tokens(self, usage: Mapping[str, Any]) -> TokenCounts:
        """The prompt includes the cached; thoughts and what tools gave are counted apart."""

        def found(name: str) -> int:
            return count(usage, name) or count(usage, _snake(name))

        return counts(
            prompt=found("promptTokenCount") + found("toolUsePromptTokenCount"),
            read=found("cachedContentTokenCount"),
            write=0,
            output=found("candidatesTokenCount"),
            thought=found("thoughtsTokenCount"),
        )

    def _candidate(self, candidate: Mapping[str, Any]) -> None:
        content = candidate.get("content")
        if is_object(content):
            content = camel_body({"contents": [content]})["contents"][0]
            parts = content.get("parts")
            for part in parts if is_list(parts) else ():
                if is_object(part):
                    self._part(part)
        for name in ("groundingMetadata", "citationMetadata", "finishMessage"):
            self.about(**{name: _of(candidate, name)})
        reason = _of(candidate, "finishReason")
        if isinstance(reason, str) and reason != "FINISH_REASON_UNSPECIFIED":
            self.about(finish=reason)
            self.answer.finish(_FINISH.get(reason, "other"))

    def _part(self, part: Mapping[str, Any]) -> None:
        signature, text, call = part.get(SIGNATURE), part.get("text"), part.get("functionCall")
        kept = {SIGNATURE: signature} if isinstance(signature, str) and signature else {}
        if isinstance(text, str):
            self._said(text, kept, thought=part.get("thought") is True)
        elif is_object(call):
            self._call(call, kept)
        else:
            self._other(part)

    def _said(self, text: str, kept: dict[str, Any], *, thought: bool) -> None:
        kind = "thought" if thought else "text"
        if not text and not kept:
            return
        if kept or self._open != kind:
            self._next(kind if not kept else "")
        key = (self._parts,)
        (self.answer.reasoning if thought else self.answer.text)(key, text, **kept)

    def _call(self, call: Mapping[str, Any], kept: dict[str, Any]) -> None:
        name, own, given = call.get("name"), call.get("id"), call.get("args")
        if not isinstance(name, str) or not name:
            self.lost("parts", "call", "a call without a name is left out")
            return
        known = {"id": own} if isinstance(own, str) and own else {}
        self._next("")
        self.answer.call(
            (self._parts,),
            call_id=known.get("id") or new_id(),
            name=name,
            piece=msgspec.json.encode(given if is_object(given) else {}).decode(),
            **kept,
            **known,
        )
        self.answer.ready((self._parts,))

    def _other(self, part: Mapping[str, Any]) -> None:
        held = part.get("inlineData")
        self._next("")
        if is_object(held) and isinstance(held.get("data"), str) and SIGNATURE not in part:
            mime = str(held.get("mimeType") or "application/octet-stream")
            self.answer.file((self._parts,), mime, f"data:{mime};base64,{held['data']}")
        elif part:
            self.answer.unknown((self._parts,), part)

    def _next(self, kind: str) -> None:
        self._parts += 1
        self._open = kind


def _of(event: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - JSON
    """A field in camelCase, as the wire has it, or in snake_case, as Google's SDK prints it."""
    return event.get(name, event.get(_snake(name)))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
