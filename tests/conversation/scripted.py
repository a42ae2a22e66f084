"""A model that says what it is told to, in OpenAI's stream events, and remembers what it was asked.

For tests of what a conversation does with answers; the provider's own SDKs are tested elsewhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from palaver.messages import ModelRef
from palaver.wire import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.models.base import ModelRequest

__all__ = ["Scripted", "calling", "saying"]

Events = list[Any]


def saying(*pieces: str, used: tuple[int, int] | None = (10, 3), finish: str = "stop") -> Events:
    """An answer of these pieces of text; `used` are prompt and completion tokens."""
    events: Events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return [*events, *_end(finish, used)]


def calling(*calls: tuple[str, Any], text: str = "", used: tuple[int, int] | None = None) -> Events:
    """An answer that calls tools: names and arguments, an object or the text itself."""
    made = [
        {
            "index": index,
            "id": f"call_{index}",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for index, (name, given) in enumerate(calls)
    ]
    events = [{"choices": [{"delta": {"content": text}}]}] if text else []
    return [*events, {"choices": [{"delta": {"tool_calls": made}}]}, *_end("tool_calls", used)]


def _end(finish: str, used: tuple[int, int] | None) -> Events:
    events: Events = [{"choices": [{"delta": {}, "finish_reason": finish}]}]
    if used is not None:
        prompt, completion = used
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        events.append({"choices": [], "usage": usage})
    return events


class Scripted:
    """Answers with one list of events a question; an exception in it is raised, None waits."""

    format = "openai-chat"
    window: int | None = 8_000

    def __init__(self, *answers: Events, name: str = "scripted") -> None:
        """Say these, one after the other."""
        self.ref = ModelRef("openai", name)
        self.target = Target()
        self.asked: list[ModelRequest] = []
        self._answers = list(answers)

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Give the next answer's events."""
        self.asked.append(ask)
        event: Any
        for event in self._answers.pop(0):
            await anyio.lowlevel.checkpoint()
            if event is None:
                await anyio.sleep_forever()
            elif isinstance(event, BaseException):
                raise event
            else:
                yield event

    async def complete(self, ask: ModelRequest) -> Mapping[str, Any]:
        """Give the next answer whole: its text."""
        self.asked.append(ask)
        events = self._answers.pop(0)
        for event in events:
            if isinstance(event, BaseException):
                raise event
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        text = "".join(delta.get("content", "") for delta in deltas)
        message = {"role": "assistant", "content": text}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    async def close(self) -> None:
        """Nothing is open."""
