"""Pages of conversations, the latest changed first, at a cost that follows from the page alone.

An index has the conversations by `updated`. A plain append does not touch that column, since it
writes nothing but a message row; `listing.listed` is the number of the last message that the column
takes into account. The conversations with newer messages, the *fresh* ones, are read beside the
index and sorted in. Once there are many messages after `listed`, the column is brought up to date:
a few short transactions, which give way to any other writer.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import apsw

from palaver.errors import StoreDamaged
from palaver.stores.sqlite.base import QUERIES
from palaver.stores.sqlite.connection import patient

__all__ = ["page"]

_BEHIND: Final = 32  # messages; that many are looked at again for every page
_AT_ONCE: Final = 1_000  # conversations brought up to date in one transaction


class _Fresh(NamedTuple):
    """A conversation with messages after `listed`, and when it was last changed."""

    cid: int
    updated: int
    id: str


def page(
    reader: apsw.Connection, before: tuple[int, str], limit: int, tag: str | None
) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows of up to `limit` conversations after a place, each with the time it is listed by."""
    fresh = _fresh(reader)
    rows: Any = reader.execute(QUERIES["list"], (*before, tag, limit + len(fresh))).fetchall()
    known = {one.id for one in fresh}
    found: list[tuple[int, str, tuple[Any, ...]]] = [
        (*_checked(row[0], row[1]), row[1:]) for row in rows if row[1] not in known
    ]
    latest = sorted(((one.updated, one.id, one.cid) for one in fresh), reverse=True)
    later = [one for one in latest if one[:2] < before]
    for updated, name, cid in later if tag is not None else later[:limit]:
        rows = reader.execute(QUERIES["list_one"], (cid, tag)).fetchall()
        found += [(updated, name, row[1:]) for row in rows]
    found.sort(key=lambda entry: entry[:2], reverse=True)
    return [(updated, row) for updated, _, row in found[:limit]]


def _fresh(reader: apsw.Connection) -> list[_Fresh]:
    """The conversations with messages after `listed`; none once they are taken into account."""
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
    fresh = [_Fresh(cid, *_checked(updated, name)) for cid, name, updated in rows]
    if behind > _BEHIND and _bring_up_to_date(reader, fresh, newest):
        return []
    return fresh


def _checked(updated: object, name: object) -> tuple[int, str]:
    """When a conversation was last changed, and its id, where the file is sound."""
    if type(updated) is not int or type(name) is not str:
        msg = f"the conversation {name!r} was last changed at {updated!r}, which is no time"
        raise StoreDamaged(msg)
    return updated, name


def _bring_up_to_date(connection: apsw.Connection, fresh: list[_Fresh], newest: int) -> bool:
    """Write down when conversations were last changed; False where another writer is at work."""
    connection.set_busy_timeout(0)
    try:
        for start in range(0, len(fresh), _AT_ONCE):
            rows = [(one.updated, one.cid) for one in fresh[start : start + _AT_ONCE]]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["bring_up_to_date"], rows)
            connection.execute("COMMIT")
        connection.execute(QUERIES["listed"], (newest,))
    except (apsw.BusyError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return False  # they are read beside the index until it can be written
    finally:
        connection.set_busy_handler(patient())
    return True
