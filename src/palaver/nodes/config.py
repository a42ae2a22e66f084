r"""The settings of the nodes: values that are checked when they are made, read from JSON or YAML.

In JSON and YAML the fields are camelCase. An error names the path, such as
`$.strategies[0].keepTokens`, and in YAML the line too.

>>> read_config("tool", "approval: [pay]")
ToolConfig(approval=('pay',))
>>> read_config("compress", {"strategies": [{"kind": "drop-oldest", "keepToken": 1}]})
Traceback (most recent call last):
palaver.errors.ValidationError: $.strategies[0].keepToken: is not a field of it ...
>>> read_config("llm", "model: openai:gpt-5\ntools: 5\n")
Traceback (most recent call last):
palaver.errors.ValidationError: $.tools: line 2, column 1: expected `array | null`, got `int` ...

The settings of the context node are operations of `palaver.history`, in either of two forms:

    {"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}}      nested
    {"operation": "TRUNCATE", "role": "user", "keepLast": 5}                    flat
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

import msgspec
from msgspec import Meta, Struct, field

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import Operation, parse_operation
from palaver.messages import ROLES, Role
from palaver.messages.codec import load_json, translate_error
from palaver.messages.decode import DUPLICATE_NAME, convert
from palaver.messages.limits import path_step
from palaver.models.base import OPTIONS

if TYPE_CHECKING:
    from palaver.nodes.results import NodeKind

__all__ = [
    "SCHEMA",
    "AskApproval",
    "AskChoice",
    "AskEdit",
    "AskText",
    "ClearOutputsConfig",
    "CompressConfig",
    "CompressStrategy",
    "ConfigInput",
    "ContextConfig",
    "DropOldestConfig",
    "HumanConfig",
    "LLMConfig",
    "SummariseConfig",
    "ToolConfig",
    "parse_context",
    "read_config",
    "schema",
]

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class _Config(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True,
    rename="camel",
):  # fmt: skip
    """The options of all settings."""


class LLMConfig(_Config, frozen=True, kw_only=True):
    """The model node: which model is asked, with which of the tools, and how.

    `model` is a name such as `openai:gpt-5`; without it the conversation's own model is asked.
    `tools` are names of the conversation's tools; without it the model gets all of them.
    """

    model: _Text | None = None
    tools: tuple[_Text, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Check that the options are known."""
        for name in self.options:
            if name not in OPTIONS:
                detail = f"no such option; there are {', '.join(sorted(OPTIONS))}"
                raise ValidationError(detail, path=f"$.options{path_step(name)}", rule="node")


class ToolConfig(_Config, frozen=True, kw_only=True):
    """The tool node: which tools' calls a human has to approve: all, or some, by name."""

    approval: Literal["none", "all"] | tuple[_Text, ...] = "none"

    def gates(self, tool: str) -> bool:
        """Tell whether a human has to approve a tool's calls.

        >>> ToolConfig(approval=("pay",)).gates("pay"), ToolConfig().gates("pay")
        (True, False)
        """
        if isinstance(self.approval, str):
            return self.approval == "all"
        return tool in self.approval


