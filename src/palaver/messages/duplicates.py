"""Duplicate names in JSON objects, which are refused wherever JSON comes from outside.

JSON's grammar allows `{"role": "user", "role": "system"}`, and readers disagree on what it means:
most take the last value, some the first. What one program has checked is then not what the next
one reads. msgspec takes the last value and says nothing, so the text is looked at once more.

That is done by counting. Every member of an object has one colon, and the rest stand in strings.
What was decoded is encoded again: where a member was dropped, its colon is missing. Only a colon
that was written as an escape could hide that; a text with one goes through a slower decoder, which
hands over the members of every object as they stand.

The check takes about as long as decoding into plain values, so it is not made for bulk data:
imported files, rows of a store, and `parse_messages` unless it is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.errors import ValidationError
from palaver.messages.gate import MAX_DEPTH
from palaver.messages.scan import repeated_name, too_deep

if TYPE_CHECKING:
    from json import JSONDecoder

__all__ = ["DUPLICATE", "check_unique"]

DUPLICATE: Final = "json.duplicate"
"""The rule that a name stands once in an object."""
_ESCAPED: Final = b"\\u003"
"""The beginning of an escaped colon."""


def check_unique(data: bytes, value: object = msgspec.UNSET) -> None:
    """Refuse JSON with an object that has a name twice; the text must be valid otherwise.

    `value` is what `msgspec.json.decode` makes of the text, where that is at hand.

    >>> check_unique(b'{"a": {"b": 1, "c": 2}}')
    >>> check_unique(b'{"a": {"b": 1, "b": 2}}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a.b: stands twice in the same object; ... [json.duplicate]
    """
    try:
        are_unique = _has_all_colons(data, value) if _ESCAPED not in data else _has_each_once(data)
    except RecursionError:
        detail = f"is nested deeper than {MAX_DEPTH} levels"
        raise ValidationError(detail, path=too_deep(data, MAX_DEPTH), rule="depth") from None
    if not are_unique:
        detail = "stands twice in the same object; give it once"
        raise ValidationError(detail, path=repeated_name(data), rule=DUPLICATE)


def _has_all_colons(data: bytes, value: object) -> bool:
    plain = msgspec.json.decode(data) if value is msgspec.UNSET else value
    return data.count(b":") == msgspec.json.encode(plain).count(b":")


class _Repeated(Exception):  # noqa: N818 - only for the way out of the decoder
    """A name stands twice in an object."""


def _look(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) != len(members):
        raise _Repeated


@cache
def _decoder() -> JSONDecoder:
    import json  # noqa: PLC0415 - loaded when it is first needed

    # float takes whole numbers of any length; int refuses very long ones
    return json.JSONDecoder(object_pairs_hook=_look, parse_int=float)


def _has_each_once(data: bytes) -> bool:
    try:
        _decoder().decode(data.decode())
    except _Repeated:
        return False
    return True
