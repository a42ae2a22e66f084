"""Finding things in the SQLite store: by words, in pages of conversations, by role, id and time.

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

An append writes no index by role, id or time, as long as messages come in order. Each row has how
many messages of each role come before it, so that the n-th of a role is found by bisection. A
message is *in order of time* if it is no older than those in that order before it, and *in order of
ids* if palaver made its id, too, and that comes after those in this order. Bisection finds a time
among the former and an id among the latter; only the others stand in the index by time, and in that
by id. `to_latest` leads from a message to the latest one in order before it, which bisection takes
in its place (see `records.follow`).
"""

from __future__ import annotations

import json
import random
import time
from bisect import bisect_left
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import apsw

from palaver.errors import EncryptionError, StoreDamaged, StoreError
from palaver.stores.records import decode_body, is_made_here, latest_in_order, latest_in_time
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
    from collections.abc import Callable, Collection, Generator, Sequence

    from palaver.stores.forks import Lineage, RowRange
    from palaver.stores.records import Head, Hit, OrderAt
    from palaver.stores.sqlite.connections import SQLiteConnections

__all__ = [
    "Read",
    "SQLiteSearchIndex",
    "first_after_version",
    "positions_by_id",
    "positions_by_role",
    "positions_by_time",
    "read_page",
]


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
            return bool(self._connections.read("index_is_off"))
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


# ── messages by role, id and time ───────────────────────────────────────────────────────────────

Read: TypeAlias = "Callable[..., list[Any]]"
"""Runs a named statement and returns its rows."""
_MAX_KNOWN: Final = 20_000  # positions of messages that were looked for
_SPREAD: Final = 32  # rows that are looked at for one of a role, rather than bisecting once more


def positions_by_id(read: Read, line: Lineage[int], name: str, known: dict[str, int]) -> list[int]:
    """Return the positions of the messages of a log that have an id.

    `known` are positions of messages in order, in whatever conversation: whoever is found there is
    not looked for, and whoever had to be is added.
    """
    place = known.get(name, -1)
    found = read("of_id", name, _owner(line, place), place)
    if is_made_here(name) and not any(in_order for *_, in_order in found):
        order_at = _order_of(read, line)
        place = _first(read, line, lambda place: latest_in_order(order_at, place).name >= name)
        found = read("of_id", name, _owner(line, place), place)
        if len(known) >= _MAX_KNOWN:
            known.clear()
        known[name] = place
    return sorted(place for key, place, _ in found if key == _owner(line, place))


def positions_by_time(read: Read, line: Lineage[int], since: int, until: int) -> list[int]:
    """Return the positions of the messages from one time to before another, in log order."""
    order_at = _order_of(read, line)

    def latest(position: int) -> tuple[int, int]:
        """Return position and time of the latest message in order of time up to a position."""
        found = latest_in_time(order_at, position)
        return (-1, 0) if found is None else found[:2]

    begin = _first(read, line, lambda place: latest(place)[1] >= since)
    end = _first(read, line, lambda place: latest(place)[1] >= until)
    last, _ = latest(end - 1)
    ranges = line.row_ranges(begin, last + 1)
    found = read("in_order", json.dumps(ranges)) if ranges else []
    found += read("out_of_order", json.dumps(line.row_ranges()), since, until)
    return sorted(row[0] for row in found)


def first_after_version(read: Read, cid: int, head: Head, version: int) -> int:
    """Return the position of a conversation's first message after a version, by binary search."""
    low, high = head.base, head.length
    while low < high:
        middle = (low + high) // 2
        rows = read("version_at", cid, middle)
        if not rows or rows[0][0] is None:
            msg = f"{head.id} has no message at {middle}"
            raise StoreDamaged(msg)
        if rows[0][0] > version:
            high = middle
        else:
            low = middle + 1
    return low


def positions_by_role(
    read: Read, line: Lineage[int], role: int, start: int, stop: int
) -> list[int]:
    """Return the positions of a role's messages from its start-th to before its stop-th.

    Where they lie close together, all rows between them are looked at; otherwise the one in the
    middle is found first.
    """

    def place(rank: int, low: int = 0, high: int | None = None) -> int:
        """Return where the rank-th is, or where the log ends."""
        return _first(read, line, lambda position: up_to(position) > rank, low, high)

    def up_to(position: int) -> int:
        rows = read("up_to", _owner(line, position), position, role)
        return rows[0][0] if rows else 0

    ranges: list[RowRange[int]] = []
    end = place(stop)
    waiting = [(start, place(start, start, end), stop, end)]
    while waiting:
        start, first, stop, end = waiting.pop()
        if stop - start == 1:
            ranges += line.row_ranges(first, min(first + 1, end))
        elif end - first <= _SPREAD * (stop - start):
            ranges += line.row_ranges(first, end)
        else:
            middle = (start + stop) // 2
            between = place(middle, first, end)
            waiting += (start, first, middle, between), (middle, between, stop, end)
    return [row[0] for row in read("of_role", json.dumps(ranges), role)]


def _order_of(read: Read, line: Lineage[int]) -> OrderAt:
    """Return what reads the place of a message in the orders, by its position."""

    def order_at(position: int) -> Any:  # noqa: ANN401 - a row, if there is one
        rows = read("order_at", _owner(line, position), position)
        return rows[0] if rows else None

    return order_at


def _first(
    read: Read,
    line: Lineage[int],
    reached: Callable[[int], bool],
    low: int = 0,
    high: int | None = None,
) -> int:
    """Return the first position of a log where something is reached, and stays so; or its end.

    Steps from the end that grow find a part of the log, since what is new is asked for most;
    bisection does the rest.
    """
    end: int | None = read("end", line.key)[0][0] if high is None else high
    top, step = line.base if end is None else end, 1
    while low < top and reached(probe := max(low, top - step)):
        top, step = probe, step * 4
    low = max(low, top - step + 1)
    return bisect_left(range(top), True, low, key=reached)  # noqa: FBT003 - what is looked for


def _owner(line: Lineage[int], position: int) -> int:
    """Return whose row a position is; no conversation has the number -1."""
    owner = line.owner(position)
    return -1 if owner is None else owner.key
