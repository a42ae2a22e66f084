"""The full-text index of the SQLite store: fed behind the writes, caught up before a search.

What is a word is decided in `words`, and the index gets it as plain ASCII, so that every store
finds the same. Whether a hit is one is seen in the message itself, which has to be read anyway.

The index is fed in small transactions. Messages are read and split into words before a transaction
begins, so that it is short and other writers wait only for that. Each transaction stores how far
the index goes: what was done stays done, and no message is added twice. They are not flushed to
disk one by one (`synchronous = NORMAL`): a power cut may take some back, and they are made again.
"""

from __future__ import annotations

import random
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from palaver.errors import StoreDamaged, StoreError
from palaver.stores.records import Hit
from palaver.stores.rows import message_of
from palaver.stores.sql import load_queries
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
    from collections.abc import Callable, Collection, Sequence

__all__ = ["Words"]

_QUERIES: Final = load_queries("palaver.stores.sqlite")
_MANY: Final = 100  # messages in a transaction
_MUCH: Final = 200_000  # bytes of messages, or of their words, in a transaction; or one message
_PAUSE: Final = 0.001  # seconds between two transactions, for others to write in
_PATIENCE: Final = 60.0  # seconds, about
_AWAY: Final = 0.05  # seconds before looking again, while another feeds the index
_TRIES: Final = 100  # in vain, before it is no longer others who are in the way
_RANGES: Final = 100  # of a conversation that was forked; with more, hits are sorted out afterwards


class _Entry(NamedTuple):
    """A message as the index gets it; `words` is None for one that could not be read."""

    number: int
    cid: int
    hash: int
    words: str | None
    reason: str | None


class Words:
    """The index, and the connection that may write it."""

    def __init__(self, writer: apsw.Connection) -> None:
        """Take the writing connection."""
        self._writer = writer

    def catch_up(
        self,
        reader: apsw.Connection,
        connect: Callable[[], apsw.Connection],
        write: Callable[[Callable[[], bool]], bool],
    ) -> None:
        """Index the messages that there are now, through a connection of its own.

        `write` has something done in turn with the other writers of this process; where that is in
        a transaction with some of them, the index is fed through their connection.
        """
        newest: int = reader.execute(_QUERIES["newest"]).get
        feeder: apsw.Connection | None = None
        tries = 0
        try:
            while (indexed := _indexed(reader)) < newest:
                entries = _prepared(reader, indexed, newest)
                if not entries:
                    return
                if feeder is None:
                    feeder = connect()
                    feeder.set_busy_handler(_wait)
                    feeder.execute("PRAGMA synchronous = NORMAL")
                if write(partial(self._add, feeder, indexed, entries)):
                    tries = 0
                    time.sleep(_PAUSE)
                    continue
                tries = tries + 1 if _indexed(reader) == indexed else 0
                if tries == _TRIES:
                    msg = f"the search index can't be brought further than message {indexed}"
                    raise StoreDamaged(msg)
                time.sleep(_AWAY)
        finally:
            if feeder is not None:
                feeder.close()

    def _add(self, feeder: apsw.Connection, indexed: int, entries: Sequence[_Entry]) -> bool:
        """Add messages in a transaction; False where others have come first."""
        if self._writer.in_transaction:
            return _add(self._writer, indexed, entries)
        feeder.execute("BEGIN IMMEDIATE")
        try:
            valid = _add(feeder, indexed, entries)
            feeder.execute("COMMIT")
        except BaseException:
            if feeder.in_transaction:
                feeder.execute("ROLLBACK")
            raise
        return valid

    def forget(self, number: int, cid: int, body: str) -> None:
        """Take a message out of the index, bytes and all; inside a transaction."""
        writer = self._writer
        if number <= _indexed(writer):
            if writer.execute(_QUERIES["unindexed_of"], (number,)).get != 0:
                _destroy(writer, 1)
                words = _tokens(indexed_text(message_of(body)))
                writer.execute(_QUERIES["unindex_words"], (number, str(cid), words))
            writer.execute(_QUERIES["forget_unindexed"], (number,))

    def remember(self, number: int, cid: int, body: str) -> None:
        """Put what is left of a message into the index; inside a transaction."""
        if number <= _indexed(self._writer):
            words = _tokens(indexed_text(message_of(body)))
            self._writer.execute(_QUERIES["index_words"], (number, str(cid), words))

    @staticmethod
    def search(
        reader: apsw.Connection,
        words: str,
        ranges: Sequence[tuple[int, int, int]] | None,
        limit: int,
    ) -> list[Hit]:
        """The messages with all these words, in a conversation's ranges or anywhere."""
        wanted = phrases(words)
        hits: list[Hit] = []
        if not wanted or limit <= 0:
            return hits
        bounds = None if ranges is None else {cid: (start, stop) for cid, start, stop in ranges}
        expression = _expression(wanted, bounds)
        with closing(reader.execute(_QUERIES["search"], (expression,))) as found:
            for number, cid, position, name in found:
                if bounds is not None:
                    start, stop = bounds.get(cid, (0, 0))
                    if not start <= position < stop:
                        continue
                message = message_of(reader.execute(_QUERIES["body_of"], (number,)).get)
                text = indexed_text(message)
                if has(text, wanted):
                    hits.append(Hit(name, position, message, snippet(text, words)))
                    if len(hits) == limit:
                        break
        return hits


