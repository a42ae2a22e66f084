"""The JSON Schema says what the settings say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from palaver.nodes import SCHEMA, schema
from tests.nodes.test_reading import GOOD


def test_the_schema_that_is_shipped_is_the_one_that_is_used() -> None:
    """`python -m palaver.nodes.schema` writes it again."""
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
