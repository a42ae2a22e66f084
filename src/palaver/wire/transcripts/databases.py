"""Other programs' SQLite files, looked at and never touched.

A file is opened immutable: no lock, no journal, no write. What another program has not yet moved
from its `-wal` file is not seen, and noted. The schema is not trusted: views and triggers of the
file run nothing, and only plain tables are read. Text is decoded here, for a foreign file may hold
anything.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import apsw

from palaver.errors import ValidationError
from palaver.messages.gate import MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from palaver.wire.transcripts.gathering import Notes

__all__ = ["MAGIC", "Database", "open_database", "text_of"]

MAGIC: Final = b"SQLite format 3\0"
_WAL_MARKS: Final = 18
"""Where two bytes of the header ask for a `-wal` file, which a database in memory can't have."""
_FAILURES: Final = (apsw.Error, UnicodeError)
"""What comes up where a file is damaged."""


class Database:
    """An open file, and the columns of each of its tables."""

    def __init__(self, connection: apsw.Connection, notes: Notes) -> None:
        self.notes = notes
        self._connection = connection
        self._encoding = str(connection.pragma("encoding")).replace("UTF-16", "UTF-16-")
        self.columns: dict[str, frozenset[str]] = {}
        tables = "select name from sqlite_schema where type = 'table' and sql not like '%virtual%'"
        for name in self._names(tables):
            columns = self._names("select name from pragma_table_info(?)", name)
            self.columns[name] = frozenset(columns)

    def _names(self, query: str, *values: str) -> list[str]:
        """Names that the file gives; what is no text is no name."""
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
        """The rows of a table, with these columns by name; None for one that is not there.

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

    def places(self, table: str, column: str, order: str = "rowid") -> dict[str, list[int]]:
        """The places of a table's rows by what stands in a column, for tables without an index.

        One look at the whole table, so that finding what belongs together stays linear.
        """
        found: dict[str, list[int]] = {}
        if {column, order} - {"rowid"} <= self.columns.get(table, frozenset()):
            self.columns[table] |= {"rowid"}
            for row in self.rows(table, (column, "rowid"), f"order by {order}, rowid"):
                found.setdefault(text_of(row[column]), []).append(row["rowid"])
        return found

    def at(self, table: str, place: int, columns: Sequence[str]) -> dict[str, Any]:
        """The row at a place; every column is None where it can't be read."""
        rows = list(self.rows(table, columns, "where rowid = ?", (place,)))
        return rows[0] if rows else dict.fromkeys(columns)


@contextmanager
def open_database(source: bytes | Path, notes: Notes) -> Generator[Database]:
    """Open a file, or bytes, to be read only; `ValidationError` where it can't be read."""
    if isinstance(source, Path):
        waiting = source.with_name(f"{source.name}-wal")
        if waiting.exists() and waiting.stat().st_size:
            detail = "is not read: close the program that writes it, and its changes move over"
            notes.lost(waiting.name, "transcript.database", detail)
    try:
        connection = _connected(source)
    except _FAILURES as error:
        raise _unreadable(error) from None
    try:
        yield _looked_at(connection, notes)
    finally:
        connection.close()


def _looked_at(connection: apsw.Connection, notes: Notes) -> Database:
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


def _connected(source: bytes | Path) -> apsw.Connection:
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


def text_of(value: object) -> str:
    """The text in a column, or an empty one."""
    return value if isinstance(value, str) else ""
