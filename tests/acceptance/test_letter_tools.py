"""Tools, to the letter: arguments are held to their schema, and a tool's own bug is found."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest
from mcp.server.mcpserver import MCPServer

import palaver
from palaver.conversation import Conversation, Tool, tool
from palaver.errors import ToolFailed, ValidationError
from palaver.messages import ToolError, user
from palaver.messages.limits import freeze_mapping
from palaver.tools import SchemaTool
from palaver.tools.function import check_arguments
from palaver.tools.mcp import McpServer
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver import Store
    from palaver.conversation import ToolOutcome

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

# schema, a value that fits, a value that does not; a selection written for palaver
CASES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"const": [1]}, [1], [True]),
    ({"const": {"a": 0}}, {"a": 0.0}, {"a": False}),
    ({"enum": [[False]]}, [False], [0]),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [1, "a"], [1, 2]),
    ({"prefixItems": [True, True], "items": False}, [1, "a"], [1, 2, 3]),
    ({"$schema": DRAFT_7, "items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
    ({"dependentRequired": {"a": ["b"]}}, {"b": 2}, {"a": 1}),
    ({"dependentSchemas": {"a": {"maxProperties": 1}}}, {"a": 1}, {"a": 1, "b": 2}),
    ({"not": {"type": "string"}}, 1, "a"),
    ({"oneOf": [{"minimum": 2}, {"multipleOf": 2}]}, 3, 4),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"b": 1}, {"a": 1}),
    ({"contains": {"type": "integer"}, "maxContains": 1}, [1, "a"], [1, 2]),
    ({"uniqueItems": True}, [1, True, "1"], [{"a": 1}, {"a": 1.0}]),
    ({"pattern": "^[a-z]+$"}, "abc", "Abc"),
    ({"pattern": r"^(?!\.)\S+@\S+$"}, "a@b", ".a@b"),
    ({"patternProperties": {"^x": {"type": "string"}}}, {"y": 1}, {"x1": 1}),
    ({"propertyNames": {"maxLength": 2}}, {"ab": 1}, {"abc": 1}),
    ({"minProperties": 1}, {"a": 1}, {}),
    ({"multipleOf": 0.1}, 0.5, 0.55),
    ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    ({"$ref": "#name", "$defs": {"x": {"$anchor": "name", "type": "null"}}}, None, 0),
    ({"type": "integer"}, 2**70, 0.5),
    ({"type": "integer"}, 1.0, 1.5),
    ({"type": "integer", "maximum": 2**60}, 2**60, 2**60 + 1),
    ({"format": "email"}, "no address", None),
]


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_arguments_fit_their_schema_or_are_refused(
    schema: dict[str, Any], good: object, bad: object
) -> None:
    within = {"type": "object", "properties": {"value": schema}, "$defs": schema.get("$defs", {})}
    if "$schema" in schema:
        within["$schema"] = DRAFT_7
    check_arguments(schema, good)
    check_arguments(within, {"value": good})

    if bad is not None:
        for whole, value in ((schema, bad), (within, {"value": bad})):
            with pytest.raises(ValidationError) as refused:
                check_arguments(whole, value)
            assert "tool-arguments" == refused.value.rule


def test_palavers_own_schema_takes_palavers_own_arguments() -> None:
    @tool
    def place(at: tuple[int, str], also: tuple[float, ...] = ()) -> str:
        """Place."""
        return f"{at}{also}"

    check_arguments(place.spec.parameters, {"at": [1, "a"], "also": [1.5, 2]})
    with pytest.raises(ValidationError, match=r"\$\.at\[1\]: must be string, not a whole number"):
        check_arguments(place.spec.parameters, {"at": [1, 2]})


def test_frozen_arguments_and_tuples_are_checked_as_what_they_are() -> None:
    schema = {
        "properties": {"rows": {"items": {"type": "object", "properties": {"n": {"maximum": 3}}}}}
    }
    check_arguments(schema, freeze_mapping({"rows": [{"n": 3}, {}]}))
    check_arguments(freeze_mapping(schema), {"rows": ({"n": 3.0},)})
    with pytest.raises(ValidationError, match=r"\$\.rows\[1\]\.n: must be at most 3"):
        check_arguments(schema, freeze_mapping({"rows": [{"n": 3}, {"n": 4}]}))


def nested(depth: int, leaf: object) -> Any:  # noqa: ANN401 - JSON
    for _ in range(depth):
        leaf = [leaf]
    return leaf


TREE: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}


@pytest.mark.parametrize("depth", [129, 1_000, 100_000])
def test_what_is_nested_too_deep_to_check_does_not_pass(depth: int) -> None:
    for leaf in (1, "bad"):
        with pytest.raises(ValidationError, match="nested deeper than 128 levels"):
            check_arguments({"properties": {"tree": TREE}}, {"tree": nested(depth, leaf)})
    with pytest.raises(ValidationError, match="schema: it is nested deeper than 128 levels"):
        check_arguments({"not": nested(depth, {})}, {})


def test_the_last_of_many_values_is_checked_like_the_first() -> None:
    check_arguments(TREE, nested(127, 1))
    with pytest.raises(ValidationError, match="must be integer or array, not text") as refused:
        check_arguments(TREE, nested(127, "bad"))
    assert "$" + "[0]" * 127 == refused.value.path
    many: list[Any] = [1] * 300_000
    check_arguments(TREE, many)
    with pytest.raises(ValidationError, match="does not fit the schema"):
        check_arguments(TREE, [*many, "bad"])


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Definitions that use the next one twice each: 2 to the power of `levels` checks."""
    made = {str(n): {keyword: [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/0", "$defs": {**made, str(levels): {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 100_000 + "b"),
        ({"pattern": r"^(a+)+\1$"}, "a" * 100_000 + "b"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "a"),
        ({"pattern": "(" * 50_000}, "a"),
        (
            {"properties": {f"p{n}": {"pattern": f"\\p{{L}}{{1,{n}}}"} for n in range(99)}},
            {"p1": 1},
        ),
        (
            {
                "$defs": {
                    f"a{n}": {"$anchor": f"a{n}", "items": {"$ref": f"#a{n // 2}"}}
                    for n in range(999)
                }
            },
            1,
        ),
        (doubling(40, "allOf"), 1),
        (doubling(40, "anyOf"), 1),
        (doubling(12, "oneOf"), 1),
        ({"$ref": "#"}, 1),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "string"}, 1),
        ({"anyOf": [{"items": {"$ref": "#"}, "minItems": 1}] * 3}, nested(100, [])),
        ({"oneOf": [{"items": {"$ref": "#"}, "minItems": 1}] * 3}, nested(100, [])),
        ({"allOf": [{"items": {"$ref": "#"}}] * 3, "anyOf": [{"minItems": 1}]}, nested(100, [])),
        ({"x": {"anyOf": [{"items": {"$ref": "#/x"}}] * 2}, "$ref": "#/x"}, nested(100, "a")),
        (
            {
                "$ref": "#/$defs/0",
                "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(9999)},
            },
            1,
        ),
        ({"enum": [str(n) for n in range(20_000)]}, "x" * 1_000_000),
    ],
)
def test_a_hostile_schema_takes_no_time(schema: dict[str, Any], value: object) -> None:
    began = time.process_time()
    try:
        check_arguments(schema, value)
    except ValidationError as error:
        assert len(str(error)) < 1_000  # noqa: PT017 - it may fit

    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "https://elsewhere.example/schema"}, "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, "must be in it"),
        ({"$schema": "https://elsewhere.example/meta"}, "elsewhere"),
        (
            {"properties": {"a": {"type": "unheard-of"}}},
            r"\.properties\.a\.type: .* \"unheard-of\" is not one of",
        ),
        ({"minimum": "one"}, r"\.minimum: .* \"one\" is not of type \"number\""),
        ({"pattern": "("}, r"\.pattern: .* \"\(\" is not a \"regex\""),
        ({"enum": [object()]}, "it is no JSON"),
        ({"properties": {1: True}}, "must be str"),
        ({"$ref": "#a", "$defs": {"$anchor": {"x": 1}}}, "must be in it"),
        (doubling(40, "allOf"), "more than 100,000 subschemas"),
        ({"items": {"patternProperties": {str(n): {} for n in range(101)}}}, "101 regular expr"),
    ],
)
def test_a_schema_that_can_not_be_checked_with_is_refused_where_the_tool_is_made(
    schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        SchemaTool("work", "Work.", schema, print)

    assert "tool-definition" == refused.value.rule
    assert refused.value.path.startswith("$.parameters")


# ── failures of tools ───────────────────────────────────────────────────────────────────────────


def fails_inside() -> str:
    known: dict[str, str] = {}
    return known["no such key"]


def plain() -> str:
    """Fail, in a thread."""
    return fails_inside()


async def later() -> str:
    """Fail, in the loop."""
    await anyio.lowlevel.checkpoint()
    return fails_inside()


async def run(function: Tool | Callable[..., Any], store: Store) -> ToolOutcome:
    made = function if isinstance(function, Tool) else tool(name="work")(function)
    conversation = Conversation(store, tools=[made])
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("work", {}))))
    return await conversation.run_tool(step.calls[0])


