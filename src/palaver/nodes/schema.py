"""The JSON Schema of the nodes' settings, made from the values so that both say the same.

`python -m palaver.nodes.schema > src/palaver/nodes/schema.json` writes it again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from palaver.history import Operation
from palaver.messages import ROLES
from palaver.nodes.configs import CompressConfig, HumanConfig, LLMConfig, ToolConfig

if TYPE_CHECKING:
    from palaver.nodes.results import Kind

__all__ = ["SCHEMA", "schema"]

SCHEMA: Final = Path(__file__).with_name("schema.json")
"""The file that is shipped, for editors and other programs."""

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


def schema(kind: Kind | None = None) -> dict[str, Any]:
    """The schema of one node's settings, or of any node's, as JSON-ready data.

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
    defs |= {"HumanConfig": human, **_context()}
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
    whole = {"$schema": draft, "title": title, **body, "$defs": defs}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # defaults are values
    return plain


def _context() -> dict[str, Any]:
    """Every operation in both forms, and a list of them."""
    kinds = get_args(Operation)
    refs, made = msgspec.json.schema_components(kinds, ref_template=_REF + "{name}")
    flat_names = [ref["$ref"].removeprefix(_REF) for ref in refs]
    defs: dict[str, Any] = {"Message": _MESSAGE, "Range": _whole(made["Range"])}
    for name in flat_names:
        flat, own = _whole(made[name]), name.lower()
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


def _whole(node: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """The same where every whole number is none below zero, as operations want them."""
    if isinstance(node, list):
        return [_whole(item) for item in node]
    if not isinstance(node, dict):
        return node
    same = {key: _whole(value) for key, value in node.items()}
    return {**same, "minimum": 0} if same.get("type") == "integer" else same


def _shorten(definition: dict[str, Any]) -> None:
    summary = str(definition["description"]).split("\n\n")[0]
    definition["description"] = " ".join(summary.split())


if __name__ == "__main__":  # pragma: no cover - run by hand, and checked by a test
    json.dump(schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
