"""Changes as calls of the functions in the database: their values, and what the answers mean.

A change is one statement that calls a function of `functions.sql`, so it is one round trip, and the
function says why it made nothing. What was made is found again by its `attempt`, a random number.
"""

from __future__ import annotations

import json
import os
import random
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn

import psycopg
from psycopg import errors

from palaver.errors import AlreadyExists, StoreError
from palaver.stores.backend import refuse_lease, refuse_stale, refuse_unknown
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.postgres.erase import encode_tags
from palaver.stores.records import (
    ROLE_NUMBERS,
    AlreadyCommitted,
    Change,
    Head,
    Placed,
    encode_body,
    label_hash,
    pack_counts,
    row_hash,
    unpack_counts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.stores.postgres.connections import (
        Cursor,
        PostgresConnections,
        TimedConnection,
        Values,
    )
    from palaver.stores.records import Record

__all__ = [
    "Adoption",
    "Outcome",
    "Relabelled",
    "commit",
    "committed",
    "create",
    "journal_hash",
    "lock",
    "new_attempt",
    "record_values",
    "release_made",
    "send_commit",
    "transaction_number",
]

_NONE: Final = -1  # where NULL is meant, in a list of numbers or for a lease
_PIPELINED: Final = 100  # statements that are sent before their answers are read
_NO_PARENT: Final = "PV005"  # the error of `create_conversation` where the parent is gone
_RELABELLED: Final = "PV007"  # the same where the parent has another title, tags or owner
_MAX_ADOPTED: Final = 1 << 22  # numbers that a transaction has for its changes, as in functions.sql


class Relabelled(Exception):  # noqa: N818 - it is caught where the labels are read again
    """The parent of a fork has another title by now, other tags, or another owner."""


class Outcome(IntEnum):
    """What became of a change: the first number that the functions of `functions.sql` return."""

    MADE = 0
    MADE_BEFORE = 1  # by this attempt, whose answer was lost
    KEYED = 2
    LEASE_LOST = 3
    STALE = 4
    UNKNOWN = 5
    EXISTS = 6


_draw: Final = random.Random()  # noqa: S311 - an attempt is told apart by it, and nothing is hidden
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_draw.seed)


def new_attempt() -> int:
    """Return a number that no other change of the same conversation has.

    It is drawn by a generator of this module's own, which no caller of `random.seed` can set back.
    """
    return _draw.getrandbits(63)


def create(
    connection: TimedConnection,
    root: str,
    head: Head,
    first: Change,
    *,
    attempt: int,
    as_parent: bool = False,
) -> None:
    """Create a conversation; `Relabelled` if it is not titled as its parent and has to be."""
    values = _create_values(root, head, first, attempt, 0) | {"as_parent": as_parent}
    if root == head.id:
        ((outcome, _),) = connection.execute(STATEMENTS["create"], values).fetchone() or ([6, 0],)
    else:
        outcome = _create_fork(connection, root, head, values)
    if outcome == Outcome.EXISTS:
        _refuse_existing(head.id)


def _create_fork(
    connection: TimedConnection, root: str, head: Head, values: dict[str, Any]
) -> Outcome:
    """Create a conversation in a family; its name may lie on another node.

    It is a transaction of four statements, in one round trip: psycopg's own would take several.
    """
    try:
        with connection.pipeline():
            connection.begin()
            connection.execute(STATEMENTS["claim_name"], (head.id, root))
            connection.execute(STATEMENTS["create"], values)
            connection.execute(b"COMMIT")
    except errors.UniqueViolation:
        connection.rollback()
        found = _attempt_of(connection, root, head.id, 0, 0)
        return Outcome.MADE_BEFORE if found == values["attempt"] else Outcome.EXISTS
    except psycopg.Error as error:
        if not connection.closed:
            connection.rollback()
        if error.sqlstate == _NO_PARENT:
            refuse_unknown(str(head.parent))
        if error.sqlstate == _RELABELLED:
            raise Relabelled from None
        raise
    return Outcome.MADE


def _refuse_existing(conversation: str) -> NoReturn:
    msg = f"a conversation has the id {conversation!r} already"
    raise AlreadyExists(msg)


def _attempt_of(
    connection: TimedConnection, root: str, conversation: str, version: int, first: int
) -> int | None:
    """Return which attempt made a version with a message at `first`; None where it is not there."""
    where = {"root": root, "id": conversation, "version": version, "first": first}
    row = connection.execute(STATEMENTS["outcome"], where).fetchone()
    return None if row is None else int(row[0])


def commit(
    connection: TimedConnection,
    root: str,
    change: Change,
    attempt: int,
    *,
    again: bool = False,
    in_turn: bool = False,
) -> int:
    """Store a change and return its version.

    `again` tells that it may have been stored by this attempt before, and the answer was lost;
    `in_turn` that many append to the conversation, so that each should wait for its turn.
    """
    name, values = _statement(root, change, attempt, 0, again=again, in_turn=in_turn)
    return committed(change, connection.ask(STATEMENTS[name], values))


