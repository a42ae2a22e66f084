"""Which format a file is in, told by what is in it and never by its name."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from palaver.errors import ValidationError
from palaver.messages import MAX_DOCUMENT
from palaver.messages.codec import load_json
from palaver.messages.gate import is_object
from palaver.wire.transcripts import llm_logs, opencode
from palaver.wire.transcripts.databases import MAGIC, open_database
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import MAX_LINE, load_record, open_source, raw_lines
from palaver.wire.transcripts.shapes import document_format, line_format

if TYPE_CHECKING:
    from palaver.wire.transcripts.databases import Database

__all__ = ["detect"]

_LOOKS: Final = 200
"""Lines that are looked at before a file is given up."""
_GOES_ON: Final = (b"[", b"{", b":", b",")
_BOM: Final = b"\xef\xbb\xbf"


def detect(source: bytes | Path) -> str | None:
    """Tell the format of a file, of bytes, or of opencode's folder; None where nobody knows it.

    The answers: `claude-code`, `codex`, `opencode`, `opencode-export`, `opencode-folder`, `llm`,
    `requests` (a log of them, as JSON lines), `messages` (palaver's own JSON, or what is as plain),
    `palaver-lines`, `palaver-2`, `palaver-1` (snapshots), and of a single request `openai-chat`,
    `openai-responses`, `anthropic` or `gemini`.

    >>> detect(b'{"type": "session_meta", "payload": {"id": "s1"}}')
    'codex'
    >>> detect(b"Dear diary") is None
    True
    """
    if isinstance(source, Path) and source.is_dir():
        there = all((source / name).is_dir() for name in opencode.TABLES)
        return "opencode-folder" if there else None
    with open_source(source) as stream:
        opening = stream.read(len(MAGIC))
        stream.seek(0)
        if opening == MAGIC:
            return _database_format(source)
        return _text_format(stream)


def _database_format(source: bytes | Path) -> str | None:
    try:
        with open_database(source, Notes()) as database:
            return _tables_format(database)
    except ValidationError:
        return None


def _tables_format(database: Database) -> str | None:
    if database.has(*opencode.TABLES) and "data" in database.columns["part"]:
        return "opencode"
    older, newer = database.has(*llm_logs.TABLES), database.has(*llm_logs.THREADS)
    return "llm" if older or newer else None


def _text_format(stream: IO[bytes]) -> str | None:
    """Lines where the first line is a value by itself, or no beginning of one; else a document."""
    lines = _first_lines(stream)
    if not lines:
        return None
    whole = _parses(lines[0])
    if len(lines) > 1 and (whole or not lines[0].endswith(_GOES_ON)):
        return _lines_format(lines)
    stream.seek(0)
    data = lines[0] if whole else stream.read(MAX_DOCUMENT + 1).removeprefix(_BOM)
    try:
        value = load_json(data, unique=False)
    except ValidationError:
        return _lines_format(lines)
    found = document_format(value)
    alone = line_format(value) if is_object(value) else None
    return alone if found is None or alone in _AS_LINE else found


_AS_LINE: Final = frozenset(("claude-code", "codex", "palaver-lines"))
"""What one line can be that a document can't."""


def _first_lines(stream: IO[bytes]) -> list[bytes]:
    lines: list[bytes] = []
    room = MAX_LINE
    for _number, text in islice(raw_lines(stream), _LOOKS):
        if text is not None:
            lines.append(text)
            room -= len(text)
        if room < 0:
            break
    return lines


def _parses(text: bytes) -> bool:
    try:
        load_json(text, unique=False)
    except ValidationError:
        return False
    return True


def _lines_format(lines: list[bytes]) -> str | None:
    notes = Notes()
    for text in lines:
        value = load_record(text, "", notes)
        found = None if value is None else line_format(value)
        if found is not None:
            return found
    return None
