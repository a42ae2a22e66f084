"""A family on one node, a filled store brought over, and a feed that shards may move under."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.messages import user
from palaver.stores.backend import load_migrations
from palaver.stores.postgres import PostgresBackend, cluster
from palaver.stores.postgres.connections import PostgresConnections
from palaver.stores.records import JournalEntry
from palaver.stores.transfer import import_archive
from tests.cluster.nodes import nodes_of
from tests.patience import within
from tests.stores.frozen import contents, fill
from tests.stores.test_migrations import expected, restored

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores import Store, StoredHistory
    from tests.cluster.nodes import Node

FAMILIES = 12


def ask(address: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as line:
        return line.execute(statement.encode()).fetchall()


def test_a_family_lies_on_one_node_and_is_changed_there(store: Store, postgres: str) -> None:
    for number in range(FAMILIES):
        history = store.create([user("hello")], id=f"talk-{number}")
        history.append(user("more"))
        fork = history.fork(id=f"fork-{number}")
        fork.append(user("of the fork"))
        fork.fork(id=f"deep-{number}").insert(0, [user("first")])
    placed = ask(postgres, "SELECT root, array_agg(DISTINCT node) FROM palaver.journal GROUP BY 1")
    assert FAMILIES == len(placed)
    assert {1} == {len(nodes) for _, nodes in placed if isinstance(nodes, list)}
    assert {1, 2} == {node for _, nodes in placed if isinstance(nodes, list) for node in nodes}
    assert 3 * FAMILIES == len(list(store))
    assert [f"fork-{n}" for n in (0, 1, 10, 11)] == store.named("fork-")[:4]
    assert FAMILIES == len(store.search("fork", limit=100))
    assert [] == list(store.verify())


def test_a_distributed_store_of_the_schema_before_is_migrated(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables and functions are changed on all nodes; those who append know nothing of it."""
    restored("schema-7", postgres)
    new = {
        "_EVERYWHERE": {"number_of", "append_behind_others"}, "_DELEGATED": {"append_with_key"},
    }  # fmt: skip
    with (
        monkeypatch.context() as patch,
        PostgresConnections(postgres, size=1, patience=30.0).connect() as line,
    ):
        for names, added in new.items():
            patch.setattr(cluster, names, tuple({*getattr(cluster, names)} - added))
        with line.transaction():
            cluster.distribute(line)
    with palaver.open(postgres) as store:
        newest = load_migrations("palaver.stores.postgres")[-1][0]
        assert (7, newest) == store.backend.migrated
        assert store.examine().distributed
        assert expected("schema-7") == json.loads(json.dumps(contents(store)))
        start = store.newest()
        for name in ("talk", "deeper"):
            store.get(name).append(user("on a worker"))
            store.get(name).append(user("again"), key="k")
        heard = [change.version for change in store.follow(after=start, seconds=0.1)]
        assert 4 == len(heard)
        assert "deeper" == store.list(limit=1).conversations[0].id
        assert [] == list(store.verify())


