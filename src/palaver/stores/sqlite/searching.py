"""The full-text index of the SQLite store: fed behind the writes, caught up before a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.stores.records import Hit
from palaver.stores.rows import message_of
from palaver.stores.words import indexed_text, phrases, snippet, spaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

__all__ = ["Words"]

_MANY: Final = 500


class Words:
    """The index, and the connection that may write it."""

    def __init__(self, writer: apsw.Connection) -> None:
        """Take the writing connection."""
        self._writer = writer

    def catch_up(self) -> None:
        """Index the messages that came since the last time; inside a transaction."""
        writer = self._writer
        indexed: int = writer.execute("SELECT indexed FROM indexing").get
        while True:
            rows: list[Any] = writer.execute(
                "SELECT number, body FROM messages WHERE number > ? ORDER BY number LIMIT ?",
                (indexed, _MANY),
            ).fetchall()
            if not rows:
                return
            writer.executemany(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                [(number, spaced(indexed_text(message_of(body)))) for number, body in rows],
            )
            indexed = rows[-1][0]
            writer.execute("UPDATE indexing SET indexed = ?", (indexed,))

    def forget(self, number: int, body: str) -> None:
        """Take a message out of the index, bytes and all; inside a transaction."""
        indexed: int = self._writer.execute("SELECT indexed FROM indexing").get
        if number <= indexed:
            self._writer.execute(
                "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)",
                (number, spaced(indexed_text(message_of(body)))),
            )

    def remember(self, number: int, body: str) -> None:
        """Put what is left of a message into the index; inside a transaction."""
        indexed: int = self._writer.execute("SELECT indexed FROM indexing").get
        if number <= indexed:
            self._writer.execute(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                (number, spaced(indexed_text(message_of(body)))),
            )

    @staticmethod
    def search(
        reader: apsw.Connection,
        words: str,
        stretches: Sequence[tuple[int, int, int]] | None,
        limit: int,
    ) -> list[Hit]:
        """The messages with all these words, in a conversation's stretches or anywhere."""
        wanted = phrases(words)
        if not wanted:
            return []
        match = " ".join('"' + " ".join(phrase) + '"' for phrase in wanted)
        where = ""
        values: list[object] = [match]
        if stretches is not None:
            one = "(m.cid = ? AND m.seq >= ? AND m.seq < ?)"
            where = "AND (" + " OR ".join([one] * len(stretches)) + ")"
            values += [value for stretch in stretches for value in stretch]
        rows: list[Any] = reader.execute(
            f"""
            SELECT c.id, m.seq, m.body
            FROM words JOIN messages AS m ON m.number = words.rowid
            JOIN conversations AS c ON c.cid = m.cid
            WHERE words MATCH ? {where}
            ORDER BY words.rank, m.number DESC LIMIT ?
            """,  # noqa: S608 - only the shape is put in, every value is bound
            (*values, limit),
        ).fetchall()
        hits: list[Hit] = []
        for conversation, position, body in rows:
            message = message_of(body)
            hits.append(Hit(conversation, position, message, snippet(indexed_text(message), words)))
        return hits
