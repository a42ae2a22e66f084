r"""Reading settings: from a dict, from JSON or YAML; what is wrong is named by its path.

>>> read_config("tool", "approval: [pay]")
ToolConfig(approval=('pay',))
>>> read_config("compress", {"strategies": [{"kind": "drop-oldest", "keepToken": 1}]})
Traceback (most recent call last):
palaver.errors.ValidationError: $.strategies[0].keepToken: is not a field of it [ND-01]
>>> read_config("llm", "model: openai:gpt-5\ntools: 5\n")
Traceback (most recent call last):
palaver.errors.ValidationError: $.tools: line 2, column 1: expected `array | null`, got `int` [...]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, overload

import msgspec

from palaver.errors import ValidationError
from palaver.messages.codec import load_json, translated
from palaver.messages.decoding import convert
from palaver.messages.duplicates import DUPLICATE
from palaver.nodes.configs import (
    Approve,
    Choose,
    CompressConfig,
    Edit,
    HumanConfig,
    LLMConfig,
    Reply,
    ToolConfig,
)
from palaver.nodes.context import ContextConfig, parse_context

if TYPE_CHECKING:
    from palaver.nodes.results import Kind

__all__ = ["Given", "read_config"]

_T = TypeVar("_T")
Plain: TypeAlias = "Mapping[str, Any] | Iterable[Mapping[str, Any]] | str | bytes"
Given: TypeAlias = "_T | Mapping[str, Any] | str | bytes"
"""Settings as a value, or as what they are read from."""

_TYPES: Final[dict[str, Any]] = {
    "llm": LLMConfig,
    "tool": ToolConfig,
    "human": HumanConfig,
    "compress": CompressConfig,
}
_VALUES: Final = (LLMConfig, ToolConfig, Approve, Reply, Choose, Edit, CompressConfig)


@overload
def read_config(kind: Literal["llm"], data: Given[LLMConfig]) -> LLMConfig: ...
@overload
def read_config(kind: Literal["tool"], data: Given[ToolConfig]) -> ToolConfig: ...
@overload
def read_config(kind: Literal["human"], data: Given[HumanConfig]) -> HumanConfig: ...
@overload
def read_config(kind: Literal["compress"], data: Given[CompressConfig]) -> CompressConfig: ...
@overload
def read_config(kind: Literal["context"], data: Plain | ContextConfig) -> ContextConfig: ...
@overload
def read_config(kind: Kind, data: Any) -> Any: ...  # noqa: ANN401 - for whoever has only the name
def read_config(kind: Kind, data: Any) -> Any:
    """The settings of a node; a text is JSON or, with the extra `team`, YAML.

    >>> read_config("human", {"kind": "choose", "options": ["tea", "coffee"]}).options
    ('tea', 'coffee')
    """
    if kind not in (*_TYPES, "context"):
        detail = f"no such node: {kind!r}; there are {', '.join(sorted((*_TYPES, 'context')))}"
        raise ValidationError(detail, path="$.kind", rule="ND-01")
    value, places = _plain(data) if isinstance(data, str | bytes) else (data, {})
    try:
        return parse_context(value) if kind == "context" else _converted(value, _TYPES[kind])
    except ValidationError as error:
        where = places.get(error.path)
        if where is None:
            raise
        detail = f"{where}: {error.detail}"
        raise ValidationError(detail, path=error.path, rule=error.rule) from None


def _converted(value: object, kind: Any) -> Any:  # noqa: ANN401 - a config's type, and one of it
    if isinstance(value, _VALUES):
        if not isinstance(value, kind):
            detail = f"are the settings of another node: {type(value).__name__}"
            raise ValidationError(detail, path="$", rule="ND-01")
        return value
    if not isinstance(value, Mapping):
        raise ValidationError("must be an object", path="$", rule="ND-01")
    try:
        return convert(dict(value), kind)
    except msgspec.ValidationError as error:
        found = translated(error, {})
        detail = found.detail[:1].lower() + found.detail[1:]
        rule = "ND-01" if found.rule == "schema" else found.rule
        raise ValidationError(detail, path=found.path, rule=rule) from None


def _plain(text: str | bytes) -> tuple[object, Mapping[str, object]]:
    """The plain values in a text, and where each stands, as far as that is known."""
    try:
        return load_json(text), {}
    except ValidationError as error:
        if error.rule == DUPLICATE:
            raise
        bare = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if bare.lstrip()[:1] in {"[", "{", '"'} and '"' in bare.lstrip()[:3]:
            raise  # it is meant to be JSON
    from palaver.team.reading import read_text  # noqa: PLC0415 - only where there is YAML

    try:
        return read_text(bare)
    except ValidationError as error:
        raise ValidationError(error.detail, path=error.path, rule="ND-01") from None
