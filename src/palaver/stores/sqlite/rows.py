"""The rows of a SQLite store as they are stored, for what reads and rewrites them: encryption."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from palaver.stores.records import row_hash
from palaver.stores.sqlite.connections import QUERIES, translate_errors
from palaver.stores.sqlite.erase import label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.stores.sqlite.connections import SQLiteConnections
    from palaver.stores.sqlite.search import SQLiteSearchIndex

__all__ = ["SQLiteRows"]


class SQLiteRows:
    """The rows of all conversations; see `palaver.stores.encryption.StoredRows`."""

    def __init__(
        self, connections: SQLiteConnections, index: SQLiteSearchIndex, cid: Callable[[str], int]
    ) -> None:
        """Take the connections, the search index, and what returns a conversation's number."""
        self._connections = connections
        self._index = index
        self._cid = cid

    def set_encrypted(self, on: bool) -> None:  # noqa: FBT001 - the value of a setting
        """Empty the search index, and switch it off or on."""
        self._connections.write(partial(self._index.reset, off=on))

    def read(self, query: str, conversation: str, *values: Any) -> list[Any]:  # noqa: ANN401 - columns
        """Return rows of a conversation as they are stored."""
        return self._connections.read(query, self._cid(conversation), *values)

    @staticmethod
    def hash(query: str, body: bytes, columns: Sequence[Any]) -> int:
        """Return the hash of a row."""
        del query
        return row_hash(body, *columns)

    def replace(self, query: str, conversation: str, rows: list[dict[str, Any]]) -> None:
        """Replace the content of rows that still have their old hash."""
        cid, statement = self._cid(conversation), QUERIES[f"replace_{query}"]
        values = [{"cid": cid, **row} for row in rows]
        self._connections.write(lambda: self._connections.writer.executemany(statement, values))

    def retitle(self, conversation: str, change: Callable[[str | None], str | None]) -> None:
        """Replace the stored form of a title."""
        cid = self._cid(conversation)
        self._connections.write(
            lambda: label(
                self._connections.writer, cid,
                lambda erased, title, *rest: (erased, change(title), *rest),
            )
        )  # fmt: skip

    def destroy_leftovers(self) -> None:
        """Rewrite the file, which leaves nothing in free pages, and empty the write-ahead log."""
        file = self._connections.file
        with translate_errors(file.path), closing(file.connect()) as new:
            new.execute("VACUUM")
        self._connections.truncate_wal()
