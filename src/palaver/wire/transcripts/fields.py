"""Looks into foreign JSON: a field of the kind that is needed, or nothing. Never an error."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from palaver.errors import ValidationError
from palaver.messages.codec import load_json
from palaver.messages.gate import EMPTY, MAX_INT, MAX_NAME, freeze, is_list, is_object
from palaver.messages.parts import CacheCounts, TokenCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "count_in",
    "list_in",
    "milliseconds",
    "name_in",
    "object_in",
    "parsed_input",
    "text_in",
    "token_counts",
]


def text_in(value: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that holds text, or an empty text.

    >>> text_in({"a": 1, "b": "x"}, "a", "b", "c")
    'x'
    """
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    return ""


def name_in(value: Mapping[str, Any], *names: str) -> str | None:
    r"""The first of these fields that can be an id or a name, or None.

    >>> name_in({"id": "a\nb", "uuid": "u1"}, "id", "uuid")
    'u1'
    """
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and 0 < len(found) <= MAX_NAME and found.isprintable():
            return found
    return None


def object_in(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field, or an empty one."""
    found = value.get(name)
    return found if is_object(found) else EMPTY


def list_in(value: Mapping[str, Any], name: str) -> list[Any] | tuple[Any, ...]:
    """The list in a field, or an empty one."""
    found = value.get(name)
    return found if is_list(found) else ()


def count_in(value: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that holds a count, or 0.

    >>> count_in({"a": -1, "b": True, "c": 7}, "a", "b", "c")
    7
    """
    for name in names:
        found = value.get(name)
        if type(found) is int and 0 <= found <= MAX_INT:
            return found
    return 0


def milliseconds(value: object) -> int | None:
    """A time in whole milliseconds, from ISO 8601, seconds or milliseconds; None where it is none.

    >>> milliseconds("1970-01-01T00:00:01.5Z"), milliseconds(1_700_000_000)
    (1500, 1700000000000)
    >>> milliseconds("noon") is None
    True
    """
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return None
    elif value >= 10**11:  # seconds would be in the year 5138
        seconds = value / 1000
    else:
        seconds = value
    found = round(seconds * 1000)
    return found if 0 <= found <= MAX_INT else None


def parsed_input(raw: str) -> Mapping[str, Any]:
    """What a tool was given, where the text is a JSON object; nothing where it is not.

    >>> parsed_input('{"q": "tea"}'), parsed_input("*** Begin Patch")
    ({'q': 'tea'}, {})
    """
    try:
        value = freeze(load_json(raw, unique=False))
    except ValidationError:
        return EMPTY
    return value if is_object(value) else EMPTY


def token_counts(
    prompt: int, completion: int, *, read: int = 0, write: int = 0, reasoning: int = 0
) -> TokenCounts | None:
    """Five disjoint counts, from totals that contain the others; None where all are 0.

    >>> token_counts(100, 20, read=60, reasoning=5)
    TokenCounts(input=40, output=15, reasoning=5, cache=CacheCounts(read=60, write=0), total=None)
    """
    if not (prompt or completion or read or write):
        return None
    fresh = max(prompt - read - write, 0)
    return TokenCounts(fresh, max(completion - reasoning, 0), reasoning, CacheCounts(read, write))
