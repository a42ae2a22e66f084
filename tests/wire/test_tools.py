"""Tools as each provider wants them."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import ValidationError
from palaver.testing import check_request
from palaver.testing.providers import FORMAT_NAMES, FormatName
from palaver.wire import ToolSpec, spell_tool, tool_names, write_tools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SPECS = (
    ToolSpec("weather", "The weather.", SCHEMA),
    ToolSpec("clock"),
    ToolSpec("über.tool/1 " + "x" * 200, "Odd.", {"properties": {}}),
)
BODIES: dict[FormatName, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "openai-responses": {"input": [{"role": "user", "content": "Hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "Hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_whatever_the_tools_are_the_provider_takes_them(form: FormatName) -> None:  # CV-03
    assert () == check_request(form, {**BODIES[form], "tools": write_tools(form, SPECS)})


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_every_tool_gets_its_name_back(form: FormatName) -> None:
    names = tool_names(form, SPECS)
    assert [spec.name for spec in SPECS] == list(names.values())
    assert [spell_tool(form, spec.name) for spec in SPECS] == list(names)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            "openai-chat",
            [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "The weather.",
                        "parameters": SCHEMA,
                    },
                }
            ],
        ),
        (
            "openai-responses",
            [
                {
                    "type": "function",
                    "name": "weather",
                    "description": "The weather.",
                    "parameters": SCHEMA,
                    "strict": False,
                }
            ],
        ),
        (
            "anthropic",
            [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}],
        ),
        (
            "gemini",
            [
                {
                    "functionDeclarations": [
                        {
                            "name": "weather",
                            "description": "The weather.",
                            "parametersJsonSchema": SCHEMA,
                        }
                    ]
                }
            ],
        ),
    ],
)
def test_a_tool_is_written_in_the_providers_words(form: str, expected: object) -> None:
    assert expected == write_tools(form, SPECS[:1])


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_no_tools_are_nothing(form: FormatName) -> None:
    assert [] == write_tools(form, ())


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="no such format: 'morse'"):
        write_tools("morse", SPECS)
