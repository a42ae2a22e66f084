"""What Open Responses publishes, as types: every object and event of the door is held to them.

The types are generated from the specification's schema. Two things are added here: nothing is
converted on the way (a number in quotes is no number), and an optional field is absent rather than
null, which the types allow and the schema doesn't. What OpenAI has beyond the specification is left
out before the check, and the types of OpenAI's SDK hold it instead.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import openresponses_types as published
from pydantic import BaseModel, RootModel, TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["EVENTS", "check_event", "check_item", "check_object", "is_published"]

ITEMS: Final = ("message", "function_call", "function_call_output", "reasoning", "compaction")
EFFORTS: Final = {each.value for each in published.ReasoningEffortEnum}
_ITEM: Final[TypeAdapter[Any]] = TypeAdapter(
    published.Message
    | published.FunctionCall
    | published.FunctionCallOutput
    | published.ReasoningBody
    | published.CompactionBody
)
_OBJECTS: Final[Mapping[str, type[BaseModel]]] = {
    "response": published.ResponseResource,
    "response.compaction": published.CompactResource,
}


def _event_types() -> dict[str, type[BaseModel]]:
    """The published events by their type."""
    found: dict[str, type[BaseModel]] = {}
    for name, kind in vars(published).items():
        if name.endswith("StreamingEvent"):
            (value,) = kind.model_fields["type"].annotation
            found[str(value)] = kind
    return found


EVENTS: Final = _event_types()


def is_published(item: Mapping[str, Any]) -> bool:
    """Whether the specification knows this type of item; others are OpenAI's own."""
    return item["type"] in ITEMS


def check_object(found: Mapping[str, Any]) -> None:
    """Check a response or a compaction."""
    plain = dict(found)
    plain["output"] = [item for item in found["output"] if is_published(item)]
    if found["object"] == "response":
        plain |= _plain_request(found)
    _check(_OBJECTS[found["object"]], plain)


def check_item(found: Mapping[str, Any]) -> None:
    """Check an item, as lists have them."""
    if is_published(found):
        _refuse_nulls(_ITEM.validate_json(json.dumps(found), strict=True), "item")


def check_event(found: Mapping[str, Any]) -> None:
    """Check an event of a stream."""
    kind = EVENTS.get(found["type"])
    if "response" in found:
        check_object(found["response"])
        found = {**found, "response": {**found["response"], **_plain_request(found["response"])}}
        output = [item for item in found["response"]["output"] if is_published(item)]
        found["response"]["output"] = output
    if kind is None:
        assert found["type"].startswith(("response.mcp_call", "response.custom_tool_call_input")), (
            f"{found['type']} is neither published nor about a tool that only OpenAI has"
        )
    elif "item" not in found or is_published(found["item"]):
        _check(kind, found)


def _plain_request(response: Mapping[str, Any]) -> dict[str, Any]:
    """What a response repeats of its request, without what is OpenAI's own.

    The specification's schema has only functions among tools, knows no efforts but its own, and
    says of the schema of a structured output that it is null.
    """
    choice, text = response["tool_choice"], response["text"]
    if isinstance(choice, dict):
        if choice["type"] == "allowed_tools":
            tools = [tool for tool in choice["tools"] if tool["type"] == "function"]
            choice = {**choice, "tools": tools}
        elif choice["type"] != "function":
            choice = "required"
    if text["format"]["type"] == "json_schema":
        assert isinstance(text["format"]["schema"], dict)
        text = {**text, "format": {**text["format"], "schema": None}}
    reasoning = response["reasoning"]
    if reasoning["effort"] not in EFFORTS:
        reasoning = {**reasoning, "effort": None}
    return {
        "tools": [tool for tool in response["tools"] if tool["type"] == "function"],
        "tool_choice": choice,
        "text": text,
        "reasoning": reasoning,
    }


def _check(kind: type[BaseModel], found: Mapping[str, Any]) -> None:
    _refuse_nulls(kind.model_validate_json(json.dumps(found), strict=True), kind.__name__)


def _refuse_nulls(value: object, where: str) -> None:
    """Refuse an optional field that is null: the schema has it absent."""
    for model, path in _models(value, where):
        for name, field in type(model).model_fields.items():
            if not field.is_required() and name in model.model_fields_set:
                assert getattr(model, name) is not None, f"{path}.{name} is null"


def _models(value: object, path: str) -> Iterator[tuple[BaseModel, str]]:
    if isinstance(value, RootModel):
        yield from _models(value.root, path)
    elif isinstance(value, BaseModel):
        yield value, path
        for name in type(value).model_fields:
            yield from _models(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _models(each, f"{path}[{index}]")
