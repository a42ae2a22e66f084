"""What palaver's message has no field for: kept in its metadata, under one key.

Only the difference is kept: the fields that `writing` would not make of the message by itself. Some
of them say what the content says (`content`, `tool_calls`, …). Those hold only as long as the
content is the one they were kept with, so what was edited with palaver is what LangChain sees.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from palaver.errors import ValidationError
from palaver.messages import to_dict
from palaver.messages.gate import FrozenDict, FrozenList, freeze, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages import Message

__all__ = ["KEY", "Packer", "keep", "kept", "thawed"]

KEY: Final = "langchain"
"""The metadata key."""

_SAID: Final = frozenset(
    ("content", "blocks", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
)
"""The fields that say what the content says."""


class Packer(Protocol):
    """Turns values that are no JSON into bytes and back, such as LangGraph's serializers."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ANN401 - anything
        """A value as bytes, and what kind of bytes."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - anything
        """The value again."""
        ...


def keep(fields: dict[str, Any], content: object, packer: Packer | None) -> dict[str, Any]:
    """The metadata that keeps some fields; `content` is the palaver message's own."""
    if not fields:
        return {}
    left: dict[str, Any] = {}
    hard: dict[str, Any] = {}
    for name, value in fields.items():
        plain = _is_plain(value) and name not in ("", "hard", "of")
        (left if plain else hard)[name] = value
    if hard:
        left["hard"] = _pack(hard, packer)
    if not _SAID.isdisjoint(fields):
        left["of"] = _mark(content)
    return {KEY: left}


def kept(message: Message, packer: Packer | None) -> dict[str, Any]:
    """The fields that were kept with a message, and still hold."""
    left = message.metadata.get(KEY)
    if not is_object(left):
        return {}
    fields: dict[str, Any] = {
        name: thawed(value) for name, value in left.items() if name not in ("hard", "of")
    }
    if "hard" in left:
        fields |= _unpack(left["hard"], packer)
    if not _SAID.isdisjoint(fields) and left.get("of") != _mark(message.content):
        fields = {name: value for name, value in fields.items() if name not in _SAID}
    return fields


def thawed(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A frozen value as one that its owner may change."""
    kind = type(value)
    if kind is FrozenDict:
        return {key: thawed(item) for key, item in value.items()}
    if kind is FrozenList:
        return [thawed(item) for item in value]
    return value


def _mark(content: object) -> int:
    """A number that changes with the content."""
    return zlib.crc32(msgspec.json.encode(to_dict(content)))


def _is_plain(value: object) -> bool:
    """Tell whether a value comes back from JSON as it is."""
    try:
        freeze(value)
    except ValidationError:
        return False
    return _is_json(value)


def _is_json(value: object) -> bool:
    if type(value) is dict:
        return all(_is_json(item) for item in value.values())
    if type(value) is list:
        return all(map(_is_json, value))
    return not (is_object(value) or is_list(value))  # a tuple would come back as a list


def _pack(hard: dict[str, Any], packer: Packer | None) -> list[str]:
    if packer is not None:
        kind, data = packer.dumps_typed(hard)
        return [kind, base64.b64encode(data).decode()]
    try:  # escapes in JSON carry any character, and Python's own reader any number
        text = json.dumps(hard)
        same = _equal(json.loads(text), hard)
    except (TypeError, ValueError, RecursionError):
        text, same = "", False
    if not same:
        detail = f"holds what is no JSON and could not be read back: {', '.join(sorted(hard))}"
        raise ValidationError(detail, path="$.message", rule="schema")
    return ["text", text]


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - anything
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or one != one  # noqa: PLR0124 - NaN is no other


def _unpack(packed: object, packer: Packer | None) -> Mapping[str, Any]:
    try:
        kind, data = cast("list[str]", packed)  # two texts, or it is refused
        if kind == "text":
            return dict(json.loads(data))
        if packer is not None:
            return dict(packer.loads_typed((kind, base64.b64decode(data))))
    except (TypeError, ValueError) as error:
        detail = f"can't be read: {error}"
        raise ValidationError(detail, path=f"$.metadata.{KEY}.hard", rule="schema") from None
    return {}  # kept by another adapter, whose packer is not here
