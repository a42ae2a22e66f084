"""The tools that a server's conversations may use, and which of them a person allows first.

The ones built in are harmless: the time, sums, dice, and a search in this very store. The search
can bring words of one conversation into another, and from there to a provider, so it waits until
somebody has allowed it. Their schemas leave even a very small model, whose calls a grammar forces,
little to get wrong. Tools of one's own come beside them (`palaver serve --tools`).
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

import anyio
from msgspec import Meta

from palaver.conversation.tools import Tool, Toolbox, ToolContext, ToolOutput, tool
from palaver.errors import ToolFailed, ValidationError
from palaver.server.arithmetic import evaluate
from palaver.wire.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from palaver.messages import ToolCallPart
    from palaver.stores.store import Store

__all__ = ["AskFirst", "Toolroom", "built_in", "denied"]

_FOUND: Final = 5
_SUM: Final = Meta(pattern=r"^[-+*/%^().0-9 ]+$", max_length=80)
"""What a sum is written with. It has to end: a small model that may write a digit more does."""
_DICE: Final = 2
_ROLLING: Final = 1.0
"""How long a die rolls, in seconds: one after the other comes to rest, and can be watched."""


class AskFirst:
    """A tool that no model sets off alone: its calls wait until a person has allowed them.

    >>> from palaver.conversation.tools import tool
    >>> def send(text: str) -> str:
    ...     "Send a message."
    ...     return "sent"
    >>> AskFirst(tool(send)).spec.name
    'send'
    """

    def __init__(self, inner: Tool) -> None:
        """Guard a tool."""
        self.spec: ToolSpec = inner.spec
        self.idempotent: bool = inner.idempotent
        self.timeout: float | None = inner.timeout
        self._inner = inner

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it: it was allowed, or nobody would have called this."""
        return await self._inner.call(arguments, context)


class Toolroom:
    """All the tools that there are; a step takes some of them."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        """Take tools and functions; two of one name are refused."""
        self._box = Toolbox(tools)

    def __iter__(self) -> Iterator[Tool]:
        """Every tool, in order."""
        return iter(self._box.values())

    def chosen(self, wanted: bool | Iterable[str]) -> Toolbox:  # noqa: FBT001 - as the page says it
        """All of them, none, or those of some names."""
        if isinstance(wanted, bool):
            return self._box if wanted else Toolbox()
        names = list(dict.fromkeys(wanted))
        for index, name in enumerate(names):
            if name not in self._box:
                known = ", ".join(self._box) or "none"
                detail = f"there is no tool {name!r}; there are: {known}"
                raise ValidationError(detail, path=f"$.tools[{index}]", rule="CV-05")
        return Toolbox(self._box[name] for name in names)

    def asks_first(self, name: str) -> bool:
        """Tell whether a call of this tool waits for a person."""
        return isinstance(self._box.get(name), AskFirst)


def denied(call: ToolCallPart, reason: str) -> Toolbox:
    """A toolbox in which this call fails, with the words that the model is told."""
    return Toolbox([_Denied(call.tool, reason)])


class _Denied:
    """A tool that refuses."""

    idempotent: bool = False
    timeout: float | None = None

    def __init__(self, name: str, reason: str) -> None:
        self.spec = ToolSpec(name)
        self._reason = reason

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Say why not."""
        del arguments, context
        raise ToolFailed(self._reason)


# ── what is built in ────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
def current_time(zone: str = "UTC") -> str:
    """The date and the time of day.

    Args:
        zone: a time zone such as UTC or Europe/Paris
    """
    try:
        place = UTC if zone.upper() in ("", "UTC") else ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        msg = f"there is no time zone {zone!r}"
        raise ToolFailed(msg) from None
    return f"{datetime.now(place):%A, %d %B %Y, %H:%M:%S %Z}"


@tool(idempotent=True)
def calculate(expression: Annotated[str, _SUM]) -> str:
    """Work out a sum.

    Args:
        expression: numbers and + - * / ( ), such as 12 * (3 + 4)
    """
    return f"{expression.strip()} = {evaluate(expression)}"


@tool
async def roll_dice(context: ToolContext) -> str:
    """Roll two dice."""
    rolled = list[int]()
    for _ in range(_DICE):
        context.progress(" + ".join((*map(str, rolled), "\u2026")))
        await _come_to_rest()
        rolled.append(random.randint(1, 6))  # noqa: S311 - a game
    return f"{' + '.join(map(str, rolled))} = {sum(rolled)}"


async def _come_to_rest() -> None:
    await anyio.sleep(_ROLLING)


def _search(store: Store) -> Tool:
    def search_conversations(words: str, context: ToolContext) -> str:
        """Look for words in all other conversations of this store.

        Args:
            words: what to look for
        """
        hits = store.search(words, limit=_FOUND * 4)
        others = [hit for hit in hits if hit.conversation != context.conversation][:_FOUND]
        lines = [
            f"{store.keeper.head(hit.conversation).title or hit.conversation}: {hit.snippet}"
            for hit in others
        ]
        return "\n".join(lines) or "nothing was found"

    return AskFirst(tool(search_conversations, idempotent=True))


def built_in(store: Store) -> list[Tool]:
    """The tools that every server has."""
    return [current_time, calculate, roll_dice, _search(store)]
