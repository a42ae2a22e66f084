"""What a store on a cluster is told to run on; `make cluster` looks at a real one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest
from psycopg import errors

import palaver
from palaver.errors import StoreError
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend
from palaver.stores.postgres import PostgresBackend
from palaver.stores.postgres.cluster import Cluster, distribute, examine, numbers_ahead
from palaver.stores.postgres.connections import STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection

Rows = list[tuple[Any, ...]]
NAMES = {text: name for name, text in STATEMENTS.items()}


class Said:
    """A connection, or a pool of them, that answers named statements with given rows."""

    def __init__(self, **answers: Rows) -> None:
        """Take the answers by the statements' names; all others answer nothing."""
        self.answers = answers
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def execute(self, statement: bytes, values: tuple[Any, ...] = ()) -> Said:
        """Note what is asked."""
        self.asked.append((NAMES[statement], values))
        return self

    def fetchall(self) -> Rows:
        """Return the answer to the last question."""
        return self.answers.get(self.asked[-1][0], [])

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return its first row."""
        return next(iter(self.fetchall()), None)

    def __iter__(self) -> Any:  # noqa: ANN401 - rows
        """Iterate over it."""
        return iter(self.fetchall())

    def run(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - what work returns
        """Call work, as a pool does."""
        return work(self)

    def fetch(self, name: str, values: object = ()) -> Rows:
        """Answer as a pool does."""
        del values
        return self.answers.get(name, [])


def a_cluster(**answers: Rows) -> Said:
    known: dict[str, Rows] = {
        "server_version": [("18.4",)], "standing": [(4, 0)], "has_extension": [(True,)],
        "is_distributed": [(True,)], "citus_version": [("Citus 14.0.1 on x86_64",)],
        "nodes": [(1, 0, "a", 1, "primary"), (2, 1, "b", 2, "primary")],
        "node_settings": [(1, True, "200:logical"), (2, True, "200:logical")],
        "shards": [("b", 2, 32)],
    }  # fmt: skip
    return Said(**known | answers)


def test_a_sound_cluster_misses_nothing() -> None:
    report = examine(cast("TimedConnection", a_cluster()))
    assert ("PostgreSQL 18.4", "Citus 14.0.1", 4) == (report.server, report.citus, report.schema)
    assert (True, 32, ()) == (report.distributed, report.shards, report.missing)
    assert [("coordinator", "a:1", 0), ("worker", "b:2", 32)] == [
        (node.role, node.address, node.shards) for node in report.nodes
    ]


@pytest.mark.parametrize(
    ("answers", "missing"),
    [
        ({"is_distributed": [(False,)]}, "palaver migrate --distribute"),
        ({"node_settings": [(1, True, "200:logical"), (2, False, "gone")]}, "b:2 does not answer"),
        ({"node_settings": [(1, True, "0:logical"), (2, True, "9:logical")]}, "a:1 has max_prep"),
        ({"node_settings": [(1, True, "9:replica"), (2, True, "9:logical")]}, "wal_level = repl"),
        ({"nodes": [(1, 0, "a", 1, "primary")]}, "no workers"),
    ],
)
def test_what_is_missing_is_said(answers: dict[str, Rows], missing: str) -> None:
    report = examine(cast("TimedConnection", a_cluster(**answers)))
    assert 1 == len(report.missing)
    assert missing in report.missing[0]


def test_a_plain_server_has_no_nodes(postgres: str) -> None:
    with palaver.open(postgres) as store:
        report = store.examine()
        assert report.server.startswith("PostgreSQL 18")
        assert (None, False, (), ()) == (
            report.citus, report.distributed, report.nodes, report.missing
        )  # fmt: skip
        with pytest.raises(StoreError, match="no extension citus"):
            store.distribute()


def test_other_stores_are_not_distributed() -> None:
    store = Store(MemoryBackend())
    assert "memory" == store.examine().server
    with pytest.raises(StoreError, match="kind memory can't be distributed"):
        store.distribute()


def test_a_store_is_distributed_by_families() -> None:
    functions = [
        "node", "shift", "next_number", "check_node", "number_of", "add_messages",
        "put_records", "append_behind_others", "append_message", "append_with_key",
        "commit_change", "create_conversation", "keep_records", "take_lease", "open_conversation",
    ]  # fmt: skip
    said = Said(signatures=[(name, f"palaver.{name}()") for name in functions])
    distribute(cast("TimedConnection", said))
    tables = {values[0]: values[1:] for name, values in said.asked if name == "distribute_table"}
    assert ("root", "default") == tables.pop("palaver.conversations")
    assert ("id", "palaver.conversations") == tables.pop("palaver.names")
    assert {("root", "palaver.conversations")} == {*tables.values()}
    assert 4 == len(tables)
    delegated = [values for name, values in said.asked if name == "delegate_function"]
    assert ("palaver.open_conversation()", "p_id", "palaver.conversations", False) == delegated[-1]
    assert {("p_root", "palaver.conversations", True)} == {each[1:] for each in delegated[:-1]}


def test_a_node_that_left_is_settled_and_one_that_is_silent_is_an_error() -> None:
    said = Said(horizons=[(True, "0:40"), (True, "2:80")], last_node=[(2,)])
    pool = cast("PostgresConnections", said)
    assert {0: 40, 2: 80} == {n: h for n, h in Cluster(pool).horizons().items() if h < 100}
    assert 3 == len(Cluster(pool).horizons())
    said.answers["horizons"] = [(True, "0:40"), (False, "connection refused")]
    with pytest.raises(errors.ConnectionFailure, match="does not answer: connection refused"):
        Cluster(pool).horizons()  # which a pool tries again, and then raises as its own


def test_the_feed_of_a_cluster_waits_a_little_for_what_is_in_sight() -> None:
    said = Said(horizons=[(True, "0:40")], last_node=[(0,)], newest_of_node=[(7,)])
    cluster = Cluster(cast("PostgresConnections", said))
    assert [] == cluster.journal(0, 10)
    assert 7 == cluster.newest()
    said.answers["journal_of_node"] = [("a", 0, "create", 1, 0, 0, None, 9, None, None)]
    assert [("a", 0, "create", 1, 0, 0, None, 9)] == cluster.journal(0, 10)


def test_numbers_that_are_ahead_of_a_node_are_found() -> None:
    said = Said(next_transactions=[(True, "0:5"), (True, "1:9"), (False, "gone")],
                newest_of_node=[(7 << 22,)])  # fmt: skip
    assert 3 == numbers_ahead(cast("TimedConnection", said))


def test_a_store_on_a_cluster_asks_it(postgres: str) -> None:
    """The backend's side of it: feed, cursors, index and clean-up."""
    with closing(PostgresBackend(postgres)) as backend:
        store = Store(backend)
        history = store.create([palaver.user("tea"), palaver.user("milk")])
        said = Said(horizons=[(True, "0:9000000000000000")], last_node=[(0,)],
                    newest_of_node=[(7,)],
                    journal_of_node=[("a", 0, "create", 1, 0, 0, None, 9, None, None)])  # fmt: skip
        backend._cluster = Cluster(cast("PostgresConnections", said))
        assert 7 == store.newest()
        assert [("a", 9)] == [(c.conversation, c.cursor) for c in store.journal(None, 0, 10)]
        assert [0] == [change.cursor for change in store.journal(history.id, -1, 10)]
        assert 1 == len(store.search("tea"))
        assert [] == list(store.verify())
