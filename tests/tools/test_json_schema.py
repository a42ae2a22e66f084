"""Tools by JSON schema: arguments are checked before anything runs."""

from __future__ import annotations

import sys
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
        "name": {"pattern": "^[a-z]+$", "not": {"const": "root"}},
        "exact": {"prefixItems": [{"type": "integer"}], "items": False, "uniqueItems": True},
        "table": {"propertyNames": {"maxLength": 2}, "minProperties": 1, "maxProperties": 2},
        "step": {"multipleOf": 5},
        "kinds": {"contains": {"const": 1}},
        "person": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
        "shape": {
            "oneOf": [
                {"properties": {"r": {"type": "number"}}, "required": ["r"]},
                {"properties": {"w": {"type": "number"}}, "required": ["w"]},
            ]
        },
        "open": {"type": "object", "additionalProperties": {"type": "integer"}},
        "loose": {"additionalProperties": False, "patternProperties": {"^x": {}}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "in": {"depth/here": {"type": "object", "required": ["x"]}},
        "person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/person"}},
            "required": ["name"],
            "additionalProperties": False,
        },
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
        {"one": True, "name": "ann", "exact": [1], "table": {"a": 1}, "step": 10, "kinds": [1]},
        {"open": {"a": 1}, "loose": {"x": 1}, "shape": {"r": 1}},
        {"person": {"name": "Ann", "boss": {"name": "Bob"}}},
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
        ({"either": 3}, "$.either: must be string or object, not a whole number"),
        ({"either": {}}, "$.either.x: is missing"),
        ({"one": 3}, "$.one: must be null or boolean or string, not a whole number"),
        ({"all": "abcd"}, "$.all: must be at most 3 characters"),
        ({"deep": {"next": {"n": "x"}}}, "$.deep.next.n: must be integer, not text"),
        ({"never": 1}, "$.never: is not allowed here"),
        ({"what": 1}, "$.what: is not known; there are: all, any, city,"),
        ({"open": {"a": "b"}}, "$.open.a: must be integer, not text"),
        ({"loose": {"y": 1}}, "$.loose.y: is not known [tool-arguments]"),
        ({"name": "Ann"}, "$.name: must match the pattern ^[a-z]+$"),
        ({"name": "root"}, "$.name: is of a form that is not allowed"),
        ({"exact": [1, 2]}, "$.exact[1]: is not allowed here"),
        ({"exact": [1, 1]}, "$.exact"),
        ({"table": {"abc": 1}}, "$.table: has a field whose name must be at most 2 characters"),
        ({"table": {}}, "$.table: must be at least 1 fields"),
        ({"step": 3}, "$.step: must be a multiple of 5"),
        ({"kinds": []}, "$.kinds: does not contain the items that it must contain"),
        ({"person": {}}, "$.person.name: is missing"),
        ({"person": {"name": "A", "boss": {"name": 1}}}, "$.person.boss.name: must be string, not"),
        ({"person": {"name": "A", "x": 1}}, "$.person.x: is not known; there are: boss, name"),
        ({"shape": {"r": "x"}}, "$.shape.r: must be number, not text"),
        ({"shape": {"r": 1, "w": 1}}, "$.shape: is of several of the forms of which it must"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: dict[str, Any], words: str) -> None:
    """CV-05."""
    with pytest.raises(ValidationError) as refused:
        check_arguments(SCHEMA, freeze_mapping({"city": "Oslo", **given}))

    assert words in str(refused.value)
    assert "[tool-arguments]" in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        # the names of its fields are keywords
        ({"properties": {"$ref": {"type": "null"}, "anyOf": True}}, {"$ref": 1}, "must be null"),
        ({"properties": {"properties": {"enum": [1]}}}, {"properties": 2}, "must be one of 1"),
        # an id of its own, an anchor, a dynamic one, and a reference inside of a choice
        (
            {
                "$id": "https://a.example/b",
                "items": {"$ref": "#/$defs/c"},
                "$defs": {"c": {"type": "null"}},
            },
            [1],
            "$[0]: must be null",
        ),
        (
            {"items": {"$ref": "c"}, "$defs": {"c": {"$id": "c", "type": "null"}}},
            [1],
            "must be null",
        ),
        (
            {"items": {"$ref": "#c"}, "$defs": {"c": {"$anchor": "c", "type": "null"}}},
            [1],
            "$[0]: must be null",
        ),
        (
            {"$dynamicAnchor": "n", "type": "array", "items": {"$dynamicRef": "#n"}},
            [[1]],
            "$[0][0]: must be array",
        ),
        (
            {
                "anyOf": [{"minimum": 2}],
                "items": {"$ref": "#/anyOf/0"},
                "not": {"$ref": "#/anyOf/0"},
            },
            [1],
            "$",
        ),
        # what a reference evaluates is not known where it is hidden
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"properties": {"b": True}}},
                "unevaluatedProperties": False,
            },
            {"c": 1},
            "does not fit the schema",
        ),
        (
            {"prefixItems": [True], "unevaluatedItems": False},
            [1, 2],
            "has items that are not allowed",
        ),
        ({"unevaluatedProperties": False}, {"c": 1}, "$.c: is not known"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"},
            "%",
            "does not fit contentEncoding in the schema",
        ),
        (False, 1, "$: is not allowed here"),
        ({"additionalProperties": False}, {"a": 1}, "$: must have no fields"),
        ({"properties": {}, "additionalProperties": False}, {"a": 1}, "$.a: is not known"),
        ({"anyOf": []}, 1, "$.parameters"),
        ({"const": "x" * 10_000}, 1, "xxx…"),
        ({"type": "object"}, {1: 2}, "$: is no JSON: Dict key must be str"),
        ({"type": "object"}, {"a": object()}, "$: is no JSON: Encoding objects of type object"),
        ({"type": "string"}, "\ud800", "$: is no JSON"),
    ],
)
def test_a_problem_is_described_whatever_the_schema_is_like(
    schema: dict[str, Any], value: object, words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        check_arguments(schema, value)

    assert words in str(refused.value)


def test_without_the_library_a_tool_is_refused_where_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    with pytest.raises(ValidationError, match=r"pip install 'palaver\[schema\]'"):
        SchemaTool("w", "W.", {}, print)


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
