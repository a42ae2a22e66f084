"""Finding things in the SQLite store by words, and in pages of conversations.

The full-text index is fed behind the writes, and caught up before a search.

`palaver.stores.text_index` splits texts into words, and the index gets them as plain ASCII, so that
every store finds the same. Whether a candidate matches is seen in the message itself, which has to
be read anyway.

The index is fed in small transactions. Messages are read and split into words before a transaction
begins, so that it is short and other writers wait only for that. Each transaction stores how far
the index goes: what was indexed stays indexed, and no message is added twice. They are not flushed
to disk one by one (`synchronous = NORMAL`): a power cut may take some back, and they are repeated.

A page of conversations, the latest changed first, costs as much as the page alone. An index has the
conversations by `updated`. A plain append does not touch that column, since it writes nothing but a
message row; `listing.listed` is the number of the last message that the column takes into account.
The conversations with newer messages, the *fresh* ones, are read beside the index and sorted in.
Once there are many messages after `listed`, the column is brought up to date in a few short
transactions, which give way to any other writer.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from palaver.errors import EncryptionError, StoreDamaged, StoreError
from palaver.stores.records import decode_body
from palaver.stores.sqlite.connections import QUERIES, busy_handler
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
    from collections.abc import Collection, Generator, Sequence

    from palaver.stores.records import Hit
    from palaver.stores.sqlite.connections import SQLiteConnections

__all__ = ["SQLiteSearchIndex", "read_page"]


_MAX_MESSAGES: Final = 100  # in a transaction
_MAX_BYTES: Final = 200_000  # of messages, or of their words, in a transaction; or one message
_PAUSE: Final = 0.001  # seconds between two transactions, for others to write in
_BUSY_SECONDS: Final = 60.0  # about
_AWAY: Final = 0.05  # seconds before looking again, while another process feeds the index
_TRIES: Final = 100  # without progress, before it is no longer others that are in the way
_MAX_RANGES: Final = 100  # of a forked conversation; with more, hits are filtered afterwards


class _IndexEntry(NamedTuple):
    """A message as the index gets it; `words` is None for one that could not be read."""

    number: int
    cid: int
    hash: int
    words: str | None
    reason: str | None


class SQLiteSearchIndex:
    """The index of the messages of one store."""

    def __init__(self, connections: SQLiteConnections) -> None:
        """Take the store's connections."""
        self._connections = connections

    def catch_up(self, reader: apsw.Connection) -> None:
        """Index the messages that are stored now, through a connection of its own.

        The transactions take turns with the other writers of this process. Where one runs together
        with theirs, the index is fed through their connection.
        """
        newest: int = reader.execute(QUERIES["newest"]).get
        feeder: apsw.Connection | None = None
        tries = 0
        try:
            while (indexed := _indexed(reader)) < newest:
                if indexed < 0:
                    raise EncryptionError(SEARCH_IS_OFF)
                entries = _prepare(reader, indexed, newest)
                if not entries:
                    return
                if feeder is None:
                    feeder = self._connections.file.connect()
                    feeder.set_busy_handler(_wait)
                    feeder.execute("PRAGMA synchronous = NORMAL")
                work = partial(self._add, feeder, indexed, entries)
                if self._connections.write(work, atomic=True):
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

    def _add(self, feeder: apsw.Connection, indexed: int, entries: Sequence[_IndexEntry]) -> bool:
        """Add messages in a transaction; return False where others came first."""
        writer = self._connections.writer
        if writer.in_transaction:
            return _add(writer, indexed, entries)
        feeder.execute("BEGIN IMMEDIATE")
        try:
            added = _add(feeder, indexed, entries)
            feeder.execute("COMMIT")
        except BaseException:
            if feeder.in_transaction:
                feeder.execute("ROLLBACK")
            raise
        return added

    def remove(self, number: int, cid: int, body: str) -> None:
        """Remove a message from the index and destroy its bytes; inside a transaction."""
        writer = self._connections.writer
        if number <= _indexed(writer):
            if writer.execute(QUERIES["unindexed_of"], (number,)).get != 0:
                _set_secure_delete(writer, 1)
                words = _tokens(indexed_text(decode_body(body)))
                writer.execute(QUERIES["unindex_words"], (number, str(cid), words))
            writer.execute(QUERIES["forget_unindexed"], (number,))

    def add(self, number: int, cid: int, body: str) -> None:
        """Add what is left of a message to the index; inside a transaction."""
        writer = self._connections.writer
        if number <= _indexed(writer):
            words = _tokens(indexed_text(decode_body(body)))
            writer.execute(QUERIES["index_words"], (number, str(cid), words))

    def is_off(self) -> bool:
        """Tell whether there is no index, because the store is encrypted."""
        try:
            return bool(self._connections.read_once("index_is_off"))
        except StoreError:  # `verify` reports what is wrong with the file
            return False

    def reset(self, *, off: bool) -> None:
        """Empty the index, and begin it again or switch it off; inside a transaction."""
        writer = self._connections.writer
        writer.execute(QUERIES["empty_index"])
        writer.execute(QUERIES["forget_all_unindexed"])
        writer.execute(QUERIES["note_indexed"], (-1 if off else 0,))

    @staticmethod
    def search(
        reader: apsw.Connection,
        query: str,
        ranges: Sequence[tuple[int, int, int]] | None,
        limit: int,
        owner: str | None = None,
    ) -> list[Hit]:
        """Return the messages with all words of a query: in ranges, of an owner, or anywhere."""
        wanted = parse_query(query)
        if not wanted or limit <= 0:
            return []
        with closing(_candidates(reader, wanted, ranges, owner)) as candidates:
            return collect_hits(candidates, query, wanted, limit)


