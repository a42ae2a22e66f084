"""Drafts: messages, parts and states as the decoder makes them when `bulk` is to look at them all.

A draft's class is a private subclass of the real one, with the same fields, so that an accepted
draft can be given its real class. It checks nothing but what the decoder checks at no cost, and it
can be written to, so that `frozen` objects can take the place of those the decoder made.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, UnsetType
from msgspec.json import Decoder

from palaver.messages.files import FilePart
from palaver.messages.gate import EMPTY, MAX_DEPTH, MAX_INT, MAX_NAME, FrozenDict, FrozenList
from palaver.messages.message import Message
from palaver.messages.parts import KnownPart, ToolPart
from palaver.messages.toolstate import ToolCompleted, ToolError

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo

__all__ = ["Doubt", "Drafts", "drafts", "frozen"]

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Uuid: TypeAlias = Annotated[str, Meta(min_length=36, max_length=36)]
_Filled: TypeAlias = Annotated[str, Meta(min_length=1)]
_Whole: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
_Price: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_INT)] | None
_MIN_INT: Final = -MAX_INT
_new_dict, _fill_dict = dict.__new__, dict.update
_new_list, _fill_list = list.__new__, list.extend


class Doubt(Exception):  # noqa: N818 - no error: something is unusual, or wrong
    """A draft is not beyond doubt."""


class Drafts(NamedTuple):
    """The decoders, and the real class of each draft's class."""

    message: Decoder[Any]
    messages: Decoder[list[Any]]
    parts: dict[type, type[Struct]]
    states: dict[type, type[Struct]]
    tool: type


class _Absent:
    """Hides the `__post_init__` that a draft would inherit: looked up, it is not there."""

    def __get__(self, draft: object, kind: object) -> NoReturn:
        raise AttributeError


@cache
def drafts() -> Drafts:
    """The drafts of everything that a message may hold, made when first asked for.

    >>> draft = drafts().message.decode(b'{"role": "user", "content": "hi"}')
    >>> draft.content = "yes, it can be written to"
    """
    ids = {"id": _Name, "session_id": _Uuid, "message_id": _Uuid, "call_id": _Name, "tool": _Name}
    file = _draft(FilePart, ids)
    files = GenericAlias(tuple, (file, ...)) | UnsetType
    completed = _draft(ToolCompleted, {"output": _Filled, "attachments": files})
    # and no others: a call that is still open stands in no message
    states: dict[type, type[Struct]] = {completed: ToolCompleted, _draft(ToolError, {}): ToolError}
    others = {"cost": _Price, "state": reduce(or_, states)}
    kinds = [kind for kind in get_args(KnownPart) if kind is not FilePart]
    parts: dict[type, type[Struct]] = {
        file: FilePart,
        **{_draft(kind, ids | others): kind for kind in kinds},
    }
    content = str | GenericAlias(tuple, (reduce(or_, parts), ...))
    message = _draft(Message, {"id": _Name, "timestamp": _Whole, "content": content})
    return Drafts(
        Decoder(message),
        Decoder(GenericAlias(list, (message,))),
        parts,
        states,
        next(draft for draft, kind in parts.items() if kind is ToolPart),
    )


def _draft(kind: type[Struct], types: dict[str, Any]) -> Any:  # noqa: ANN401 - a class, made here
    """The class of a kind's drafts; some of its fields have narrower types."""
    config = kind.__struct_config__
    fields = [
        (field.name, types[field.name], msgspec.field(name=field.encode_name, **_default(field)))
        for field in msgspec.structs.fields(kind)
        if field.name in types
    ]
    return msgspec.defstruct(
        kind.__name__, fields, bases=(kind,), namespace={"__post_init__": _Absent()},
        frozen=False, gc=False, kw_only=kind is not Message,
        tag=config.tag, tag_field=config.tag_field,
    )  # fmt: skip


def _default(field: FieldInfo) -> dict[str, Any]:
    return {"default": field.default, "default_factory": field.default_factory}


def frozen(value: dict[str, Any], levels: int = MAX_DEPTH) -> FrozenDict[str, Any]:
    """What the gate makes of a JSON object; the decoder has just made it, and no one else has it.

    JSON text has no NaN and no half characters, so NUL and large numbers are left to look for.

    >>> frozen({"a": [1, {"b": None}]})
    {'a': [1, {'b': None}]}
    """
    if not value:
        return EMPTY
    for key, item in value.items():
        if "\0" in key:
            raise Doubt
        kind = type(item)
        if kind is str:
            if "\0" in item:
                raise Doubt
        elif kind is int:
            if not _MIN_INT <= item <= MAX_INT:
                raise Doubt
        elif kind is dict or kind is list:
            value[key] = _frozen_item(item, levels - 1)
    made: FrozenDict[str, Any] = _new_dict(FrozenDict)
    _fill_dict(made, value)
    return made


def _frozen_item(item: Any, levels: int) -> object:  # noqa: ANN401 - JSON
    kind = type(item)
    if kind is dict or kind is list:
        if not levels:
            raise Doubt
        if kind is dict:
            return frozen(item, levels)
        made: FrozenList[object] = _new_list(FrozenList)
        _fill_list(made, [_frozen_item(inner, levels - 1) for inner in item])
        return made
    if (kind is str and "\0" in item) or (kind is int and not _MIN_INT <= item <= MAX_INT):
        raise Doubt
    return item
