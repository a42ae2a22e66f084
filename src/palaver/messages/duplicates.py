"""Duplicate names in JSON objects, which are refused wherever JSON comes from outside.

JSON's grammar allows `{"role": "user", "role": "system"}`, and readers disagree on what it means:
most take the last value, some the first. What one program has checked is then not what the next
one reads. msgspec takes the last value and says nothing, so a second pass looks for duplicates: the
standard library's decoder hands over the members of every object as they stand. It keeps nothing.

The pass costs about as much as reading the text twice, so it is not made for bulk data: imported
files, rows of a store, and `parse_messages` unless it is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.gate import MAX_DEPTH
from palaver.messages.scan import repeated_name, too_deep

if TYPE_CHECKING:
    from json import JSONDecoder

__all__ = ["DUPLICATE", "check_unique"]

DUPLICATE: Final = "json.duplicate"
"""The rule that a name stands once in an object."""


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


def check_unique(data: bytes) -> None:
    """Refuse JSON with an object that has a name twice; the text must be valid otherwise.

    >>> check_unique(b'{"a": {"b": 1, "c": 2}}')
    >>> check_unique(b'{"a": {"b": 1, "b": 2}}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a.b: stands twice in the same object; ... [json.duplicate]
    """
    try:
        _decoder().decode(data.decode())
    except _Repeated:
        detail = "stands twice in the same object; give it once"
        raise ValidationError(detail, path=repeated_name(data), rule=DUPLICATE) from None
    except RecursionError:
        detail = f"is nested deeper than {MAX_DEPTH} levels"
        raise ValidationError(detail, path=too_deep(data, MAX_DEPTH), rule="depth") from None
    except ValueError as error:  # what only the other decoder takes
        raise ValidationError(f"is not JSON: {error}", rule="json") from None
