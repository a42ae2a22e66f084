"""Write down what the page and the server agree on: the names of events, and the fields of answers.

`core/protocol.js` holds the names of the server's events, which a browser has to ask for one by
one. `core/protocol.d.ts` describes the JSON of every answer, taken from the server's OpenAPI
document, so that the type checker refuses a script that reads a field which no answer has. Both are
written by `python -m tools.protocol`; a test compares them with the server.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import palaver.server
from palaver.events import EVENT_NAMES
from palaver.server.openapi import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["files", "main"]

_SERVER: Final = Path(palaver.server.__file__).parent
_FOLDER: Final = _SERVER / "page" / "scripts" / "core"
_EVENT: Final = re.compile(r"[a-z_]+\.[a-z_]+")
_REF: Final = "#/components/schemas/"
_JSON: Final = "application/json"
_PLAIN: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_SCRIPT: Final = """\
/** The names of the server's events. Written by `python -m tools.protocol`. */

/** @type {import("./protocol.js").Events} */
export const EVENTS = Object.freeze([
%s
]);
"""
_TYPES: Final = """\
// The server's events and the JSON of its answers. Written by `python -m tools.protocol`.

export type EventName =
%s;
export type Events = readonly EventName[];
export const EVENTS: Events;

%s
"""


def files() -> dict[Path, str]:
    """Every file that is written, with its text."""
    events = _events()
    script = _SCRIPT % "\n".join(f'  "{name}",' for name in events)
    union = "\n".join(f'  | "{name}"' for name in events)
    described = json.loads(openapi_document())
    interfaces = "\n\n".join([*_answers(described), *_components(described)])
    return {
        _FOLDER / "protocol.js": script,
        _FOLDER / "protocol.d.ts": _TYPES % (union, interfaces),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files; with `--check`, only tell whether they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.protocol", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    check = parser.parse_args(arguments).check
    stale = [
        path
        for path, text in files().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path} is out of date: run python -m tools.protocol", file=sys.stderr)
        else:
            path.write_text(files()[path], "utf-8")
    return 1 if check and stale else 0


def _events() -> list[str]:
    """The names of stored events, then those that the server alone sends, in alphabetical order."""
    momentary = {
        name
        for path in sorted(_SERVER.rglob("*.py"))
        for name in _sent(ast.parse(path.read_text("utf-8")))
    }
    return [*EVENT_NAMES, *sorted(momentary - set(EVENT_NAMES))]


def _sent(tree: ast.AST) -> Iterator[str]:
    """The names in calls with two arguments, an event's name and its data."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.Constant(value=str(name)), data]):
                if _EVENT.fullmatch(name) and not isinstance(data, ast.Constant):
                    yield name
            case _:
                pass


def _answers(described: Mapping[str, Any]) -> Iterator[str]:
    """A type for the answer of every operation, named after the operation."""
    for operations in described["paths"].values():
        for operation in operations.values():
            good = next(
                answer for status, answer in operation["responses"].items() if status[0] == "2"
            )
            schema = good.get("content", {}).get(_JSON, {}).get("schema")
            if schema is not None:
                name = "".join(word.capitalize() for word in operation["operationId"].split("-"))
                yield f"export type {name} = {_type(schema)};"


def _components(described: Mapping[str, Any]) -> Iterator[str]:
    """An interface for every shape that an answer holds."""
    schemas = described["components"]["schemas"]
    for name in sorted(_reached(described, schemas)):
        schema = schemas[name]
        if "properties" not in schema:
            yield f"export type {_named(name)} = {_type(schema)};"
            continue
        required = set(schema.get("required", ()))
        fields = [
            f"  {_key(field)}{'' if field in required else '?'}: {_type(shape)};"
            for field, shape in schema["properties"].items()
        ]
        yield "\n".join((f"export interface {_named(name)} {{", *fields, "}"))


def _reached(described: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """The names of the shapes in answers, and of the shapes in those."""
    waiting = [
        answer
        for operations in described["paths"].values()
        for operation in operations.values()
        for answer in operation["responses"].values()
    ]
    found: set[str] = set()
    while waiting:
        text = json.dumps(waiting.pop())
        for name in re.findall(rf'"\$ref": "{_REF}(\w+)"', text):
            if name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return found


def _type(schema: Mapping[str, Any]) -> str:
    """A schema as a TypeScript type."""
    match schema:
        case {"$ref": ref}:
            return _named(ref.removeprefix(_REF))
        case {"enum": values}:
            ways = [json.dumps(value) for value in values]
        case {"const": value}:
            ways = [json.dumps(value)]
        case {"anyOf": schemas} | {"oneOf": schemas}:
            ways = [_type(one) for one in schemas]
        case {"prefixItems": items}:
            ways = [f"[{', '.join(_type(item) for item in items)}]"]
        case {"type": "array", "items": item}:
            ways = [f"Array<{_type(item)}>"]
        case {"type": "object", "additionalProperties": dict(values)}:
            ways = [f"Record<string, {_type(values)}>"]
        case {"type": "object"}:
            ways = ["Record<string, any>"]
        case _:
            ways = [_PLAIN.get(schema.get("type", ""), "any")]
    return " | ".join(dict.fromkeys(ways))


def _named(name: str) -> str:
    """The name of a shape's type; it is not that of an operation's answer."""
    return f"{name}Shape"


def _key(field: str) -> str:
    return field if field.isidentifier() else json.dumps(field)


if __name__ == "__main__":
    sys.exit(main())
