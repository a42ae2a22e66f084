"""Replies of OpenAI Responses: items that are announced, grow, and are said once more whole.

An item is only trusted with its id when it is done: then it is what the provider has kept, and
what it wants back. What was said whole settles what the pieces gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.gate import is_list, is_object
from palaver.wire.items import CALLS, OTHERS, kept_of_call, kept_of_text, kept_of_thought
from palaver.wire.replies.fold import Fold, count, counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.parts import TokenCounts
    from palaver.wire.folding import Finish

__all__ = ["ResponsesFold"]

_FINISH: Final[dict[str, Finish]] = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "content_filter": "content-filter",
}
_INNER: Final = 1_000_000
"""Where the thoughts themselves stand: after all summaries of them."""
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
"""Events that say nothing which an item does not say when it is done."""


class ResponsesFold(Fold):
    """Folds one reply of Responses."""

    form: ClassVar[str] = "openai-responses"
    provider: ClassVar[str] = "openai"

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - as in Fold
        """Start with no thoughts."""
        super().__init__(**fields)
        self._thoughts: dict[int, str] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in an event."""
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
            self.failed(event.get("error") or said)
        elif is_object(response):
            self._response(response)
        elif not str(kind).startswith(_QUIET):
            self.lost("event", "unknown-part", f"events of type {kind!r} are not understood")

    def take_whole(self, body: Mapping[str, Any]) -> bool:
        """Fold in a response."""
        self._response(body)
        return self.finished and (is_list(body.get("output")) or bool(body.get("error")))

    def tokens(self, usage: Mapping[str, Any]) -> TokenCounts:
        """Input and output include the cached and the thought."""
        thought = count(usage, "output_tokens_details", "reasoning_tokens")
        return counts(
            prompt=count(usage, "input_tokens"),
            read=count(usage, "input_tokens_details", "cached_tokens"),
            write=count(usage, "input_tokens_details", "cache_write_tokens"),
            output=count(usage, "output_tokens") - thought,
            thought=thought,
        )

    def _response(self, response: Mapping[str, Any]) -> None:
        """The response as it stands; all that it has when it is over."""
        self.answer.model(response.get("model"))
        self.about(id=response.get("id"))
        status, output = response.get("status"), response.get("output")
        if status in ("queued", "in_progress"):
            return
        for place, item in enumerate(output if is_list(output) else ()):
            if is_object(item):
                self._item(item, place)
        self.used(response.get("usage"))
        details = response.get("incomplete_details")
        reason = str(details.get("reason")) if is_object(details) else str(status)
        self.about(finish=reason)
        if status == "failed" or response.get("error"):
            error = response.get("error")
            found = error if is_object(error) else {"message": error}
            self.failed({**found, "type": found.get("code") or "failed"})
        elif status == "completed":
            self.answer.finish("stop")
        elif status in ("incomplete", "cancelled"):
            self.answer.finish(_FINISH.get(reason, "other"))

    def _begin(self, item: Mapping[str, Any], place: int) -> None:
        """An item that has only been announced: a call has its name at once."""
        if item.get("type") in CALLS:
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
        """An item that is done."""
        kind = item.get("type")
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind in CALLS:
            self._begin(item, place)
            self.answer.call((place, 0), **kept_of_call(item, self._after(place)))
            raw = item.get(CALLS[str(kind)])
            self.answer.settle((place, 0), raw if isinstance(raw, str) else "")
            if item.get("status") not in ("in_progress", "incomplete"):
                self.answer.ready((place, 0))
        elif kind in OTHERS:
            after = self._after(place)
            self.answer.unknown((place, 0), item, **({"after": after} if after else {}))
        else:
            self.lost("output", "unknown-part", f"items of type {kind!r} are not understood")

    def _message(self, item: Mapping[str, Any], place: int) -> None:
        content = item.get("content")
        for index, block in enumerate(content if is_list(content) else ()):
            text = block.get("text", block.get("refusal")) if is_object(block) else None
            if isinstance(text, str):
                kept = kept_of_text(item, block, self._after(place))
                self.answer.text((place, index), "", **kept)
                self.answer.settle((place, index), text)
            else:
                self.lost("output", "unknown-part", "a block of the answer is not understood")

    def _reasoning(self, item: Mapping[str, Any], place: int) -> None:
        name, first = item.get("id"), True
        if isinstance(name, str):
            self._thoughts[place] = name
        for field, offset in (("summary", 0), ("content", _INNER)):
            blocks = item.get(field)
            for index, block in enumerate(blocks if is_list(blocks) else ()):
                text = block.get("text") if is_object(block) else None
                kept = kept_of_thought(item, first=first, inner=bool(offset))
                self.answer.reasoning((place, offset + index), "", **kept)
                self.answer.settle((place, offset + index), text if isinstance(text, str) else "")
                first = False
        if first:
            kept = kept_of_thought(item, first=True, inner=False)
            self.answer.reasoning((place, 0), "", **kept)

    def _after(self, place: int) -> str | None:
        """The reasoning that an item came after."""
        before = [index for index in self._thoughts if index < place]
        return self._thoughts[max(before)] if before else None
