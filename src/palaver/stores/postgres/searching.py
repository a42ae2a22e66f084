"""The full-text index of the PostgreSQL store: fed behind the writes, caught up before a search.

What is a word is decided here and not by the server's dictionaries and locale, so that every store
finds the same. The index knows which words a message has; whether they stand one after the other is
seen in the message itself, which has to be read anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.records import Hit
from palaver.stores.rows import message_of
from palaver.stores.words import has, indexed_text, phrases, snippet, token, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.stores.postgres.connections import Connections, Line

__all__ = ["Words"]

_MANY: Final = 200
_LONG: Final = 200  # characters of a word that are looked at; the server takes 2,046 bytes
_MOST: Final = 900_000  # bytes of different words in a message; the server takes 1 MiB


class Words:
    """The index."""

    def __init__(self, connections: Connections) -> None:
        """Take the way to the server."""
        self._connections = connections

    def catch_up(self) -> None:
        """Index the messages that came since the last time."""
        while self._connections.run(_some):
            pass

    @staticmethod
    def lock(line: Line) -> None:
        """Keep everyone else from the index to the end of the transaction."""
        line.execute(STATEMENTS["lock_index"])

    @staticmethod
    def replace(line: Line, conversation: str, position: int, body: str) -> None:
        """Put what is left of a message into the index in its place; inside a transaction."""
        line.execute(STATEMENTS["reindex_words"], (_lexemes(body), conversation, position))

    def search(
        self, words: str, stretches: Sequence[tuple[str, int, int]] | None, limit: int
    ) -> list[Hit]:
        """The messages with all these words, in a conversation's stretches or anywhere."""
        wanted = phrases(words)
        if not wanted or limit <= 0:
            return []
        lexemes = sorted({_lexeme(word) for phrase in wanted for word in phrase})
        values: dict[str, Any] = {
            "query": " & ".join(f"'{lexeme}'" for lexeme in lexemes),
            "limit": max(limit, _MANY),
            "offset": 0,
        }
        name = "search"
        if stretches is not None:
            name = "search_in"
            names, starts, stops = zip(*stretches, strict=True)
            values |= {"names": list(names), "starts": list(starts), "stops": list(stops)}
        hits: list[Hit] = []
        while len(hits) < limit:
            rows = self._connections.fetch(name, values)
            for conversation, position, body in rows:
                message = message_of(body)
                text = indexed_text(message)
                if has(text, wanted):
                    hits.append(Hit(conversation, position, message, snippet(text, words)))
            if len(rows) < values["limit"]:
                break
            values["offset"] += values["limit"]
        return hits[:limit]


def _some(line: Line) -> bool:
    """Index some messages; tell whether there may be more.

    A change above the snapshot's xmin is indexed too, but not counted as done: a smaller number may
    still be under way, and the next time has to look from there.
    """
    with line.transaction():
        (indexed,) = line.execute(STATEMENTS["lock_index"]).fetchone() or (0,)
        upto, whole = indexed, True
        while True:
            changes = line.execute(STATEMENTS["unindexed"], (upto, _MANY)).fetchall()
            _index(line, changes)
            for *_, upto, settled in changes:
                whole = whole and settled
                if whole:
                    indexed = upto
            if whole or len(changes) < _MANY:
                line.execute(STATEMENTS["note_indexed"], (indexed,))
                return len(changes) == _MANY


def _index(line: Line, changes: Iterable[tuple[Any, ...]]) -> None:
    names, firsts, counts = [], [], []
    for conversation, first, count, *_ in changes:
        names.append(conversation)
        firsts.append(first)
        counts.append(count)
    if names:
        rows = line.execute(STATEMENTS["to_index"], (names, firsts, counts)).fetchall()
        line.cursor().executemany(
            STATEMENTS["index_words"],
            [(name, seq, time, _lexemes(body)) for name, seq, time, body in rows],
        )


def _lexeme(word: str) -> str:
    return token(word)[:_LONG]


def _lexemes(body: str) -> list[str]:
    """The different words of a message, in the order in which they come up."""
    found: dict[str, None] = {}
    room = _MOST
    for word in words_of(indexed_text(message_of(body))):
        lexeme = _lexeme(word)
        if lexeme not in found:
            room -= len(lexeme)
            if room < 0:
                break
            found[lexeme] = None
    return list(found)
