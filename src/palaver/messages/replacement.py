"""The way in for callers who would rather lose a character than be refused.

What the gate would refuse is replaced by something harmless, as documented here; what is left is
for the gate to judge.
"""

from __future__ import annotations

import math
from typing import Final

from palaver.messages.gate import MAX_DEPTH, MAX_INT, is_list, is_object

__all__ = ["replace_refused"]

_AROUND: Final = 8
"""Levels that a message, its parts and their fields put around a value that the gate measures."""


def replace_refused(value: object) -> object:
    r"""Put something harmless where the gate would refuse a character or a number.

    NUL and half characters become U+FFFD, NaN and the infinities null, whole numbers beyond
    ±2^53 their digits as text. Depth and size stay refused: nothing small could stand for them.

    >>> replace_refused({"a": "x\0", "b": float("inf"), "c": 2**60})
    {'a': 'x�', 'b': None, 'c': '1152921504606846976'}
    """
    return _replace(value, MAX_DEPTH + _AROUND)


def _replace(value: object, levels: int) -> object:
    if isinstance(value, str):
        return _replace_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -MAX_INT <= value <= MAX_INT else _digits(value)
    if levels and is_object(value):
        return {
            _replace_text(key): _replace(item, levels - 1)  # a key that is no text stays as it is
            for key, item in value.items()
        }
    if levels and is_list(value):
        return [_replace(item, levels - 1) for item in value]
    return value  # a leaf, or too deep: the gate will refuse that, and say where


def _replace_text(text: object) -> object:
    if not isinstance(text, str):
        return text
    # half characters that stand side by side and make a whole one are joined
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\ufffd")


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # thousands of digits: Python refuses to spell them out in decimal
        return hex(value)
