"""Tool calls of a model that was never taught any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.models.local import (
    OutputParser,
    grammar,
    output_schema,
    plain_messages,
    tool_instructions,
)
from palaver.wire import ToolSpec

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {"weather": ToolSpec("weather", "The weather.", CITY), "clock": ToolSpec("clock")}


def said(schema: dict[str, Any]) -> list[str]:
    ways = schema.get("anyOf", [schema])
    return [
        way["properties"]["tool"]["const"] if way["title"] == "tool" else "answer" for way in ways
    ]


@pytest.mark.parametrize(
    ("choice", "ways"),
    [
        ("auto", ["answer", "weather", "clock"]),
        ("required", ["weather", "clock"]),
        ("clock", ["clock"]),
    ],
)
def test_only_what_is_wanted_can_be_said(choice: str, ways: list[str]) -> None:
    assert ways == said(output_schema(TOOLS, choice))


def test_nothing_undeclared_can_be_passed_unless_the_tool_says_so() -> None:
    free = {"type": "object"}
    own = {**CITY, "additionalProperties": True}
    tools = {**TOOLS, "free": ToolSpec("free", "", free), "own": ToolSpec("own", "", own)}
    ways = output_schema(tools, "required")["anyOf"]
    found = [way["properties"]["arguments"].get("additionalProperties") for way in ways]
    assert [False, False, None, True] == found


def test_definitions_of_tools_move_to_the_top_and_stay_apart() -> None:
    def tool(kind: str) -> ToolSpec:
        ref = {"$ref": "#/$defs/Place"}
        place = {"type": "object", "properties": {"next": [ref], "kind": {"const": kind}}}
        fields = {"type": "object", "properties": {"at": ref}, "$defs": {"Place": place}}
        return ToolSpec(kind, "", fields)

    schema = output_schema({"a": tool("a"), "b": tool("b")}, "required")
    refs = [way["properties"]["arguments"]["properties"]["at"]["$ref"] for way in schema["anyOf"]]
    assert ["#/$defs/0_Place", "#/$defs/1_Place"] == refs
    assert {"0_Place", "1_Place"} == set(schema["$defs"])
    assert [{"$ref": "#/$defs/1_Place"}] == schema["$defs"]["1_Place"]["properties"]["next"]


def test_the_grammar_holds_the_schema_and_forbids_white_space() -> None:
    head, body = grammar(CITY).split("\nstart: %json ")
    assert "%llguidance {}" == head
    assert {**CITY, "x-guidance": {"whitespace_flexible": False}} == json.loads(body)


def test_the_model_is_told_of_what_it_may_use() -> None:
    auto, one = tool_instructions(TOOLS, "auto"), tool_instructions(TOOLS, "clock")
    assert "- weather: The weather. Arguments: {" in auto
    assert '"answer"' in auto
    assert "weather" not in one
    assert '"answer"' not in one


def test_calls_and_results_become_text() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        {"role": "assistant", "content": "Wait.", "tool_calls": [{**call, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "one"}]},
        {"role": "user", "content": "Thanks."},
    ]
    assert [
        {"role": "system", "content": "About.\n\nBe brief."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": '{"tool":"clock","arguments":{}}'},
        {"role": "user", "content": "Result of clock: noon"},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        {"role": "assistant", "content": 'Wait.\n{"tool":"clock","arguments":{}}'},
        {"role": "user", "content": "Result of clock: one\n\nThanks."},
    ] == plain_messages(messages, "About.")


@given(st.text(), st.integers(1, 5), st.sampled_from(["escaped", "plain", "indented"]))
def test_an_answer_streams_as_it_was_said(text: str, size: int, how: str) -> None:
    escaped, indent = how == "escaped", 2 if how == "indented" else None
    raw = json.dumps({"answer": text}, ensure_ascii=escaped, indent=indent)
    reader = OutputParser()
    heard = [reader.feed(raw[start : start + size]) for start in range(0, len(raw), size)]
    assert text == "".join(heard)
    assert reader.call() is None


def test_half_of_a_pair_is_no_character() -> None:
    reader = OutputParser()
    assert "a\ufffdb" == reader.feed('{"answer":"a\\udc00b')


@pytest.mark.parametrize(
    ("raw", "call"),
    [
        ('{"tool":"weather","arguments":{"city":"Oslo"}}', ("weather", '{"city":"Oslo"}')),
        ('{ "tool": "clock",\n "arguments": { } }', ("clock", "{ }")),
        ('{"tool":"weather","arguments":{"city":"Os', ("weather", '{"city":"Os')),
        ('{"tool":"wea', None),
        ("", None),
    ],
)
def test_a_call_is_read_to_the_letter(raw: str, call: tuple[str, str] | None) -> None:
    reader = OutputParser()
    assert "" == reader.feed(raw)
    assert call == reader.call()


def test_who_may_call_nothing_may_only_answer() -> None:
    tools = {"clock": ToolSpec("clock", "The time.")}
    schema = output_schema(tools, "none")
    assert ["answer"] == schema["required"]
    assert (
        "answer" in tool_instructions(tools, "none"),
        "clock" in tool_instructions(tools, "none"),
    ) == (
        True,
        False,
    )


def test_an_answer_may_have_a_schema_of_its_own() -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    wanted = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}}
    schema = output_schema(TOOLS, "auto", {**wanted, "$defs": {"Place": place}})
    answer = schema["anyOf"][0]["properties"]["answer"]
    assert {"$ref": "#/$defs/answer_Place"} == answer["properties"]["at"]
    assert {"answer_Place": place} == schema["$defs"]


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ('{"answer":{"city":"Oslo"}}', '{"city":"Oslo"}'),
        ('{"answer":{"city":"Os', '{"city":"Os'),
        ('{"answer":"Oslo"}', ""),
        ('{"tool":"clock","arguments":{}}', ""),
    ],
)
def test_an_answer_that_is_an_object_is_read_to_the_letter(raw: str, answer: str) -> None:
    reader = OutputParser()
    reader.feed(raw)
    assert answer == reader.object()
