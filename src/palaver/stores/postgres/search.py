"""The full-text index of the PostgreSQL store: fed behind the writes, caught up before a search.

`palaver.stores.text_index` splits texts into words, not the server's dictionaries and locale, so
that every store finds the same. The index knows which words a message has; whether they stand one
after the other is seen in the message itself, which has to be read anyway.

The index is fed in small transactions, each under the lock of the index, which no append takes.
Each adds a limited number of messages and bytes. What was added stays, and the next process that
takes the lock goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import EncryptionError, StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.records import decode_body
from palaver.stores.text_index import (
    OUT_OF_MEMORY,
    SEARCH_IS_OFF,
    TRUNCATED,
    UNREADABLE,
    collect_hits,
    indexed_text,
    is_truncated,
    parse_query,
    split_words,
    token,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from palaver.messages import Message
    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection
    from palaver.stores.records import Hit

__all__ = ["PostgresSearchIndex"]

_MAX_MESSAGES: Final = 200  # changes, or messages, in a transaction
_MAX_BYTES: Final = 1_000_000  # bytes of messages in a transaction; or one message
_PAGE: Final = 10_000  # hits asked of the index at once
_MAX_LEXEME: Final = 200  # characters of a word that are looked at; the server takes 2,046 bytes


class PostgresSearchIndex:
    """The index of the messages of one database."""

    def __init__(self, connections: PostgresConnections) -> None:
        """Take the connections to the server."""
        self._connections = connections
        self.secured = False  # whether row security is on

    def catch_up(self, horizons: Mapping[int, int | None]) -> None:
        """Index the messages that came since the last time.

        `horizons` gives for each node the number below which all its changes are finished; None is
        what the server itself finds.
        """
        for node, horizon in horizons.items():
            indexer = _Indexer(node, horizon, self.lock)
            while self._connections.run(indexer.add_some):
                pass

    def lock(self, connection: TimedConnection) -> list[tuple[Any, ...]]:
        """Lock the index until the transaction ends; return how far it goes, by node and owner."""
        if self.secured:
            connection.execute(STATEMENTS["lock_secured_index"])
            return connection.execute(STATEMENTS["indexed"]).fetchall()
        return _lock_rows(connection)

    @staticmethod
    def replace(
        connection: TimedConnection, root: str, conversation: str, position: int, body: str
    ) -> None:
        """Replace a message in the index by what is left of it; inside a transaction."""
        found, reason = _lexemes(decode_body(body))
        where = root, conversation, position
        connection.execute(STATEMENTS["reindex_words"], (found, reason, *where))

    def search(
        self,
        query: str,
        ranges: Sequence[tuple[str, int, int]] | None,
        limit: int,
        *,
        root: str = "",
        owner: str | None = None,
    ) -> list[Hit]:
        """Return the messages with all words of a query: of a family, of an owner, or anywhere."""
        wanted = parse_query(query)
        if not wanted or limit <= 0:
            return []
        found = self._candidates(wanted, ranges, limit, root, owner)
        return collect_hits(found, query, wanted, limit)

    def _candidates(
        self,
        wanted: list[list[str]],
        ranges: Sequence[tuple[str, int, int]] | None,
        limit: int,
        root: str,
        owner: str | None,
    ) -> Iterator[tuple[str, int, str]]:
        """Yield what the index finds, the newest first; bodies are read when they are needed.

        Pages grow, so that the index is not read often even where few candidates match.
        """
        lexemes = sorted({_lexeme(word) for phrase in wanted for word in phrase})
        values: dict[str, Any] = {"query": " & ".join(f"'{lexeme}'" for lexeme in lexemes)}
        name = "search"
        if owner is not None and ranges is None:
            name = "search_of_owner"
            values["owner"] = owner
        elif ranges is not None:
            name = "search_in"
            names, starts, stops = zip(*ranges, strict=True)
            values |= {"root": root, "names": list(names), "starts": list(starts)}
            values["stops"] = list(stops)
        offset, page = 0, min(max(limit, _MAX_MESSAGES), _PAGE)
        while True:
            rows = self._connections.fetch(name, values | {"limit": page, "offset": offset})
            found = self._connections.fetch("sizes_at", _places(rows)) if rows else []
            while found:
                count = min(_fitting([size for *_, size in found]), limit)
                some, found = found[:count], found[count:]
                where = _places([row[:-1] for row in some])
                for _, *hit in self._connections.fetch("bodies_at", where):
                    yield tuple(hit)
            if len(rows) < page:
                return
            offset, page = offset + page, min(page * 4, _PAGE)


class _Indexer:
    """How far the index has been fed, from one transaction to the next.

    A change above the snapshot's xmin is indexed too, but not counted as done: a smaller number may
    still be under way, and the next time has to look from there.
    """

    def __init__(
        self,
        node: int = 0,
        horizon: int | None = None,
        lock: Callable[[TimedConnection], list[tuple[Any, ...]]] | None = None,
    ) -> None:
        self._lock = lock or _lock_rows
        self._node = node
        self._horizon = horizon
        self._upto = -1  # the last change that was indexed completely
        self._settled = True  # so are all before it
        self._done = 0  # messages of the change after it

    def add_some(self, connection: TimedConnection) -> bool:
        """Index some messages; return whether there may be more."""
        with connection.transaction():
            owner = connection.owner or ""
            rows = self._lock(connection)
            if min((upto for *_, upto in rows), default=0) < 0:
                raise EncryptionError(SEARCH_IS_OFF)
            known = {who: upto for node, who, upto in rows if node == self._node}
            indexed = max(known.get(owner, 0), known.get("", 0))  # all owners' up to there
            if owner not in known:
                connection.execute(STATEMENTS["add_index_node"], (self._node, owner, indexed))
            upto, settled, done = self._upto, self._settled, self._done
            if indexed > upto:  # at first, and where another process came further
                upto, settled, done = indexed, True, 0
            values = {"node": self._node, "horizon": self._horizon, "after": upto}
            changes = connection.execute(
                STATEMENTS["unindexed"], values | {"limit": _MAX_MESSAGES}
            ).fetchall()
            if not changes:
                return False
            found = connection.execute(STATEMENTS["to_index"], _columns(changes, done)).fetchall()
            count = _fitting([size for *_, size in found])
            _index(connection, found[:count])
            complete = len(changes)
            if count < len(found) or count == _MAX_MESSAGES:  # the last may have more
                which, *_, position, _ = found[count - 1]
                done = position + 1 - changes[which - 1][2]
                complete = which - 1
            else:
                done = 0
            for *_, upto, is_settled in changes[:complete]:
                settled = settled and is_settled
                if settled:
                    indexed = upto
            connection.execute(STATEMENTS["note_indexed"], (indexed, self._node, owner))
        self._upto, self._settled, self._done = upto, settled, done
        return complete < len(changes) or complete == _MAX_MESSAGES


def _lock_rows(connection: TimedConnection) -> list[tuple[Any, ...]]:
    return connection.execute(STATEMENTS["lock_index"]).fetchall()


def _columns(
    changes: Sequence[tuple[Any, ...]], done: int
) -> tuple[list[Any], list[Any], list[Any], list[Any], int]:
    """Return which messages some changes brought, without the first `done` of the first change."""
    roots, names, firsts, counts = (list(column) for column in list(zip(*changes, strict=True))[:4])
    stops = [first + count for first, count in zip(firsts, counts, strict=True)]
    firsts[0] += done
    return roots, names, firsts, stops, _MAX_MESSAGES


def _places(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Return the columns root, conversation and position of rows that end with these."""
    return tuple([row[index] for row in rows] for index in (-3, -2, -1))


