"""Hashes of rows: a number beside each, over everything that nothing else in the store proves.

SQLite has no checksums of its own, and a server's disk may fail too. What a row says and what was
written can therefore be compared; `verify` does. A message's hash is over its body, its position,
what it replaces, and the change it came with; its id, role, time and counts stand in the body, too,
or follow from the rows before it. A row that schema 1 wrote has an older hash (of a message: its
position and body alone) or none, and stays as it is until it is written again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from palaver.errors import StoreDamaged
from palaver.stores.rows import ROLE_NUMBERS, message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["other_problems", "row_hash", "row_problems"]


def row_hash(body: bytes, *columns: object) -> int:
    """A number that changes when a byte of a row's body does, or one of some columns.

    >>> row_hash(b"hello", "talk", 3) == row_hash(b"hello", "talk", 4)
    False
    """
    mark = blake2b(b"%b\0%b" % ("\0".join(map(str, columns)).encode(), body), digest_size=8)
    return int.from_bytes(mark.digest(), "big", signed=True)


def _hash_of_schema_1(position: int, body: bytes) -> int:
    mark = blake2b(body, digest_size=8, salt=position.to_bytes(16, "big"))
    return int.from_bytes(mark.digest(), "big", signed=True)


def row_problems(rows: Iterable[tuple[Any, ...]], start: int, stop: int) -> Iterator[str]:
    """What is wrong with the rows of the messages from start to before stop.

    A row is its hash, its body, its role, ordinal, the three counts, its time and id; then the
    columns that the hash is over: whose it is, its position, and what else a store has there.
    """
    expected = start
    for mark, text, role, ordinal, system, user, assistant, time, name, *columns in rows:
        position: int = columns[1]
        if position != expected:
            yield f"message {expected} is missing"
        expected = position + 1
        body = text.encode()
        counts = (system, user, assistant, position - system - user - assistant)
        if mark not in (row_hash(body, *columns), _hash_of_schema_1(position, body)):
            yield f"message {position}: the row is not what was written"
        elif (role, time, name) != _told_by(text) or ordinal != counts[role]:
            yield f"message {position}: the row is not that of its message"
    if expected != stop:
        yield f"message {expected} is missing"


def _told_by(text: str) -> tuple[int, int, str] | None:
    """Role, time and id as the body has them."""
    try:
        message = message_of(text)
    except StoreDamaged:
        return None
    return ROLE_NUMBERS[message.role], message.timestamp, message.id


def other_problems(rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """What is wrong with rows that are no messages: what each is, its hash, body and columns."""
    for what, mark, body, *columns in rows:
        if mark is not None and mark != row_hash(body or b"", *columns):
            yield f"{what}: the row is not what was written"
