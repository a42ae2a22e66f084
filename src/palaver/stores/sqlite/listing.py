"""Pages of conversations, the latest changed first, at a cost that depends on the page alone.

An index has the conversations by `updated`. A plain append does not touch that column, since it
writes nothing but a message row; `listing.listed` is the number of the last message that the column
takes into account. The conversations with newer messages, the *fresh* ones, are read beside the
index and sorted in. Once there are many messages after `listed`, the column is brought up to date
in a few short transactions, which give way to any other writer.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import apsw

from palaver.errors import StoreDamaged
from palaver.stores.sqlite.connections import QUERIES, busy_handler

__all__ = ["read_page"]

_MAX_BEHIND: Final = 32  # messages; that many are looked at again for every page
_AT_ONCE: Final = 1_000  # conversations brought up to date in one transaction


class _Fresh(NamedTuple):
    """A conversation with messages after `listed`, and when it was last changed."""

    cid: int
    updated: int
    id: str


def read_page(
    reader: apsw.Connection, before: tuple[int, str], limit: int, tag: str | None
) -> list[tuple[int, tuple[Any, ...]]]:
    """Return up to `limit` rows that come before a time and id, each with its time of change."""
    fresh = _read_fresh(reader)
    rows: Any = reader.execute(QUERIES["list"], (*before, tag, limit + len(fresh))).fetchall()
    known = {entry.id for entry in fresh}
    found: list[tuple[int, str, tuple[Any, ...]]] = [
        (*_check(row[0], row[1]), row[1:]) for row in rows if row[1] not in known
    ]
    latest = sorted(((entry.updated, entry.id, entry.cid) for entry in fresh), reverse=True)
    later = [entry for entry in latest if entry[:2] < before]
    for updated, name, cid in later if tag is not None else later[:limit]:
        rows = reader.execute(QUERIES["list_one"], (cid, tag)).fetchall()
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
