"""Changes on their way into the tables: what their statements take, and what their answers mean.

A change is one statement: it moves the conversation on from the version it was made for, and only
if that succeeds adds the rest. Every change carries a mark of its own (`attempt`), so that whoever
loses the connection before the answer can ask what became of it: sent again, it finds either the
version it was made for, and is made now, or its own mark, and is not made twice.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import psycopg

from palaver.errors import AlreadyExists, LeaseLost, Stale, StoreError, UnknownConversation
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.records import Again
from palaver.stores.rows import ROLE_NUMBERS, body_of, counts_of, one
from palaver.stores.sealing import row_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.stores.postgres.connections import Connections, Cursor, Line
    from palaver.stores.records import Change, Head

__all__ = ["Adoption", "begin", "keep", "lock", "new_attempt", "tags_text", "unknown"]

_NONE: Final = -1  # in a list of numbers, where NULL is meant
_MANY: Final = 100
_MOST: Final = 1 << 22  # numbers that a transaction has for its changes, as in queries.sql


def new_attempt() -> int:
    """A mark that no other change of the same version has."""
    return secrets.randbits(63)


def tags_text(tags: Sequence[str]) -> str:
    """Tags as they go into a hash."""
    return json.dumps(list(tags))


def begin(line: Line, head: Head, first: Change, attempt: int) -> None:
    """Begin a conversation."""
    if line.execute(STATEMENTS["create"], _created(head, first, attempt, 0)).fetchone() is None:
        _explain_begin(line, head, attempt)


def _explain_begin(line: Line, head: Head, attempt: int) -> None:
    found = _outcome(line, head.id, None, 0)
    if found is None:
        unknown(str(head.parent))
    if found.attempt != attempt:
        msg = f"a conversation has the id {head.id!r} already"
        raise AlreadyExists(msg)


def keep(line: Line, change: Change, attempt: int) -> int:
    """Keep a change and answer its version."""
    name, values = _statement(change, attempt, 0)
    row = line.execute(STATEMENTS[name], values).fetchone()
    return int(row[0]) if row is not None else _explain(line, change, attempt)


def _explain(line: Line, change: Change, attempt: int) -> int:
    """Why a change was not made: it was made before, or there is a reason against it."""
    version = change.after + 1
    found = _outcome(line, change.conversation, change.key, version)
    if found is None:
        unknown(change.conversation)
    if found.attempt == attempt:
        return version
    if found.keyed is not None:
        return Again(found.keyed)
    if change.token is not None and found.token != change.token:
        msg = "the lease went to another worker meanwhile"
        raise LeaseLost(msg)
    raise _stale(change.conversation, change.after)


def lock(line: Line, conversation: str, after: int | None = None) -> bool:
    """Lock a conversation until the transaction ends, and tell whether it is there.

    With `after`, `Stale` where that is not its newest version.
    """
    row = line.execute(STATEMENTS["lock"], (conversation,)).fetchone()
    if row is not None and after is not None and row[0] != after:
        raise _stale(conversation, after)
    return row is not None


def _stale(conversation: str, after: int) -> Stale:
    return Stale(f"{conversation} is no longer at version {after}")


class _Outcome(NamedTuple):
    """How a conversation stands to a change: who has the lease, and who made which version."""

    token: int
    keyed: int | None
    attempt: int | None


def _outcome(line: Line, conversation: str, key: str | None, version: int) -> _Outcome | None:
    values = {"id": conversation, "key": key, "version": version}
    row = line.execute(STATEMENTS["outcome"], values).fetchone()
    return None if row is None else _Outcome(*row)


def unknown(conversation: str) -> NoReturn:
    """There is no such conversation."""
    msg = f"no conversation has the id {conversation!r}"
    raise UnknownConversation(msg)


class Adoption:
    """Many changes of one conversation in one transaction, without waiting for each answer.

    They may come from a stream that can't be read twice, so they are not sent again when the
    connection is lost; but whether they were kept can still be asked.
    """

    def __init__(self, connections: Connections, head: Head | None) -> None:
        """Take the way to the server and, where a conversation begins, its head."""
        self._connections = connections
        self._head = head
        self._attempt = new_attempt()
        self._last: Change | None = None
        self._answers: list[tuple[Change, Cursor]] = []

    def keep_all(self, changes: Iterable[Change]) -> int:
        """Keep all changes, or none, and answer the last version."""
        try:
            return self._connections.run(lambda line: self._send(line, changes), again=False)
        except StoreError as error:
            last = self._last
            if last is None or not isinstance(error.__cause__, psycopg.OperationalError):
                raise
            version = last.after + 1
            found = self._connections.run(
                lambda line: _outcome(line, last.conversation, None, version)
            )
            if found is None or found.attempt != self._attempt:
                raise
            return version

    def _send(self, line: Line, changes: Iterable[Change]) -> int:
        version = -1
        with line.transaction(), line.pipeline():
            for index, change in enumerate(changes):
                if index == _MOST:
                    msg = f"more than {_MOST:,} changes can't be kept in one step"
                    raise StoreError(msg)
                if self._head is not None and change.after < 0:
                    values = _created(self._head, change, self._attempt, index)
                    answer = line.execute(STATEMENTS["create"], values)
                else:
                    name, values = _statement(change, self._attempt, index)
                    answer = line.execute(STATEMENTS[name], values)
                self._last = change
                self._answers.append((change, answer))
                if len(self._answers) == _MANY:
                    version = self._hear(line, version)
            return self._hear(line, version)

    def _hear(self, line: Line, version: int) -> int:
        answers, self._answers = self._answers, []
        for change, answer in answers:
            row = answer.fetchone()
            if self._head is not None and change.after < 0:
                if row is None:
                    _explain_begin(line, self._head, self._attempt)
                version = 0
            else:
                version = row[0] if row is not None else _explain(line, change, self._attempt)
        return version


def _statement(change: Change, attempt: int, index: int) -> tuple[str, dict[str, Any]]:
    """The statement that makes a change, and what it takes; one message more is the common case."""
    if change.plain and len(change.messages) == 1 and not (change.records or change.replaces):
        return "append", _appended(change, attempt, index)
    return "commit", _moved(change, attempt, index)


def _appended(change: Change, attempt: int, index: int) -> dict[str, Any]:
    """What the statement `append` takes."""
    (message,) = change.messages
    position = change.first
    system, user, assistant = counts_of(change.counts)
    body = body_of(message)
    role = ROLE_NUMBERS[message.role]
    ordinal = (system, user, assistant, position - system - user - assistant)[role]
    mark = row_hash(body.encode(), change.conversation, position, None)
    return {
        "id": change.conversation, "after": change.after, "first": position, "at": change.at,
        "stop": change.stop, "size": change.size, "token": change.token, "key": change.key,
        "attempt": attempt, "index": index, "role": role, "ordinal": ordinal, "system": system,
        "user": user, "assistant": assistant, "time": message.timestamp, "hash": mark,
        "message": message.id, "body": body, "told_hash": _told_hash(change, None),
    }  # fmt: skip


def _created(head: Head, first: Change, attempt: int, index: int) -> dict[str, Any]:
    """What the statement `create` takes."""
    system, user, assistant = counts_of(head.counts)
    return {
        **_columns(first),
        **_journaled(first, attempt, index),
        **_records(first),
        "id": head.id, "length": head.length, "system": system, "user": user,
        "assistant": assistant, "parent": head.parent, "base": head.base, "origin": head.origin,
        "title": head.title, "tags": list(head.tags), "created": head.created,
        "updated": head.updated,
        "label_hash": row_hash(b"", head.id, head.parent, head.base, head.origin, head.created, 0,
                               head.title, tags_text(head.tags)),
    }  # fmt: skip


def _moved(change: Change, attempt: int, index: int) -> dict[str, Any]:
    """What the statement `commit` takes."""
    system, user, assistant = counts_of(sum(map(one, change.messages)))
    return {
        **_columns(change),
        **_journaled(change, attempt, index),
        **_records(change),
        "id": change.conversation, "after": change.after, "system": system, "user": user,
        "assistant": assistant, "framed": None if change.frame is None else change.after + 1,
        "token": change.token,
    }  # fmt: skip


def _journaled(change: Change, attempt: int, index: int) -> dict[str, Any]:
    data = json.dumps(change.data, ensure_ascii=False) if change.data else None
    return {
        "kind": change.kind, "at": change.at, "stop": change.stop, "size": change.size,
        "first": change.first, "count": len(change.messages), "key": change.key, "data": data,
        "attempt": attempt, "index": index, "frame": change.frame,
        "told_hash": _told_hash(change, data),
    }  # fmt: skip


def _told_hash(change: Change, data: str | None) -> int:
    return row_hash(
        change.frame or b"", change.conversation, change.after + 1, change.kind, change.at,
        change.first, len(change.messages), change.stop, data, change.key,
    )  # fmt: skip


def _columns(change: Change) -> dict[str, Any]:
    counts = list(counts_of(change.counts))
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("seqs", "roles", "ordinals", "systems", "users", "assistants", "times",
                     "replaces", "hashes", "ids", "bodies")
    }  # fmt: skip
    for position, message in enumerate(change.messages, change.first):
        body = body_of(message)
        role = ROLE_NUMBERS[message.role]
        ordinal = (*counts, position - sum(counts))[role]
        replaces = change.replaces.get(position - change.first)
        mark = row_hash(body.encode(), change.conversation, position, replaces)
        row = (position, role, ordinal, *counts, message.timestamp,
               _NONE if replaces is None else replaces, mark, message.id, body)  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        if role < len(counts):
            counts[role] += 1
    return columns


def _records(change: Change) -> dict[str, Any]:
    """The last word on each record: what is kept, and what is taken away."""
    last = {(kind, name): value for kind, name, value in change.records}
    kept = [(*which, value) for which, value in last.items() if value is not None]
    dropped = [which for which, value in last.items() if value is None]
    return {
        "kept_kinds": [kind for kind, _, _ in kept],
        "kept_names": [name for _, name, _ in kept],
        "values": [value for _, _, value in kept],
        "kept_hashes": [
            row_hash(value, change.conversation, kind, name) for kind, name, value in kept
        ],
        "dropped_kinds": [kind for kind, _ in dropped],
        "dropped_names": [name for _, name in dropped],
    }
