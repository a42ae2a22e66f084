"""A store on many machines: PostgreSQL with Citus, one coordinator and its workers.

The tables are distributed by the root of a family, so a family lies on one node, and the functions
that change it run there. `distribute_store` does that, with an empty store or a filled one.

A change has the number of its transaction, and the node that made it. The numbers of one node rise;
those of two can't be compared. So a cursor of the whole store has one number for each node. Since
the node stands in the row, it does not matter on which one the row lies by now: a shard that moves
takes its changes along, and its next ones are counted by the node it has come to.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.postgres.notify import ABOVE_ALL, newest_visible
from palaver.stores.records import NodeReport, StoreReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection

__all__ = [
    "Cluster",
    "after_migration",
    "distribute",
    "distribute_store",
    "examine",
    "has_extension",
    "is_distributed",
    "merge_in_order",
    "numbers_ahead",
    "pack_cursor",
    "unpack_cursor",
]

_AT: Final = 3  # the column of a change's time
_BITS: Final = 64
_NUMBERS: Final = 1 << 22  # numbers that a transaction has, as in functions.sql
_PAUSE: Final = 0.02
_SOON: Final = 0.1
_TABLES: Final = ("conversations", "messages", "journal", "records", "words", "names")
_DELEGATED: Final = (
    "append_message", "append_with_key", "commit_change", "create_conversation", "keep_records",
    "take_lease",
)  # fmt: skip
_EVERYWHERE: Final = (
    "node", "shift", "next_number", "check_node", "number_of", "add_messages", "put_records",
    "append_behind_others",
)  # fmt: skip
_OPEN: Final = "open_conversation"


# ── distributing ────────────────────────────────────────────────────────────────────────────────


def has_extension(connection: TimedConnection) -> bool:
    """Tell whether the database has the extension Citus."""
    return bool(_value(connection, "has_extension"))


def is_distributed(connection: TimedConnection) -> bool:
    """Tell whether the store's tables are distributed over the nodes of a cluster."""
    return has_extension(connection) and bool(_value(connection, "is_distributed"))


def distribute_store(connections: PostgresConnections) -> None:
    """Bring a store that is on one server of a cluster to all its nodes."""
    with connections.connect() as connection:
        if not has_extension(connection):
            msg = (
                f"{connections.name} has no extension citus: there is nothing to distribute to; "
                "CREATE EXTENSION citus makes a server part of a cluster"
            )
            raise StoreError(msg)
        connection.longest = None
        try:
            with connection.transaction():
                connection.execute(STATEMENTS["migration_lock"])
                connection.execute(b"SET LOCAL statement_timeout = 0")
                if not is_distributed(connection):
                    distribute(connection)
        except psycopg.Error as error:
            raise connections.translate(error) from error


def after_migration(connection: TimedConnection, *, new: bool) -> None:
    """Distribute a store that was just made, where there is a cluster to distribute it to.

    Of one that is distributed, the functions are, which a migration has installed anew.
    """
    if new and has_extension(connection):
        distribute(connection)
    elif not new and is_distributed(connection):
        _distribute_functions(connection)


def distribute(connection: TimedConnection) -> None:
    """Distribute the tables and the functions of a store; inside a transaction.

    It locks the tables until their rows are copied to the nodes. How many shards there are is the
    setting `citus.shard_count`, 32 unless it says otherwise.
    """
    for name in ("one_by_one", "identify_rows", "reference_store"):
        connection.execute(STATEMENTS[name])
    first = f"palaver.{_TABLES[0]}"
    for table in _TABLES:
        column = "id" if table == "names" else "root"
        beside = "default" if table == _TABLES[0] else first
        connection.execute(STATEMENTS["distribute_table"], (f"palaver.{table}", column, beside))
        connection.execute(STATEMENTS["truncate_local"], (f"palaver.{table}",))
    _distribute_functions(connection)


