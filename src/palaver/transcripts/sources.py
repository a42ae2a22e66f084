"""Sources of transcripts: JSON fields, JSON lines and SQLite databases of other programs.

Everything here is foreign. A field is what a reader needs or nothing, never an error. A damaged
line is noted and the rest is read; a file may be longer than the memory, a line may not. A database
is opened immutable (no lock, no journal, no write), its views and triggers run nothing, only plain
tables are read, and what is still in its `-wal` file is noted.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from urllib.parse import quote

import apsw

from palaver.errors import ValidationError
from palaver.messages.codec import MAX_DOCUMENT, load_json
from palaver.messages.limits import (
    EMPTY,
    MAX_DEPTH,
    MAX_INT,
    MAX_NAME,
    MAX_TEXT,
    freeze,
    is_list,
    is_object,
    kind_of,
    replace_refused,
)
from palaver.messages.parts import CacheCounts, TokenCounts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from palaver.wire.notes import NoteCollector

__all__ = [
    "MAGIC",
    "MAX_LINE",
    "Database",
    "LineRecord",
    "column_text",
    "get_count",
    "get_list",
    "get_name",
    "get_object",
    "get_text",
    "is_name",
    "load_record",
    "load_value",
    "open_database",
    "open_source",
    "parse_input",
    "parse_time",
    "read_lines",
    "read_records",
    "read_records_or_document",
    "token_counts",
]


MAX_LINE: Final = MAX_TEXT
"""Bytes in one line: enough for a large image."""
_BOM: Final = b"\xef\xbb\xbf"
_GOES_ON: Final = (b"{", b"[", b":", b",")
"""How a line ends that is no value by itself."""
_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")


class LineRecord(NamedTuple):
    """One line of a file: its number, from 1, and what it says; in a document, its path."""

    line: int
    value: Mapping[str, Any]
    path: str | None = None

    @property
    def where(self) -> str:
        """The position, for a note."""
        return self.path or f"line {self.line}"


@contextmanager
def open_source(source: bytes | Path) -> Generator[IO[bytes]]:
    """Open a file, or bytes, as a stream that is closed at the end."""
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
        yield stream


def read_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    r"""Yield the lines that are not blank, with their numbers; None for one that is too long.

    >>> list(read_lines(io.BytesIO(b"a\n\nb")))
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


def read_records(source: bytes | Path, notes: NoteCollector) -> Iterator[LineRecord]:
    r"""Yield every line that holds a JSON object; note the others.

    >>> from palaver.wire.notes import NoteCollector
    >>> [record.value for record in read_records(b'{"a": 1}\nbroken', NoteCollector())]
    [{'a': 1}]
    """
    with open_source(source) as stream:
        for number, text in read_lines(stream):
            where = f"line {number}"
            if text is None:
                detail = f"is longer than {MAX_LINE:,} bytes"
                notes.lost(where, "transcript.size", detail)
                continue
            value = load_record(text, where, notes)
            if value is not None:
                yield LineRecord(number, value)


def read_records_or_document(source: bytes | Path, notes: NoteCollector) -> Iterator[LineRecord]:
    r"""Yield every line that holds a JSON object, or the one object that the whole file is.

    >>> from palaver.wire.notes import NoteCollector
    >>> [record.where for record in read_records_or_document(b'{\n"a": 1}', NoteCollector())]
    ['$']
    """
    with open_source(source) as stream:
        first = next(read_lines(stream), None)
        value = None
        if first is not None and first[1] is not None and first[1].endswith(_GOES_ON):
            stream.seek(0)
            value = _load_document(stream.read(MAX_DOCUMENT + 1), notes)
    if value is None:
        yield from read_records(source, notes)
    else:
        yield LineRecord(1, value, "$")


def _load_document(data: bytes, notes: NoteCollector) -> Mapping[str, Any] | None:
    """Read the JSON object that a whole file is; None where it is none."""
    try:
        value = load_value(data.removeprefix(_BOM), "$", notes)
    except ValidationError:
        return None
    return value if is_object(value) else None


def load_record(text: bytes, where: str, notes: NoteCollector) -> Mapping[str, Any] | None:
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


