"""Fenced code in a text: where it begins and ends, as Markdown has it.

What stands in a fence is quoted, so no marker in it counts and no space in it is superfluous. A
fence that is never closed runs to the end of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Stretch", "stretches"]

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)


class Stretch(NamedTuple):
    """A piece of a text, and whether it is fenced code."""

    start: int
    stop: int
    is_code: bool


def stretches(text: str) -> list[Stretch]:
    r"""The text in pieces, code and other, that follow one another; none is empty.

    >>> [tuple(piece) for piece in stretches("a\n```\nb\n```\nc")]
    [(0, 2, False), (2, 11, True), (11, 13, False)]
    """
    found: list[Stretch] = []
    end = 0
    if "```" in text or "~~~" in text:
        for start, stop in _fenced(text):
            if end < start:
                found.append(Stretch(end, start, is_code=False))
            found.append(Stretch(start, stop, is_code=True))
            end = stop
    if end < len(text):
        found.append(Stretch(end, len(text), is_code=False))
    return found


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    opening = ""
    start = 0
    for fence in _FENCE.finditer(text):
        marks, rest = fence[1], fence[2]
        if not opening:
            if marks[0] == "~" or "`" not in rest:
                opening, start = marks, fence.start()
        elif marks.startswith(opening) and not rest.strip():
            yield start, fence.end()
            opening = ""
    if opening:
        yield start, len(text)
