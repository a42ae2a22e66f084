"""Tools from outside: named as `module:attr`, and given as one, as many, or as a server of them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from palaver.conversation.tools.base import Tool
from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

__all__ = ["entered", "imported"]


def imported(place: str) -> Any:  # noqa: ANN401 - whatever the module has
    """What stands at `module:attr`; modules of the current folder are found too.

    >>> imported("math:sqrt")(9)
    3.0
    """
    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        detail = f"{place!r} must be MODULE:ATTR, as in my_tools:weather"
        raise ValidationError(detail, path="$.tools", rule="CV-05")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as Python's own -m does it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the same
    value: Any = importlib.import_module(module)
    for step in attribute.split("."):
        value = getattr(value, step)
    return value


@asynccontextmanager
async def entered(given: Iterable[object]) -> AsyncGenerator[list[Any]]:
    """Tools of all that was given: tools, functions, lists of them, servers that must be opened."""
    async with AsyncExitStack() as stack:
        tools: list[Any] = []
        for value in given:
            one: Any = value
            if hasattr(one, "__aenter__"):
                one = (await stack.enter_async_context(one)).tools
            if isinstance(one, Mapping):
                tools += one.values()
            elif isinstance(one, Tool) or callable(one):
                tools.append(one)
            else:
                tools += one
        yield tools
