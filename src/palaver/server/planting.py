"""What an example is written with: a clock that ticks, ids that follow from names, whole messages.

The same names give the same ids and times on every machine, so that docs and tests can speak of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    Message,
    ModelRef,
    ReasoningPart,
    StepFinishPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    complete,
    fail,
    pending,
    start,
)
from palaver.messages.ids import derived_id, uuid_for
from palaver.messages.parts import TextTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.messages import Part, Role

__all__ = ["Clock", "Scribe", "Used"]

_BEGAN: Final = 1_767_603_600_000
"""Monday, 5 January 2026, 9:00 in UTC: when the examples were said."""
_TOLD: Final = 7_000
_SECOND: Final = 1_000


class Clock:
    """Seven seconds later with every look.

    >>> clock = Clock()
    >>> first = clock()
    >>> clock() - first
    7000
    """

    def __init__(self) -> None:
        """Begin on a Monday morning."""
        self.now = _BEGAN

    def __call__(self) -> int:
        """The time, in milliseconds."""
        self.now += _TOLD
        return self.now


class Used:
    """Who answered, what it used and what that cost."""

    def __init__(
        self, provider: str, model: str, counts: tuple[int, int, int], cost: float
    ) -> None:
        """Take tokens in, out and thought, and dollars."""
        self.model = ModelRef(provider, model)
        self.tokens = TokenCounts(*counts, CacheCounts())
        self.cost = cost


class Scribe:
    """Writes the messages of one conversation."""

    def __init__(self, conversation: str, clock: Clock) -> None:
        """Write for a conversation of this id."""
        self._conversation = conversation
        self._session = uuid_for(conversation)
        self._clock = clock
        self._count = 0

    def say(self, role: Role, text: str, **fields: Any) -> Message:  # noqa: ANN401 - Message's own
        """Plain words."""
        return Message(role, text, id=self._next(), timestamp=self._clock(), **fields)

    def show(self, text: str, mime: str, url: str, filename: str) -> Message:
        """A user's words with a file."""
        message = self._next()
        words = TextPart(**self._ids(message, "text"), text=text)
        file = FilePart(**self._ids(message, "file"), mime=mime, url=url, filename=filename)
        return Message("user", (words, file), id=message, timestamp=self._clock())

    def answer(
        self,
        text: str,
        used: Used,
        *,
        thought: str = "",
        signed: dict[str, Any] | None = None,
        calls: Sequence[tuple[str, str, dict[str, Any]]] = (),
    ) -> Message:
        """An answer: what was thought, said and called (id, tool, input), and what it cost."""
        message, at = self._next(), self._clock()
        parts: list[Part] = []
        if thought:
            parts.append(
                ReasoningPart(
                    **self._ids(message, "thought"),
                    text=thought,
                    time=TextTime(at - 4 * _SECOND, at - 2 * _SECOND),
                    metadata=signed or {},
                )
            )
        if text:
            parts.append(TextPart(**self._ids(message, "text"), text=text))
        for call_id, tool, given in calls:
            raw = _json(given)
            ids = self._ids(message, call_id)
            parts.append(ToolCallPart(**ids, call_id=call_id, tool=tool, input=given, raw=raw))
        why = "tool-calls" if calls else "stop"
        finish = self._ids(message, "finish")
        parts.append(StepFinishPart(**finish, reason=why, tokens=used.tokens, cost=used.cost))
        info = AssistantInfo(
            model=used.model, cost=used.cost, tokens=used.tokens, completed=at, finish=why
        )
        return Message("assistant", tuple(parts), id=message, timestamp=at, info=info)

    def result(
        self, call_id: str, tool: str, given: dict[str, Any], output: str, *, failed: bool = False
    ) -> Message:
        """What became of a call."""
        message, at = self._next(), self._clock()
        running = start(pending(given, _json(given)), at=at - 2 * _SECOND)
        state = (
            fail(running, output, at=at) if failed else complete(running, output, tool=tool, at=at)
        )
        part = ToolPart(**self._ids(message, "state"), call_id=call_id, tool=tool, state=state)
        return Message("tool", (part,), id=message, timestamp=at)

    def _next(self) -> str:
        self._count += 1
        return derived_id(self._conversation, f"message {self._count}")

    def _ids(self, message: str, what: str) -> dict[str, Any]:
        part = derived_id(message, what)
        return {"id": part, "session_id": self._session, "message_id": message}


def _json(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