def send_commit(connection: TimedConnection, root: str, change: Change, attempt: int) -> Cursor:
    """Send a change inside of a pipeline; `committed` takes the row of the answer."""
    name, values = _statement(root, change, attempt, 0, again=True)
    return connection.execute(STATEMENTS[name], values)


def release_made(
    connection: TimedConnection, root: str, change: Change, attempt: int, token: int
) -> None:
    """Give a lease back, if an attempt has made its change."""
    connection.execute(
        STATEMENTS["release_made"],
        {"root": root, "id": change.conversation, "after": change.after, "first": change.first,
         "attempt": attempt, "token": token},
    )  # fmt: skip


def committed(change: Change, row: tuple[Any, ...] | None) -> int:
    """Return the version of a change that was made, now or before, or raise what is against it."""
    outcome, *numbers = [Outcome.UNKNOWN] if row is None else row[0]
    if outcome in (Outcome.MADE, Outcome.MADE_BEFORE):
        made, *place = numbers
        if made == change.after + 1:
            return int(made)
        first, version, stop, length, system, user, assistant, framed, size, erased = place
        counts = pack_counts(length, system, user, assistant)
        head = Head(change.conversation, version, stop, length, counts, framed, size, erased=erased)
        return Placed(made, first, head)
    if outcome == Outcome.KEYED:
        return AlreadyCommitted(numbers[0])
    if outcome == Outcome.LEASE_LOST:
        refuse_lease()
    if outcome == Outcome.STALE:
        refuse_stale(change.conversation, change.after)
    return refuse_unknown(change.conversation)


def lock(
    connection: TimedConnection, root: str, conversation: str, after: int | None = None
) -> bool:
    """Lock a conversation until the transaction ends, and return whether it is there.

    With `after`, raise `Stale` where that is not its newest version.
    """
    row = connection.execute(STATEMENTS["lock"], (root, conversation)).fetchone()
    if row is not None and after is not None and row[0] != after:
        refuse_stale(conversation, after)
    return row is not None


def transaction_number(connection: TimedConnection) -> str:
    """Return the number of the transaction under way."""
    (number,) = connection.execute(STATEMENTS["transaction"]).fetchone() or ("0",)
    return str(number)


class Adoption:
    """Many changes of one conversation in one transaction, without waiting for each answer.

    They may come from a stream that can't be read twice, so they are not sent again when the
    connection is lost; but the server can still be asked whether they were committed.
    """

    def __init__(self, connections: PostgresConnections, root: str, head: Head | None) -> None:
        """Take the connections, the family and, where a conversation is created, its head."""
        self._connections = connections
        self._root = root
        self._head = head
        self._attempt = new_attempt()
        self._last: Change | None = None
        self._answers: list[tuple[Change, Cursor]] = []

    def store(self, changes: Iterable[Change]) -> int:
        """Store all changes, or none, and return the last version."""
        try:
            return self._connections.run(
                lambda connection: self._send(connection, changes), again=False
            )
        except StoreError as error:
            last = self._last
            if last is None or not isinstance(error.__cause__, psycopg.OperationalError):
                raise
            version = last.after + 1
            found = self._connections.run(
                lambda connection: _attempt_of(
                    connection, self._root, last.conversation, version, last.first
                )
            )
            if found != self._attempt:
                raise
            return version

    def _send(self, connection: TimedConnection, changes: Iterable[Change]) -> int:
        version, head = -1, self._head
        try:
            with connection.transaction(), connection.pipeline():
                for index, change in enumerate(changes):
                    if index == _MAX_ADOPTED:
                        msg = f"more than {_MAX_ADOPTED:,} changes can't be stored in one step"
                        raise StoreError(msg)
                    self._send_one(connection, change, index)
                    if len(self._answers) == _PIPELINED:
                        version = self._read_answers(version)
                return self._read_answers(version)
        except errors.UniqueViolation:
            if head is None:
                raise
            _refuse_existing(head.id)
        except psycopg.Error as error:
            if head is not None and error.sqlstate == _NO_PARENT:
                refuse_unknown(str(head.parent))
            raise

    def _send_one(self, connection: TimedConnection, change: Change, index: int) -> None:
        head = self._head
        if head is not None and change.after < 0:
            if self._root != head.id:
                connection.execute(STATEMENTS["claim_name"], (head.id, self._root))
            first = _create_values(self._root, head, change, self._attempt, index)
            answer = connection.execute(STATEMENTS["create"], first)
        else:
            name, values = _statement(self._root, change, self._attempt, index)
            answer = connection.execute(STATEMENTS[name], values)
        self._last = change
        self._answers.append((change, answer))

    def _read_answers(self, version: int) -> int:
        answers, self._answers = self._answers, []
        for change, answer in answers:
            row = answer.fetchone()
            if self._head is None or change.after >= 0:
                version = committed(change, row)
                continue
            if row is not None and row[0][0] == Outcome.EXISTS:
                _refuse_existing(self._head.id)
            version = 0
        return version


