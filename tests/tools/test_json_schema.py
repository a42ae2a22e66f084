"""Tools by JSON schema: arguments are checked before anything runs."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import anyio.lowlevel
import pytest

from palaver.conversation import Toolbox, ToolContext
from palaver.errors import ValidationError
from palaver.messages.limits import freeze_mapping
from palaver.tools import SchemaTool
from palaver.tools.function import check_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 5},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "unit": {"enum": ["C", 1, None]},
        "kind": {"const": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/in/depth~1here"}]},
        "one": {"oneOf": [{"type": "null"}, {"type": ["boolean", "string"]}]},
        "all": {"allOf": [{"type": "string"}, {"maxLength": 3}]},
        "deep": {"$ref": "#/$defs/node"},
        "never": False,
        "any": True,
        "odd": {"type": "unheard-of"},
        "lost": {"$ref": "#/$defs/nowhere"},
        "away": {"$ref": "https://elsewhere.example/schema"},
        "open": {"type": "object", "additionalProperties": {"type": "integer"}},
        "loose": {"additionalProperties": False, "patternProperties": {"^x": {}}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "in": {"depth/here": {"type": "object", "required": ["x"]}},
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}},
        },
    },
}


@pytest.mark.parametrize(
    "given",
    [
        {"days": 7, "share": 0.5, "unit": None, "kind": 1, "tags": ["a"], "either": "x"},
        {"days": 3.0, "unit": 1, "either": {"x": 1}, "one": None, "all": "abc", "any": [1]},
        {"one": True, "odd": 1, "lost": 1, "away": 1, "open": {"a": 1}, "loose": {"x": 1}},
        {"deep": {"next": {"next": {"n": 1}}}},
    ],
)
def test_what_fits_is_taken(given: dict[str, Any]) -> None:
    check_arguments(SCHEMA, freeze_mapping({"city": "Oslo", **given}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"city": 3}, "$.city: must be string, not a whole number"),
        ({"city": "O"}, "$.city: must be at least 2 characters"),
        ({"city": "Helsinki"}, "$.city: must be at most 5 characters"),
        ({"days": 0}, "$.days: must be at least 1"),
        ({"days": 8}, "$.days: must be at most 7"),
        ({"days": 1.5}, "$.days: must be integer, not a number"),
        ({"days": True}, "$.days: must be integer, not a boolean"),
        ({"share": 0}, "$.share: must be more than 0"),
        ({"share": 1}, "$.share: must be less than 1"),
        ({"unit": True}, "$.unit: must be one of 'C', 1, None"),
        ({"kind": 2}, "$.kind: must be 1"),
        ({"tags": []}, "$.tags: must be at least 1 items"),
        ({"tags": ["a", 1]}, "$.tags[1]: must be string, not a whole number"),
        ({"either": 3}, "$.either: must be string, not a whole number"),
        ({"either": {}}, "$.either.x: is missing"),
        ({"one": 3}, "$.one: must be null, not a whole number"),
        ({"all": "abcd"}, "$.all: must be at most 3 characters"),
        ({"deep": {"next": {"n": "x"}}}, "$.deep.next.n: must be integer, not text"),
        ({"never": 1}, "$.never: is not allowed here"),
        ({"what": 1}, "$.what: is not known; there are: city, days,"),
        ({"open": {"a": "b"}}, "$.open.a: must be integer, not text"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: dict[str, Any], words: str) -> None:
    """CV-05."""
    with pytest.raises(ValidationError) as refused:
        check_arguments(SCHEMA, freeze_mapping({"city": "Oslo", **given}))

    assert words in str(refused.value)
    assert "[tool-arguments]" in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "string"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    ],
)
def test_a_schema_that_runs_in_circles_takes_no_time(schema: dict[str, Any]) -> None:
    began = time.monotonic()
    with suppress(ValidationError):
        check_arguments(schema, {"a": 1})

    assert time.monotonic() - began < 5


@pytest.mark.anyio
async def test_the_function_gets_one_object_of_its_own(context: ToolContext) -> None:
    given = freeze_mapping({"city": "Oslo", "deep": {"n": 1}})

    def change(arguments: dict[str, Any]) -> int:
        arguments["deep"]["n"] += 1
        found: int = arguments["deep"]["n"]
        return found

    async def later(arguments: dict[str, Any]) -> int:
        await anyio.lowlevel.checkpoint()
        return change(arguments)

    def passing(arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - something to wait for
        return later(arguments)

    for function in (change, later, passing):
        made = SchemaTool("w", "W.", SCHEMA, function, idempotent=True, timeout=3)
        assert "2" == (await made.call(given, context)).text
        assert (True, 3) == (made.idempotent, made.timeout)
    assert {"n": 1} == given["deep"]


@pytest.mark.anyio
async def test_what_does_not_fit_is_never_run(context: ToolContext) -> None:
    made = SchemaTool("w", "W.", SCHEMA, lambda _: pytest.fail("it ran"))

    with pytest.raises(ValidationError, match="city: is missing"):
        await made.call({}, context)


def test_a_toolbox_holds_tools_by_name() -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    made = SchemaTool("w", "W.", SCHEMA, print)
    box = Toolbox([add, made])

    assert ["add", "w"] == list(box)
    assert 2 == len(box)
    assert made is box["w"]
    assert ["Add.", "W."] == [spec.description for spec in box.specs]
    with pytest.raises(ValidationError, match="two tools named 'w'"):
        Toolbox([made, made])