class _Ask(_Config, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of every question to a human."""

    prompt: str = ""


class AskApproval(_Ask, frozen=True, kw_only=True, tag="approve"):
    """Ask whether tool calls may run: those of some tools, or all that wait."""

    tools: tuple[_Text, ...] | None = None


class AskText(_Ask, frozen=True, kw_only=True, tag="text"):
    """Ask for a text, which becomes a user's message.

    With `keepPrompt` the question itself is added before it, as an assistant's message.
    """

    keep_prompt: bool = False


class AskChoice(_Ask, frozen=True, kw_only=True, tag="choose"):
    """Ask for one of several options, which becomes a user's message."""

    options: Annotated[tuple[_Text, ...], Meta(min_length=2)]
    keep_prompt: bool = False

    def __post_init__(self) -> None:
        """Check that all options differ."""
        for index, option in enumerate(self.options):
            if option in self.options[:index]:
                detail = f"{option!r} occurs twice"
                raise ValidationError(detail, path=f"$.options[{index}]", rule="node")


class AskEdit(_Ask, frozen=True, kw_only=True, tag="edit"):
    """Ask for a better text of the last message of a role; undo restores the old one."""

    role: Role = "assistant"


HumanConfig: TypeAlias = AskApproval | AskText | AskChoice | AskEdit
"""The human node: one of four questions, by `kind`."""


class _Strategy(_Config, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of every strategy: `keepRoles` are never changed, as marked messages are not."""

    keep_roles: tuple[Role, ...] | None = None


class ClearOutputsConfig(_Strategy, frozen=True, kw_only=True, tag="clear-outputs"):
    """Remove old tool outputs and keep the calls."""

    protect_tokens: _Count = 40_000
    protect_turns: _Count = 2
    least_gain: _Count = 20_000


class DropOldestConfig(_Strategy, frozen=True, kw_only=True, tag="drop-oldest"):
    """Drop the oldest turns until no more than `keepTokens` are left."""

    keep_tokens: _Count


class SummariseConfig(_Strategy, frozen=True, kw_only=True, tag="summarise"):
    """Have a model summarise everything but the newest `keepTokens`."""

    model: _Text | None = None
    keep_tokens: _Count = 4_000
    max_tokens: _Positive = 1_024
    instructions: _Text | None = None


CompressStrategy: TypeAlias = ClearOutputsConfig | DropOldestConfig | SummariseConfig
"""A strategy of compression, by `kind`."""


class CompressConfig(_Config, frozen=True, kw_only=True):
    """The compression node: strategies, tried in order until the conversation is short enough.

    The limit is `limit` tokens, or else the conversation's own; without either, each is tried once.
    """

    limit: _Positive | None = None
    strategies: Annotated[tuple[CompressStrategy, ...], Meta(min_length=1)] = (
        ClearOutputsConfig(),
    )


ContextConfig: TypeAlias = tuple[Operation, ...]
"""The context node: operations, applied in order."""

_WITH_FIELDS: Final = ("append", "filter", "insert", "replace", "rollback", "truncate")
_SECTIONS: Final = (*_WITH_FIELDS, "clear")
_NO_BATCH_FIELD: Final = "is no longer a field: every edit but append and rollback opens a batch"


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


_T = TypeVar("_T")
_PlainData: TypeAlias = "Mapping[str, Any] | Iterable[Mapping[str, Any]] | str | bytes"
ConfigInput: TypeAlias = "_T | Mapping[str, Any] | str | bytes"
"""Settings as a value, or as the data or text they are read from."""

_TYPES: Final[dict[str, Any]] = {
    "llm": LLMConfig,
    "tool": ToolConfig,
    "human": HumanConfig,
    "compress": CompressConfig,
}
_VALUES: Final = (LLMConfig, ToolConfig, AskApproval, AskText, AskChoice, AskEdit, CompressConfig)


@overload
def read_config(kind: Literal["llm"], data: ConfigInput[LLMConfig]) -> LLMConfig: ...
@overload
def read_config(kind: Literal["tool"], data: ConfigInput[ToolConfig]) -> ToolConfig: ...
@overload
def read_config(kind: Literal["human"], data: ConfigInput[HumanConfig]) -> HumanConfig: ...
@overload
def read_config(kind: Literal["compress"], data: ConfigInput[CompressConfig]) -> CompressConfig: ...
@overload
def read_config(kind: Literal["context"], data: _PlainData | ContextConfig) -> ContextConfig: ...
@overload
def read_config(kind: NodeKind, data: Any) -> Any: ...  # noqa: ANN401 - for callers that have only the name
def read_config(kind: NodeKind, data: Any) -> Any:
    """Read the settings of a node; a text is JSON or, with the extra `team`, YAML.

    >>> read_config("human", {"kind": "choose", "options": ["tea", "coffee"]}).options
    ('tea', 'coffee')
    """
    if kind not in (*_TYPES, "context"):
        detail = f"no such node: {kind!r}; there are {', '.join(sorted((*_TYPES, 'context')))}"
        raise ValidationError(detail, path="$.kind", rule="node")
    value, positions = _load(data) if isinstance(data, str | bytes) else (data, {})
    try:
        return parse_context(value) if kind == "context" else _convert(value, _TYPES[kind])
    except ValidationError as error:
        where = positions.get(error.path)
        if where is None:
            raise
        detail = f"{where}: {error.detail}"
        raise ValidationError(detail, path=error.path, rule=error.rule) from None


def _convert(value: object, kind: Any) -> Any:  # noqa: ANN401 - a config's type, and one of it
    if isinstance(value, _VALUES):
        if not isinstance(value, kind):
            detail = f"are the settings of another node: {type(value).__name__}"
            raise ValidationError(detail, path="$", rule="node")
        return value
    if not isinstance(value, Mapping):
        raise ValidationError("must be an object", path="$", rule="node")
    try:
        return convert(dict(value), kind)
    except msgspec.ValidationError as error:
        found = translate_error(error, {})
        detail = found.detail[:1].lower() + found.detail[1:]
        rule = "node" if found.rule == "schema" else found.rule
        raise ValidationError(detail, path=found.path, rule=rule) from None


def _load(text: str | bytes) -> tuple[object, Mapping[str, object]]:
    """Load the plain values in a text, with their positions in YAML."""
    try:
        return load_json(text), {}
    except ValidationError as error:
        if error.rule == DUPLICATE_NAME:
            raise
        bare = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if bare.lstrip()[:1] in {"[", "{", '"'} and '"' in bare.lstrip()[:3]:
            raise  # it is meant to be JSON
    from palaver.team.config import read_document  # noqa: PLC0415 - only where there is YAML

    try:
        return read_document(bare)
    except ValidationError as error:
        raise ValidationError(error.detail, path=error.path, rule="node") from None


def parse_context(data: object) -> ContextConfig:
    """Read the settings of a context node: one operation in either form, or a list of them.

    >>> nested = {"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}}
    >>> flat = {"operation": "TRUNCATE", "role": "user", "keepLast": 5}
    >>> parse_context(nested) == parse_context(flat)
    True
    >>> parse_context({"operation": "truncate", "truncate": {"keepLast": -1}})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.truncate.keepLast: must not be negative: -1 ...
    """
    if isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        found: list[Operation] = []
        for index, item in enumerate(data):
            try:
                found.append(_parse_operation(item))
            except ValidationError as error:
                raise error.under(f"$[{index}]") from None
            except UnsupportedOperation as error:
                path = f"$[{index}].operation"
                raise UnsupportedOperation(error.operation, path=path) from None
        if not found:
            raise ValidationError("must have an operation", path="$", rule="node-operation")
        return tuple(found)
    return (_parse_operation(data),)


def _parse_operation(data: object) -> Operation:
    if not isinstance(data, Mapping):
        if isinstance(data, Operation):
            return data
        raise ValidationError("must be an operation, an object", path="$", rule="node-operation")
    given = {str(name): value for name, value in data.items() if value is not None}
    if "createNewBatch" in given:
        raise ValidationError(_NO_BATCH_FIELD, path="$.createNewBatch", rule="node-operation")
    name = given.get("operation")
    if not isinstance(name, str) or name.lower() not in _SECTIONS:
        return parse_operation(data)  # it raises the error
    own = name.lower()
    is_nested = own in given or name == own
    return _parse_nested(given, own) if is_nested else _parse_flat(given, own)


def _parse_nested(given: dict[str, Any], own: str) -> Operation:
    if own not in given and len(given) > 1 and not any(word in _SECTIONS for word in given):
        return _parse_flat(given, own)  # flat fields with the name of the nested form
    for name in given:
        if name in _SECTIONS and name != own:
            detail = f"goes with the operation {name}, not with {own}"
            raise ValidationError(detail, path=f"$.{name}", rule="node-operation")
        if name not in ("operation", own):
            detail = f"is not a field of it; the fields of {own} stand in $.{own}"
            raise ValidationError(detail, path=f"${path_step(name)}", rule="node-operation")
    if own not in given and own in _WITH_FIELDS:
        detail = f"{own.capitalize()} configuration is required"
        raise ValidationError(detail, path=f"$.{own}", rule="node-operation")
    section = given.get(own, {})
    if not isinstance(section, Mapping):
        raise ValidationError("must be an object", path=f"$.{own}", rule="node-operation")
    if "operation" in section:
        raise ValidationError(
            "is not a field of it", path=f"$.{own}.operation", rule="node-operation"
        )
    try:
        return parse_operation({"operation": own.upper(), **section})
    except ValidationError as error:
        raise error.under(f"$.{own}") from None


def _parse_flat(given: dict[str, Any], own: str) -> Operation:
    return parse_operation({**given, "operation": own.upper()})


# ── the JSON Schema ───────────────────────────────────────────────────────────────────────────────


SCHEMA: Final = Path(__file__).with_name("schema.json")
"""The file that is shipped, for editors; `palaver schema nodes` writes it."""

_REF: Final = "#/$defs/"
_MESSAGE: Final[dict[str, Any]] = {
    "title": "Message",
    "description": "One message of a conversation; its content is text or a list of parts.",
    "type": "object",
    "properties": {
        "role": {"enum": sorted(ROLES)},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    },
    "required": ["role", "content"],
}


def schema(kind: NodeKind | None = None) -> dict[str, Any]:
    """Return the JSON Schema of one node's settings, or of all nodes', as JSON-ready data.

    >>> schema("human")["$ref"]
    '#/$defs/HumanConfig'
    >>> schema()["$defs"]["truncate"]["required"]
    ['operation', 'truncate']
    """
    (llm, tool, human, compress), made = msgspec.json.schema_components(
        [LLMConfig, ToolConfig, HumanConfig, CompressConfig], ref_template=_REF + "{name}"
    )
    defs: dict[str, Any] = dict(made)
    for definition in defs.values():
        _shorten(definition)
    human = {"title": "HumanConfig", "description": "One question to a person.", **human}
    defs |= {"HumanConfig": human, **_context_definitions()}
    refs = {
        "llm": llm,
        "tool": tool,
        "human": {"$ref": _REF + "HumanConfig"},
        "context": {"$ref": _REF + "ContextConfig"},
        "compress": compress,
    }
    body = {"anyOf": list(refs.values())} if kind is None else refs[kind]
    draft = "https://json-schema.org/draft/2020-12/schema"
    title = "Settings of palaver's workflow nodes"
    document = {"$schema": draft, "title": title, **body, "$defs": defs}
    plain: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(document)
    )  # defaults are values
    return plain


def _context_definitions() -> dict[str, Any]:
    """The definitions of every operation in both forms, and of a list of them."""
    kinds = get_args(Operation)
    refs, made = msgspec.json.schema_components(kinds, ref_template=_REF + "{name}")
    flat_names = [ref["$ref"].removeprefix(_REF) for ref in refs]
    defs: dict[str, Any] = {"Message": _MESSAGE, "Range": _non_negative(made["Range"])}
    for name in flat_names:
        flat, own = _non_negative(made[name]), name.lower()
        _shorten(flat)
        fields = {key: value for key, value in flat["properties"].items() if key != "operation"}
        inner = {
            "type": "object",
            "properties": fields,
            "required": [key for key in flat["required"] if key != "operation"],
            "additionalProperties": False,
        }
        if name == "Truncate":
            cuts = [key for key in fields if key not in ("role", "others")]
            flat["anyOf"] = inner["anyOf"] = [{"required": [cut]} for cut in cuts]
        defs[name] = flat
        defs[own] = {
            "title": own,
            "description": flat["description"],
            "type": "object",
            "properties": {"operation": {"enum": [own]}, own: inner},
            "required": ["operation"] if name == "Clear" else ["operation", own],
            "additionalProperties": False,
        }
    forms = [{"$ref": _REF + name} for name in (*flat_names, *map(str.lower, flat_names))]
    defs["ContextOperation"] = {
        "title": "ContextOperation",
        "description": "An edit of the conversation, in the flat or the nested form.",
        "oneOf": forms,
    }
    one = {"$ref": _REF + "ContextOperation"}
    defs["ContextConfig"] = {
        "title": "ContextConfig",
        "description": "The context node: one edit, or several in order.",
        "anyOf": [one, {"type": "array", "items": one, "minItems": 1}],
    }
    return defs


def _non_negative(node: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Add a minimum of zero to every integer, as operations require."""
    if isinstance(node, list):
        return [_non_negative(item) for item in node]
    if not isinstance(node, dict):
        return node
    same = {key: _non_negative(value) for key, value in node.items()}
    return {**same, "minimum": 0} if same.get("type") == "integer" else same


def _shorten(definition: dict[str, Any]) -> None:
    summary = str(definition["description"]).split("\n\n")[0]
    definition["description"] = " ".join(summary.split())
