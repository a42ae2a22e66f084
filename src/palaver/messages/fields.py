"""Checks by annotation, for values that are rarely made: every field is of its type, and gated.

Messages and the common parts check themselves by hand, for speed. All the others say here, in one
loop, what a reader of their annotations expects.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from msgspec.structs import fields

from palaver.errors import ValidationError
from palaver.messages.gate import check_leaf, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Struct

__all__ = ["check_fields"]

_NAMES: Final[Mapping[type, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def check_fields(value: Struct) -> None:
    """Refuse a value with a field that is not of its type, or that holds what the gate refuses.

    >>> from palaver.messages import Position
    >>> Position(line="3", character=0)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.line: must be a whole number, not text [schema]
    """
    for name, shown, kinds in _plan(type(value)):
        item = getattr(value, name)
        kind = type(item)
        if kind not in kinds and (kind is bool or not isinstance(item, kinds)):
            wanted = next(_NAMES.get(kind, kind.__name__) for kind in kinds)
            detail = f"must be {wanted}, not {kind_of(item)}"
            raise ValidationError(detail, path=f"$.{shown}")
        check_leaf(item, f"$.{shown}")


@cache
def _plan(kind: type[Struct]) -> tuple[tuple[str, str, tuple[type, ...]], ...]:
    """Name, JSON name and types of each field; objects and lists are frozen elsewhere."""
    found = ((field.name, field.encode_name, _kinds(field.type)) for field in fields(kind))
    return tuple(row for row in found if row[2])


def _kinds(annotation: Any) -> tuple[type, ...]:  # noqa: ANN401 - whatever stands there
    if isinstance(annotation, UnionType):
        parts = [_kinds(part) for part in get_args(annotation)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    if annotation is float:
        return (float, int)
    return () if get_origin(annotation) or not isinstance(annotation, type) else (annotation,)
