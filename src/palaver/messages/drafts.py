"""Drafts: messages, parts and states as the decoder makes them when `bulk` is to look at them all.

A draft's class is a private subclass of the real one, with the same fields, so that an accepted
draft can be given its real class. It checks nothing but what the decoder checks at no cost, it can
be written to, and its JSON objects are still raw, until `frozen` ones take their place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple, NoReturn, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from palaver.messages.decoding import prepared
from palaver.messages.files import FilePart
from palaver.messages.gate import EMPTY, MAX_DEPTH, MAX_INT, MAX_NAME, FrozenDict, FrozenList
from palaver.messages.message import Message
from palaver.messages.parts import KnownPart, ToolPart
from palaver.messages.toolstate import ToolCompleted, ToolError

__all__ = ["Doubt", "Drafts", "drafts", "frozen"]

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Uuid: TypeAlias = Annotated[str, Meta(min_length=36, max_length=36)]
_Filled: TypeAlias = Annotated[str, Meta(min_length=1)]
_Whole: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
_Price: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_INT)] | None
_MIN_INT: Final = -MAX_INT
_BACKSLASH, _BRACKET = b"\\["  # numbers, which are found far more quickly than bytes
_OBJECT: Final = Decoder(dict[str, Any])
_FLAT: Final = Decoder(
    dict[str, str | Annotated[int, Meta(ge=_MIN_INT, le=MAX_INT)] | float | bool | None]
)
_alone: Final = threading.Lock()
_new_dict, _fill_dict = dict.__new__, dict.update
_new_list, _fill_list = list.__new__, list.extend

if hasattr(os, "register_at_fork"):  # as in `decoding`
    os.register_at_fork(
        before=_alone.acquire, after_in_parent=_alone.release, after_in_child=_alone.release
    )


class Doubt(Exception):  # noqa: N818 - no error: something is unusual, or wrong
    """A draft is not beyond doubt."""


class Drafts(NamedTuple):
    """The decoder, and the real class of each draft's class."""

    decoder: Decoder[list[Any]]
    parts: dict[type, type[Struct]]
    states: dict[type, type[Struct]]
    tool: type


class _Absent:
    """Hides the `__post_init__` that a draft would inherit: looked up, it is not there."""

    def __get__(self, draft: object, kind: object) -> NoReturn:
        raise AttributeError


def drafts() -> Drafts:
    """The drafts of everything that a message may hold, made when first asked for.

    >>> [draft] = drafts().decoder.decode(b'[{"role": "user", "content": "hi"}]')
    >>> draft.content = "it can be written to"
    """
    with _alone:  # two threads that came first together would each have classes of their own
        return _drafts()


@cache
def _drafts() -> Drafts:
    ids = {"id": _Name, "session_id": _Uuid, "message_id": _Uuid, "call_id": _Name, "tool": _Name}
    file = _draft(FilePart, ids)
    files = GenericAlias(tuple, (file, ...)) | UnsetType
    completed = _draft(ToolCompleted, {"output": _Filled, "attachments": files})
    # and no others: a call that is still open stands in no message
    states: dict[type, type[Struct]] = {completed: ToolCompleted, _draft(ToolError, {}): ToolError}
    others = {"cost": _Price, "state": reduce(or_, states)}
    kinds = [kind for kind in get_args(KnownPart) if kind is not FilePart]
    made = {_draft(kind, ids | others): kind for kind in kinds}
    parts: dict[type, type[Struct]] = {file: FilePart, **made}
    content = str | GenericAlias(tuple, (reduce(or_, parts), ...))
    message = _draft(Message, {"id": _Name, "timestamp": _Whole, "content": content})
    tool = next(draft for draft, kind in parts.items() if kind is ToolPart)
    return Drafts(prepared(GenericAlias(list, (message,))), parts, states, tool)


def _draft(kind: type[Struct], types: dict[str, Any]) -> Any:  # noqa: ANN401 - a class, made here
    """The class of a kind's drafts; these fields have narrower types, and JSON objects are raw."""
    config, fields = kind.__struct_config__, []
    for field in msgspec.structs.fields(kind):
        raw = Raw if get_origin(field.type) is Mapping else None
        narrow = types.get(field.name, raw)
        if narrow is not None:
            default = {"default": field.default, "default_factory": field.default_factory}
            fields.append((field.name, narrow, msgspec.field(name=field.encode_name, **default)))
    return msgspec.defstruct(
        kind.__name__, fields, bases=(kind,), namespace={"__post_init__": _Absent()},
        frozen=False, gc=False, kw_only=kind is not Message,
        tag=config.tag, tag_field=config.tag_field,
    )  # fmt: skip


def frozen(raw: Raw, known: dict[bytes, FrozenDict[str, Any]]) -> FrozenDict[str, Any]:
    """What the gate makes of a JSON object, which is given in its own words.

    `known` are the objects of the document so far: a call and what became of it have the same
    input, and metadata repeat themselves. JSON has no NaN and no half characters, which leaves
    NUL, large numbers and depth to look for.

    >>> frozen(Raw(b'{"a": [1, {"b": null}]}'), {})
    {'a': [1, {'b': None}]}
    """
    text = bytes(raw)
    made = known.get(text)
    if made is None:
        if _BACKSLASH in text and b"\\u0000" in text:
            raise Doubt
        if _BRACKET in text or text.rfind(b"{"):
            made = _frozen(_OBJECT.decode(text), MAX_DEPTH)
        else:  # nothing inside, and the decoder has looked at the numbers
            made = _new_dict(FrozenDict)
            _fill_dict(made, _FLAT.decode(text))
        made = known[text] = made or EMPTY
    return made


def _frozen(value: Any, levels: int) -> Any:  # noqa: ANN401 - a dict or a list, fresh from JSON
    if not levels:
        raise Doubt
    is_object = type(value) is dict
    for key, item in value.items() if is_object else enumerate(value):
        kind = type(item)
        if kind is dict or kind is list:
            value[key] = _frozen(item, levels - 1)
        elif kind is int and not _MIN_INT <= item <= MAX_INT:
            raise Doubt
    made: Any
    if is_object:
        made = _new_dict(FrozenDict)
        _fill_dict(made, value)
    else:
        made = _new_list(FrozenList)
        _fill_list(made, value)
    return made