def test_a_filled_store_is_brought_over(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.stores.postgres.backend.after_migration", lambda _, **__: None)
    with palaver.open(postgres) as store:
        fill(store)
        start, filled = store.newest(), contents(store)
        assert not store.examine().distributed
        done = CliRunner().invoke(app, ["doctor", "--store", postgres])
        assert 1 == done.exit_code
        assert "palaver migrate --distribute" in done.output
    done = CliRunner().invoke(app, ["migrate", "--distribute", "--store", postgres])
    assert 0 == done.exit_code, done.output
    with palaver.open(postgres) as store:
        assert filled == contents(store)
        assert [] == list(store.verify())
        assert start == store.newest()
        store.get("deeper").append(user("on a worker"))
        heard = [change.conversation for change in store.follow(after=start, seconds=0.1)]
        assert ["deeper"] == heard
        assert 1 == len(store.search("worker"))
        store.distribute()  # which it is
    assert 0 == CliRunner().invoke(app, ["doctor", "--store", postgres]).exit_code


def test_what_is_old_expires_on_every_node(store: Store, tmp_path: Path) -> None:
    """In transactions over several nodes; a family goes as a whole, or stays."""
    past = store.with_clock(lambda: 1_000)
    for number in range(60):
        history = past.create([user(str(number))] * 3, id=f"old{number}", owner="anna")
        if number % 10 == 0:
            history.fork(id=f"fork{number}").append(user("of the fork"))
    store.get("old7").fork(id="young")
    assert 1 <= len(store.search("fork"))  # the index has them, too
    found = store.expire(timedelta(days=1), archive=tmp_path / "old.jsonl")
    assert (65, 1, 0) == (found.conversations, found.kept, found.changed)
    assert {"old7", "young"} == {head.id for head in store}
    assert [] == store.search("fork")
    assert [] == list(store.verify())
    assert 65 == len(import_archive(store, tmp_path / "old.jsonl"))
    assert ["0", "0", "0", "of the fork"] == [message.text for message in store.get("fork0")]
    assert [] == list(store.verify())


def test_the_doctor_says_what_a_store_runs_on(store: Store, postgres: str) -> None:
    report = store.examine()
    assert report.distributed
    assert "Citus" in str(report.citus)
    assert ["coordinator", "worker", "worker"] == [node.role for node in report.nodes]
    assert report.shards == sum(node.shards for node in report.nodes) > 0
    assert () == report.missing
    done = CliRunner().invoke(app, ["doctor", "--store", postgres, "--json"])
    assert report.shards == json.loads(done.output)["shards"]


def move_shards(address: str, rounds: int) -> int:
    """Move a group of shards to the other worker and back, again and again."""
    moved = 0
    with psycopg.connect(address, autocommit=True) as line:
        for number in range(rounds):
            shards = line.execute(
                "SELECT shardid, nodeport FROM citus_shards "
                "WHERE table_name = 'palaver.messages'::regclass ORDER BY shardid"
            ).fetchall()
            shard, port = shards[number % len(shards)]
            other = next(p for _, p in shards if p != port)
            line.execute(
                "SELECT citus_move_shard_placement(%s, '127.0.0.1', %s, '127.0.0.1', %s, "
                "shard_transfer_mode := 'force_logical')",
                (shard, port, other),
            )
            moved += 1
    return moved


def test_a_follower_misses_nothing_while_shards_move(store: Store, postgres: str) -> None:
    """Four write, one moves shards, one follows: each change once, those of a talk in order."""
    names = [store.create(id=f"talk-{number}").id for number in range(8)]
    start, heard = store.newest(), list[JournalEntry]()
    stop = threading.Event()
    written = dict.fromkeys(names, 0)

    def write(mine: list[str]) -> None:
        while not stop.is_set():
            for name in mine:
                store.get(name).append(user("x"))
                written[name] += 1

    def follow() -> None:
        with palaver.open(postgres) as other:
            cursor = start
            while True:
                done = stop.is_set()
                for change in other.follow(after=cursor, seconds=0.5):
                    heard.append(change)
                    cursor = change.cursor
                if done:
                    return

    with within(240), ThreadPoolExecutor(6) as pool:
        writers = [pool.submit(write, names[index::4]) for index in range(4)]
        follower = pool.submit(follow)
        time.sleep(0.5)
        try:
            assert 6 == move_shards(postgres, 6)
        finally:
            stop.set()
        for each in (*writers, follower):
            each.result()
    expected = {name: list(range(1, count + 1)) for name, count in written.items()}
    found: dict[str, list[int]] = {name: [] for name in names}
    for change in heard:
        found[change.conversation].append(change.version)
    assert expected == found
    nodes = ask(postgres, "SELECT count(DISTINCT node) FROM palaver.messages GROUP BY root")
    assert 2 in {count for (count,) in nodes}  # some were written on both
    assert [] == list(store.verify())


def append_there(worker: Node, history: StoredHistory, after: int) -> None:
    """Append as the coordinator asks a worker to, which does not hand it on; and take it back."""
    with psycopg.connect(worker.address, application_name="citus_internal gpid=1") as line:
        line.execute("SET citus.allow_nested_distributed_execution = on")
        line.execute(
            "SELECT palaver.append_message("
            "%s, %s, %s, false, true, false, 1, 0, -1, 1, 0, 1, 0, 1, 0, 0, 0, 'an-id', '{}')",
            (history.id, history.id, after),
        )
        line.rollback()


def test_a_change_is_made_only_where_the_family_lies(store: Store, postgres: str) -> None:
    """A call that Citus sent to a node before the shard moved away is refused there."""
    history = store.create([user("hello")])
    ((home,),) = ask(postgres, "SELECT DISTINCT node FROM palaver.journal")
    _, workers = nodes_of(postgres)
    there, elsewhere = workers if home == 1 else workers[::-1]
    for after in (history.version, -1):  # the short way, and that of all other changes
        append_there(there, history, after)
        with pytest.raises(psycopg.errors.SerializationFailure, match="moved to another node"):
            append_there(elsewhere, history, after)
    assert history.version == store.head(history.id).version


def test_numbers_go_on_rising_on_nodes_that_are_behind(store: Store, postgres: str) -> None:
    history = store.create()
    start = store.newest()
    ask(postgres, "UPDATE palaver.journal SET number = number + 4194304 * 1000000::bigint "
                  "RETURNING number")  # fmt: skip
    with palaver.open(postgres) as again:
        before = again.newest()
        assert before > start
        again.get(history.id).append(user("more"))
        assert [1] == [change.version for change in again.follow(after=before, seconds=0.1)]


def test_a_store_says_where_it_cannot_be_distributed(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = PostgresBackend(postgres)
    monkeypatch.setattr("palaver.stores.postgres.cluster.has_extension", lambda _: False)
    with pytest.raises(palaver.errors.StoreError, match="CREATE EXTENSION citus"):
        backend.distribute()
    backend.close()
    assert cluster.pack_cursor({1: 1}) == 1 << 64