def _fitting(sizes: Sequence[int]) -> int:
    """Return how many of some messages are read at once."""
    room = _MAX_BYTES
    for index, size in enumerate(sizes):
        room -= size
        if room < 0:
            return max(index, 1)
    return len(sizes)


def _index(connection: TimedConnection, rows: Sequence[tuple[Any, ...]]) -> None:
    entries: list[tuple[Any, ...]] = []
    where = _places([row[:-1] for row in rows])
    bodies = connection.execute(STATEMENTS["bodies_at"], where).fetchall()
    for *place, body in bodies:
        try:
            found, reason = _lexemes(decode_body(body))
        except StoreError:
            found, reason = [], UNREADABLE
        except MemoryError:
            found, reason = [], OUT_OF_MEMORY
        entries.append((found, reason, *place))
    connection.cursor().executemany(STATEMENTS["index_words"], entries)


def _lexeme(word: str) -> str:
    return token(word)[:_MAX_LEXEME]


def _lexemes(message: Message) -> tuple[list[str], str | None]:
    """Return the different words of a message, and a note where these are not all.

    The server takes 1 MiB of them, which the searched characters of a message never come to.
    """
    found = dict.fromkeys(map(_lexeme, split_words(indexed_text(message))))
    return list(found), TRUNCATED if is_truncated(message) else None
