"""What a tool is: a description, a promise or two, and a call; and the toolbox that holds some.

A tool may come from a function, a JSON schema or an MCP server. It says itself whether it may run
again after a crash; the default is that it may not.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from palaver.errors import PalaverError, ToolUnreachable, ValidationError
from palaver.messages import FilePart, ToolCallPart
from palaver.messages.limits import EMPTY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.wire import ToolSpec

__all__ = [
    "Executor",
    "ReportProgress",
    "Tool",
    "ToolContext",
    "ToolMiddleware",
    "ToolOutput",
    "Toolbox",
    "import_object",
    "open_tools",
]


class ToolOutput(Struct, frozen=True):
    """What a tool returns: text for the model, and perhaps files."""

    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = EMPTY
    attachments: tuple[FilePart, ...] = ()


class ReportProgress(Protocol):
    """A function that reports the progress of a call: a title, and perhaps data."""

    def __call__(self, title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        """Report it."""
        ...


class ToolContext(Struct, frozen=True):
    """What a tool can learn about its call while it runs.

    `progress` reports how far the call is; it may be called from any thread.
    """

    conversation: str
    call: ToolCallPart
    progress: ReportProgress


@runtime_checkable
class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> ToolSpec:
        """Its name, its description, and a JSON schema of its arguments."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether it may run again when it is unknown whether it ran."""
        ...

    @property
    def timeout(self) -> float | None:
        """How many seconds it may take; None for the conversation's own limit."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run; what it raises becomes the call's error."""
        ...


Executor: TypeAlias = Callable[[ToolCallPart, ToolContext], Awaitable[ToolOutput]]
"""Runs any call in place of the tools, for engines that have tools of their own."""

ToolMiddleware: TypeAlias = Callable[
    [ToolCallPart, ToolContext, Callable[[ToolCallPart], Awaitable[ToolOutput]]],
    Awaitable[ToolOutput],
]
"""Wraps every call: it gets the call and a function that runs it, with its arguments or others.

The arguments that it chooses are recorded before the tool gets them. What it raises becomes the
call's error.
"""


class Toolbox(Mapping[str, Tool]):
    """Tools by name. Plain functions are taken too.

    >>> def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> list(Toolbox([add]))
    ['add']
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Take tools and functions; raise `ValidationError` for two of one name."""
        from palaver.tools.function import tool  # noqa: PLC0415 - it imports this module

        self._tools: dict[str, Tool] = {}
        for given in tools:
            found = given if isinstance(given, Tool) else tool(given)
            name = found.spec.name
            if name in self._tools:
                detail = f"there are two tools named {name!r}"
                raise ValidationError(detail, path="$.tools", rule="tool-definition")
            self._tools[name] = found

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions that a model gets."""
        return tuple(found.spec for found in self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of a name."""
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._tools)

    def __len__(self) -> int:
        """Return how many tools there are."""
        return len(self._tools)


def import_object(location: str) -> Any:  # noqa: ANN401 - whatever the module has
    """Import the object at `module:attribute`; modules of the current folder are found too.

    >>> import_object("math:sqrt")(9)
    3.0
    """
    module, colon, attribute = location.partition(":")
    if not (module and colon and attribute):
        detail = f"{location!r} must be MODULE:ATTR, as in my_tools:weather"
        raise ValidationError(detail, path="$.tools", rule="tool-definition")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as Python's own -m does it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the same
    value: Any = importlib.import_module(module)
    for step in attribute.split("."):
        value = getattr(value, step)
    return value


@asynccontextmanager
async def open_tools(sources: Iterable[object]) -> AsyncGenerator[list[Any]]:
    """Open sources of tools, and yield all their tools; the sources are closed at the end.

    A source is a tool, a function, a list or mapping of them, or an async context manager with
    `tools`, such as an `McpServer`. Raises `ToolUnreachable` if a source can't be opened.
    """
    async with AsyncExitStack() as stack:
        tools: list[Any] = []
        for value in sources:
            source: Any = value
            if hasattr(source, "__aenter__"):
                source = (await _enter(source, stack)).tools
            if isinstance(source, Mapping):
                tools += source.values()
            elif isinstance(source, Tool) or callable(source):
                tools.append(source)
            else:
                tools += source
        yield tools


async def _enter(source: Any, stack: AsyncExitStack) -> Any:  # noqa: ANN401 - a context manager
    try:
        return await stack.enter_async_context(source)
    except PalaverError:
        raise
    except Exception as error:
        name = getattr(source, "name", type(source).__name__)
        msg = f"{name}: {str(error) or type(error).__name__}"
        raise ToolUnreachable(msg) from error
