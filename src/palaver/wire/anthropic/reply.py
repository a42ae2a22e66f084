"""Replies of Anthropic Messages: blocks by index, each begun, grown and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from palaver.messages.codec import dump
from palaver.messages.limits import is_list, is_object
from palaver.wire.anthropic.blocks import read_block
from palaver.wire.format import CallContent, FileContent, ReasoningContent, TextContent
from palaver.wire.reply import ReplyReader, split_tokens, token_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts
    from palaver.wire.reply import FinishReason

__all__ = ["AnthropicReply"]


class AnthropicReply(ReplyReader):
    """Reads one reply of Messages."""

    form: ClassVar[str] = "anthropic"
    provider: ClassVar[str] = "anthropic"
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool-calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content-filter",
    }

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in ReplyReader
        """Start without blocks."""
        super().__init__(**fields)
        self._unknown: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._calls: dict[int, bool] = {}
        self._citations: dict[int, list[Any]] = {}

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read an event of a stream."""
        kind, index = event.get("type"), event.get("index")
        place = index if type(index) is int else 0
        block, delta = event.get("content_block"), event.get("delta")
        if kind == "content_block_delta" and is_object(delta):
            self._grow(delta, place)
        elif kind == "content_block_start" and is_object(block):
            self._begin_block(block, place, streamed=True)
        elif kind == "content_block_stop":
            self._end_block(place)
        elif kind == "message_start" and is_object(event.get("message")):
            self._begin(event["message"])
        elif kind == "message_delta":
            self.add_usage(event.get("usage"))
            self._end(delta if is_object(delta) else {})
        elif kind == "error":
            self.add_error(event.get("error"))
        elif kind not in ("ping", "message_stop"):
            self.note_loss("event", "unknown-part", f"events of type {kind!r} are not understood")

    def read_body(self, body: Mapping[str, Any]) -> bool:
        """Read a message."""
        if body.get("type") == "error":
            self.add_error(body.get("error"))
            return True
        if not is_list(body.get("content")):
            return False
        self._begin(body)
        self._end(body)
        return True

    @staticmethod
    def count_tokens(usage: Mapping[str, Any]) -> TokenCounts | None:
        """The input does not include the cached; the output includes the reasoning."""
        fresh, read = (token_count(usage, f"{name}input_tokens") for name in ("", "cache_read_"))
        write = token_count(usage, "cache_creation_input_tokens")
        if write is None:  # some gateways give only what was written for five minutes or an hour
            lives = (
                token_count(usage, "cache_creation", f"ephemeral_{life}_input_tokens")
                for life in ("5m", "1h")
            )
            write = sum(count or 0 for count in lives)
        return split_tokens(
            prompt=(fresh or 0) + (read or 0) + write,
            completion=token_count(usage, "output_tokens"),
            total=None,
            read=read,
            write=write,
            reasoning=token_count(usage, "output_tokens_details", "thinking_tokens"),
        )

    def _begin(self, message: Mapping[str, Any]) -> None:
        self.answer.model(message.get("model"))
        self.add_about(id=message.get("id"))
        content = message.get("content")
        for place, block in enumerate(content if is_list(content) else ()):
            if is_object(block):
                self._begin_block(block, place, streamed=False)
                self._end_block(place)
        self.add_usage(message.get("usage"))

    def _end(self, said: Mapping[str, Any]) -> None:
        reason, container = said.get("stop_reason"), said.get("container")
        self.add_about(stopDetails=said.get("stop_details"), stopSequence=said.get("stop_sequence"))
        if is_object(container):
            self.add_about(container=container.get("id"))
        if isinstance(reason, str):
            self.finish(reason)

    def _begin_block(self, block: Mapping[str, Any], place: int, *, streamed: bool) -> None:
        key, found = (place,), read_block(block)
        if isinstance(found, TextContent):
            self.answer.text(key, found.text)
            self._cite(found.metadata.get("citations"), place)
        elif isinstance(found, ReasoningContent):
            self.answer.reasoning(key, found.text, **found.metadata)
        elif isinstance(found, CallContent):
            given = found.arguments
            # a stream begins with an empty object and spells the arguments out afterwards
            empty = streamed and not given
            raw = "" if empty else given if isinstance(given, str) else dump(given).decode()
            self.answer.call(
                key, call_id=found.call_id, name=found.tool, piece=raw, **found.metadata
            )
            self._calls[place] = bool(raw)
        elif isinstance(found, FileContent):
            self.answer.file(key, found.mime, found.url)
        elif isinstance(block.get("type"), str):
            self._unknown[place] = (dict(block), [])
            self.answer.unknown(key, block)
        else:
            detail = "a block without a type is not understood"
            self.note_loss("content", "unknown-part", detail)

    def _grow(self, delta: Mapping[str, Any], place: int) -> None:
        kind, key = delta.get("type"), (place,)
        if kind == "text_delta":
            self.answer.text(key, _text(delta, "text"))
        elif kind == "thinking_delta":
            self.answer.reasoning(key, _text(delta, "thinking"))
        elif kind == "signature_delta":
            signature = _text(delta, "signature")
            self.answer.reasoning(key, "", **({"signature": signature} if signature else {}))
        elif kind == "citations_delta":
            self._cite([delta.get("citation")], place)
        elif kind == "input_json_delta" and place in self._unknown:
            self._unknown[place][1].append(_text(delta, "partial_json"))
        elif kind == "input_json_delta":
            piece = _text(delta, "partial_json")
            self.answer.call(key, piece=piece)
            self._calls[place] = self._calls.get(place, False) or bool(piece)
        else:
            self.note_loss("event", "unknown-part", f"pieces of type {kind!r} are not understood")

    def _end_block(self, place: int) -> None:
        """End a block: what came in pieces is put where it belongs."""
        if place in self._calls:
            if not self._calls[place]:
                self.answer.call((place,), piece="{}")
            self.answer.ready((place,))
        block, pieces = self._unknown.get(place, ({}, []))
        if pieces:
            try:
                block["input"] = msgspec.json.decode("".join(pieces))
            except msgspec.DecodeError:
                detail = "what a tool was called with is no JSON"
                self.note_loss("content", "call-arguments", detail)
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
