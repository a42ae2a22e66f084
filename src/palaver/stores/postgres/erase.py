"""Erasing in PostgreSQL: tombstones in place of messages, and the bytes of the rows they replace.

The row changes run inside a transaction that has locked the search index. PostgreSQL keeps the old
versions of rows until they are cleaned up (`clean_up`). VACUUM removes them from the tables: no
statement can reach them, but their bytes may lie in the free space of a page until a new row is
written over them. VACUUM FULL rewrites the tables and removes the old files, and nobody can read
the tables meanwhile. So that is done while they are small, and above that it is the administrator's
decision. The server's write-ahead log goes when the server removes those files; archives and
backups are out of reach.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors

from palaver.errors import StoreError
from palaver.stores.erase import Traces
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.postgres.search import PostgresSearchIndex
from palaver.stores.records import Erased, encode_body, label_hash, placed_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from palaver.messages import Message
    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection
    from palaver.stores.records import BodyCodec

__all__ = [
    "clean_up",
    "delete_rows",
    "delete_unforked",
    "encode_tags",
    "erase_rows",
    "label",
    "prune_rows",
    "reclaim",
]

_PATIENCE: Final = 5.0
_LOCKED: Final = b"SET lock_timeout = '5s'"
_GENTLE: Final = b"VACUUM "
_THOROUGH: Final = b"VACUUM FULL "
_THOROUGH_IF_FREE: Final = b"VACUUM (FULL, SKIP_LOCKED) "
_DELETED_FROM: Final = ("messages", "journal", "records", "words", "name", "head")
_TABLES: Final = tuple(
    b"palaver." + name
    for name in (b"messages", b"journal", b"words", b"records", b"names", b"conversations")
)
_UNHURRIED: Final = (b"SET statement_timeout = 0", b"SET vacuum_cost_delay = '2ms'")
_UNLESS_LOCKED: Final = b"VACUUM (SKIP_LOCKED, PARALLEL 0) "
_ERASED_FROM: Final = ("palaver.messages", "palaver.words", "palaver.records")


def erase_rows(
    connection: TimedConnection,
    root: str,
    family: list[str],
    ids: Sequence[str],
    *,
    codec: BodyCodec,
    left: Callable[[Message], Message],
    spare: Collection[tuple[str, int]] = (),
) -> Erased:
    """Replace all messages with some ids but those to spare, and remove records with traces."""
    found = connection.execute(STATEMENTS["rows_of"], (root, family, list(ids))).fetchall()
    rows = [row for row in found if (row[1], row[2]) not in spare]
    messages = [codec.message(row[0]) for row in rows]
    traces = Traces(messages)
    _replace_bodies(connection, root, rows, map(left, messages))
    where = root, family
    dropped = [
        (name, kind, called)
        for name, kind, called, value in connection.execute(STATEMENTS["all_records"], where)
        if traces.found_in(kind, called, codec.value(name, kind, called, value))
    ]
    for record in dropped:
        connection.execute(STATEMENTS["drop_record"], (root, *record))
    label(connection, root, family, lambda erased, *labels: (erased + 1, *labels))
    return Erased(len(rows), tuple(dropped))


def prune_rows(
    connection: TimedConnection,
    root: str,
    name: str,
    positions: Sequence[int],
    *,
    codec: BodyCodec,
    left: Callable[[Message], Message],
) -> None:
    """Replace the messages of a conversation at some positions."""
    rows = connection.execute(STATEMENTS["rows_at"], (root, name, list(positions))).fetchall()
    _replace_bodies(connection, root, rows, [left(codec.message(row[0])) for row in rows])
    label(connection, root, [name], lambda erased, *labels: (erased + 1, *labels))


def _replace_bodies(
    connection: TimedConnection,
    root: str,
    rows: list[tuple[Any, ...]],
    left: Iterable[Message],
) -> None:
    for (_, name, position, standing), message in zip(rows, left, strict=True):
        body = encode_body(message)
        mark = placed_hash(body.encode(), name, position, standing)
        connection.execute(STATEMENTS["bury"], (body, mark, root, name, position))
        PostgresSearchIndex.replace(connection, root, name, position, body)


def delete_unforked(
    connections: PostgresConnections,
    index: PostgresSearchIndex,
    wanted: Sequence[tuple[str, str, int]],
    *,
    distributed: bool = False,
) -> list[str]:
    """Delete conversations (id, root, version) still at the version and without forks.

    It is one transaction. Returns which are gone.
    """
    tried: list[str] = []  # what a try has deleted, if its answer was lost

    def work(connection: TimedConnection) -> list[str]:
        with connection.transaction():
            index.lock(connection)
            tried[:] = _delete_unforked(connection, wanted, tried, distributed=distributed)
        return tried

    return connections.run(work) if wanted else []


def _delete_unforked(
    connection: TimedConnection,
    wanted: Sequence[tuple[str, str, int]],
    tried: Collection[str],
    *,
    distributed: bool,
) -> list[str]:
    versions, forks = _lock_unforked(connection, wanted, distributed=distributed)
    gone: dict[str, str] = {}
    deleted: list[str] = []
    for name, root, version in wanted:  # forks come before what they were forked from
        found = versions.get(name)
        if found == version and forks.get(name, set()) <= gone.keys():
            gone[name] = root
        elif found is not None or name not in tried:
            continue
        deleted.append(name)
    if gone:
        _delete_all_rows(connection, gone, distributed=distributed)
    return deleted


def _lock_unforked(
    connection: TimedConnection, wanted: Sequence[tuple[str, str, int]], *, distributed: bool
) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Lock conversations; return their versions, and the forks that there are of each."""
    places = {"roots": [root for _, root, _ in wanted], "ids": [name for name, *_ in wanted]}
    with connection.pipeline():
        if distributed:  # one statement can't lock rows on several nodes
            heads = [
                connection.execute(STATEMENTS["lock"], (root, name))
                for name, root, _ in sorted(wanted)
            ]
        else:
            heads = [connection.execute(STATEMENTS["lock_all"], places)]
        children = connection.execute(STATEMENTS["forked_from"], places)
    versions: dict[str, int] = {name: at for found in heads for at, name in found.fetchall()}
    forks: dict[str, set[str]] = {}
    for parent, name in children.fetchall():
        forks.setdefault(parent, set()).add(name)
    return versions, forks


