"""The full-text index of the PostgreSQL store: fed behind the writes, caught up before a search.

What is a word is decided here and not by the server's dictionaries and locale, so that every store
finds the same. The index knows which words a message has; whether they stand one after the other is
seen in the message itself, which has to be read anyway.

The index is fed in small transactions, each under the lock of the index, which no append takes.
Each adds a limited number of messages and bytes. What was added stays, and whoever takes the lock
next goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.records import Hit
from palaver.stores.rows import message_of
from palaver.stores.words import (
    PARTIAL,
    has,
    indexed_text,
    is_cut,
    phrases,
    snippet,
    token,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.messages import Message
    from palaver.stores.postgres.connections import Connections, Line

__all__ = ["Words"]

_MANY: Final = 200  # changes, or messages, in a transaction
_MUCH: Final = 1_000_000  # bytes of messages in a transaction; or one message
_PAGE: Final = 10_000  # hits asked of the index at once
_LONG: Final = 200  # characters of a word that are looked at; the server takes 2,046 bytes


class Words:
    """The index."""

    def __init__(self, connections: Connections) -> None:
        """Take the way to the server."""
        self._connections = connections

    def catch_up(self) -> None:
        """Index the messages that came since the last time."""
        feed = _Feed()
        while self._connections.run(feed.add_some):
            pass

    @staticmethod
    def lock(line: Line) -> None:
        """Keep everyone else from the index to the end of the transaction."""
        line.execute(STATEMENTS["lock_index"])

    @staticmethod
    def replace(line: Line, conversation: str, position: int, body: str) -> None:
        """Put what is left of a message into the index in its place; inside a transaction."""
        found, reason = _lexemes(message_of(body))
        line.execute(STATEMENTS["reindex_words"], (found, reason, conversation, position))

    def search(
        self, words: str, stretches: Sequence[tuple[str, int, int]] | None, limit: int
    ) -> list[Hit]:
        """The messages with all these words, in a conversation's stretches or anywhere."""
        wanted = phrases(words)
        hits: list[Hit] = []
        if not wanted or limit <= 0:
            return hits
        for conversation, position, body in self._found(wanted, stretches, limit):
            message = message_of(body)
            text = indexed_text(message)
            if has(text, wanted):
                hits.append(Hit(conversation, position, message, snippet(text, words)))
                if len(hits) == limit:
                    break
        return hits

    def _found(
        self,
        wanted: list[list[str]],
        stretches: Sequence[tuple[str, int, int]] | None,
        limit: int,
    ) -> Iterator[tuple[str, int, str]]:
        """What the index finds, the newest first; bodies are read as they are asked for.

        Pages grow, so that the index is not asked often even where little of it is a hit.
        """
        lexemes = sorted({_lexeme(word) for phrase in wanted for word in phrase})
        values: dict[str, Any] = {"query": " & ".join(f"'{lexeme}'" for lexeme in lexemes)}
        name = "search"
        if stretches is not None:
            name = "search_in"
            names, starts, stops = zip(*stretches, strict=True)
            values |= {"names": list(names), "starts": list(starts), "stops": list(stops)}
        offset, page = 0, min(max(limit, _MANY), _PAGE)
        while True:
            rows = self._connections.fetch(name, values | {"limit": page, "offset": offset})
            there = [(*place, size) for *place, size in rows if size is not None]
            while there:
                count = min(_fitting([size for *_, size in there]), limit)
                asked, there = there[:count], there[count:]
                places = [place for place, *_ in asked], [place for _, place, _ in asked]
                yield from self._connections.fetch("bodies_at", places)
            if len(rows) < page:
                return
            offset, page = offset + page, min(page * 4, _PAGE)


class _Feed:
    """How far one who feeds the index has come, from one transaction to the next.

    A change above the snapshot's xmin is indexed too, but not counted as done: a smaller number may
    still be under way, and the next time has to look from there.
    """

    def __init__(self) -> None:
        self._upto = -1  # the last change that was looked at whole
        self._settled = True  # so are all up to there
        self._done = 0  # messages of the change after it

    def add_some(self, line: Line) -> bool:
        """Index some messages; tell whether there may be more."""
        with line.transaction():
            (indexed,) = line.execute(STATEMENTS["lock_index"]).fetchone() or (0,)
            upto, settled, done = self._upto, self._settled, self._done
            if indexed > upto:  # at first, and where another has come further
                upto, settled, done = indexed, True, 0
            changes = line.execute(STATEMENTS["unindexed"], (upto, _MANY)).fetchall()
            if not changes:
                return False
            rows = line.execute(STATEMENTS["to_index"], _columns(changes, done)).fetchall()
            count = _fitting([size for *_, size in rows])
            _index(line, rows[:count])
            whole = len(changes)
            if count < len(rows) or count == _MANY:  # the last may have more
                which, _, position, _ = rows[count - 1]
                done = position + 1 - changes[which - 1][1]
                whole = which - 1
            else:
                done = 0
            for *_, upto, is_settled in changes[:whole]:
                settled = settled and is_settled
                if settled:
                    indexed = upto
            line.execute(STATEMENTS["note_indexed"], (indexed,))
        self._upto, self._settled, self._done = upto, settled, done
        return whole < len(changes) or whole == _MANY


def _columns(
    changes: Sequence[tuple[Any, ...]], done: int
) -> tuple[list[Any], list[Any], list[Any], int]:
    """Which messages some changes brought, but for the first so many of the first change."""
    names = [conversation for conversation, *_ in changes]
    firsts = [first for _, first, *_ in changes]
    stops = [first + count for _, first, count, *_ in changes]
    firsts[0] += done
    return names, firsts, stops, _MANY


def _fitting(sizes: Sequence[int]) -> int:
    """How many of some messages are read at once."""
    room = _MUCH
    for index, size in enumerate(sizes):
        room -= size
        if room < 0:
            return max(index, 1)
    return len(sizes)


def _index(line: Line, rows: Sequence[tuple[Any, ...]]) -> None:
    places = [name for _, name, *_ in rows], [position for _, _, position, _ in rows]
    entries: list[tuple[Any, ...]] = []
    for name, position, body in line.execute(STATEMENTS["bodies_at"], places).fetchall():
        try:
            found, reason = _lexemes(message_of(body))
        except StoreError:
            found, reason = [], "it is not searched: it can't be read"
        except MemoryError:
            found, reason = [], "it is not searched: there was not enough memory to read it"
        entries.append((found, reason, name, position))
    line.cursor().executemany(STATEMENTS["index_words"], entries)


def _lexeme(word: str) -> str:
    return token(word)[:_LONG]


def _lexemes(message: Message) -> tuple[list[str], str | None]:
    """The different words of a message, and why these are not all.

    The server takes 1 MiB of them, which the searched characters of a message never come to.
    """
    found = dict.fromkeys(map(_lexeme, words_of(indexed_text(message))))
    return list(found), PARTIAL if is_cut(message) else None
