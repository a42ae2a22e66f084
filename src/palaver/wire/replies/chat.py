"""Replies of OpenAI Chat Completions, and of the many servers that speak it in their own way.

A stream gives calls in pieces by `index`, and servers differ in what they leave out: the index, the
id, the last chunk's choices. Thoughts come as `reasoning_content` or `reasoning`, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.gate import is_list, is_object
from palaver.wire.replies.fold import Fold, count, counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.message import Message
    from palaver.messages.parts import TokenCounts
    from palaver.wire.folding import Finish

__all__ = ["ChatFold"]

_FINISH: Final[dict[str, Finish]] = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "length",
    "content_filter": "content-filter",
    "error": "error",
}
_THOUGHT, _TEXT, _REFUSAL, _AUDIO, _CALLS = range(5)
"""The order of an answer's blocks, which the format itself leaves open."""
_GROWING: Final = ("text", "summary", "data")
"""The fields of a detailed thought that come in pieces."""


class _Pieces(list[str]):
    """A text that is still growing."""


class ChatFold(Fold):
    """Folds one reply of Chat Completions: its first choice."""

    form: ClassVar[str] = "openai-chat"
    provider: ClassVar[str] = "openai"

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in Fold
        """Start with no calls."""
        super().__init__(**fields)
        self._ids: list[str] = []
        self._slots: dict[int, int] = {}
        self._details: list[dict[str, Any]] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in a chunk."""
        self._reply(event, "delta")

    def take_whole(self, body: Mapping[str, Any]) -> bool:
        """Fold in a completion."""
        choices = body.get("choices")
        answered = is_list(choices) and any(
            is_object(choice) and is_object(choice.get("message")) for choice in choices
        )
        self._reply(body, "message")
        return answered or self.finished

    def tokens(self, usage: Mapping[str, Any]) -> TokenCounts:
        """Prompt and completion include the cached and the thought, with most servers."""
        prompt, said = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
        details = "prompt_tokens_details"
        thought = count(usage, "completion_tokens_details", "reasoning_tokens")
        beside = count(usage, "total_tokens") == prompt + said + thought
        return counts(
            prompt=prompt,
            read=count(usage, details, "cached_tokens") or count(usage, "prompt_cache_hit_tokens"),
            write=count(usage, details, "cache_write_tokens"),
            output=said if beside else said - thought,
            thought=thought,
        )

    def _reply(self, body: Mapping[str, Any], field: str) -> None:
        self.answer.model(body.get("model"))
        self.about(id=body.get("id"))
        choices = body.get("choices")
        for choice in choices if is_list(choices) else ():
            if not is_object(choice):
                continue
            if choice.get("index") not in (None, 0):
                self.lost("choices", "choice", "only the first choice is kept")
                continue
            said = choice.get(field)
            if is_object(said):
                self._said(said, streamed=field == "delta")
            self.used(choice.get("usage"))
            self._ended(choice.get("finish_reason"))
        self.used(body.get("usage"))
        if body.get("error"):
            self.failed(body["error"])

    def _ended(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self.about(finish=reason)
            self.answer.finish(_FINISH.get(reason, "other"))

    def _said(self, said: Mapping[str, Any], *, streamed: bool) -> None:
        for field in ("reasoning_content", "reasoning"):
            thought = said.get(field)
            if isinstance(thought, str) and thought:
                self.answer.reasoning((_THOUGHT,), thought, field=field)
                break
        self._detailed(said.get("reasoning_details"))
        self._content(said.get("content"))
        refusal, audio, calls = (said.get(key) for key in ("refusal", "audio", "tool_calls"))
        if isinstance(refusal, str) and refusal:
            self.answer.text((_REFUSAL,), refusal, refusal=True)
        if is_list(said.get("annotations")) and said["annotations"]:
            self.answer.text((_TEXT,), "", annotations=said["annotations"])
        if is_object(audio):
            self._audio(audio)
        for place, call in enumerate(calls if is_list(calls) else ()):
            if is_object(call):
                self._call(call, call.get("index") if streamed else place)
        old = said.get("function_call")
        if is_object(old):
            self._call({"function": old}, 0)

    def _content(self, content: object) -> None:
        """Words as text; some servers send blocks, thoughts among them."""
        for block in content if is_list(content) else (content,):
            if isinstance(block, str):
                self.answer.text((_TEXT,), block)
            elif is_object(block) and block.get("type") == "thinking":
                inner = block.get("thinking")
                for piece in inner if is_list(inner) else ():
                    text = piece.get("text") if is_object(piece) else None
                    self.answer.reasoning((_THOUGHT,), text if isinstance(text, str) else "")
            elif is_object(block) and isinstance(block.get("text"), str):
                self.answer.text((_TEXT,), block["text"])
            elif block is not None:
                self.lost("content", "unknown-part", "a block of the answer is not understood")

    def _detailed(self, details: object) -> None:
        """Thoughts that a router passes on in detail: pieces of one are joined."""
        for detail in details if is_list(details) else ():
            if not is_object(detail):
                continue
            same = (detail.get("type"), detail.get("index"))
            known = self._details[-1] if self._details else {}
            if detail.get("index") is None or same != (known.get("type"), known.get("index")):
                known = dict.fromkeys(detail)
                self._details.append(known)
            for key, value in detail.items():
                if key in _GROWING and isinstance(value, str):
                    held = known.get(key)
                    pieces = held if isinstance(held, _Pieces) else _Pieces()
                    pieces.append(self.answer.within(value))
                    known[key] = pieces
                elif value is not None:
                    known[key] = value
        if self._details:
            self.answer.reasoning((_THOUGHT,), "")

    def message(self, *, interrupted: bool | None = None) -> Message:
        """The answer so far, with its detailed thoughts joined."""
        if self._details:
            joined = [
                {
                    key: "".join(value) if isinstance(value, _Pieces) else value
                    for key, value in kept.items()
                }
                for kept in self._details
            ]
            self.answer.reasoning((_THOUGHT,), "", details=joined)
        return super().message(interrupted=interrupted)

    def _audio(self, audio: Mapping[str, Any]) -> None:
        """A spoken answer goes back by its id."""
        name, words = audio.get("id"), audio.get("transcript")
        if isinstance(name, str) and name:
            self.answer.unknown((_AUDIO,), {"audio": {"id": name}})
        if isinstance(words, str):
            self.answer.text((_TEXT,), words, transcript=True)
        if audio.get("data"):
            self.lost("audio", "media", "the sound of a spoken answer is not kept")

    def _call(self, call: Mapping[str, Any], index: object) -> None:
        custom = is_object(call.get("custom"))
        shape = call.get("custom" if custom else "function")
        shape = shape if is_object(shape) else {}
        name, raw = shape.get("name"), shape.get("input" if custom else "arguments")
        own = call.get("id")
        given = own if isinstance(own, str) else ""
        named = isinstance(name, str) and bool(name)
        self.answer.call(
            (_CALLS, self._slot(index, given, named=named)),
            call_id=given,
            name=name if isinstance(name, str) else None,
            piece=raw if isinstance(raw, str) else "",
            **({"custom": True} if custom else {}),
        )

    def _slot(self, index: object, given: str, *, named: bool) -> int:
        """Which call a piece belongs to: that of its index, unless it has another's id.

        Some servers send every call whole with the index 0, some send no index at all.
        """
        place = index if type(index) is int else None
        slot = self._slots.get(place) if place is not None else len(self._ids) - 1
        known = self._ids[slot] if slot is not None and slot >= 0 else None
        other = bool(given) and bool(known) and given != known
        if known is None or other or (place is None and named and not (given and given == known)):
            slot = len(self._ids)
            self._ids.append(given)
        else:
            slot = slot or 0
            self._ids[slot] = known or given
        if place is not None:
            self._slots[place] = slot
        return slot
