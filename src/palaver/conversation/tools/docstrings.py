"""What a docstring tells of a function and of each argument, in the three styles people write.

Google's (`Args:`), NumPy's (a title over dashes) and Sphinx's (`:param name:`). What is about the
result, the errors or examples is for readers of the code and is left out; any other text stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Docstring", "read_docstring"]

_ARGUMENTS: Final = frozenset(("args", "arguments", "parameters", "params", "other parameters"))
_LEFT_OUT: Final = frozenset(
    ("returns", "return", "yields", "yield", "raises", "example", "examples", "see also", "doctest")
)
_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_DASHES: Final = re.compile(r"-{3,}\s*$")


class Docstring(NamedTuple):
    """What is told of the function, and of its arguments by name."""

    text: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    r"""Take a docstring apart; its indentation is to be gone already (`inspect.getdoc`).

    >>> read_docstring("Add.\n\nArgs:\n    a: the one\n    b: the\n        other")
    Docstring(text='Add.', arguments={'a': 'the one', 'b': 'the other'})
    """
    told: list[str] = []
    named: dict[str, list[str]] = {}
    for section, lines in _sections(text.splitlines()):
        if section in _ARGUMENTS:
            _arguments(lines, named)
        elif section not in _LEFT_OUT:
            told += _without_fields(lines, named)
    described = {name: " ".join(words).strip() for name, words in named.items()}
    plain = re.sub(r"\n{3,}", "\n\n", "\n".join(told))
    return Docstring(plain.strip(), {name: words for name, words in described.items() if words})


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines by the title they stand under; before the first title, and after a section, none.

    Under a title of Google's style, what belongs to it is indented; under one of NumPy's, all is.
    """
    title, dashed, under = "", False, list[str]()
    place = 0
    while place < len(lines):
        line = lines[place]
        after = lines[place + 1] if place + 1 < len(lines) else ""
        found, is_dashed = _title(line, after)
        left = bool(title) and not dashed and bool(line.strip()) and not line.startswith(" ")
        if found or left:
            yield title, under
            title, dashed, under = found, is_dashed, [] if found else [line]
        else:
            under.append(line)
        place += 2 if is_dashed else 1
    yield title, under


def _title(line: str, after: str) -> tuple[str, bool]:
    """A title that means something, and whether dashes stand under it."""
    word = line.strip().lower()
    if _DASHES.match(after) and word:
        return word, True
    if word.endswith(":") and word[:-1] in _ARGUMENTS | _LEFT_OUT:
        return word[:-1], False
    return "", False


def _arguments(lines: list[str], named: dict[str, list[str]]) -> None:
    """Read entries: each begins where the first one did, and goes on where it is indented more."""
    margin, name = None, ""
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if indent > margin:
            named.setdefault(name, []).append(line.strip())
            continue
        found = _GOOGLE.match(line.strip()) if margin else _NUMPY.match(line.strip())
        name = found[1] if found else ""
        named[name] = [found[2]] if found and margin else []
    named.pop("", None)


def _without_fields(lines: list[str], named: dict[str, list[str]]) -> Iterator[str]:
    """The lines that are no field of Sphinx's; those of arguments are kept by name."""
    name: str | None = None
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field:
            is_argument = field[1] in ("param", "parameter", "arg", "argument") and field[2]
            name = field[2].split()[-1].lstrip("*") if is_argument else ""
            if name:
                named[name] = [field[3]]
        elif name is not None and line.startswith(" "):
            named.setdefault(name, []).append(line.strip())
        else:
            name = None
            yield line
    named.pop("", None)