def _statement(
    root: str,
    change: Change,
    attempt: int,
    index: int,
    *,
    again: bool = False,
    in_turn: bool = False,
) -> tuple[str, Values]:
    """Return the statement that makes a change, and its values.

    The common case is one message at the end of the log. Its row is the record of the change,
    unless that has a key.
    """
    if change.plain and len(change.messages) == 1 and not (change.records or change.replaces):
        name = "append" if change.key is None else "append_with_key"
        return name, _append_values(root, change, attempt, index, again=again, in_turn=in_turn)
    values = _message_columns(change) | _journal_values(change, attempt, index)
    return "commit", values | {
        **record_values(change.conversation, change.records), "root": root,
        "id": change.conversation, "after": change.after, "anywhere": change.anywhere,
        "token": change.token,
    }  # fmt: skip


def _append_values(
    root: str, change: Change, attempt: int, index: int, *, again: bool, in_turn: bool
) -> tuple[Any, ...]:
    """Return the values of the statement `append`, or of `append_with_key`."""
    (message,) = change.messages
    body = encode_body(message)
    key, encoded = change.key, body.encode()
    values = (
        root, change.conversation, change.after, change.anywhere, again,
        in_turn and change.anywhere, change.first, change.at,
        _NONE if change.token is None else change.token, attempt, index,
        ROLE_NUMBERS[message.role],
    )  # fmt: skip
    if key is None:
        mark = row_hash(encoded, change.conversation, f"at {change.at}")
        counts = unpack_counts(change.counts)
        return *values, *counts, message.timestamp, mark, message.id, body
    mark = row_hash(encoded, change.conversation, None)
    return *values, message.timestamp, mark, message.id, body, key, _journal_mark(change, None)


def _create_values(
    root: str, head: Head, first: Change, attempt: int, index: int
) -> dict[str, Any]:
    """Return the values of the statement `create`."""
    return {
        **_message_columns(first),
        **_journal_values(first, attempt, index),
        **record_values(head.id, first.records),
        "as_parent": False, "root": root, "id": head.id, "parent": head.parent,
        "counts": list(unpack_counts(first.counts)), "base": head.base, "origin": head.origin,
        "title": head.title, "tags": list(head.tags), "created": head.created,
        "updated": head.updated, "owner": head.owner,
        "label_hash": label_hash(head.id, head.parent, head.base, head.origin, head.created, 0,
                                 head.title, encode_tags(head.tags), head.owner),
    }  # fmt: skip


def _journal_values(change: Change, attempt: int, index: int) -> dict[str, Any]:
    data = json.dumps(change.data, ensure_ascii=False) if change.data else None
    return {
        "kind": change.kind, "at": change.at, "stop": change.stop, "size": change.size,
        "first": change.first, "key": change.key, "data": data, "attempt": attempt, "index": index,
        "frame": change.frame, "mark": _journal_mark(change, data),
    }  # fmt: skip


def _journal_mark(change: Change, data: str | None) -> int:
    """Hash what a journal row has that does not depend on where the change comes to stand."""
    return row_hash(
        change.frame or b"", change.conversation, change.kind, change.at, len(change.messages),
        change.stop - change.first, data, change.key,
    )  # fmt: skip


def journal_hash(frame: bytes, *columns: Any) -> int:  # noqa: ANN401 - what a column has
    """Return the hash of a journal row: its mark, and its version and first position in it."""
    conversation, version, kind, at, first, count, stop, data, key = columns
    mark = row_hash(frame, conversation, kind, at, count, stop - first, data, key)
    place: int = version | first << 32
    return mark ^ place


def _message_columns(change: Change) -> dict[str, Any]:
    bodies = [encode_body(message) for message in change.messages]
    replaces = [change.replaces.get(index) for index in range(len(bodies))]
    return {
        "roles": [ROLE_NUMBERS[message.role] for message in change.messages],
        "times": [message.timestamp for message in change.messages],
        "replaces": [_NONE if position is None else position for position in replaces],
        "marks": [
            row_hash(body.encode(), change.conversation, position)
            for body, position in zip(bodies, replaces, strict=True)
        ],
        "ids": [message.id for message in change.messages],
        "bodies": bodies,
    }


def record_values(conversation: str, records: Iterable[Record]) -> dict[str, list[Any]]:
    """Return the columns of records; the last one of a name counts, one without value goes."""
    last = {(kind, name): value for kind, name, value in records}
    return {
        "kinds": [kind for kind, _ in last],
        "names": [name for _, name in last],
        "values": list(last.values()),
        "hashes": [
            0 if value is None else row_hash(value, conversation, *which)
            for which, value in last.items()
        ],
    }