@pytest.mark.anyio
@pytest.mark.parametrize("function", [plain, later])
async def test_the_traceback_of_a_tools_own_bug_is_in_the_log_and_on_the_outcome(
    function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with palaver.open(":memory:") as store, caplog.at_level(logging.WARNING, "palaver.tools"):
        done = await run(function, store)

        (record,) = [one for one in caplog.records if one.name == "palaver.tools"]
        assert record.exc_info is not None
        assert "work" in record.getMessage()
        assert "in fails_inside" in caplog.text
        assert "in fails_inside" in done.traceback
        assert "KeyError: 'no such key'" in done.traceback
        assert isinstance(done.state, ToolError)
        assert "KeyError: 'no such key'" == done.text
        stored = repr(store.get(done.call.session_id).view[:])
        assert "KeyError" in stored
        assert "fails_inside" not in stored


@pytest.mark.anyio
async def test_a_failure_of_an_mcp_tool_is_in_the_log_and_on_the_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs: MCPServer[Any] = MCPServer("theirs", log_level="CRITICAL")
    theirs.add_tool(plain, name="work")
    with palaver.open(":memory:") as store, caplog.at_level(logging.INFO, "palaver.tools"):
        async with McpServer(theirs) as server:
            done = await run(server.tools[0], store)
        gone = await run(server.tools[0], store)

    for outcome, words in ((done, "Error executing tool work"), (gone, "it is closed")):
        assert words in outcome.text
        assert words in outcome.traceback
        assert 'mcp.py", line' in outcome.traceback
    records = [one for one in caplog.records if one.name == "palaver.tools"]
    assert [True, True] == [bool(one.exc_info) for one in records]
    assert [logging.INFO, logging.ERROR] == [one.levelno for one in records]


@pytest.mark.anyio
async def test_neither_the_log_nor_the_outcome_has_a_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "sk-proj-" + "abcdefghijklmnop1234"

    def work() -> None:
        raise ValueError(f"401 for {key}")

    with palaver.open(":memory:") as store, caplog.at_level(logging.INFO, "palaver.tools"):
        done = await run(work, store)

    for text in (done.traceback, caplog.text):
        assert "ValueError: 401 for " in text
        assert key not in text


@pytest.mark.anyio
async def test_a_failure_that_is_meant_for_the_model_is_no_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work() -> None:
        raise ToolFailed("the printer is on fire")

    with palaver.open(":memory:") as store, caplog.at_level(logging.WARNING, "palaver.tools"):
        done = await run(work, store)

    assert "the printer is on fire" == done.text
    assert "in work" in done.traceback
    assert [] == caplog.records
