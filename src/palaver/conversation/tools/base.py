"""What a tool is to a conversation: a description, a promise or two, and a call.

Where a tool comes from (a function, a JSON schema, an MCP server) is its own business. A tool says
whether it may run again after a crash; nobody assumes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from palaver.messages import FilePart, ToolCallPart
from palaver.messages.gate import EMPTY

if TYPE_CHECKING:
    from palaver.wire.tools import ToolSpec

__all__ = ["Around", "Executor", "Tool", "ToolContext", "ToolOutput"]


class ToolOutput(Struct, frozen=True):
    """What a tool gives back: text for the model, and perhaps files."""

    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = EMPTY
    attachments: tuple[FilePart, ...] = ()


class Tell(Protocol):
    """Tells whoever watches how far a call is: a title, and perhaps data beside it."""

    def __call__(self, title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        """Tell it."""
        ...


class ToolContext(Struct, frozen=True):
    """What a tool may want to know while it runs.

    `progress` tells whoever watches how far it is; it may be called from a thread.
    """

    conversation: str
    call: ToolCallPart
    progress: Tell


@runtime_checkable
class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> ToolSpec:
        """Its name, what it is for, and a JSON schema of its arguments."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether it may run again when nobody knows whether it ran."""
        ...

    @property
    def timeout(self) -> float | None:
        """How many seconds it may take; None for the conversation's own limit."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and do it; what it raises becomes the call's error."""
        ...


Executor: TypeAlias = Callable[[ToolCallPart, ToolContext], Awaitable[ToolOutput]]
"""Runs any call in place of the tools: for engines that have tools of their own."""

Around: TypeAlias = Callable[
    [ToolCallPart, ToolContext, Callable[[ToolCallPart], Awaitable[ToolOutput]]],
    Awaitable[ToolOutput],
]
"""Stands around every call: given the call and the way to run it, with its arguments or others.

The arguments that it chooses are recorded before the tool gets them. What it raises becomes the
call's error, and then no tool was touched.
"""
