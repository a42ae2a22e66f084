"""JSON lines from a file or from bytes, one by one: what is damaged is noted, the rest is read.

Every record is looked at here, so that whoever takes it further holds JSON that the gate lets in.
A file may be longer than the memory; a line may not.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from palaver.errors import ValidationError
from palaver.messages.codec import load_json
from palaver.messages.gate import MAX_DEPTH, MAX_TEXT, freeze, is_object, kind_of
from palaver.messages.replacement import replace_refused

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from palaver.wire.transcripts.gathering import Notes

__all__ = ["MAX_LINE", "Record", "load_record", "load_value", "open_source", "raw_lines", "records"]

MAX_LINE: Final = MAX_TEXT
"""Bytes in one line: room for a large image, not for a mistake."""
_BOM: Final = b"\xef\xbb\xbf"
_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")


class Record(NamedTuple):
    """One line of a file: its number, from 1, and what it says."""

    line: int
    value: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The place, for a note."""
        return f"line {self.line}"


@contextmanager
def open_source(source: bytes | Path) -> Generator[IO[bytes]]:
    """A stream over a file or over bytes, closed at the end."""
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
        yield stream


def raw_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    r"""The lines that are not blank, with their numbers; None for one that is too long.

    >>> list(raw_lines(io.BytesIO(b"a\n\nb")))
    [(1, b'a'), (3, b'b')]
    """
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if len(line) > MAX_LINE:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE)
            yield number, None
        elif text := line.strip():
            yield number, text


def records(source: bytes | Path, notes: Notes) -> Iterator[Record]:
    r"""Every line that holds a JSON object; of the others there is a note.

    >>> from palaver.wire.transcripts.gathering import Notes
    >>> [record.value for record in records(b'{"a": 1}\nbroken', Notes())]
    [{'a': 1}]
    """
    with open_source(source) as stream:
        for number, text in raw_lines(stream):
            where = f"line {number}"
            if text is None:
                detail = f"is longer than {MAX_LINE:,} bytes"
                notes.lost(where, "transcript.size", detail)
                continue
            value = load_record(text, where, notes)
            if value is not None:
                yield Record(number, value)


def load_record(text: bytes, where: str, notes: Notes) -> Mapping[str, Any] | None:
    """Read a JSON object; None, with a note, where it is none."""
    try:
        value = load_value(text, where, notes)
    except ValidationError as refusal:
        notes.lost(where, "transcript.damaged", f"{refusal.path}: {refusal.detail}")
        return None
    if not is_object(value):
        detail = f"must be an object, not {kind_of(value)}"
        notes.lost(where, "transcript.damaged", detail)
        return None
    return value


def load_value(text: bytes, where: str, notes: Notes) -> Any:  # noqa: ANN401 - whatever it holds
    """Read JSON through the gate; `ValidationError` where it is none, or nested too deep.

    What the gate refuses (NUL, half a character, a number too large) is replaced, with a note.
    """
    try:
        value = load_json(text, unique=False)
        return freeze(value) if _is_doubtful(text) else value
    except ValidationError as refusal:
        try:
            value = freeze(replace_refused(json.loads(text.decode(errors="replace"))))
        except (ValueError, RecursionError):  # ValidationError is a ValueError
            raise refusal from None
        detail = f"{refusal.path}: {refusal.detail}; replaced"
        notes.repaired(where, "transcript.text", detail)
        return value


def _is_doubtful(text: bytes) -> bool:
    """Tell whether the gate must look closely: most text is beyond doubt, and looking is slow.

    Numbers too large have 16 digits in a row, and what is deep has many brackets.
    """
    return (
        len(text) > MAX_LINE
        or b"\\u0000" in text
        or b"0" * 16 in text.translate(_AS_ZERO)
        or text.count(b"[") + text.count(b"{") >= MAX_DEPTH
    )
