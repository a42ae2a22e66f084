"""The hook for whoever measures: a block around each question to a model and each tool call.

A block, because what happens inside (requests of the SDKs, a tool's own work) is to be seen as
part of it. By default nobody watches, and that costs nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from palaver.conversation.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.messages import Message, ToolCallPart, ToolState
    from palaver.wire.tools import ToolSpec

__all__ = ["UNWATCHED", "Watch"]


class Watch(Protocol):
    """Watches steps and calls; each block is told what came of it, unless it failed."""

    def step(
        self,
        conversation: Conversation,
        model: Model,
        tools: tuple[ToolSpec, ...],
        options: Mapping[str, Any],
        /,
    ) -> AbstractContextManager[Callable[[Message], None]]:
        """A block around one question to a model; told the answer."""
        ...

    def call(
        self, conversation: str, call: ToolCallPart, spec: ToolSpec | None, /
    ) -> AbstractContextManager[Callable[[ToolState], None]]:
        """A block around one tool call; told the state it ended in."""
        ...


class _Unwatched:
    """Nobody watches."""

    def step(self, *_: object) -> AbstractContextManager[Callable[[Message], None]]:
        return nullcontext(_ignore)

    def call(self, *_: object) -> AbstractContextManager[Callable[[ToolState], None]]:
        return nullcontext(_ignore)


def _ignore(_: object) -> None:
    """Nothing is done with it."""


UNWATCHED: Final[Watch] = _Unwatched()
"""What a conversation has unless it is given something else."""
