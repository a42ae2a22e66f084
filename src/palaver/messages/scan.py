"""Where in a JSON text something stands: used only to say where an error is.

The decoder is quick and tells little. When it refuses a text, this slow and simple walk finds the
path of the place, so that a person can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from palaver.messages.gate import path_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["line_of", "offset_of", "offsets_of", "path_at", "repeated_name", "too_deep"]

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_Path = tuple[str | int, ...]


def _values(data: bytes) -> Iterator[tuple[int, list[str | int]]]:
    """Each value's offset and path, in the order of the text. The path is changed as it goes on."""
    path: list[str | int] = []
    open_objects: list[bool] = []
    key_next = False
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            yield match.start(), path
            open_objects.append(token == b"{")
            path.append("" if token == b"{" else 0)
            key_next = token == b"{"
        elif token in (b"}", b"]"):
            if not open_objects:
                return
            open_objects.pop()
            path.pop()
            key_next = False
        elif token == b",":
            if open_objects and open_objects[-1]:
                key_next = True
            elif path and isinstance(path[-1], int):
                path[-1] += 1
        elif token == b":":
            key_next = False
        elif key_next:
            path[-1] = token.strip(b'"').decode(errors="replace")
            key_next = False
        else:
            yield match.start(), path


def repeated_name(data: bytes) -> str:
    """The path of the first name that stands twice in its object; `$` where there is none.

    >>> repeated_name(b'[{"a": {"b": 1}, "a": 2}]')
    '$[0].a'
    """
    path: list[str | int] = []
    known: list[set[str]] = []  # the names so far of every object that is open
    objects: list[bool] = []
    key_next = False
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            key_next = token == b"{"
            objects.append(key_next)
            known.append(set())
            path.append("" if key_next else 0)
        elif token in (b"}", b"]"):
            key_next = False
            objects.pop()
            known.pop()
            path.pop()
        elif token == b",":
            key_next = objects[-1]
            if not key_next:
                path[-1] = int(path[-1]) + 1
        elif key_next:
            key_next = False
            path[-1] = name = msgspec.json.decode(token, type=str)
            if name in known[-1]:
                return "$" + "".join(map(path_step, path))
            known[-1].add(name)
    return "$"


def path_at(data: bytes, offset: int) -> str:
    """The path of the value that stands at an offset.

    >>> path_at(b'{"a": [1, NaN]}', 10)
    '$.a[1]'
    """
    found: list[str | int] = []
    for start, path in _values(data):
        if start > offset:
            break
        found = list(path)
    return "$" + "".join(map(path_step, found))


def too_deep(data: bytes, levels: int) -> str:
    """The path of the first value that is nested deeper than so many levels.

    >>> too_deep(b'[[{"a": [0]}]]', 3)
    '$[0][0].a'
    """
    for _, path in _values(data):
        if len(path) >= levels:
            return "$" + "".join(map(path_step, path))
    return "$"


def offset_of(data: bytes, path: str) -> int:
    """The offset of the value at a path, or of the nearest value around it.

    >>> offset_of(b'{"a": [1, 2]}', "$.a[1].nothing")
    10
    """
    return offsets_of(data, (path,))[path]


def offsets_of(data: bytes, paths: Iterable[str]) -> dict[str, int]:
    """The offsets of the values at many paths, in one walk.

    >>> offsets_of(b'{"a": [1, 2]}', ["$.a", "$.a[1].nothing"])
    {'$.a': 6, '$.a[1].nothing': 10}
    """
    around = {path: _around(path) for path in paths}
    wanted = {prefix for prefixes in around.values() for prefix in prefixes}
    deepest = max((len(prefixes) for prefixes in around.values()), default=0)
    found: dict[str, int] = {}
    for start, steps in _values(data):
        if len(steps) < deepest:
            here = "$" + "".join(map(path_step, steps))
            if here in wanted:
                found.setdefault(here, start)
                if len(found) == len(wanted):
                    break
    return {
        path: next((found[prefix] for prefix in prefixes if prefix in found), 0)
        for path, prefixes in around.items()
    }


def _around(path: str) -> list[str]:
    """The path and every path that leads to it, the longest first."""
    ends = [index for index, char in enumerate(path) if char in ".["]
    return [path, *(path[:end] for end in reversed(ends))]


def line_of(data: bytes, offset: int) -> int:
    """The number of the line, from 1, that an offset is in."""
    return data.count(b"\n", 0, offset) + 1
