"""Functions as tools: schemas from signatures, arguments checked, every kind of function."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

import anyio.lowlevel
import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec import Meta, Struct
from typing_extensions import TypedDict

from palaver.conversation import Tool, ToolContext, ToolOutput, tool
from palaver.errors import ValidationError
from palaver.testing.providers import FORMAT_NAMES, check_request
from palaver.wire import write_tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from palaver.testing.providers import FormatName
    from palaver.tools import FunctionTool

pytestmark = pytest.mark.anyio


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(Struct):
    lat: float
    lon: float = 0.0


@dataclass
class Box:
    corner: Place
    name: str = "box"


class Options(TypedDict):
    fast: bool
    depth: NotRequired[int]


def everything(  # noqa: PLR0917 - it is what is tested
    text: str,
    number: Annotated[int, Meta(ge=1, le=10)],
    either: int | str,
    unit: Unit = Unit.C,
    word: Literal["a", "b"] = "a",
    place: Place | None = None,
    box: Box | None = None,
    options: Options | None = None,
    many: list[Place] = [],  # noqa: B006 - it is what is tested
    table: dict[str, float] = {},  # noqa: B006 - the same
    said: Annotated[str, "in your own words"] = "",
    *,
    sloppy: int = None,  # type: ignore[assignment] # pyright: ignore[reportArgumentType] # noqa: RUF013
    anything: Any = 3,  # noqa: ANN401 - the same
) -> str:
    """Take everything."""
    many.append(Place(9.0))  # its own to change
    return repr(
        (text, number, either, unit, word, place, box, options, many, table, said, sloppy, anything)
    )


def properties(made: FunctionTool[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made.spec.parameters["properties"]
    return found


def test_the_signature_is_the_schema() -> None:
    """CV-05."""
    made = tool(everything)
    found = properties(made)

    assert ["text", "number", "either"] == made.spec.parameters["required"]
    assert {"type": "integer", "minimum": 1, "maximum": 10} == found["number"]
    assert {"anyOf": [{"type": "integer"}, {"type": "string"}]} == found["either"]
    assert {"enum": ["a", "b"], "default": "a"} == found["word"]
    assert "in your own words" == found["said"]["description"]
    assert {"type": "null"} in found["sloppy"]["anyOf"]
    assert {"default": 3} == found["anything"]
    defined = made.spec.parameters["$defs"]
    assert {"Place", "Box", "Options", "Unit"} == set(defined)
    assert ["celsius", "fahrenheit"] == sorted(defined["Unit"]["enum"])
    assert made.spec.parameters["additionalProperties"] is False


BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"model": "m", "input": [{"role": "user", "content": "hi"}]},
    "anthropic": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_the_schema_is_whole_in_every_format(form: FormatName) -> None:
    """CV-03, CV-05: it is valid JSON schema, and says the same there as here."""
    specs = [tool(everything).spec, tool(name="nothing")(lambda: None).spec]
    written = write_tools(form, specs)
    tools = written[0]["functionDeclarations"] if form == "gemini" else written
    for made, spec in zip(tools, specs, strict=True):
        function = made.get("function", made)
        slots = ("parameters", "input_schema", "parametersJsonSchema")
        schema = next(function[slot] for slot in slots if slot in function)
        Draft202012Validator.check_schema(schema)

        assert spec.name == function["name"]
        assert spec.schema == schema
        assert spec.schema == msgspec.json.decode(msgspec.json.encode(schema))
    assert () == check_request(form, {**BODIES[form], "tools": written})


async def test_arguments_arrive_as_their_types(context: ToolContext) -> None:
    given = {
        "text": "t",
        "number": 3,
        "either": "x",
        "unit": "fahrenheit",
        "place": {"lat": 1.5},
        "box": {"corner": {"lat": 1, "lon": 2}},
        "options": {"fast": True},
        "table": {"a": 1},
    }
    made = tool(everything)
    first, again = await made.call(given, context), await made.call(given, context)

    assert first == again  # a default that the tool changed is a fresh one the next time
    expected = (
        "('t', 3, 'x', <Unit.F: 'fahrenheit'>, 'a', Place(lat=1.5, lon=0.0), "
        "Box(corner=Place(lat=1.0, lon=2.0), name='box'), {'fast': True}, "
        "[Place(lat=9.0, lon=0.0)], {'a': 1.0}, '', None, 3)"
    )
    assert expected == first.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "missing required field `a`"),
        ({"a": "1"}, "Expected `int`, got `str` - at `$.a`"),
        ({"a": 1.5}, "Expected `int`, got `float` - at `$.a`"),
        ({"a": 0}, "Expected `int` >= 1 - at `$.a`"),
        ({"a": 1, "b": 2}, "unknown field `b`"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    context: ToolContext, given: dict[str, Any], words: str
) -> None:
    """CV-05: and the function is not called."""
    called: list[int] = []

    def note(a: Annotated[int, Meta(ge=1)]) -> None:
        called.append(a)

    with pytest.raises(ValidationError) as refused:
        await tool(note).call(given, context)

    assert words in str(refused.value)
    assert "tool-arguments" == refused.value.rule
    assert [] == called


async def test_a_whole_number_may_be_written_as_a_fraction(context: ToolContext) -> None:
    """Some models write 3.0 where 3 is asked for."""

    def double(numbers: list[int], by: dict[str, int]) -> list[int]:
        return [number * by["x"] for number in numbers]

    assert "[6]" == (await tool(double).call({"numbers": [3.0], "by": {"x": 2.0}}, context)).text


class Adder:
    """Adds what it was made with."""

    def __init__(self, to: int) -> None:
        self.to = to

    def __call__(self, a: int) -> int:
        return self.to + a

    def method(self, a: int) -> int:
        """Add in a method."""
        return self.to + a

    async def later(self, a: int) -> int:
        await anyio.lowlevel.checkpoint()
        return self.to + a


def add(to: int, a: int) -> int:
    """Add."""
    return to + a


def passing(a: int) -> Any:  # noqa: ANN401 - something to wait for
    return Adder(1).later(a)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Adder(1), "Adder"),
        (Adder(1).method, "method"),
        (Adder(1).later, "later"),
        (partial(add, 1), "add"),
        (passing, "passing"),
    ],
)
async def test_whatever_can_be_called_can_be_a_tool(
    function: Any,  # noqa: ANN401 - each of another kind
    name: str,
    context: ToolContext,
) -> None:
    made = tool(function)

    assert name == made.spec.name
    assert isinstance(made, Tool)
    assert properties(made)["a"] in ({"type": "integer"}, {})
    assert "3" == (await made.call({"a": 2}, context)).text


async def test_plain_functions_run_in_a_thread_and_async_ones_in_the_loop(
    context: ToolContext,
) -> None:
    threads: list[int] = []

    def plain() -> None:
        threads.append(threading.get_ident())

    async def later() -> None:
        await anyio.lowlevel.checkpoint()
        threads.append(threading.get_ident())

    await tool(plain).call({}, context)
    await tool(later).call({}, context)

    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


async def test_the_context_is_filled_in_and_no_business_of_the_model(
    context: ToolContext, told: list[Any]
) -> None:
    def work(a: int, about: ToolContext, maybe: int = 1) -> str:
        about.progress("half", {"done": a})
        about.progress("all")
        return about.call.call_id + str(maybe)

    def optional(about: ToolContext | None = None) -> str:
        return "none" if about is None else about.conversation

    assert ["a", "maybe"] == list(properties(tool(work)))
    assert "call_11" == (await tool(work).call({"a": 3}, context)).text
    assert [("half", {"done": 3}), ("all", {})] == told
    assert "c" == (await tool(optional).call({}, context)).text


def test_name_description_and_promises_can_be_given() -> None:
    @tool(name="other", description="Does it.", idempotent=True, timeout=2.5)
    def work() -> None:
        """Not this."""

    assert ("other", "Does it.") == (work.spec.name, work.spec.description)
    assert (True, 2.5) == (work.idempotent, work.timeout)
    assert (False, None) == (tool(add).idempotent, tool(add).timeout)


def test_options_may_come_with_the_function() -> None:
    made = tool(add, name="plus", idempotent=True)

    assert ("plus", True) == (made.spec.name, made.idempotent)


def test_a_tool_is_still_the_function() -> None:
    assert 3 == tool(add)(1, a=2)


def packed(*args: int) -> None:
    """Take any number."""


def named(**rest: int) -> None:
    """Take any names."""


def positional(a: int, /) -> None:
    """Take no names."""


def two_structs(a: Place | Box) -> None:
    """Take what can't be told apart."""