def _candidates(
    reader: apsw.Connection,
    wanted: Sequence[Sequence[str]],
    ranges: Sequence[tuple[int, int, int]] | None,
    owner: str | None,
) -> Generator[tuple[str, int, str]]:
    """Yield what the index finds, best first: conversation, position and body."""
    bounds = None if ranges is None else {cid: (start, stop) for cid, start, stop in ranges}
    expression = _expression(wanted, bounds)
    with closing(reader.execute(QUERIES["search"], (expression, owner))) as found:
        for number, cid, position, name in found:
            if bounds is not None:
                start, stop = bounds.get(cid, (0, 0))
                if not start <= position < stop:
                    continue
            yield name, position, reader.execute(QUERIES["body_of"], (number,)).get


def _indexed(connection: apsw.Connection) -> int:
    """Return the number of the last message that is in the index."""
    rows: list[Any] = connection.execute(QUERIES["indexed"]).fetchall()
    found = rows[0][0] if len(rows) == 1 else None
    if not isinstance(found, int):
        msg = "how far the search index goes can't be read"
        raise StoreDamaged(msg)
    return found


def _add(connection: apsw.Connection, indexed: int, entries: Sequence[_IndexEntry]) -> bool:
    """Add messages after those that are in the index; return False where these have changed.

    A message that was erased since it was read has another hash.
    """
    prepared = [(entry.number, entry.cid, entry.hash) for entry in entries]
    upto = entries[-1].number
    stored: list[Any] = connection.execute(
        QUERIES["to_index"], (indexed, upto, len(entries) + 1)
    ).fetchall()
    if not _indexed(connection) == indexed < upto or prepared != [row[:3] for row in stored]:
        return False
    _set_secure_delete(connection, 0)
    connection.executemany(
        QUERIES["index_words"],
        [(new.number, str(new.cid), new.words) for new in entries if new.words is not None],
    )
    connection.executemany(
        QUERIES["note_unindexed"],
        [(new.number, new.words is not None, new.reason) for new in entries if new.reason],
    )
    connection.execute(QUERIES["note_indexed"], (upto,))
    return True


def _wait(times: int) -> bool:
    """A busy handler that tries often: the gaps between the commits of a busy writer are short."""
    time.sleep(_PAUSE * (0.5 + random.random()))  # noqa: S311 - no secret
    return times * _PAUSE < _BUSY_SECONDS


def _set_secure_delete(connection: apsw.Connection, setting: int) -> None:
    """Tell FTS5 whether to destroy the bytes of what is removed (1) or not (0): 1 is slower."""
    if connection.execute(QUERIES["destroys"]).get != setting:
        connection.execute(QUERIES["destroy"], (setting,))


def _prepare(reader: apsw.Connection, indexed: int, newest: int) -> list[_IndexEntry]:
    """Read the next messages for the index, as many as go into one transaction."""
    entries: list[_IndexEntry] = []
    room = _MAX_BYTES
    rows: list[Any] = reader.execute(
        QUERIES["to_index"], (indexed, newest, _MAX_MESSAGES)
    ).fetchall()
    for number, cid, mark, size in rows:
        if entries and size > room:
            break
        words, reason = _read(reader, number)
        entries.append(_IndexEntry(number, cid, mark, words, reason))
        room -= max(size, len(words or ""))
        if room < 0:
            break
    return entries