def load_value(text: bytes, where: str, notes: NoteCollector) -> Any:  # noqa: ANN401 - whatever it holds
    """Read JSON; `ValidationError` where it is none, or nested too deep.

    What messages refuse (NUL, half a character, a number too large) is replaced, with a note.
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
    """Tell whether a text must be checked: most needs no check, and checking is slow.

    Numbers too large have 16 digits in a row, and what is deep has many brackets.
    """
    return (
        len(text) > MAX_LINE
        or b"\\u0000" in text
        or b"0" * 16 in text.translate(_AS_ZERO)
        or text.count(b"[") + text.count(b"{") >= MAX_DEPTH
    )


MAGIC: Final = b"SQLite format 3\0"
_WAL_MARKS: Final = 18
"""The offset of two header bytes that ask for a `-wal` file, which memory can't have."""
_FAILURES: Final = (apsw.Error, UnicodeError)
"""What apsw raises where a file is damaged."""


class Database:
    """An open file, and the columns of each of its tables."""

    def __init__(self, connection: apsw.Connection, notes: NoteCollector) -> None:
        self.notes = notes
        self._connection = connection
        self._encoding = str(connection.pragma("encoding")).replace("UTF-16", "UTF-16-")
        self.columns: dict[str, frozenset[str]] = {}
        tables = "select name from sqlite_schema where type = 'table' and sql not like '%virtual%'"
        for name in self._names(tables):
            columns = self._names("select name from pragma_table_info(?)", name)
            self.columns[name] = frozenset(columns)

    def _names(self, query: str, *values: str) -> list[str]:
        """Return names from the file; what is no text is no name."""
        rows = self._connection.execute(f"select cast(name as blob) from ({query})", values)  # noqa: S608 - two queries, above
        raw = [row[0] for row in rows]
        return [name.decode(self._encoding, "replace") for name in raw if isinstance(name, bytes)]

    def __contains__(self, table: str) -> bool:
        """Tell whether a table is there."""
        return table in self.columns

    def has(self, *tables: str) -> bool:
        """Tell whether all these tables are there."""
        return self.columns.keys() >= set(tables)

    def rows(
        self, table: str, columns: Sequence[str], where: str = "", values: Sequence[Any] = ()
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table, with these columns by name; None for a missing column.

        Names come from the readers, never from the file. Where the file is damaged the rows end,
        with a note.
        """
        there = self.columns.get(table, frozenset())
        spelled = ", ".join(
            f"""typeof("{column}"), case typeof("{column}") when 'text'
                then cast("{column}" as blob) else "{column}" end"""
            if column in there
            else "'null', null"
            for column in columns
        )
        query = f'select {spelled} from "{table}" {where}'  # noqa: S608 - see above
        try:
            for row in self._connection.execute(query, values):
                yield {
                    column: self._text(value, table, column) if kind == "text" else value
                    for column, kind, value in zip(columns, row[::2], row[1::2], strict=True)
                }
        except _FAILURES as error:
            self.notes.lost(f"table {table}", "transcript.database", f"ends early: {error}")

    def _text(self, raw: bytes, table: str, column: str) -> str:
        text = raw.decode(self._encoding, errors="replace").replace("\0", "\ufffd")
        if text.encode(self._encoding) != raw:
            detail = f"{column} is no text that can be kept; what is wrong in it is replaced"
            self.notes.repaired(f"table {table}", "transcript.text", detail)
        return text

    def row_ids(self, table: str, column: str, order: str = "rowid") -> dict[str, list[int]]:
        """Return the row ids of a table by the value of a column, for tables without an index.

        The table is read once, so that finding what belongs together stays linear.
        """
        found: dict[str, list[int]] = {}
        if {column, order} - {"rowid"} <= self.columns.get(table, frozenset()):
            self.columns[table] |= {"rowid"}
            for row in self.rows(table, (column, "rowid"), f"order by {order}, rowid"):
                found.setdefault(column_text(row[column]), []).append(row["rowid"])
        return found

    def row(self, table: str, row_id: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return the row with a row id; every column is None where it can't be read."""
        rows = list(self.rows(table, columns, "where rowid = ?", (row_id,)))
        return rows[0] if rows else dict.fromkeys(columns)


@contextmanager
def open_database(source: bytes | Path, notes: NoteCollector) -> Generator[Database]:
    """Open a file, or bytes, to be read only; `ValidationError` where it can't be read."""
    if isinstance(source, Path):
        waiting = source.with_name(f"{source.name}-wal")
        if waiting.exists() and waiting.stat().st_size:
            detail = "is not read: close the program that writes it, and its changes move over"
            notes.lost(waiting.name, "transcript.database", detail)
    try:
        connection = _connect(source)
    except _FAILURES as error:
        raise _unreadable(error) from None
    try:
        yield _checked(connection, notes)
    finally:
        connection.close()


def _checked(connection: apsw.Connection, notes: NoteCollector) -> Database:
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, 4 * MAX_TEXT)
        connection.execute("pragma cell_size_check = on")
        return Database(connection, notes)
    except _FAILURES as error:
        raise _unreadable(error) from None


