"""The current SDKs' own types, held against a request.

The SDKs describe what they send as TypedDicts, and pydantic reads an `Iterable` in them only when
someone iterates. So every type is written anew before it is used: an array is a list, a field that
the type does not know is refused, and what is no JSON (open files, the SDKs' own answers) is left
out.
"""

from __future__ import annotations

import collections.abc
import json
import types
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
)

import anthropic.types
import openai.types.chat
import openai.types.responses
from google.genai import types as gemini
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, get_type_hints, is_typeddict

__all__ = ["check_types"]

MAKE: Any = TypedDict
REQUIRED: Any = Required
NOT_REQUIRED: Any = NotRequired
"""As plain values: type checkers allow none of them in code that makes types at run time."""

_ARRAYS = (list, collections.abc.Iterable, collections.abc.Sequence)
_PLAIN = (str, int, float, bool, type(None), object, dict)
_ELEMENTS: dict[str, tuple[tuple[str, Any], ...]] = {
    "openai-chat": (
        ("messages", openai.types.chat.ChatCompletionMessageParam),
        ("tools", openai.types.chat.ChatCompletionToolUnionParam),
    ),
    "openai-responses": (
        ("input", openai.types.responses.ResponseInputItemParam),
        ("tools", openai.types.responses.ToolParam),
    ),
    "anthropic": (
        ("messages", anthropic.types.MessageParam),
        ("system", anthropic.types.TextBlockParam),
        ("tools", anthropic.types.ToolUnionParam),
    ),
    "gemini": (
        ("contents", gemini.Content),
        ("tools", gemini.Tool),
    ),
}
"""Which list of a request has elements of which type."""


def check_types(format: str, body: dict[str, Any]) -> tuple[str, ...]:  # noqa: A002 - its name
    """Say everything in a request that the current SDK's own types do not allow."""
    wrong: list[str] = []
    for field, kind in _ELEMENTS[format]:
        elements = body.get(field)
        if isinstance(elements, list):  # and not one text for all, which every format allows
            for place, element in enumerate(elements):
                wrong += misfits(kind, element, f"{field}[{place}]")
    if format == "gemini" and "systemInstruction" in body:
        wrong += misfits(gemini.Content, body["systemInstruction"], "systemInstruction")
    return tuple(wrong)


def misfits(kind: Any, element: object, path: str) -> list[str]:  # noqa: ANN401 - a type form
    """What is wrong with one element."""
    try:
        adapter(kind).validate_json(json.dumps(element), strict=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [f"{path}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
    return []


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a type form
    """What validates such an element."""
    return TypeAdapter(rewritten(kind))


@cache
def rewritten(kind: Any) -> Any:  # noqa: ANN401 - type forms, in and out
    """The same type, read at once and to the letter."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return closed(kind)
    if origin in {Annotated, Required, NotRequired}:
        return rewritten(arguments[0])
    if origin in {Union, types.UnionType}:
        stored = tuple(rewritten(one) for one in arguments if sendable(one))
        return Union[stored]  # noqa: UP007 - made at run time
    if origin in _ARRAYS or getattr(origin, "__name__", "") == "SequenceNotStr":
        return list[rewritten(arguments[0])]  # type: ignore[misc]  # made at run time
    if origin is dict:
        return dict[arguments[0], rewritten(arguments[1])]  # type: ignore[misc,valid-type]
    return kind


def closed(kind: Any) -> Any:  # noqa: ANN401 - type forms, in and out
    """A TypedDict that refuses fields it does not know, unless it says that it takes any."""
    # __required_keys__ is of no use: the SDKs' annotations are strings when it is made
    fields = {
        name: (REQUIRED if REQUIRED == get_origin(hint) else NOT_REQUIRED)[rewritten(hint)]
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }
    made = MAKE(kind.__name__, fields)
    extra = getattr(kind, "__pydantic_config__", {}).get("extra", "forbid")
    made.__pydantic_config__ = {"extra": extra}
    return made


def sendable(kind: Any) -> bool:  # noqa: ANN401 - a type form
    """Tell whether a member of a union can be sent as JSON."""
    origin = get_origin(kind)
    if origin in {Annotated, Union, types.UnionType}:
        members = get_args(kind)[:1] if origin is Annotated else get_args(kind)
        return any(sendable(one) for one in members)
    if origin is not None:
        return origin is Literal or origin is dict or origin in _ARRAYS or "Sequence" in str(origin)
    return is_typeddict(kind) or kind in _PLAIN