def _read(reader: apsw.Connection, number: int) -> tuple[str | None, str | None]:
    """Return a message's words as the index gets them, and a note where these are not all."""
    try:
        message = decode_body(reader.execute(QUERIES["body_of"], (number,)).get)
        return _tokens(indexed_text(message)), TRUNCATED if is_truncated(message) else None
    except (MemoryError, apsw.NoMemError):
        return None, OUT_OF_MEMORY
    except (StoreError, UnicodeDecodeError):
        return None, UNREADABLE


def _expression(wanted: Sequence[Sequence[str]], cids: Collection[int] | None) -> str:
    """Return a query in the syntax of FTS5."""
    phrased = " AND ".join('"' + " ".join(map(token, phrase)) + '"' for phrase in wanted)
    expression = f"text : ({phrased})"
    if cids is not None and len(cids) <= _MAX_RANGES:
        named = " OR ".join(f'"{cid}"' for cid in cids)
        expression = f"conversation : ({named}) AND {expression}"
    return expression


def _tokens(text: str) -> str:
    """Return the words of a text as the index gets them."""
    return " ".join(map(token, split_words(text)))


_MAX_BEHIND: Final = 32  # messages; that many are looked at again for every page
_AT_ONCE: Final = 1_000  # conversations brought up to date in one transaction


class _Fresh(NamedTuple):
    """A conversation with messages after `listed`, and when it was last changed."""

    cid: int
    updated: int
    id: str


def read_page(
    reader: apsw.Connection,
    before: tuple[int, str],
    limit: int,
    tag: str | None,
    owner: str | None,
    *,
    without: Sequence[str] = (),
) -> list[tuple[int, tuple[Any, ...]]]:
    """Return up to `limit` rows that come before a time and id, each with its time of change."""
    fresh = _read_fresh(reader)
    values = *before, tag, limit + len(fresh)
    tags = json.dumps(list(without)) if without else None
    if owner is None:
        rows: Any = reader.execute(QUERIES["list"], (*values, tags)).fetchall()
    else:
        rows = reader.execute(QUERIES["list_of_owner"], (*values, owner, tags)).fetchall()
    known = {entry.id for entry in fresh}
    found: list[tuple[int, str, tuple[Any, ...]]] = [
        (*_check(row[0], row[1]), row[1:]) for row in rows if row[1] not in known
    ]
    latest = sorted(((entry.updated, entry.id, entry.cid) for entry in fresh), reverse=True)
    later = [entry for entry in latest if entry[:2] < before]
    for updated, name, cid in later[:limit] if tag is owner is None and not without else later:
        rows = reader.execute(QUERIES["list_one"], (cid, tag, owner, tags)).fetchall()
        found += [(updated, name, row[1:]) for row in rows]
    found.sort(key=lambda entry: entry[:2], reverse=True)
    return [(updated, row) for updated, _, row in found[:limit]]


def _read_fresh(reader: apsw.Connection) -> list[_Fresh]:
    """Return the conversations with messages after `listed`; none once the column has them."""
    found: Any = reader.execute(QUERIES["behind"]).fetchall()
    if not found or not all(type(number) is int for number in found[0]):
        msg = "up to where conversations are listed can't be read"
        raise StoreDamaged(msg)
    listed, newest, conversations = found[0]
    behind = newest - listed
    if behind <= 0:
        return []
    query = QUERIES["fresh" if behind <= conversations else "fresh_of_all"]
    rows: Any = reader.execute(query, (listed,)).fetchall()
    fresh = [_Fresh(cid, *_check(updated, name)) for cid, name, updated in rows]
    if behind > _MAX_BEHIND and _update(reader, fresh, newest):
        return []
    return fresh


def _check(updated: object, name: object) -> tuple[int, str]:
    """Return time and id of a conversation; raise `StoreDamaged` where they are none."""
    if type(updated) is not int or type(name) is not str:
        msg = f"the conversation {name!r} was last changed at {updated!r}, which is no time"
        raise StoreDamaged(msg)
    return updated, name


def _update(connection: apsw.Connection, fresh: list[_Fresh], newest: int) -> bool:
    """Store when conversations were last changed; return False where another writer is active."""
    connection.set_busy_timeout(0)
    try:
        for start in range(0, len(fresh), _AT_ONCE):
            rows = [(entry.updated, entry.cid) for entry in fresh[start : start + _AT_ONCE]]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["bring_up_to_date"], rows)
            connection.execute("COMMIT")
        connection.execute(QUERIES["listed"], (newest,))
    except (apsw.BusyError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return False  # they are read beside the index until the column can be written
    finally:
        connection.set_busy_handler(busy_handler())
    return True
