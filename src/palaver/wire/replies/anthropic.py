"""Replies of Anthropic Messages: blocks by index, each begun, grown and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from palaver.messages.gate import is_list, is_object
from palaver.messages.parts import CacheCounts, TokenCounts
from palaver.wire.replies.fold import Fold, count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.folding import Finish

__all__ = ["AnthropicFold"]

_FINISH: Final[dict[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}


class AnthropicFold(Fold):
    """Folds one reply of Messages."""

    form: ClassVar[str] = "anthropic"
    provider: ClassVar[str] = "anthropic"

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in Fold
        """Start with no blocks."""
        super().__init__(**fields)
        self._served: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._calls: dict[int, bool] = {}
        self._citations: dict[int, list[Any]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in an event."""
        kind, index = event.get("type"), event.get("index")
        place = index if type(index) is int else 0
        block, delta = event.get("content_block"), event.get("delta")
        if kind == "content_block_delta" and is_object(delta):
            self._grow(delta, place)
        elif kind == "content_block_start" and is_object(block):
            self._block(block, place, streamed=True)
        elif kind == "content_block_stop":
            self._end(place)
        elif kind == "message_start" and is_object(event.get("message")):
            self._begin(event["message"])
        elif kind == "message_delta":
            self.used(event.get("usage"))
            self._ended(delta if is_object(delta) else {})
        elif kind == "error":
            self.failed(event.get("error"))
        elif kind not in ("ping", "message_stop"):
            self.lost("event", "unknown-part", f"events of type {kind!r} are not understood")

    def take_whole(self, body: Mapping[str, Any]) -> bool:
        """Fold in a message."""
        if body.get("type") == "error":
            self.failed(body.get("error"))
            return True
        if not is_list(body.get("content")):
            return False
        self._begin(body)
        self._ended(body)
        return True

    def tokens(self, usage: Mapping[str, Any]) -> TokenCounts:
        """The input does not include the cached; the output includes the thought."""
        thought = count(usage, "output_tokens_details", "thinking_tokens")
        cache = CacheCounts(
            count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
        )
        said = max(count(usage, "output_tokens") - thought, 0)
        return TokenCounts(count(usage, "input_tokens"), said, thought, cache)

    def _begin(self, message: Mapping[str, Any]) -> None:
        self.answer.model(message.get("model"))
        self.about(id=message.get("id"))
        content = message.get("content")
        for place, block in enumerate(content if is_list(content) else ()):
            if is_object(block):
                self._block(block, place, streamed=False)
                self._end(place)
        self.used(message.get("usage"))

    def _ended(self, said: Mapping[str, Any]) -> None:
        reason, container = said.get("stop_reason"), said.get("container")
        self.about(stopDetails=said.get("stop_details"), stopSequence=said.get("stop_sequence"))
        if is_object(container):
            self.about(container=container.get("id"))
        if isinstance(reason, str):
            self.about(finish=reason)
            self.answer.finish(_FINISH.get(reason, "other"))

    def _block(self, block: Mapping[str, Any], place: int, *, streamed: bool) -> None:
        kind, key = block.get("type"), (place,)
        if kind == "text":
            self.answer.text(key, _text(block, "text"))
            self._cite(block.get("citations"), place)
        elif kind == "thinking":
            self.answer.reasoning(key, _text(block, "thinking"), **_signed(block))
        elif kind == "redacted_thinking":
            self.answer.reasoning(key, "", redacted=_text(block, "data"))
        elif kind == "tool_use":
            given = block.get("input")
            # a stream begins with an empty object and spells the arguments out afterwards
            raw = "" if streamed and not given else msgspec.json.encode(given or {}).decode()
            known = {name: block[name] for name in ("caller", "toolset_name") if block.get(name)}
            call_id, name = _text(block, "id"), _text(block, "name")
            self.answer.call(key, call_id=call_id, name=name, piece=raw, **known)
            self._calls[place] = bool(raw)
        elif isinstance(kind, str):
            self._served[place] = (dict(block), [])
            self.answer.unknown(key, block)
        else:
            self.lost("content", "unknown-part", "a block without a type is not understood")

    def _grow(self, delta: Mapping[str, Any], place: int) -> None:
        kind, key = delta.get("type"), (place,)
        if kind == "text_delta":
            self.answer.text(key, _text(delta, "text"))
        elif kind == "thinking_delta":
            self.answer.reasoning(key, _text(delta, "thinking"))
        elif kind == "signature_delta":
            self.answer.reasoning(key, "", **_signed(delta))
        elif kind == "citations_delta":
            self._cite([delta.get("citation")], place)
        elif kind == "input_json_delta" and place in self._served:
            self._served[place][1].append(_text(delta, "partial_json"))
        elif kind == "input_json_delta":
            piece = _text(delta, "partial_json")
            self.answer.call(key, piece=piece)
            self._calls[place] = self._calls.get(place, False) or bool(piece)
        else:
            self.lost("event", "unknown-part", f"pieces of type {kind!r} are not understood")

    def _end(self, place: int) -> None:
        """A block is whole: what was spelled out in pieces is put where it belongs."""
        if place in self._calls:
            if not self._calls[place]:
                self.answer.call((place,), piece="{}")
            self.answer.ready((place,))
        block, pieces = self._served.get(place, ({}, []))
        if pieces:
            try:
                block["input"] = msgspec.json.decode("".join(pieces))
            except msgspec.DecodeError:
                self.lost("content", "call-arguments", "what a tool was called with is no JSON")
            self.answer.unknown((place,), block)

    def _cite(self, citations: object, place: int) -> None:
        found = [one for one in citations if is_object(one)] if is_list(citations) else []
        if found:
            known = self._citations.setdefault(place, [])
            known.extend(found)
            self.answer.text((place,), "", citations=list(known))


def _text(block: Mapping[str, Any], field: str) -> str:
    found = block.get(field)
    return found if isinstance(found, str) else ""


def _signed(block: Mapping[str, Any]) -> dict[str, str]:
    signature = _text(block, "signature")
    return {"signature": signature} if signature else {}
