"""The full-text index of the SQLite store: fed behind the writes, caught up before a search.

What is a word is decided in `words`, and the index gets it as plain ASCII, so that every store
finds the same. Whether a hit is one is seen in the message itself, which has to be read anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import StoreDamaged
from palaver.stores.records import Hit
from palaver.stores.rows import message_of
from palaver.stores.words import has, indexed_text, phrases, snippet, token, words_of

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

    def _indexed(self) -> int:
        """The number of the last message that the index has."""
        rows: list[Any] = self._writer.execute("SELECT indexed FROM indexing").fetchall()
        found = rows[0][0] if len(rows) == 1 else None
        if not isinstance(found, int):
            msg = "how far the search index goes can't be read"
            raise StoreDamaged(msg)
        return found

    def catch_up(self) -> None:
        """Index the messages that came since the last time; inside a transaction."""
        writer = self._writer
        indexed = self._indexed()
        while True:
            rows: list[Any] = writer.execute(
                "SELECT number, body FROM messages WHERE number > ? ORDER BY number LIMIT ?",
                (indexed, _MANY),
            ).fetchall()
            if not rows:
                return
            writer.executemany(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                [(number, _tokens(body)) for number, body in rows],
            )
            indexed = rows[-1][0]
            writer.execute("UPDATE indexing SET indexed = ?", (indexed,))

    def forget(self, number: int, body: str) -> None:
        """Take a message out of the index, bytes and all; inside a transaction."""
        if number <= self._indexed():
            self._writer.execute(
                "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)",
                (number, _tokens(body)),
            )

    def remember(self, number: int, body: str) -> None:
        """Put what is left of a message into the index; inside a transaction."""
        if number <= self._indexed():
            self._writer.execute(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                (number, _tokens(body)),
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
        match = " ".join('"' + " ".join(map(token, phrase)) + '"' for phrase in wanted)
        where = ""
        values: list[object] = [match]
        if stretches is not None:
            one = "(m.cid = ? AND m.seq >= ? AND m.seq < ?)"
            where = "AND (" + " OR ".join([one] * len(stretches)) + ")"
            values += [value for stretch in stretches for value in stretch]
        statement = f"""
            SELECT c.id, m.seq, m.body
            FROM words JOIN messages AS m ON m.number = words.rowid
            JOIN conversations AS c ON c.cid = m.cid
            WHERE words MATCH ? {where}
            ORDER BY words.rank, m.number DESC LIMIT ? OFFSET ?
            """  # noqa: S608 - only the shape is put in, every value is bound
        hits: list[Hit] = []
        offset, page = 0, max(limit, 1)
        while len(hits) < limit:
            rows: list[Any] = reader.execute(statement, (*values, page, offset)).fetchall()
            for conversation, position, body in rows:
                message = message_of(body)
                text = indexed_text(message)
                if has(text, wanted):
                    hits.append(Hit(conversation, position, message, snippet(text, words)))
            if len(rows) < page:
                break
            offset += page
        return hits[:limit]


def _tokens(body: str) -> str:
    """The words of a message, as the index gets them."""
    return " ".join(map(token, words_of(indexed_text(message_of(body)))))
