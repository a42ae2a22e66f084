"""What a JSON value must look like, in a few words: fields, their kinds, and what may be missing.

A shape is a dict of fields. How deep it goes is how deep a value is looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Kind", "Shape", "all_of", "either", "fits", "passed", "text", "typed"]

Kind: TypeAlias = "type | tuple[str, ...] | re.Pattern[str] | Callable[[object], bool] | Shape"
Shape: TypeAlias = "dict[str, Kind]"
"""Fields and their kinds; one with a `*` may be missing, one with a `?` may also be null."""


def passed(block: Mapping[str, Any], shape: Shape) -> dict[str, Any] | None:
    """The block with what is known of it; None where something is missing or of another kind.

    >>> passed({"id": "x", "more": 1}, {"id": str})
    {'id': 'x'}
    >>> passed({"id": 5}, {"id": str}) is None
    True
    """
    known: dict[str, Any] = {}
    for name, kind in shape.items():
        field = name.rstrip("?*")
        if field not in block:
            if name == field:
                return None
        elif not fits(block[field], kind) and not (block[field] is None and name[-1] == "?"):
            return None
        else:
            known[field] = block[field]
    return {field: known[field] for field in block if field in known}


def fits(value: object, kind: Kind) -> bool:
    """Tell whether a value is of a kind; a text has something in it."""
    if isinstance(kind, dict):
        return is_object(value) and passed(value, kind) == value
    if isinstance(kind, tuple):
        return value in kind
    if isinstance(kind, re.Pattern):
        return isinstance(value, str) and kind.fullmatch(value) is not None
    if kind is str:
        return isinstance(value, str) and value.strip() != ""
    if kind is dict:
        return is_object(value)
    return type(value) is kind if isinstance(kind, type) else kind(value)


def text(value: object) -> bool:
    """Any text, also an empty one."""
    return isinstance(value, str)


def all_of(kind: Kind, *, least: int = 0) -> Callable[[object], bool]:
    """A list of such values."""

    def check(value: object) -> bool:
        return is_list(value) and len(value) >= least and all(fits(one, kind) for one in value)

    return check


def either(*kinds: Kind) -> Callable[[object], bool]:
    """One of these kinds."""
    return lambda value: any(fits(value, kind) for kind in kinds)


def typed(*kinds: str) -> Callable[[object], bool]:
    """An object of one of these types, or of any: the rest of it is the provider's own business."""

    def check(value: object) -> bool:
        kind = value.get("type") if is_object(value) else None
        return kind in kinds if kinds else isinstance(kind, str)

    return check