def unheard(a: Path) -> None:
    """Take what is imported for type checkers only."""


def yielding() -> Iterator[int]:
    """Give many."""
    yield 1


async def yielding_later() -> AsyncIterator[int]:
    """Give many, later."""
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (packed, "packed can't be a tool: 'args' is no argument that a model can give by name"),
        (named, "'rest' is no argument"),
        (positional, "'a' is no argument"),
        (
            two_structs,
            "two_structs can't be a tool: its argument 'a': Type unions may not contain more",
        ),
        (unheard, "unheard can't be a tool: its annotations can't be read: name 'Path'"),
        (yielding, "yielding can't be a tool: a tool returns its result once"),
        (yielding_later, "a tool returns its result once"),
    ],
)
def test_what_can_be_no_tool_is_refused_when_it_is_made(
    function: Any,  # noqa: ANN401 - each of another kind
    words: str,
) -> None:
    with pytest.raises(ValidationError) as refused:
        tool(function)

    assert words in str(refused.value)


def odd(a: int = 1, b: Any = Adder) -> ToolOutput:  # noqa: ANN401 - it is what is tested
    """Have a default that no JSON can spell."""
    return ToolOutput(f"{a} {b is Adder}", title="Odd", metadata={"a": a})


async def test_a_default_that_is_no_json_is_kept_all_the_same(context: ToolContext) -> None:
    done = await tool(odd).call({}, context)

    assert ("1 True", "Odd", {"a": 1}) == (done.text, done.title, done.metadata)
