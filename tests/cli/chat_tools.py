"""Tools for tests of `palaver chat`, found by their place."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.conversation import Toolbox, ToolContext, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.conversation import Tool


@tool
def weather(city: str, about: ToolContext) -> str:
    """The weather in a city."""
    about.progress(f"looking at {city}")
    return f"rain\nin {city}"


@tool
def slow() -> None:
    """Take a minute."""
    time.sleep(60)


@tool(needs_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def fails() -> None:
    """Fail."""
    raise ValueError("on\nfire")


every: list[Any] = [weather, slow, fails]
box = Toolbox(every)
table = {"a": weather}


class Served(NamedTuple):
    tools: tuple[Tool, ...]


@asynccontextmanager
async def _served() -> AsyncGenerator[Served]:
    yield Served((weather,))


server = _served()
"""Something that has to be opened first, as an MCP server has."""