def _distribute_functions(connection: TimedConnection) -> None:
    """Distribute the functions of a store whose tables are distributed; inside a transaction."""
    first = f"palaver.{_TABLES[0]}"
    connection.execute(STATEMENTS["node_of_cluster"])
    signatures: dict[str, str] = dict(connection.execute(STATEMENTS["signatures"]).fetchall())
    for name in _EVERYWHERE:
        connection.execute(STATEMENTS["spread_function"], (signatures[name],))
    for name in _DELEGATED:
        values = signatures[name], "p_root", first, True
        connection.execute(STATEMENTS["delegate_function"], values)
    connection.execute(STATEMENTS["delegate_function"], (signatures[_OPEN], "p_id", first, False))


def _value(connection: TimedConnection, name: str) -> Any:  # noqa: ANN401 - what a column has
    row = connection.execute(STATEMENTS[name]).fetchone()
    return None if row is None else row[0]


# ── the feed of the whole store ─────────────────────────────────────────────────────────────────


def pack_cursor(numbers: Mapping[int, int]) -> int:
    """Return the cursor with these numbers of nodes; that of a single server is its number.

    >>> pack_cursor({0: 7}), unpack_cursor(pack_cursor({0: 7, 2: 5}))
    (7, {0: 7, 2: 5})
    """
    return sum(number << _BITS * node for node, number in numbers.items())


def unpack_cursor(cursor: int) -> dict[int, int]:
    """Return the numbers in a cursor, by node."""
    found: dict[int, int] = {}
    node = 0
    while cursor > 0:
        number = cursor & (1 << _BITS) - 1
        if number:
            found[node] = number
        cursor >>= _BITS
        node += 1
    return found


def merge_in_order(
    after: Mapping[int, int], pages: Mapping[int, list[tuple[Any, ...]]], limit: int
) -> Iterator[tuple[Any, ...]]:
    """Yield changes of several nodes, each with the cursor behind it as its last column.

    The rows of a page are in the order of their numbers, and end with the number, and the node and
    number of the change before in the same conversation. That one comes first: where a shard moved,
    it is of another node, and if it may not be reported yet, what follows waits, too. Otherwise the
    earlier change comes first, as far as the clocks of the writers tell.
    """
    seen = dict(after)
    waiting = {node: deque(rows) for node, rows in pages.items()}
    for _ in range(limit):
        ready = [
            (rows[0][_AT], node)
            for node, rows in waiting.items()
            if rows and (rows[0][-1] or 0) <= seen.get(rows[0][-2], 0)
        ]
        if not ready:
            return
        _, node = min(ready)
        *change, seen[node], _, _ = waiting[node].popleft()
        yield (*change, pack_cursor(seen))


def numbers_ahead(connection: TimedConnection) -> int:
    """Return how far the numbers in the journal are ahead of those that the nodes give next."""
    newest: dict[int, int] = {}
    for node in _next_transactions(connection):
        where = {"node": node, "upto": ABOVE_ALL}
        row = connection.execute(STATEMENTS["newest_of_node"], where).fetchone()
        newest[node] = 0 if row is None else row[0] // _NUMBERS + 1
    following = _next_transactions(connection)  # read last: others go on meanwhile
    return max([0, *(newest[node] - following[node] for node in newest.keys() & following.keys())])


def _next_transactions(connection: TimedConnection) -> dict[int, int]:
    """Return the numbers that the transactions of the nodes get next, of those that answer."""
    rows = connection.execute(STATEMENTS["next_transactions"]).fetchall()
    texts = (text.partition(":") for works, text in rows if works)
    return {int(node): int(number) for node, _, number in texts}


def _read_horizons(connection: TimedConnection) -> list[str]:
    rows = connection.execute(STATEMENTS["horizons"]).fetchall()
    failed = [text for works, text in rows if not works]
    if failed:  # it may come back: this is tried again, like everything that needs the node
        msg = f"a node of the cluster does not answer: {failed[0]}"
        raise errors.ConnectionFailure(msg)
    return [text for _, text in rows]