def _indexed(connection: apsw.Connection) -> int:
    """The number of the last message that the index has."""
    rows: list[Any] = connection.execute(_QUERIES["indexed"]).fetchall()
    found = rows[0][0] if len(rows) == 1 else None
    if not isinstance(found, int):
        msg = "how far the search index goes can't be read"
        raise StoreDamaged(msg)
    return found


def _add(connection: apsw.Connection, indexed: int, entries: Sequence[_Entry]) -> bool:
    """Add messages after those that the index has; False where that is no longer so.

    A message that was erased since it was read has another hash.
    """
    seen = [(entry.number, entry.cid, entry.hash) for entry in entries]
    upto = entries[-1].number
    there: list[Any] = connection.execute(
        _QUERIES["to_index"], (indexed, upto, len(entries) + 1)
    ).fetchall()
    if not _indexed(connection) == indexed < upto or seen != [row[:3] for row in there]:
        return False
    _destroy(connection, 0)
    connection.executemany(
        _QUERIES["index_words"],
        [(new.number, str(new.cid), new.words) for new in entries if new.words is not None],
    )
    connection.executemany(
        _QUERIES["note_unindexed"],
        [(new.number, new.words is not None, new.reason) for new in entries if new.reason],
    )
    connection.execute(_QUERIES["note_indexed"], (upto,))
    return True


def _wait(times: int) -> bool:
    """A busy handler that asks often: the gaps between the commits of a busy writer are short."""
    time.sleep(_PAUSE * (0.5 + random.random()))  # noqa: S311 - no secret
    return times * _PAUSE < _PATIENCE


def _destroy(connection: apsw.Connection, setting: int) -> None:
    """Have FTS5 destroy the bytes of what is taken out (1) or not (0), which makes adding slow."""
    if connection.execute(_QUERIES["destroys"]).get != setting:
        connection.execute(_QUERIES["destroy"], (setting,))


def _prepared(reader: apsw.Connection, indexed: int, newest: int) -> list[_Entry]:
    """The next messages for the index, as many as go into one transaction."""
    entries: list[_Entry] = []
    room = _MUCH
    rows: list[Any] = reader.execute(_QUERIES["to_index"], (indexed, newest, _MANY)).fetchall()
    for number, cid, mark, size in rows:
        if entries and size > room:
            break
        words, reason = _read(reader, number)
        entries.append(_Entry(number, cid, mark, words, reason))
        room -= max(size, len(words or ""))
        if room < 0:
            break
    return entries


def _read(reader: apsw.Connection, number: int) -> tuple[str | None, str | None]:
    """The words of a message as the index gets them, and why these are not all."""
    try:
        message = message_of(reader.execute(_QUERIES["body_of"], (number,)).get)
        return _tokens(indexed_text(message)), PARTIAL if is_cut(message) else None
    except (MemoryError, apsw.NoMemError):
        return None, "it is not searched: there was not enough memory to read it"
    except (StoreError, UnicodeDecodeError):
        return None, "it is not searched: it can't be read"


def _expression(wanted: Sequence[Sequence[str]], cids: Collection[int] | None) -> str:
    """A query as FTS5 reads it."""
    phrased = " AND ".join('"' + " ".join(map(token, phrase)) + '"' for phrase in wanted)
    expression = f"text : ({phrased})"
    if cids is not None and len(cids) <= _RANGES:
        named = " OR ".join(f'"{cid}"' for cid in cids)
        expression = f"conversation : ({named}) AND {expression}"
    return expression


def _tokens(text: str) -> str:
    """The words of a text, as the index gets them."""
    return " ".join(map(token, words_of(text)))
