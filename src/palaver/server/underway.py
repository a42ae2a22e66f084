"""One step under way, as plain facts: what it is to do, which it is, how it can end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from palaver.conversation import Toolbox
from palaver.conversation.models.base import Model
from palaver.messages import new_id
from palaver.messages.gate import EMPTY
from palaver.messages.ids import now_ms
from palaver.server.drafts import Incoming, Piece
from palaver.server.problems import Refusal
from palaver.server.shelf import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import ToolCallPart

__all__ = ["Order", "Outcome", "Running", "Started"]

_STOPPED = "the step was stopped before the call was begun, and the call waits on"

Outcome: TypeAlias = Literal["answered", "calls", "waiting", "stopped", "failed", "done", "paused"]
"""How a step ended: with an answer, with calls that nobody was to run, with calls that a person has
to allow, stopped, failed; a team is done when a human has the floor, or is paused."""


class Order(Struct, frozen=True):
    """What a step is to do: whom to ask, with which tools, and whether to go on by itself."""

    model: Model
    name: str
    tools: Toolbox
    loop: bool = True
    options: Mapping[str, Any] = EMPTY

    def asked(self, calls: list[ToolCallPart], before: list[ToolCallPart]) -> Mapping[str, Any]:
        """The options of the next question, after these calls and those before them.

        A call that was demanded has been made, so none is any more. A model that makes the same
        calls again would do so for ever, and a small one that has been told once rarely does
        better the second time: they are asked for words.
        """
        if not calls:
            return self.options
        same = [_made(call) for call in calls] == [_made(call) for call in before]
        small = self.model.ref.provider_id == LOCAL
        if same or small or self.options.get("tool_choice") == "none":
            return {**self.options, "tool_choice": "none"}
        return {name: value for name, value in self.options.items() if name != "tool_choice"}


class Started(Struct, frozen=True):
    """A step has begun; None where the words were said, and answered, before."""

    step: str | None
    version: int


class Running:
    """A step under way."""

    def __init__(self, conversation: str, model: str | None, tell: Callable[..., None]) -> None:
        """Begin now."""
        self.id = new_id()
        self.conversation = conversation
        self.model = model
        self.since = now_ms()
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.taken = anyio.Event()  # a call that was settled is begun on disk, or never will be
        self.refusal: Exception | None = Refusal(409, _STOPPED)  # why not, until it is begun
        self.incoming = Incoming(self._piece)
        self._tell = tell

    def _piece(self, piece: Piece) -> None:
        self._tell("step.delta", {**self.names, **msgspec.to_builtins(piece)})

    @property
    def names(self) -> dict[str, Any]:
        """Which step this is, as events say it."""
        return {"conversation": self.conversation, "step": self.id}


def _made(call: ToolCallPart) -> tuple[str, str]:
    return call.tool, call.raw
