"""Foreign JSON made to fit: the fields that palaver knows, with values that its rules allow.

What is left out or changed here is noted by `exports`, so that it can be written back.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from palaver.messages.base import PartBase
from palaver.messages.gate import MAX_NAME, is_list, is_object, is_plain
from palaver.messages.ids import uuid_for
from palaver.messages.parts import StepFinishPart
from palaver.messages.toolstate import NO_OUTPUT, ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["known_fields", "mapped"]

_NO_ERROR: Final = "(no description)"
_Kinds = tuple[type[Struct], ...]


def mapped(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """The JSON of a known value: its fields, with ids and empty texts made to fit.

    >>> mapped({"type": "step-finish", "reason": "stop", "cost": 0, "shoe": 44}, StepFinishPart)
    {'type': 'step-finish', 'reason': 'stop'}
    """
    tag = kind.__struct_config__.tag_field
    made = {tag: raw[tag]} if tag is not None and tag in raw else {}
    made |= known_fields(raw, kind)
    if issubclass(kind, PartBase):
        for name in ("sessionID", "messageID"):
            if _is_id(made.get(name)):
                made[name] = uuid_for(made[name])
    if kind is StepFinishPart and made.get("cost") == 0 and "costComputed" not in made:
        del made["cost"]  # a cost of nothing says that nobody knew it
    if kind is ToolCompleted and made.get("output") == "":
        made["output"] = NO_OUTPUT
        metadata = made.get("metadata")
        made["metadata"] = {**(metadata if is_object(metadata) else {}), "rawOutput": ""}
    if kind is ToolError and isinstance(made.get("error"), str) and not made["error"].strip():
        made["error"] = _NO_ERROR
    return made


def known_fields(raw: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """The fields that palaver knows, all the way down."""
    return {name: _fitted(raw[name], kinds) for name, kinds in _fields(kind).items() if name in raw}


def _fitted(value: object, kinds: _Kinds) -> object:
    if kinds and is_list(value):
        return [_fitted(item, kinds) for item in value]
    if not is_object(value):
        return value
    for kind in kinds:
        config = kind.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            return mapped(value, kind)
    return value


@cache
def _fields(kind: type[Struct]) -> dict[str, _Kinds]:
    """The JSON name of each field, and the structs that may stand there, alone or in a list."""
    return {field.encode_name: _structs(field.type) for field in fields(kind)}


def _structs(annotation: Any) -> _Kinds:  # noqa: ANN401 - whatever stands there
    if isinstance(annotation, UnionType) or get_origin(annotation) is tuple:
        return tuple(kind for part in get_args(annotation) for kind in _structs(part))
    is_struct = isinstance(annotation, type) and issubclass(annotation, Struct)
    return (annotation,) if is_struct else ()


def _is_id(value: object) -> bool:
    # anything odd stays as it is, for the part to refuse
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and is_plain(value)
