"""Markers in what team members say: `[NEXT: …]`, `[FROM: …]`, `[DROP: …]`, `[TEAM_TASK …]`.

`find_markers` reads what a speaker meant: only complete markers count, and none inside other
brackets, in a quote or in fenced code. `strip_markers` removes everything that looks like a marker:
three sweeps in a fixed order, then one more for the markers that the sweeps have joined together,
so that none is left. All of it is linear in the length of the text. Case is ignored for ASCII
letters only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Marker",
    "MarkerKind",
    "TextSpan",
    "clean_whitespace",
    "find_markers",
    "find_team_task",
    "split_fences",
    "strip_markers",
]

MarkerKind = Literal["next", "from", "drop", "team_task"]
_FLAGS: Final = re.IGNORECASE | re.ASCII
_OPENING: Final = re.compile(r"\[(?:(NEXT|FROM|DROP|TEAM_TASK):|(/?TEAM_TASK)\])", _FLAGS)
_FROM: Final = re.compile(r"\[FROM:", _FLAGS)
_NEXT: Final = re.compile(r"\[(?:NEXT|DROP):", _FLAGS)
_TASK: Final = re.compile(r"\[(?:(TEAM_TASK:)|(TEAM_TASK)\]|/TEAM_TASK\])", _FLAGS)
_BARE: Final = r"\[(?:(NEXT|FROM|DROP|TEAM_TASK):([^\[\]]*+)|(/?TEAM_TASK))\]"
_WHOLE: Final = re.compile(_BARE, _FLAGS)
_TOKEN: Final = re.compile(rf"{_BARE}|[\[\]\n]", _FLAGS)
_WORD: Final = re.compile(r"(?:NEXT|FROM|DROP|TEAM_TASK):", _FLAGS)
_TAG: Final = re.compile(r"/?TEAM_TASK", _FLAGS)
_PIECE: Final = re.compile(r"[^\[\]]+|[\[\]]")
_LONGEST: Final = len("TEAM_TASK:")
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_QUOTE: Final = re.compile(r"^ {0,3}>[^\n]*", re.MULTILINE)

# the white space of JavaScript: clean_whitespace matches a specification written for it
_BLANKS: Final = "\t\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK_RUN: Final = re.compile(f"[{_BLANKS}]{{2,}}")
_ENDS: Final = _BLANKS.replace("\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))))


class Marker(NamedTuple):
    """A marker: its kind, the text in it, and where it begins and ends."""

    kind: MarkerKind
    body: str
    start: int
    stop: int


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def find_markers(text: str) -> list[Marker]:
    """Find the markers in a speaker's own text, in order.

    >>> [(marker.kind, marker.body) for marker in find_markers("Your turn. [next: max, sarah!P1]")]
    [('next', 'max, sarah!P1')]
    >>> find_markers("[NE[NEXT: a]XT: b]"), find_markers("> [NEXT: a]")
    ([], [])
    """
    if "[" not in text or _WHOLE.search(text) is None:
        return []
    return [
        marker for start, stop in _own_ranges(text) for marker in _find_between(text, start, stop)
    ]


def find_team_task(text: str) -> str | None:
    """Return the team task that a text sets, the last one in it, or None.

    >>> find_team_task("[TEAM_TASK: Tea] or rather [TEAM_TASK] Coffee [/TEAM_TASK] Thanks.")
    'Coffee'
    """
    tasks = [marker.body for marker in find_markers(text) if marker.kind == "team_task"]
    return next((task for task in reversed(tasks) if task), None)


def _own_ranges(text: str) -> Iterator[tuple[int, int]]:
    """Iterate over the ranges that are the speaker's own: neither fenced code nor quotes."""
    for start, stop, is_code in split_fences(text):
        if is_code:
            continue
        begin = start
        for quote in _QUOTE.finditer(text, start, stop):
            yield begin, quote.start()
            begin = quote.end()
        yield begin, stop


def _find_between(text: str, start: int, stop: int) -> list[Marker]:
    found: list[Marker] = []
    opened: list[int] = []  # open brackets of this line: the number of markers before each
    while (token := _TOKEN.search(text, start, stop)) is not None:
        word, body, tag = token.groups()
        start = token.end()
        if word:
            if "\n" in body:
                opened.clear()
            if word.lower() != "from" or body:
                found.append(Marker(_kind(word), body.strip(_ENDS + "\n"), token.start(), start))
        elif tag:
            if tag[0] != "/":
                end, start = _end_of_task(text, start, stop)
                body = text[token.end() : end].strip(_ENDS + "\n")
                found.append(Marker("team_task", body, token.start(), start))
        elif token[0] == "\n":
            opened.clear()
        elif token[0] == "[":
            opened.append(len(found))
        elif opened:  # markers between a pair of brackets don't count
            del found[opened.pop() :]
    return found


def _kind(word: str) -> MarkerKind:
    kinds: dict[str, MarkerKind] = {"next": "next", "from": "from", "drop": "drop"}
    return kinds.get(word.lower(), "team_task")