def _delete_all_rows(
    connection: TimedConnection, gone: Mapping[str, str], *, distributed: bool
) -> None:
    """Delete the rows of conversations, given with their roots, in one round trip."""
    with connection.pipeline():
        if distributed:
            for name, root in gone.items():
                delete_rows(connection, root, name)
            return
        places = {"roots": [*gone.values()], "ids": [*gone]}
        for table in _DELETED_FROM:
            connection.execute(STATEMENTS[f"delete_all_{table}"], places)


def delete_rows(connection: TimedConnection, root: str, conversation: str) -> None:
    """Delete the rows of a conversation; the head goes last: it tells whose the others are."""
    for table in _DELETED_FROM:
        connection.execute(STATEMENTS[f"delete_{table}"], (root, conversation))


def label(
    connection: TimedConnection, root: str, names: list[str], change: Callable[..., tuple[Any, ...]]
) -> int:
    """Change count of erasures, title, tags or owner, with the hash; return how many there are."""
    rows = connection.execute(STATEMENTS["labels"], (root, names)).fetchall()
    for *fixed, erased, title, tags, owner in rows:
        labels = change(erased, title, tags, owner)
        mark = label_hash(*fixed, *labels[:2], encode_tags(labels[2]), labels[3])
        connection.execute(STATEMENTS["label"], (*labels, mark, root, fixed[0]))
    return len(rows)


def encode_tags(tags: Sequence[str]) -> str:
    """Return tags as they go into a hash."""
    return json.dumps(list(tags))


def clean_up(
    connections: PostgresConnections,
    transaction: str,
    rewrite: int,
    *,
    distributed: bool = False,
    tables: Sequence[str] = _ERASED_FROM,
) -> None:
    """Destroy what a transaction has replaced; tables smaller than `rewrite` are rewritten.

    On a cluster, readers on other nodes are not waited for: what they may still read is removed by
    the next clean-up, or by the server's own.
    """
    names = ", ".join(tables).encode()
    try:
        with connections.connect() as connection:
            if not distributed:
                _wait_for_readers(connection, transaction)
            connection.longest = None
            if not connections.pooled:
                connection.execute(b"SET statement_timeout = 0")
            measured = STATEMENTS["footprint_of_cluster" if distributed else "footprint"]
            (size,) = connection.execute(measured, (list(tables),)).fetchone() or (0,)
            if connections.pooled:  # which has no session to set a lock_timeout in
                if size <= rewrite:
                    connection.execute(_THOROUGH_IF_FREE + names)
                connection.execute(_GENTLE + names)
                return
            if size <= rewrite:
                with suppress(errors.LockNotAvailable, errors.DeadlockDetected):
                    connection.execute(_LOCKED)
                    connection.execute(_THOROUGH + names)
                    return
            connection.execute(b"SET lock_timeout = '60s'")
            connection.execute(_GENTLE + names)
    except (psycopg.Error, StoreError) as error:
        msg = f"it is erased, but the server could not clean up; erase it again: {error}"
        raise StoreError(msg) from error


def reclaim(connections: PostgresConnections) -> None:
    """Let the server use the room of deleted rows again, at the pace of its own clean-up.

    Where that is not possible, by this role or at this time, the server does it by itself later.
    """
    with suppress(psycopg.Error, StoreError), connections.connect() as connection:
        connection.longest = None
        if not connections.pooled:
            for setting in _UNHURRIED:
                connection.execute(setting)
        connection.execute(_UNLESS_LOCKED + b", ".join(_TABLES))


def _wait_for_readers(connection: TimedConnection, transaction: str) -> None:
    """Wait for transactions older than the erasure: what they may still read is not removed."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        row = connection.execute(STATEMENTS["readers_of_the_past"], (transaction,)).fetchone()
        if row is None or not row[0]:
            return
        time.sleep(0.01)