class Cluster:
    """The nodes of a distributed store, as followers and the search index need them."""

    def __init__(self, connections: PostgresConnections) -> None:
        """Take the connections to the coordinator."""
        self._connections = connections

    def horizons(self) -> dict[int, int]:
        """Return for every node the number below which all its changes are finished.

        A node that has left the cluster makes no changes any more: all of its are.
        """
        texts = (text.partition(":") for text in self._connections.run(_read_horizons))
        found = {int(node): int(number) for node, _, number in texts}
        ((last,),) = self._connections.fetch("last_node")
        return {node: found.get(node, ABOVE_ALL) for node in range(last + 1)}

    def journal(self, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Return the changes of the whole store after a cursor that may be reported.

        The horizons are read first: what is below them is finished, and so in sight of what is read
        then, wherever it lies.
        """
        numbers = unpack_cursor(after)
        end = time.monotonic() + _SOON
        while True:
            horizons = self.horizons()
            pages: dict[int, list[tuple[Any, ...]]] = {}
            for node, horizon in horizons.items():
                values = {"node": node, "after": numbers.get(node, 0), "upto": horizon}
                pages[node] = self._connections.fetch("journal_of_node", values | {"limit": limit})
            found = list(merge_in_order(numbers, pages, limit))
            if found or time.monotonic() > end or not self._in_sight(numbers, horizons):
                return found
            time.sleep(_PAUSE)

    def _in_sight(self, numbers: Mapping[int, int], horizons: Mapping[int, int]) -> bool:
        return any(
            newest_visible(self._connections, node) > numbers.get(node, 0) for node in horizons
        )

    def newest(self) -> int:
        """Return the cursor behind everything that may be reported."""
        numbers: dict[int, int] = {}
        for node, horizon in self.horizons().items():
            where = {"node": node, "upto": horizon}
            ((numbers[node],),) = self._connections.fetch("newest_of_node", where)
        return pack_cursor(numbers)


# ── what a store runs on ────────────────────────────────────────────────────────────────────────


def examine(connection: TimedConnection) -> StoreReport:
    """Look at the server, the extension, the nodes and their settings."""
    server = f"PostgreSQL {_value(connection, 'server_version')}"
    schema = int(_value(connection, "standing"))
    if not has_extension(connection):
        return StoreReport(server, schema)
    missing: list[str] = []
    distributed = is_distributed(connection)
    if not distributed:
        missing.append("the tables are not distributed; `palaver migrate --distribute` does it")
    answers = {
        node: text if works else None
        for node, works, text in connection.execute(STATEMENTS["node_settings"])
    }
    shards: dict[tuple[str, int], int] = {}
    if distributed:
        rows = connection.execute(STATEMENTS["shards"]).fetchall()
        shards = {(name, port): count for name, port, count in rows}
    nodes: list[NodeReport] = []
    for number, group, name, port, role in connection.execute(STATEMENTS["nodes"]).fetchall():
        said, address = answers.get(number), f"{name}:{port}"
        which = "coordinator" if group == 0 else "worker" if role == "primary" else role
        nodes.append(
            NodeReport(group, address, which, shards.get((name, port), 0), said is not None)
        )
        if said is None:
            missing.append(f"{address} does not answer")
            continue
        prepared, _, level = said.partition(":")
        if prepared == "0":
            missing.append(
                f"{address} has max_prepared_transactions = 0: changes on two nodes, as forks are, "
                "can't be committed"
            )
        if level != "logical":
            missing.append(
                f"{address} has wal_level = {level}: shards move only while nobody writes"
            )
    if not any(node.role == "worker" for node in nodes):
        missing.append("the cluster has no workers; citus_add_node adds one")
    citus = str(_value(connection, "citus_version")).partition(" on ")[0]
    total = sum(shards.values())
    return StoreReport(server, schema, citus, distributed, total, tuple(nodes), tuple(missing))
