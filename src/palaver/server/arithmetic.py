"""A calculator that can do no harm: numbers, the usual signs, and nothing that could run.

The text is read as a Python expression and walked by hand; whatever is not on the list is refused.
Sizes are bounded before anything is worked out, so that no small text takes long.
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Final

from palaver.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["evaluate"]

_LONGEST: Final = 200
_MOST_BITS: Final = 2_048
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
    """Work out a sum; a whole number stays one.

    >>> evaluate("12 * (3 + 4)"), evaluate("2^10"), evaluate("7 / 2")
    (84, 1024, 3.5)
    >>> evaluate("__import__('os')")
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.expression: only numbers and + - * / // % ^ ( ) ... [...]
    """
    if len(expression) > _LONGEST:
        raise _wrong(f"has {len(expression):,} characters; {_LONGEST} is the most")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
        value = _value(tree.body)
    except SyntaxError:
        raise _wrong("is no sum that can be read") from None
    except ZeroDivisionError:
        raise _wrong("divides by zero") from None
    except (OverflowError, RecursionError, MemoryError):
        raise _wrong("comes to more than can be worked out") from None
    too_long = isinstance(value, int) and value.bit_length() > _MOST_BITS
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
    """Refuse a power that has too many digits before it is worked out."""
    if isinstance(base, float) or isinstance(exponent, float):
        return  # a float overflows by itself, at once
    if base.bit_length() * max(exponent, 1) > _MOST_BITS:
        raise _wrong("comes to more than can be worked out")


def _real(value: complex) -> int | float:
    """A power of a negative number may leave the real ones."""
    if isinstance(value, complex):
        raise _wrong("has no real result")
    return value


def _wrong(detail: str) -> ValidationError:
    return ValidationError(detail, path="$.expression", rule=_RULE)
