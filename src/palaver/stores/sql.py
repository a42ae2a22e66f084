"""What the SQL backends share: statements in `.sql` files, and how rows and refusals are read.

    -- name: head
    SELECT … ;

A statement is known by its name; a migration is a file whose name begins with its number.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn

from palaver.errors import LeaseLost, Stale, StoreError, UnknownConversation
from palaver.stores.forks import FAR
from palaver.stores.records import Head, pack_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "check_family",
    "decode_head",
    "load_migrations",
    "load_queries",
    "parse_cursor",
    "refuse_forked",
    "refuse_lease",
    "refuse_stale",
    "refuse_unknown",
]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_END = re.compile(r";$", re.MULTILINE)


def load_queries(package: str) -> dict[str, str]:
    """Return the named statements of a package's `queries.sql`."""
    text = resources.files(package).joinpath("queries.sql").read_text("utf-8")
    _, *pieces = _NAME.split(text)
    return {
        name: _END.split(statement, maxsplit=1)[0].strip()  # a comment behind it would be run, too
        for name, statement in zip(pieces[::2], pieces[1::2], strict=True)
    }


def load_migrations(package: str) -> list[tuple[int, str]]:
    """Return the migrations of a package, in the order of their numbers."""
    folder = resources.files(package).joinpath("migrations")
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def decode_head(row: Sequence[Any], tags: Iterable[str]) -> Head:
    """Return a head from the 17 columns that both backends select, in this order."""
    (name, version, stop, length, system, user, assistant, framed, size, parent, base, origin,
     title, _, created, updated, erased) = row  # fmt: skip
    counts = pack_counts(length, system, user, assistant)
    return Head(name, version, stop, length, counts, framed, size, parent, base, origin, title,
                tuple(tags), created, updated, erased)  # fmt: skip


def parse_cursor(after: str | None) -> tuple[int, str]:
    """Return the time and id that a page of conversations comes after; None is the first page."""
    updated, _, name = (after or f"{FAR}:\U0010ffff").partition(":")
    return int(updated), name


def refuse_unknown(conversation: str) -> NoReturn:
    """Raise `UnknownConversation`."""
    msg = f"no conversation has the id {conversation!r}"
    raise UnknownConversation(msg)


def refuse_stale(conversation: str, after: int) -> NoReturn:
    """Raise `Stale`: a change was made for another version than the newest."""
    msg = f"{conversation} is no longer at version {after}"
    raise Stale(msg)


def refuse_lease() -> NoReturn:
    """Raise `LeaseLost`: a change carries the token of a lease that another worker took since."""
    msg = "the lease went to another worker meanwhile"
    raise LeaseLost(msg)


def refuse_forked(fork: str) -> NoReturn:
    """Raise `StoreError`: a conversation with forks can't be deleted."""
    msg = f"{fork} was forked from it, and reads its messages"
    raise StoreError(msg)


def check_family(conversation: str, expected: Iterable[str], found: Iterable[str]) -> None:
    """Raise `Stale` where a conversation has other relatives than expected."""
    if sorted(expected) != sorted(found):
        msg = f"{conversation} has other relatives meanwhile"
        raise Stale(msg)
