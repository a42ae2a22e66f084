"""The tools that a server's conversations may use, and which of them a person must allow first.

The built-in tools are harmless: the time, arithmetic, dice, and a search in this store. The search
can bring text of one conversation into another, and from there to a provider, so its calls wait
until a person has allowed them. Their schemas are strict, so that even a very small model makes
valid calls. `palaver serve --tools` adds further tools.
"""

from __future__ import annotations

import ast
import math
import operator
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

import anyio
from msgspec import Meta

from palaver.errors import ToolFailed, ValidationError
from palaver.tools import Tool, Toolbox, ToolContext, tool
from palaver.tools.approval import ApprovalRequired, needs_approval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.messages import ToolCallPart
    from palaver.stores.store import Store

__all__ = ["ServerTools", "builtin_tools", "evaluate"]

_FOUND: Final = 5
_SUM: Final = Meta(pattern=r"^[-+*/%^().0-9 ]+$", max_length=80)
"""The characters of a sum. Its length is limited: a small model would write digits for ever."""
_DICE: Final = 2
_ROLL_SECONDS: Final = 1.0
"""Seconds that a die rolls: the dice stop one after the other, so that progress can be seen."""


class ServerTools:
    """All tools of a server; a step selects some of them."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        """Take tools and functions; two with the same name are refused."""
        self._toolbox = Toolbox(tools)

    def __iter__(self) -> Iterator[Tool]:
        """Every tool, in order."""
        return iter(self._toolbox.values())

    def select(self, wanted: bool | Iterable[str]) -> Toolbox:  # noqa: FBT001 - as in the API
        """A toolbox of all tools, of none, or of those with some names."""
        if isinstance(wanted, bool):
            return self._toolbox if wanted else Toolbox()
        names = list(dict.fromkeys(wanted))
        for index, name in enumerate(names):
            if name not in self._toolbox:
                known = ", ".join(self._toolbox) or "none"
                detail = f"there is no tool {name!r}; there are: {known}"
                raise ValidationError(detail, path=f"$.tools[{index}]", rule="unknown-tool")
        return Toolbox(self._toolbox[name] for name in names)

    def among(self, allowed: bool | Iterable[str]) -> Toolbox:  # noqa: FBT001 - as in the API
        """As `select`, but names that this server has no tool for are passed over."""
        if isinstance(allowed, bool):
            return self.select(allowed)
        return self.select(name for name in allowed if name in self._toolbox)

    def __contains__(self, name: object) -> bool:
        """Whether there is a tool of a name."""
        return name in self._toolbox

    def asks_first(self, call: ToolCallPart) -> bool:
        """Tell whether a call waits for a person."""
        return needs_approval(self._toolbox, call)


# ── built-in tools ──────────────────────────────────────────────────────────────────────────────


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
        await _wait_for_die()
        rolled.append(random.randint(1, 6))  # noqa: S311 - a game
    return f"{' + '.join(map(str, rolled))} = {sum(rolled)}"


async def _wait_for_die() -> None:
    await anyio.sleep(_ROLL_SECONDS)


def _search(store: Store) -> Tool:
    def search_conversations(words: str, context: ToolContext) -> str:
        """Look for words in all other conversations of this store.

        Args:
            words: what to look for
        """
        hits = store.search(words, limit=_FOUND * 4)
        others = [hit for hit in hits if hit.conversation != context.conversation][:_FOUND]
        lines = [
            f"{store.head(hit.conversation).title or hit.conversation}: {hit.snippet}"
            for hit in others
        ]
        return "\n".join(lines) or "nothing was found"

    return ApprovalRequired(tool(search_conversations, idempotent=True))


def builtin_tools(store: Store) -> list[Tool]:
    """The tools that every server has."""
    return [current_time, calculate, roll_dice, _search(store)]


# ── the calculator ──────────────────────────────────────────────────────────────────────────────

_MAX_LENGTH: Final = 200
_MAX_BITS: Final = 2_048
_RULE: Final = "arithmetic"

_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[float], float]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_SIGNS: Final = str.maketrans(
    {"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "^": "**", ",": ""}
)


def evaluate(expression: str) -> int | float:
    """Evaluate an arithmetic expression; an integer stays an integer.

    The text is parsed as a Python expression and walked; only the listed operators are allowed.
    Sizes are checked before anything is computed, so that no short text takes long.

    >>> evaluate("12 * (3 + 4)"), evaluate("2^10"), evaluate("7 / 2")
    (84, 1024, 3.5)
    >>> evaluate("__import__('os')")
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.expression: only numbers and + - * / // % ^ ( ) ... [...]
    """
    if len(expression) > _MAX_LENGTH:
        raise _wrong(f"has {len(expression):,} characters; {_MAX_LENGTH} is the most")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
        value = _value(tree.body)
    except SyntaxError:
        raise _wrong("is no sum that can be read") from None
    except ZeroDivisionError:
        raise _wrong("divides by zero") from None
    except (OverflowError, RecursionError, MemoryError):
        raise _wrong("comes to more than can be worked out") from None
    too_long = isinstance(value, int) and value.bit_length() > _MAX_BITS
    if too_long or not math.isfinite(value):
        raise _wrong("comes to more than can be worked out")
    return value


def _value(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = node.value
        assert isinstance(number, int | float)  # noqa: S101 - the line above, in mypy's words
        return number
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            _check_power(left, right)
        value = _BINARY[type(node.op)](left, right)
        return _real(value)
    raise _wrong("only numbers and + - * / // % ^ ( ) can be used")


def _check_power(base: float, exponent: float) -> None:
    """Refuse a power with too many digits before it is computed."""
    if isinstance(base, float) or isinstance(exponent, float):
        return  # a float overflows by itself, at once
    if base.bit_length() * max(exponent, 1) > _MAX_BITS:
        raise _wrong("comes to more than can be worked out")


def _real(value: complex) -> int | float:
    """Refuse a complex result, as a power of a negative number may be."""
    if isinstance(value, complex):
        raise _wrong("has no real result")
    return value


def _wrong(detail: str) -> ValidationError:
    return ValidationError(detail, path="$.expression", rule=_RULE)
