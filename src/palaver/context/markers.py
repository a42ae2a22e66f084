"""Markers in what team members say: `[NEXT: …]`, `[FROM: …]`, `[DROP: …]`, `[TEAM_TASK …]`.

To find them is to read what a speaker meant: only whole markers count, none inside other brackets,
in a quote or in fenced code. To strip them is S2's `stripAllMarkers`: its three sweeps in their
order, then one more that takes out whatever the sweeps have pushed together, so that no marker is
left. Every sweep looks at each character a fixed number of times, whatever the text. Letters are
compared without case, and only those of ASCII.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from palaver.context.fences import stretches

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Marker", "clean_whitespace", "find_markers", "strip_markers", "team_task_in"]

Kind = Literal["next", "from", "drop", "team_task"]
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
_QUOTE: Final = re.compile(r"^ {0,3}>[^\n]*", re.MULTILINE)

# what JavaScript calls white space, for S2's cleanup is to be exact
_BLANKS: Final = "\t\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_RUN: Final = re.compile(f"[{_BLANKS}]{{2,}}")
_ENDS: Final = _BLANKS.replace("\u2000-\u200a", "".join(map(chr, range(0x2000, 0x200B))))


class Marker(NamedTuple):
    """A marker: what kind, what stands in it, and where in the text it is."""

    kind: Kind
    body: str
    start: int
    stop: int


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def find_markers(text: str) -> list[Marker]:
    """The markers that a speaker's own text has, in order.

    >>> [(marker.kind, marker.body) for marker in find_markers("Your turn. [next: max, sarah!P1]")]
    [('next', 'max, sarah!P1')]
    >>> find_markers("[NE[NEXT: a]XT: b]"), find_markers("> [NEXT: a]")
    ([], [])
    """
    if "[" not in text or _WHOLE.search(text) is None:
        return []
    return [marker for start, stop in _own(text) for marker in _found(text, start, stop)]


def team_task_in(text: str) -> str | None:
    """The team task that a text sets: the last one in it; None where it sets none.

    >>> team_task_in("[TEAM_TASK: Tea] or rather [TEAM_TASK] Coffee [/TEAM_TASK] Thanks.")
    'Coffee'
    """
    tasks = [marker.body for marker in find_markers(text) if marker.kind == "team_task"]
    return next((task for task in reversed(tasks) if task), None)


def _own(text: str) -> Iterator[tuple[int, int]]:
    """The stretches that are the speaker's own words: neither fenced code nor quoted lines."""
    for start, stop, is_code in stretches(text):
        if is_code:
            continue
        begin = start
        for quote in _QUOTE.finditer(text, start, stop):
            yield begin, quote.start()
            begin = quote.end()
        yield begin, stop


def _found(text: str, start: int, stop: int) -> list[Marker]:
    found: list[Marker] = []
    opened: list[int] = []  # brackets open on this line: how many markers there were before each
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
        elif opened:  # what stands between two brackets is inside them
            del found[opened.pop() :]
    return found


def _kind(word: str) -> Kind:
    kinds: dict[str, Kind] = {"next": "next", "from": "from", "drop": "drop"}
    return kinds.get(word.lower(), "team_task")


def _end_of_task(text: str, start: int, stop: int) -> tuple[int, int]:
    """Where the text of a `[TEAM_TASK]` ends, and where what follows begins.

    A closing tag ends it, if no other marker comes first; else the next bracket, or the end.
    """
    after = _OPENING.search(text, start, stop)
    if after is not None and (after[2] or "").startswith("/"):
        return after.start(), after.end()
    bracket = text.find("[", start, stop)
    end = stop if bracket < 0 else bracket
    return end, end


# ── stripping ───────────────────────────────────────────────────────────────────────────────────


def strip_markers(text: str) -> str:
    """The text without its markers and without superfluous white space; fenced code as it is.

    >>> strip_markers("[FROM: max]  Well   done! [NEXT: sarah]")
    'Well done!'
    >>> strip_markers("[NE[NEXT: a]XT: b]")
    ''
    """
    pieces = stretches(text)
    if not any(piece.is_code for piece in pieces):
        return clean_whitespace(_stripped(text))
    for _ in range(2):
        text = "\n".join(filter(None, (_cleaned(text, *piece) for piece in pieces)))
        pieces = stretches(text) if "[" in text else []
        if not any(_has_marker(text[start:stop]) for start, stop, code in pieces if not code):
            return text
    # a marker stood before a fence, so that without it other lines are code than before: whoever
    # writes that wants to hide something
    return clean_whitespace(_stripped(text))


def _cleaned(text: str, start: int, stop: int, is_code: bool) -> str:  # noqa: FBT001 - a stretch
    piece = text[start:stop]
    return piece if is_code else clean_whitespace(_stripped(piece))


def clean_whitespace(text: str) -> str:
    r"""S2's cleanup: runs of white space become one space, lines are trimmed, empty ones go.

    >>> clean_whitespace("  a \t b  \n\n   \n c ")
    'a b\nc'
    """
    lines = [line.strip(_ENDS) for line in _RUN.sub(" ", text).split("\n")]
    return "\n".join(filter(None, lines))


def _stripped(text: str) -> str:
    if "[" not in text or "]" not in text:
        return text
    text = _swept(text, _FROM, least=1)
    text = _without_tasks(text)
    text = _swept(text, _NEXT)
    return _settled(text) if _has_marker(text) else text


def _swept(text: str, opening: re.Pattern[str], least: int = 0) -> str:
    """Without what is between an opening and the next closing bracket, with so much in it."""
    kept: list[str] = []
    begin = place = 0
    while (found := opening.search(text, place)) is not None:
        place = found.end()
        close = text.find("]", place)
        if close < 0:
            break
        if close - place >= least:
            kept.append(text[begin : found.start()])
            begin = place = close + 1
    kept.append(text[begin:])
    return "".join(kept)


def _without_tasks(text: str) -> str:
    kept: list[str] = []
    begin = place = 0
    while (found := _TASK.search(text, place)) is not None:
        end = found.end()
        if found[1]:
            end = text.find("]", end) + 1
            if not end:
                break
        elif found[2]:
            end = _end_of_task(text, end, len(text))[1]
        kept.append(text[begin : found.start()])
        begin = place = end
    kept.append(text[begin:])
    return "".join(kept)


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
    """An open bracket and what stands right after it, as far as nothing was taken out."""

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


def _settled(text: str) -> str:
    """Take out markers until there are none, in one go.

    Text is put down bracket by bracket. A closing bracket takes away everything from the first
    bracket that begins a marker; what comes next is put down where that stood, and so completes
    whatever was begun there.
    """
    brackets = [_Bracket()]  # the first is none: it is the beginning of the text
    markers: list[int] = []  # which of the brackets begin a marker
    skipping = False  # after [TEAM_TASK], to the next bracket
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
