"""Tool calls from a model that was never taught any: a JSON schema leaves it no other way.

The model may say `{"answer": "…"}` or `{"tool": "…", "arguments": {…}}`, or only the one of them
that is wanted. What it says is read piece by piece, so that an answer's words stream as they come.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.wire.tools import ToolSpec

__all__ = ["Reader", "grammar_for", "plain_messages", "schema_for", "words_about"]

_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_TOOL: Final = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"(?P<name>[^"\\]*)"\s*,\s*"arguments"\s*:\s*', re.DOTALL
)
_LETTERS: Final = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})+"
)
_CLOSED: Final = {"additionalProperties": False}
_DEFINITIONS: Final = ("$defs", "definitions")
_SYSTEM: Final = """\
You can use these tools:
{tools}

Reply with one JSON object: {ways}."""
_ONLY_ANSWER: Final = 'Reply with one JSON object, with "answer" to say something.'
_TO_ANSWER: Final = 'with "answer" to say something'
_TO_CALL: Final = 'with "tool" and "arguments" to use a tool'


# ── what the model may say ──────────────────────────────────────────────────────────────────────


def schema_for(tools: Mapping[str, ToolSpec], choice: str) -> dict[str, Any]:
    """The schema of what may be said, for tools by the names they bear in the request.

    `choice` is `auto`, `required`, `none` or one of those names.
    """
    definitions: dict[str, Any] = {}
    may_answer = choice in ("auto", "none")
    ways = [_object("answer", answer={"type": "string"})] if may_answer else []
    for place, (name, tool) in enumerate(tools.items()):
        if choice in ("auto", "required", name):
            # nothing but what is declared, unless the tool says otherwise: else it never ends
            closed = (
                {} if "type" in tool.parameters and "properties" not in tool.parameters else _CLOSED
            )
            arguments = _hoisted({**closed, **tool.schema}, f"{place}_", definitions)
            ways.append(_object("tool", tool={"const": name}, arguments=arguments))
    schema = ways[0] if len(ways) == 1 else {"anyOf": ways}
    return {**schema, **({"$defs": definitions} if definitions else {})}


def grammar_for(schema: Mapping[str, Any]) -> str:
    """The schema as a grammar without any white space between tokens: small models get lost in it.

    >>> grammar_for({"type": "null"}).splitlines()[0]
    '%llguidance {}'
    """
    compact = {**schema, "x-guidance": {"whitespace_flexible": False}}
    return f"%llguidance {{}}\nstart: %json {json.dumps(compact)}"


def _object(title: str, **properties: object) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoisted(schema: Mapping[str, Any], prefix: str, definitions: dict[str, Any]) -> Any:  # noqa: ANN401
    """A tool's schema, to stand inside another: its definitions move to the top."""

    def moved(value: object) -> Any:  # noqa: ANN401 - JSON
        if is_list(value):
            return [moved(entry) for entry in value]
        if not is_object(value):
            return value
        out = {name: moved(field) for name, field in value.items()}
        where = out.get("$ref")
        if isinstance(where, str) and where.count("/") == 2:  # noqa: PLR2004 - #/$defs/Name
            out["$ref"] = f"#/$defs/{prefix}{where.rpartition('/')[2]}"
        return out

    inner = dict(schema)
    for field in _DEFINITIONS:
        for name, definition in (inner.pop(field, None) or {}).items():
            definitions[f"{prefix}{name}"] = moved(definition)
    return moved(inner)


def words_about(tools: Mapping[str, ToolSpec], choice: str) -> str:
    """What the model is told of its tools, for its template knows nothing of them."""
    if choice == "none":
        return _ONLY_ANSWER
    lines = [
        f"- {name}: {tool.description or 'no description'} "
        f"Arguments: {json.dumps(tool.schema, ensure_ascii=False)}"
        for name, tool in tools.items()
        if choice in ("auto", "required", name)
    ]
    ways = f"{_TO_ANSWER}, or {_TO_CALL}" if choice == "auto" else _TO_CALL
    return _SYSTEM.format(tools="\n".join(lines), ways=ways)


# ── what it is told ─────────────────────────────────────────────────────────────────────────────


def plain_messages(messages: Iterable[Mapping[str, Any]], about: str) -> list[dict[str, Any]]:
    """The messages without calls and results, which many templates can't show: as text instead.

    Neighbours of one role become one message, for many templates want the roles to alternate.

    >>> plain_messages([{"role": "user", "content": "Hi"}], "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """
    plain: list[dict[str, Any]] = [{"role": "system", "content": about}] if about else []
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message.get("content")
        if role == "developer":
            role = "system"
        if role == "tool":
            name = names.get(message.get("tool_call_id", ""), "tool")
            role, content = "user", f"Result of {name}: {_text(content)}"
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {"name": "tool", "arguments": "{}"}
            names[call["id"]] = function["name"]
            said = f'{{"tool":{json.dumps(function["name"])},"arguments":{function["arguments"]}}}'
            content = f"{_text(content)}\n{said}" if content else said
        last: dict[str, Any] = plain[-1] if plain else {"role": None, "content": None}
        if last["role"] == role and isinstance(last["content"], str) and isinstance(content, str):
            last["content"] += f"\n\n{content}"
        else:
            plain.append({"role": role, "content": content})
    return plain


def _text(content: object) -> str:
    if is_list(content):
        return "".join(str(part.get("text", "")) for part in content if is_object(part))
    return content if isinstance(content, str) else ""


# ── what it said ────────────────────────────────────────────────────────────────────────────────


class Reader:
    r"""Reads what was said under a schema, as it comes.

    >>> reader = Reader()
    >>> [reader.feed(piece) for piece in ('{"ans', 'wer":"Te', 'a\\', 'n!"}')]
    ['', 'Te', 'a', '\n!']
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._raw = ""
        self._read = 0

    def feed(self, piece: str) -> str:
        """Take a piece; give the words of an answer that are new."""
        self._raw += piece
        if not self._read:
            begun = _ANSWER.match(self._raw)
            if begun is None:
                return ""
            self._read = begun.end()
        found = _LETTERS.match(self._raw, self._read)
        if found is None:
            return ""
        self._read = found.end()
        words: str = json.loads(f'"{found[0]}"', strict=False)
        # half of a pair of surrogates is no character, and nothing could store it
        return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def call(self) -> tuple[str, str] | None:
        """The tool and its arguments to the letter, if one is called."""
        found = _TOOL.match(self._raw)
        if found is None:
            return None
        rest = self._raw[found.end() :]
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            end = len(rest)  # cut off by the limit
        return found["name"], rest[:end]
