"""Tools that a team file names by their place."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from palaver.tools import tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(needs_approval=True, name="pay")
def slow_pay(amount: int) -> str:
    """Pay an amount, and take a while."""
    time.sleep(60)
    return f"paid {amount}"


@asynccontextmanager
async def _opened() -> AsyncGenerator[list[object]]:
    yield [weather]


one = weather
some = [weather]
table = {"weather": weather}
opened = _opened()