def _connect(source: bytes | Path) -> apsw.Connection:
    if isinstance(source, Path):
        name = f"file:{quote(str(source.absolute()))}?mode=ro&immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(name, flags=flags)
    begin, end = source[:_WAL_MARKS], source[_WAL_MARKS + 2 :]
    marks = source[_WAL_MARKS : _WAL_MARKS + 2].replace(b"\2", b"\1")
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", begin + marks + end)
    return connection


def _unreadable(error: Exception) -> ValidationError:
    return ValidationError(f"is no database that can be read: {error}", rule="transcript.database")


def column_text(value: object) -> str:
    """Return the text in a column, or an empty one."""
    return value if isinstance(value, str) else ""


def get_text(value: Mapping[str, Any], *names: str) -> str:
    """Return the first of these fields that holds text, or an empty text.

    >>> get_text({"a": 1, "b": "x"}, "a", "b", "c")
    'x'
    """
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    return ""


def get_name(value: Mapping[str, Any], *names: str) -> str | None:
    r"""Return the first of these fields that can be an id or a name, or None.

    >>> get_name({"id": "a\nb", "uuid": "u1"}, "id", "uuid")
    'u1'
    """
    for name in names:
        found = value.get(name)
        if is_name(found):
            return found
    return None


def is_name(value: object) -> TypeGuard[str]:
    """Tell whether a value can be an id or a name in a message."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def get_object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object in a field, or an empty one."""
    found = value.get(name)
    return found if is_object(found) else EMPTY


def get_list(value: Mapping[str, Any], name: str) -> list[Any] | tuple[Any, ...]:
    """Return the list in a field, or an empty one."""
    found = value.get(name)
    return found if is_list(found) else ()


def get_count(value: Mapping[str, Any], *names: str) -> int:
    """Return the first of these fields that holds a count, or 0.

    >>> get_count({"a": -1, "b": True, "c": 7}, "a", "b", "c")
    7
    """
    for name in names:
        found = value.get(name)
        if type(found) is int and 0 <= found <= MAX_INT:
            return found
    return 0


def parse_time(value: object) -> int | None:
    """Return a time in whole milliseconds, from ISO 8601, seconds or milliseconds; else None.

    >>> parse_time("1970-01-01T00:00:01.5Z"), parse_time(1_700_000_000)
    (1500, 1700000000000)
    >>> parse_time("noon") is None
    True
    """
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return None
    elif value >= 10**11:  # seconds would be in the year 5138
        seconds = value / 1000
    else:
        seconds = value
    found = round(seconds * 1000)
    return found if 0 <= found <= MAX_INT else None


def parse_input(raw: str) -> Mapping[str, Any]:
    """Return a tool's input, where the text is a JSON object; an empty one where it is not.

    >>> parse_input('{"q": "tea"}'), parse_input("*** Begin Patch")
    ({'q': 'tea'}, {})
    """
    try:
        value = freeze(load_json(raw, unique=False))
    except ValidationError:
        return EMPTY
    return value if is_object(value) else EMPTY


def token_counts(
    prompt: int, completion: int, *, read: int = 0, write: int = 0, reasoning: int = 0
) -> TokenCounts | None:
    """Return five disjoint counts, of totals that contain the others; None where all are 0.

    >>> token_counts(100, 20, read=60, reasoning=5)
    TokenCounts(input=40, output=15, reasoning=5, cache=CacheCounts(read=60, write=0), total=None)
    """
    if not (prompt or completion or read or write):
        return None
    fresh = max(prompt - read - write, 0)
    return TokenCounts(fresh, max(completion - reasoning, 0), reasoning, CacheCounts(read, write))
