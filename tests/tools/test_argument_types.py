# The annotations of this module are read at run time.
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from palaver.errors import ValidationError
from palaver.messages import new_id, tool_call_part
from palaver.tools import FunctionTool, ToolContext, tool
from palaver.tools.function import check_arguments

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    a: int
    b: str


class Options(TypedDict):
    loud: bool


class Order(BaseModel):
    """What is bought."""

    item: str = Field(description="what", min_length=2)
    count: int = Field(default=1, ge=1, le=9)


async def given(made: FunctionTool[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401
    call = tool_call_part(new_id(), new_id(), made.spec.name, arguments)
    context = ToolContext("talk", call, lambda *_: None)
    check_arguments(made.spec.parameters, arguments)  # the schema takes what the function takes
    seen: list[Any] = []
    original = made._function

    def spy(**values: Any) -> str:  # noqa: ANN401
        seen.append(values)
        return "ok"

    made._function = spy
    try:
        await made.call(arguments, context)
    finally:
        made._function = original
    return seen[0]


@tool
def plain(  # noqa: PLR0917 - one of each
    colour: Colour,
    point: Point,
    pair: tuple[int, str],
    mode: Literal["fast", "slow"] = "fast",
    options: Options | None = None,
    many: list[Point] = [],  # noqa: B006 - it is copied
) -> str:
    """Take plain types."""
    return f"{colour}{point}{pair}{mode}{options}{many}"


async def test_a_function_gets_values_of_its_types() -> None:
    arguments = {"colour": "red", "point": {"x": 1}, "pair": [1, "a"], "many": [{"x": 2, "y": 3}]}
    found = await given(plain, arguments)
    assert (Colour.RED, Point(1, 0), (1, "a")) == (found["colour"], found["point"], found["pair"])
    assert ("fast", None, [Point(2, 3)]) == (found["mode"], found["options"], found["many"])


@tool
def buy(
    order: Order,
    note: Annotated[str, Field(description="why", max_length=5)] = "",
    more: list[Order] | None = None,
    *,
    context: ToolContext,
) -> str:
    """Buy something.

    Args:
        order: what to buy
    """
    return f"{order.item} {note} {more} {context.conversation}"


async def test_pydantic_models_and_fields_are_schema_and_values() -> None:
    found = await given(buy, {"order": {"item": "tea"}, "more": [{"item": "milk", "count": 2}]})
    assert Order(item="tea") == found["order"]
    assert [Order(item="milk", count=2)] == found["more"]
    assert "talk" == found["context"].conversation
    properties = buy.spec.parameters["properties"]
    assert {"order", "note", "more"} == set(properties)
    assert ("why", 5) == (properties["note"]["description"], properties["note"]["maxLength"])
    assert "what to buy" == properties["order"]["description"]
    item = buy.spec.parameters["$defs"]["Order"]["properties"]["item"]
    assert ("what", 2) == (item["description"], item["minLength"])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"order": {"item": "t"}},
        {"order": {"item": "tea", "count": 10}},
        {"order": {"item": "tea"}, "note": "too long"},
        {"order": {"item": "tea"}, "other": 1},
    ],
)
async def test_arguments_that_do_not_fit_a_model_are_refused(wrong: dict[str, Any]) -> None:
    context = ToolContext("talk", tool_call_part(new_id(), new_id(), "buy", {}), lambda *_: None)
    with pytest.raises(ValidationError, match="arguments"):
        await buy.call(wrong, context)


def test_a_tool_is_called_as_its_function_is() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    total: int = add(1, b=2)
    assert 3 == total


class Handle:
    """Nothing that JSON could have."""


class Holder(BaseModel, arbitrary_types_allowed=True):
    handle: Handle


@pytest.mark.parametrize("kind", [Handle, Holder, complex])
def test_what_json_can_not_have_is_refused_where_the_tool_is_made(kind: type) -> None:
    def odd(value: Any) -> str:  # noqa: ANN401
        return str(value)

    odd.__annotations__["value"] = kind
    with pytest.raises(ValidationError, match="odd can't be a tool: "):
        tool(odd)


class Deep(msgspec.Struct):
    pair: Pair
    inner: "list[Deep]" = []


async def test_a_struct_may_hold_itself() -> None:
    @tool
    def dig(deep: Deep) -> str:
        """Dig."""
        return str(deep)

    found = await given(dig, {"deep": {"pair": [1, "a"], "inner": [{"pair": [2, "b"]}]}})
    assert Pair(2, "b") == found["deep"].inner[0].pair
