"""The tools that a request offers to a model, in each provider's own words.

A tool's name goes out in the alphabet that the provider allows, spelled as the calls in the
messages are; `tool_names` says whose each spelling is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.gate import EMPTY
from palaver.wire.anthropic import ANTHROPIC
from palaver.wire.chat import CHAT
from palaver.wire.gemini import GEMINI
from palaver.wire.responses import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.wire.format import Format

__all__ = ["ToolSpec", "spell_tool", "tool_names", "write_tools"]

_FORMATS: Final[Mapping[str, Format]] = {
    form.name: form for form in (CHAT, RESPONSES, ANTHROPIC, GEMINI)
}


class ToolSpec(Struct, frozen=True):
    """What a model is told of a tool: its name, what it is for, and the JSON schema of its input.

    >>> ToolSpec("clock", "The time of day.").schema
    {'type': 'object', 'properties': {}}
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = EMPTY

    @property
    def schema(self) -> dict[str, Any]:
        """The schema as providers want it: an object's, even where there is nothing to pass."""
        return {"type": "object", "properties": {}, **self.parameters}


def write_tools(form: str, specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Write the field `tools` of a request.

    >>> write_tools("anthropic", [ToolSpec("weather.get", "The weather.")])[0]["name"]
    'weather_get_...'
    """
    writer = _writer(form)
    return writer([(spell_tool(form, spec.name), spec) for spec in specs])


def tool_names(form: str, specs: Iterable[ToolSpec]) -> dict[str, str]:
    """Each tool's own name by the name it bears in a request.

    >>> tool_names("openai-chat", [ToolSpec("weather.get"), ToolSpec("clock")])
    {'weather_get_...': 'weather.get', 'clock': 'clock'}
    """
    return {spell_tool(form, spec.name): spec.name for spec in specs}


def spell_tool(form: str, name: str) -> str:
    """Spell a tool's name so that the provider takes it.

    >>> spell_tool("gemini", "weather.get")
    'weather.get'
    """
    _writer(form)
    return _FORMATS[form].tool_names.spell(name)


def _writer(form: str) -> Callable[[list[tuple[str, ToolSpec]]], list[dict[str, Any]]]:
    if form not in _WRITERS:
        detail = f"no such format: {form!r}; there are {', '.join(_WRITERS)}"
        raise ValidationError(detail, path="$", rule="format")
    return _WRITERS[form]


def _described(name: str, spec: ToolSpec) -> dict[str, Any]:
    return {"name": name, "description": spec.description} if spec.description else {"name": name}


def _chat(tools: list[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {**_described(name, spec), "parameters": spec.schema}}
        for name, spec in tools
    ]


def _responses(tools: list[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
    # without `strict: false` this API holds every schema to its own narrower rules
    return [
        {
            "type": "function",
            **_described(name, spec),
            "parameters": spec.schema,
            "strict": False,
        }
        for name, spec in tools
    ]


def _anthropic(tools: list[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
    return [{**_described(name, spec), "input_schema": spec.schema} for name, spec in tools]


def _gemini(tools: list[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
    # `parameters` takes a small part of JSON schema only; this field takes the whole
    declared = [
        {
            **_described(name, spec),
            **({"parametersJsonSchema": spec.schema} if spec.parameters else {}),
        }
        for name, spec in tools
    ]
    return [{"functionDeclarations": declared}] if declared else []


_WRITERS: Final = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
