"""One answer of the model, as Claude Code writes it: over several lines, usage repeated on each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.messages.gate import EMPTY, MAX_INT
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef, TextPart
from palaver.wire.transcripts.blocks import FORMAT, blocks_of, put_block
from palaver.wire.transcripts.fields import count_in, name_in, object_in, text_in, token_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.transcripts.building import Conversation

__all__ = ["Answer"]

_SYNTHETIC: Final = "<synthetic>"
"""The model of an answer that the program wrote itself."""
_ELSEWHERE: Final = frozenset(("type", "role", "content", "model", "stop_reason"))


class Answer:
    """The lines of one answer, under way: later ones go on where earlier ones stopped."""

    def __init__(self, message_id: str, talk: Conversation, at: int) -> None:
        self.id = message_id
        self.calls: set[str] = set()
        self._talk = talk
        self._at = at
        self._sheet = talk.sheet(message_id)
        self._said: Mapping[str, Any] = EMPTY
        self._line: Mapping[str, Any] = EMPTY
        self._rest: dict[str, Any] = {}
        self._ended: int | None = None

    def take(
        self, line: Mapping[str, Any], said: Mapping[str, Any], at: int, rest: dict[str, Any]
    ) -> None:
        """Take one more line of it."""
        fields: dict[str, Any] = {}
        if text_in(said, "model") == _SYNTHETIC:
            fields["synthetic"] = True
        if line.get("isApiErrorMessage") is True:
            fields["ignored"] = True
        for block in blocks_of(said.get("content")):
            call = name_in(block, "id") if block.get("type") == "tool_use" else None
            if call is None or call not in self.calls:
                put_block(self._sheet, block, self._talk, at, **fields)
            if call is not None:
                self.calls.add(call)
        self._said, self._line = {**self._said, **_present(said)}, line
        self._rest = {**rest, **self._rest}  # the first line says where it hangs
        self._ended = at if text_in(said, "stop_reason") else self._ended

    def message(self) -> Message:
        """The whole answer."""
        model, usage = name_in(self._said, "model"), object_in(self._said, "usage")
        read = count_in(usage, "cache_read_input_tokens")
        write = count_in(usage, "cache_creation_input_tokens")
        prompt = count_in(usage, "input_tokens") + read + write
        cost = self._line.get("costUSD")
        error: Mapping[str, Any] | None = None
        if self._line.get("isApiErrorMessage") is True:
            texts = [part.text for part in self._sheet.parts if isinstance(part, TextPart)]
            error = {"name": "APIError", "message": "".join(texts)}
        info = AssistantInfo(
            model=ModelRef(FORMAT, model) if model and model != _SYNTHETIC else None,
            tokens=token_counts(prompt, count_in(usage, "output_tokens"), read=read, write=write),
            finish=text_in(self._said, "stop_reason") or None,
            completed=self._ended,
            cost=cost if isinstance(cost, int | float) and 0 < cost <= MAX_INT else None,
            error=error,
        )
        said = {name: item for name, item in self._said.items() if name not in _ELSEWHERE}
        rest = {**self._rest, "message": said} if said else self._rest
        return Message(
            "assistant",
            self._sheet.content,
            id=self.id,
            timestamp=self._at,
            info=info,
            metadata={"claude-code": rest} if rest else {},
        )


def _present(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in said.items() if item is not None}
