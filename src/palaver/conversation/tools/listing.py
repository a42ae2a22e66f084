"""What an MCP server lists as its tools, before a model or a person sees any of it.

A server writes the names, descriptions and schemas of its tools, and all of it goes into prompts
and on screens. So names are brought to letters that providers take, texts lose what can't be seen
or turns the line around, and everything has a limit. A tool that can't be made safe is left out,
with a warning in the log; the others stay.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages.gate import is_list, is_object
from palaver.wire.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mcp_types import Tool as Listed

__all__ = ["MAX_TOOLS", "accept_tools", "clean_name", "clean_text"]

MAX_TOOLS: Final = 500
"""So many tools are taken from one server at most."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 4_000
MAX_SCHEMA: Final = 100_000
"""The longest schema of a tool's arguments, in bytes of JSON."""
MAX_DEPTH: Final = 50
"""How deep a schema may be nested."""
MAX_TOTAL: Final = 2_000_000
"""What all tools of a server may take together, in bytes of JSON."""

_FITS: Final = re.compile(r"[A-Za-z0-9_./-]{1,64}")
_HASH: Final = 8
_TEXTS: Final = frozenset(("description", "title", "$comment"))
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
"""Controls, marks of direction and other signs without a shape, and what is no character."""
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)
"""Letters and marks without a shape: fillers, and selectors of variants, which can carry text."""
_ALLOWED: Final = frozenset("\n\r\t\u200c\u200d\ufe0f")
"""What values may have all the same: breaks, and what words and emoji are joined with."""
_log: Final = logging.getLogger("palaver.conversation")


def clean_text(text: str, longest: int, *, lines: bool = True) -> str:
    r"""The text as it can be seen, and no longer than that; without `lines`, in one line.

    >>> clean_text("Read\u202e a\u200b file.\x1b[31m", 100)
    'Read a file.[31m'
    >>> clean_text("one\ntwo  three", 9, lines=False)
    'one two …'
    """
    cut = text[: 2 * longest].replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    odd = _unseen(cut) - {"\n", "\t"}
    seen = "".join(letter for letter in cut if letter not in odd) if odd else cut
    seen = seen.strip() if lines else " ".join(seen.split())
    over = len(seen) > longest or len(text) > 2 * longest
    return f"{seen[: longest - 1]}…" if over else seen


def _unseen(text: str) -> set[str]:
    """The characters of a text that can't be seen."""
    odd = set(_BLANK.findall(text))
    if not text.isprintable():
        odd |= {letter for letter in set(text) if unicodedata.category(letter) in _UNSEEN}
    return odd


def clean_name(name: str) -> str:
    """A tool's name in letters that can be read and, as the wire spells it, sent to any provider.

    One that has others, or is too long, gets a mark of its own, so that no two become one.

    >>> clean_name("files.read")
    'files.read'
    >>> clean_name("read a file")
    'read_a_file_...'
    """
    if _FITS.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    plain = re.sub(r"[^A-Za-z0-9_./-]+", "_", name[: 2 * MAX_NAME]).strip("_")
    return f"{plain[: MAX_NAME - _HASH - 1]}_{mark}"


def accept_tools(
    server: str, listed: Iterable[Listed], prefix: str = ""
) -> Iterator[tuple[Listed, ToolSpec]]:
    """The tools of a server that can be offered, each with what a model is told of it."""
    names, total = set[str](), 0
    for count, tool in enumerate(listed):
        name = clean_name(prefix + tool.name)
        if count >= MAX_TOOLS:
            _log.warning("%s: it lists more than %d tools; the rest is left out", server, MAX_TOOLS)
            return
        schema, size, wrong = _schema(tool.input_schema)
        if name in names:
            wrong = "another one has its name"
        elif total + size > MAX_TOTAL:
            wrong = f"all tools of a server together have {MAX_TOTAL:,} bytes at most"
        if wrong:
            _log.warning("%s: the tool %s is left out: %s", server, name, wrong)
            continue
        names.add(name)
        total += size
        told = clean_text(tool.description or tool.title or "", MAX_DESCRIPTION)
        yield tool, ToolSpec(name, told, schema)


def _schema(given: Mapping[str, Any]) -> tuple[dict[str, Any], int, str]:
    """A schema with clean texts, its size, and what is wrong with it."""
    if _is_deep(given):
        return {}, 0, f"its schema is nested more than {MAX_DEPTH} deep"
    cleaned: dict[str, Any] = _cleaned(given)
    try:
        encoded = msgspec.json.encode(cleaned)
    except (TypeError, ValueError) as error:
        return {}, 0, f"its schema is no JSON: {error}"
    if len(encoded) > MAX_SCHEMA:
        return {}, 0, f"its schema has {len(encoded):,} bytes, and {MAX_SCHEMA:,} is the most"
    if any(_unseen(text) - _ALLOWED for text in _strings(cleaned)):
        return {}, 0, "names or values in its schema have characters that can't be seen"
    return cleaned, len(encoded), ""


def _strings(value: object) -> Iterator[str]:
    """Every name and every text in a schema."""
    if isinstance(value, str):
        yield value
    elif is_list(value):
        for one in value:
            yield from _strings(one)
    elif is_object(value):
        for name, one in value.items():
            yield str(name)
            yield from _strings(one)


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            if is_object(one):
                inner += one.values()
            elif is_list(one):
                inner += one
        level = inner
    return bool(level)


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - JSON; it is not deep
    if is_list(value):
        return [_cleaned(one) for one in value]
    if not is_object(value):
        return value
    return {
        name: clean_text(one, MAX_DESCRIPTION)
        if name in _TEXTS and isinstance(one, str)
        else _cleaned(one)
        for name, one in value.items()
    }
