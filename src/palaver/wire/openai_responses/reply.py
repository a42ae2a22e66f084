"""Replies of OpenAI Responses: items that are announced, grow, and are repeated whole.

An item's id is only trusted when the item is done: then it is what the provider has stored, and
what it wants back. The item as repeated replaces what the pieces gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.limits import is_list, is_object
from palaver.wire.format import FileContent, TextContent, UnknownContent
from palaver.wire.openai_responses.blocks import (
    CALLS,
    ITEMS,
    call_metadata,
    read_item,
    read_reasoning,
)
from palaver.wire.reply import ReplyReader, split_tokens, token_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts
    from palaver.wire.reply import FinishReason

__all__ = ["ResponsesReply"]

_INNER: Final = 1_000_000
"""Where the reasoning itself begins: after all summaries of it."""
_GROWING: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "inner",
    "response.function_call_arguments.delta": "call",
    "response.custom_tool_call_input.delta": "call",
}
_QUIET: Final = (
    *("response.content_part.", "response.output_text.", "response.refusal."),
    *("response.reasoning_", "response.function_call_arguments.", "response.custom_tool_call_"),
    *("response.web_search_call.", "response.file_search_call.", "response.mcp_"),
    *("response.code_interpreter_call", "response.image_generation_call.", "response.audio."),
    *("response.shell_call", "response.compaction.", "keepalive"),
)
"""Events that say nothing beyond what the item says when it is done."""


class ResponsesReply(ReplyReader):
    """Reads one reply of Responses."""

    form: ClassVar[str] = "openai-responses"
    provider: ClassVar[str] = "openai"
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {
        "completed": "stop",
        "max_output_tokens": "length",
        "max_messages": "length",
        "content_filter": "content-filter",
        "failed": "error",
    }

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in ReplyReader
        """Start without reasoning."""
        super().__init__(**fields)
        self._reasoning_ids: dict[int, str] = {}

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read an event of a stream."""
        kind, place = event.get("type"), event.get("output_index")
        item, response = event.get("item"), event.get("response")
        place = place if type(place) is int else 0
        if kind in _GROWING:
            self._grow(_GROWING[str(kind)], place, event)
        elif kind == "response.output_item.added" and is_object(item):
            self._begin(item, place)
        elif kind == "response.output_item.done" and is_object(item):
            self._item(item, place)
        elif kind == "error":
            said = {"type": event.get("code"), "message": event.get("message")}
            self.add_error(event.get("error") or said)
        elif is_object(response):
            self._response(response)
        elif not str(kind).startswith(_QUIET):
            self.note_loss("event", "unknown-part", f"events of type {kind!r} are not understood")

    def read_body(self, body: Mapping[str, Any]) -> bool:
        """Read a response."""
        self._response(body)
        return self.finished and (is_list(body.get("output")) or bool(body.get("error")))

    @staticmethod
    def count_tokens(usage: Mapping[str, Any]) -> TokenCounts | None:
        """Input and output include the cached and the reasoning."""
        details = "input_tokens_details"
        return split_tokens(
            prompt=token_count(usage, "input_tokens"),
            completion=token_count(usage, "output_tokens"),
            total=token_count(usage, "total_tokens"),
            read=token_count(usage, details, "cached_tokens"),
            write=token_count(usage, details, "cache_write_tokens"),
            reasoning=token_count(usage, "output_tokens_details", "reasoning_tokens"),
        )

    def _response(self, response: Mapping[str, Any]) -> None:
        """Read the response so far; everything in it when it is over."""
        self.answer.model(response.get("model"))
        self.add_about(id=response.get("id"))
        status, output = response.get("status"), response.get("output")
        if status in ("queued", "in_progress"):
            return
        for place, item in enumerate(output if is_list(output) else ()):
            if is_object(item):
                self._item(item, place)
        self.add_usage(response.get("usage"))
        details = response.get("incomplete_details")
        reason = str(details.get("reason")) if is_object(details) else str(status)
        withheld = response.get("input_transformations")  # earlier reasoning the model didn't see
        self.add_about(finish=reason, inputTransformations=withheld)
        if status == "failed" or response.get("error"):
            error = response.get("error")
            found = error if is_object(error) else {"message": error}
            self.add_error({**found, "type": found.get("code") or "failed"})
        elif status in ("completed", "incomplete", "cancelled"):
            self.answer.finish("stop" if status == "completed" else self.finish_reason(reason))

    def _begin(self, item: Mapping[str, Any], place: int) -> None:
        """Begin an item that has only been announced: a call has its name at once."""
        if str(item.get("type")) in CALLS:
            name, call_id = item.get("name"), item.get("call_id")
            custom: dict[str, Any] = {"custom": True} if item["type"] == "custom_tool_call" else {}
            self.answer.call(
                (place, 0),
                call_id=call_id if isinstance(call_id, str) else None,
                name=name if isinstance(name, str) else None,
                **custom,
            )

    def _grow(self, kind: str, place: int, event: Mapping[str, Any]) -> None:
        piece = event.get("delta")
        piece = piece if isinstance(piece, str) else ""
        index = event.get("summary_index" if kind == "summary" else "content_index")
        index = index if type(index) is int else 0
        if kind == "text":
            self.answer.text((place, index), piece)
        elif kind == "refusal":
            self.answer.text((place, index), piece, refusal=True)
        elif kind == "summary":
            self.answer.reasoning((place, index), piece)
        elif kind == "inner":
            self.answer.reasoning((place, _INNER + index), piece, content=True)
        else:
            self.answer.call((place, 0), piece=piece)

    def _item(self, item: Mapping[str, Any], place: int) -> None:
        """Read an item that is done."""
        kind = str(item.get("type"))
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind in CALLS:
            self._begin(item, place)
            self.answer.call((place, 0), **call_metadata(item, self._after(place)))
            raw = item.get(CALLS[kind])
            self.answer.settle((place, 0), raw if isinstance(raw, str) else "")
            if item.get("status") not in ("in_progress", "incomplete"):
                self.answer.ready((place, 0))
        elif kind in ITEMS:
            after = self._after(place)
            self.answer.unknown((place, 0), item, **({"after": after} if after else {}))
        else:
            self.note_loss("output", "unknown-part", f"items of type {kind!r} are not understood")

    def _message(self, item: Mapping[str, Any], place: int) -> None:
        for index, found in enumerate(read_item(item, self._after(place))):
            key = (place, index)
            if isinstance(found, TextContent):
                self.answer.text(key, "", **found.metadata)
                self.answer.settle(key, found.text)
            elif isinstance(found, FileContent):
                self.answer.file(key, found.mime, found.url)
            elif isinstance(found, UnknownContent):
                self.answer.unknown(key, found.block)

    def _reasoning(self, item: Mapping[str, Any], place: int) -> None:
        name = item.get("id")
        if isinstance(name, str):
            self._reasoning_ids[place] = name
        counts = {False: 0, True: 0}  # of summaries, and of the reasoning itself
        for found in read_reasoning(item):
            inner = found.metadata.get("content") is True
            key = (place, counts[inner] + (_INNER if inner else 0))
            counts[inner] += 1
            self.answer.reasoning(key, "", **found.metadata)
            self.answer.settle(key, found.text)

    def _after(self, place: int) -> str | None:
        """Return the id of the reasoning that an item came after."""
        before = [index for index in self._reasoning_ids if index < place]
        return self._reasoning_ids[max(before)] if before else None
