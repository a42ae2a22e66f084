"""Settings are read from dicts, JSON and YAML; what is wrong is named by its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from palaver.errors import ValidationError
from palaver.history import Truncate
from palaver.nodes import (
    SCHEMA,
    AskApproval,
    AskChoice,
    AskEdit,
    AskText,
    ClearOutputsConfig,
    CompressConfig,
    DropOldestConfig,
    LLMConfig,
    SummariseConfig,
    ToolConfig,
    read_config,
    schema,
)

GOOD: list[tuple[Any, dict[str, Any], object]] = [
    ("llm", {}, LLMConfig()),
    ("llm", {"model": "openai:gpt-5", "tools": ["pay"], "options": {"temperature": 0}},
     LLMConfig(model="openai:gpt-5", tools=("pay",), options={"temperature": 0})),
    ("tool", {"approval": "all"}, ToolConfig(approval="all")),
    ("tool", {"approval": ["pay"]}, ToolConfig(approval=("pay",))),
    ("human", {"kind": "approve"}, AskApproval()),
    ("human", {"kind": "text", "prompt": "Where?", "keepPrompt": True},
     AskText(prompt="Where?", keep_prompt=True)),
    ("human", {"kind": "choose", "options": ["a", "b"]}, AskChoice(options=("a", "b"))),
    ("human", {"kind": "edit", "role": "user"}, AskEdit(role="user")),
    ("compress", {"limit": 5, "strategies": [
        {"kind": "clear-outputs", "leastGain": 1},
        {"kind": "drop-oldest", "keepTokens": 2},
        {"kind": "summarise", "keepTokens": 3, "keepRoles": ["system", "user"]},
    ]}, CompressConfig(limit=5, strategies=(
        ClearOutputsConfig(least_gain=1),
        DropOldestConfig(keep_tokens=2),
        SummariseConfig(keep_tokens=3, keep_roles=("system", "user")),
    ))),
    ("context", {"operation": "truncate", "truncate": {"keepLast": 5}}, (Truncate(keep_last=5),)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "expected"), GOOD)
def test_settings_are_read_and_a_value_is_taken_as_it_is(
    kind: Any,  # noqa: ANN401 - a Kind
    data: dict[str, Any],
    expected: object,
) -> None:
    assert expected == read_config(kind, data)
    assert expected == read_config(kind, expected)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("llm", '{"model": "openai:gpt-5"}', LLMConfig(model="openai:gpt-5")),
        ("llm", b'{"model": "openai:gpt-5"}', LLMConfig(model="openai:gpt-5")),
        ("llm", "model: openai:gpt-5", LLMConfig(model="openai:gpt-5")),
        ("tool", "{approval: [pay]}", ToolConfig(approval=("pay",))),
        ("context", "operation: truncate\ntruncate:\n  keepLast: 5\n", (Truncate(keep_last=5),)),
        ("context", "- operation: TRUNCATE\n  keepLast: 5\n", (Truncate(keep_last=5),)),
        ("context", '[{"operation": "TRUNCATE", "keepLast": 5}]', (Truncate(keep_last=5),)),
    ],
)
def test_a_text_is_json_or_yaml(kind: Any, text: Any, expected: object) -> None:  # noqa: ANN401 - as above
    assert expected == read_config(kind, text)


@pytest.mark.parametrize(
    ("kind", "data", "path", "words"),
    [
        ("llm", {"modle": "x"}, "$.modle", "is not a field of it"),
        ("llm", {"model": ""}, "$.model", "length >= 1"),
        ("llm", {"tools": ["a", 5]}, "$.tools[1]", "expected `str`"),
        ("llm", {"options": {"temprature": 1}}, "$.options.temprature", "no such option"),
        ("llm", 5, "$", "must be an object"),
        ("llm", ToolConfig(), "$", "settings of another node"),
        ("llm", "[5]", "$", "must be an object"),
        ("llm", '{"model": }', "$", "is not JSON"),
        ("llm", "model: [", "$", "line 1"),
        ("llm", '{\n  "model": "a",\n  "model": "b"\n}', "$.model", "twice"),
        ("tool", {"approval": "some"}, "$.approval", "enum"),
        ("human", {"prompt": "x"}, "$.kind", "is missing"),
        ("human", {"kind": "shout"}, "$.kind", "'shout'"),
        ("human", {"kind": "choose"}, "$.options", "is missing"),
        ("human", {"kind": "choose", "options": ["a"]}, "$.options", "length >= 2"),
        ("human", {"kind": "choose", "options": ["a", "b", "a"]}, "$.options[2]", "occurs twice"),
        ("human", {"kind": "edit", "role": "robot"}, "$.role", "'robot'"),
        ("compress", {"limit": 0}, "$.limit", ">= 1"),
        ("compress", {"strategies": []}, "$.strategies", "length >= 1"),
        ("compress", {"strategies": [{"kind": "drop-oldest"}]}, "$.strategies[0].keepTokens",
         "is missing"),
        ("compress", {"strategies": [{"kind": "clear-outputs", "leastGain": -1}]},
         "$.strategies[0].leastGain", ">= 0"),
        ("context", "operation: truncate\ntruncate:\n  keepLast: -1\n", "$.truncate.keepLast",
         "line 3, column 3: must not be negative"),
        ("robot", {}, "$.kind", "no such node: 'robot'; there are compress, context"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(kind: Any, data: Any, path: str, words: str) -> None:  # noqa: ANN401 - as above
    with pytest.raises(ValidationError) as caught:
        read_config(kind, data)
    assert path == caught.value.path
    assert words in caught.value.detail


# ── the JSON Schema ─────────────────────────────────────────────────────────────────────────────


def test_the_schema_that_is_shipped_is_the_one_that_is_used() -> None:
    """`palaver schema nodes` writes it again."""
    assert schema() == json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(("kind", "data"), [(kind, data) for kind, data, _ in GOOD])
def test_it_accepts_what_is_read(kind: Any, data: dict[str, Any]) -> None:  # noqa: ANN401 - a Kind
    Draft202012Validator(schema(kind)).validate(data)
    Draft202012Validator(schema()).validate(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("llm", {"modle": "x"}),
        ("tool", {"approval": "some"}),
        ("human", {"kind": "choose", "options": ["a"]}),
        ("compress", {"strategies": [{"kind": "drop-oldest"}]}),
        ("context", {"operation": "truncate"}),
        ("context", {"operation": "truncate", "truncate": {"keepLast": -1}}),
        ("context", {"operation": "truncate", "truncate": {"role": "user"}}),
        ("context", {"operation": "truncate", "truncate": {"keepLast": 1}, "clear": {}}),
        ("context", {"operation": "INSERT", "position": -1, "messages": []}),
        ("context", {"operation": "insert", "insert": {"position": 0, "messages": [{}]}}),
        ("context", {"operation": "explode"}),
        ("context", []),
    ],
)
def test_it_refuses_what_is_refused(kind: Any, data: Any) -> None:  # noqa: ANN401 - a Kind, JSON
    assert not Draft202012Validator(schema(kind)).is_valid(data)


@pytest.mark.parametrize(
    "data",
    [
        {"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}},
        {"operation": "TRUNCATE", "role": "user", "keepLast": 5},
        {"operation": "clear"},
        {"operation": "CLEAR", "keepSystemMessage": False},
        {"operation": "insert", "insert": {"position": 0, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]}]}},
        [{"operation": "ROLLBACK", "targetBatchIndex": 0}, {"operation": "clear", "clear": {}}],
    ],
)  # fmt: skip
def test_both_forms_of_a_context_are_in_it(data: Any) -> None:  # noqa: ANN401 - JSON
    Draft202012Validator(schema("context")).validate(data)
