"""Tools by name: what a model is told of them, and which one a call means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from palaver.conversation.tools.base import Tool
from palaver.conversation.tools.function import tool
from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.wire.tools import ToolSpec

__all__ = ["Toolbox"]


class Toolbox(Mapping[str, Tool]):
    """Some tools. Functions are taken as they are.

    >>> def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> list(Toolbox([add]))
    ['add']
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Take tools and functions; two of one name are refused."""
        self._tools: dict[str, Tool] = {}
        for given in tools:
            found = given if isinstance(given, Tool) else tool(given)
            name = found.spec.name
            if name in self._tools:
                detail = f"there are two tools named {name!r}"
                raise ValidationError(detail, path="$.tools", rule="CV-05")
            self._tools[name] = found

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of them."""
        return tuple(found.spec for found in self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        """The tool of a name."""
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._tools)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._tools)
