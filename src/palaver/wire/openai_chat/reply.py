"""Replies of OpenAI Chat Completions, and of the many servers that speak it in their own way.

A stream gives calls in pieces by `index`, and servers differ in what they leave out: the index, the
id, the last chunk's choices. Reasoning comes as `reasoning_content` or `reasoning`, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.limits import is_list, is_object
from palaver.wire.format import FileContent, ReasoningContent, TextContent
from palaver.wire.openai_chat.blocks import REASONING_FIELDS, read_block, written_arguments
from palaver.wire.reply import ReplyReader, split_tokens, token_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.message import Message
    from palaver.messages.parts import TokenCounts
    from palaver.wire.reply import FinishReason

__all__ = ["ChatReply"]

_REASONING, _TEXT, _REFUSAL, _AUDIO, _OTHER, _CALLS = range(6)
"""The order of an answer's blocks, which the format itself leaves open; `read_assistant` has it."""
_GROWING: Final = ("text", "summary", "data")
"""The fields of detailed reasoning that come in pieces."""


class _Pieces(list[str]):
    """A text that is still growing."""


class ChatReply(ReplyReader):
    """Reads one reply of Chat Completions: its first choice."""

    form: ClassVar[str] = "openai-chat"
    provider: ClassVar[str] = "openai"
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {
        "stop": "stop",
        "tool_calls": "tool-calls",
        "function_call": "tool-calls",
        "length": "length",
        "content_filter": "content-filter",
        "error": "error",
    }

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in ReplyReader
        """Start without calls."""
        super().__init__(**fields)
        self._ids: list[str] = []
        self._slots: dict[int, int] = {}
        self._details: list[dict[str, Any]] = []
        self._reasoning_field: str | None = None
        self._others = 0

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read a chunk of a stream."""
        self._read(event, "delta")

    def read_body(self, body: Mapping[str, Any]) -> bool:
        """Read a completion."""
        choices = body.get("choices")
        answered = is_list(choices) and any(
            is_object(choice) and is_object(choice.get("message")) for choice in choices
        )
        self._read(body, "message")
        return answered or self.finished

    @staticmethod
    def count_tokens(usage: Mapping[str, Any]) -> TokenCounts | None:
        """Prompt and completion include the cached and the reasoning, with most servers."""
        prompt = token_count(usage, "prompt_tokens")
        completion = token_count(usage, "completion_tokens")
        total = token_count(usage, "total_tokens")
        reasoning = token_count(usage, "completion_tokens_details", "reasoning_tokens") or 0
        known = prompt is not None and completion is not None
        details = "prompt_tokens_details"
        return split_tokens(
            prompt=prompt,
            completion=completion,
            total=total,
            read=token_count(usage, details, "cached_tokens")
            or token_count(usage, "prompt_cache_hit_tokens"),
            write=token_count(usage, details, "cache_write_tokens"),
            reasoning=reasoning,
            beside=known and total == (prompt or 0) + (completion or 0) + reasoning,
        )

    def message(self, *, interrupted: bool | None = None) -> Message:
        """Return the answer so far, with its detailed reasoning joined."""
        if self._details:
            joined = [
                {
                    key: "".join(value) if isinstance(value, _Pieces) else value
                    for key, value in detail.items()
                }
                for detail in self._details
            ]
            self.answer.reasoning((_REASONING,), "", details=joined)
        return super().message(interrupted=interrupted)

    def _read(self, body: Mapping[str, Any], field: str) -> None:
        self.answer.model(body.get("model"))
        self.add_about(id=body.get("id"))
        choices = body.get("choices")
        for choice in choices if is_list(choices) else ():
            if not is_object(choice):
                continue
            if choice.get("index") not in (None, 0):
                self.note_loss("choices", "choice", "only the first choice is kept")
                continue
            said = choice.get(field)
            if is_object(said):
                self._message(said, streamed=field == "delta")
            self.add_usage(choice.get("usage"))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self.finish(reason)
        self.add_usage(body.get("usage"))
        if body.get("error"):
            self.add_error(body["error"])

    def _message(self, said: Mapping[str, Any], *, streamed: bool) -> None:
        for field in REASONING_FIELDS:
            text = said.get(field)
            if isinstance(text, str) and text and self._reasoning_field in (None, field):
                self._reasoning_field = field  # some servers send the same twice
                self.answer.reasoning((_REASONING,), text, field=field)
                break
        self._reasoning_details(said.get("reasoning_details"))
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
        old_call = said.get("function_call")
        if is_object(old_call):
            self._call({"function": old_call}, 0)

    def _content(self, content: object) -> None:
        """Add the text; some servers send blocks, reasoning among them."""
        for block in content if is_list(content) else (content,):
            found = read_block(block) if is_object(block) else None
            if isinstance(block, str):
                self.answer.text((_TEXT,), block)
            elif isinstance(found, ReasoningContent):
                self.answer.reasoning((_REASONING,), found.text)
            elif isinstance(found, TextContent):
                key = _REFUSAL if "refusal" in found.metadata else _TEXT
                self.answer.text((key,), found.text, **found.metadata)
            elif isinstance(found, FileContent):
                self._others += 1
                self.answer.file((_OTHER, self._others), found.mime, found.url)
            elif is_object(block):
                self._others += 1
                self.answer.unknown((_OTHER, self._others), block)
            elif block is not None:
                detail = "a block of the answer is not understood"
                self.note_loss("content", "unknown-part", detail)

    def _reasoning_details(self, details: object) -> None:
        """Add reasoning that a router passes on in detail: pieces of one are joined."""
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
                    before = known.get(key)
                    pieces = before if isinstance(before, _Pieces) else _Pieces()
                    pieces.append(self.answer.cut_to_limit(value))
                    known[key] = pieces
                elif value is not None:
                    known[key] = value
        if self._details:
            self.answer.reasoning((_REASONING,), "")

    def _audio(self, audio: Mapping[str, Any]) -> None:
        """Add a spoken answer, which goes back by its id."""
        name, transcript = audio.get("id"), audio.get("transcript")
        if isinstance(name, str) and name:
            self.answer.unknown((_AUDIO, 1), {"audio": {"id": name}})
        if isinstance(transcript, str):
            self.answer.text((_AUDIO, 0), transcript, transcript=True)
        if audio.get("data"):
            self.note_loss("audio", "media", "the sound of a spoken answer is not kept")

    def _call(self, call: Mapping[str, Any], index: object) -> None:
        custom = is_object(call.get("custom"))
        called = call.get("custom" if custom else "function")
        called = called if is_object(called) else {}
        name, raw = called.get("name"), called.get("input" if custom else "arguments")
        own = call.get("id")
        given = own if isinstance(own, str) else ""
        named = isinstance(name, str) and bool(name)
        self.answer.call(
            (_CALLS, self._slot(index, given, named=named)),
            call_id=given,
            name=name if isinstance(name, str) else None,
            piece=raw if isinstance(raw, str) else written_arguments(raw),
            **({"custom": True} if custom else {}),
        )

    def _slot(self, index: object, given: str, *, named: bool) -> int:
        """Return which call a piece belongs to: that of its index, unless it has another's id.

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