def _end_of_task(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return where the text of a `[TEAM_TASK]` ends, and where the text after it begins.

    A closing tag ends it if no other marker comes first; otherwise the next bracket or the end.
    """
    after = _OPENING.search(text, start, stop)
    if after is not None and (after[2] or "").startswith("/"):
        return after.start(), after.end()
    bracket = text.find("[", start, stop)
    end = stop if bracket < 0 else bracket
    return end, end


# ── stripping ───────────────────────────────────────────────────────────────────────────────────


def strip_markers(text: str) -> str:
    """Remove the markers and superfluous white space from a text; fenced code stays as it is.

    >>> strip_markers("[FROM: max]  Well   done! [NEXT: sarah]")
    'Well done!'
    >>> strip_markers("[NE[NEXT: a]XT: b]")
    ''
    """
    pieces = split_fences(text)
    if not any(piece.is_code for piece in pieces):
        return clean_whitespace(_strip(text))
    for _ in range(2):
        text = "\n".join(filter(None, (_clean_span(text, *piece) for piece in pieces)))
        pieces = split_fences(text) if "[" in text else []
        if not any(_has_marker(text[start:stop]) for start, stop, code in pieces if not code):
            return text
    # removing a marker before a fence has changed which lines are code, which only happens in a
    # text that tries to hide a marker: strip the code too
    return clean_whitespace(_strip(text))


def _clean_span(text: str, start: int, stop: int, is_code: bool) -> str:  # noqa: FBT001 - a TextSpan
    piece = text[start:stop]
    return piece if is_code else clean_whitespace(_strip(piece))


def clean_whitespace(text: str) -> str:
    r"""Replace runs of white space by one space, trim the lines, and remove empty ones.

    >>> clean_whitespace("  a \t b  \n\n   \n c ")
    'a b\nc'
    """
    lines = [line.strip(_ENDS) for line in _BLANK_RUN.sub(" ", text).split("\n")]
    return "\n".join(filter(None, lines))


def _strip(text: str) -> str:
    if "[" not in text or "]" not in text:
        return text
    text = _sweep(text, _FROM, least=1)
    text = _strip_tasks(text)
    text = _sweep(text, _NEXT)
    return _strip_joined(text) if _has_marker(text) else text


def _sweep(text: str, opening: re.Pattern[str], least: int = 0) -> str:
    """Remove everything from an opening to the next closing bracket, if `least` is between."""
    parts: list[str] = []
    begin = position = 0
    while (found := opening.search(text, position)) is not None:
        position = found.end()
        close = text.find("]", position)
        if close < 0:
            break
        if close - position >= least:
            parts.append(text[begin : found.start()])
            begin = position = close + 1
    parts.append(text[begin:])
    return "".join(parts)


def _strip_tasks(text: str) -> str:
    parts: list[str] = []
    begin = position = 0
    while (found := _TASK.search(text, position)) is not None:
        end = found.end()
        if found[1]:
            end = text.find("]", end) + 1
            if not end:
                break
        elif found[2]:
            end = _end_of_task(text, end, len(text))[1]
        parts.append(text[begin : found.start()])
        begin = position = end
    parts.append(text[begin:])
    return "".join(parts)


def _has_marker(text: str) -> bool:
    for opening in _OPENING.finditer(text):
        word = opening[1]
        if word is None:
            return True
        close = text.find("]", opening.end())
        if close < 0:
            return False
        if close > opening.end() or word.lower() != "from":
            return True
    return False


class _Bracket:
    """An open bracket, the pieces of text after it, and the beginning of that text."""

    __slots__ = ("head", "pieces")

    def __init__(self) -> None:
        self.head = ""
        self.pieces: list[str] = []

    def add(self, piece: str) -> None:
        if len(self.head) <= _LONGEST:
            self.head += piece[: _LONGEST + 1]
        self.pieces.append(piece)

    def is_empty_from(self) -> bool:
        return len(self.head) == len("FROM:") and self.head[:4].lower() == "from"


def _strip_joined(text: str) -> str:
    """Remove markers until there are none, in one pass over the text.

    The text is held as a stack of open brackets. A closing bracket removes everything from the
    first bracket that begins a marker; the text after it is joined to what stood before, and may
    complete a marker that was begun there.
    """
    brackets = [_Bracket()]  # the first one is the beginning of the text
    markers: list[int] = []  # the indexes of brackets that begin a marker
    skipping = False  # after [TEAM_TASK], up to the next bracket
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece == "[":
            skipping = False
            brackets.append(_Bracket())
            continue
        if skipping:
            continue
        top, last = brackets[-1], len(brackets) - 1
        if piece != "]":
            top.add(piece)
            if last and last not in markers[-1:] and _WORD.match(top.head):
                markers.append(last)
        elif last and _TAG.fullmatch(top.head):
            skipping = top.head[0] != "/"
            brackets.pop()
        elif markers and not (markers == [last] and top.is_empty_from()):
            del brackets[markers[0] :]
            markers.clear()
        else:
            top.add(piece)
            markers.clear()
    return "[".join("".join(bracket.pieces) for bracket in brackets)


# ── fenced code ─────────────────────────────────────────────────────────────────────────────────


class TextSpan(NamedTuple):
    """A range of a text, and whether it is fenced code."""

    start: int
    stop: int
    is_code: bool


def split_fences(text: str) -> list[TextSpan]:
    r"""Split a text into spans of fenced code, as in Markdown, and spans of other text.

    A fence that is never closed runs to the end of the text. No span is empty.

    >>> [tuple(piece) for piece in split_fences("a\n```\nb\n```\nc")]
    [(0, 2, False), (2, 11, True), (11, 13, False)]
    """
    found: list[TextSpan] = []
    end = 0
    if "```" in text or "~~~" in text:
        for start, stop in _fenced_ranges(text):
            if end < start:
                found.append(TextSpan(end, start, is_code=False))
            found.append(TextSpan(start, stop, is_code=True))
            end = stop
    if end < len(text):
        found.append(TextSpan(end, len(text), is_code=False))
    return found


def _fenced_ranges(text: str) -> Iterator[tuple[int, int]]:
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
