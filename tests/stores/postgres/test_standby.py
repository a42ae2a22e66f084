"""A primary and a standby: failover, servers that became read-only, and reads from the standby."""

from __future__ import annotations

import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

import palaver
from palaver.errors import StoreError, UnknownConversation, ValidationError
from palaver.messages import user
from palaver.stores import Store
from palaver.stores.postgres import PostgresBackend
from palaver.stores.postgres.connections import PostgresConnections
from tests.patience import set_patience, within
from tests.stores.postgres_server import serving, together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from palaver.messages import Message
    from palaver.stores.postgres.connections import TimedConnection
    from tests.stores.postgres_server import Server

HANGING = 120


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its standby."""
    settings = {"wal_retrieve_retry_interval": "100ms"}
    with serving(**settings) as primary, serving(**settings) as standby:
        standby.follow(primary)
        yield primary, standby


@pytest.fixture
def both(pair: tuple[Server, Server]) -> Iterator[str]:
    """The address of an empty database on both; the standby is named first."""
    primary, standby = pair
    yield together("postgres", standby, primary)
    ask(standby, "SELECT pg_wal_replay_resume()")
    ask(
        primary,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'palaver'",
    )
    ask(primary, "DROP SCHEMA IF EXISTS palaver CASCADE")


def ask(server: Server, statement: str) -> object:
    with psycopg.connect(server.address("postgres"), autocommit=True) as line:
        answer = line.execute(statement.encode())
        return answer.fetchall()[0][0] if answer.description and answer.rowcount else None


def await_standby(pair: tuple[Server, Server]) -> None:
    """Wait until the standby has everything."""
    primary, standby = pair
    position = ask(primary, "SELECT pg_current_wal_flush_lsn()")
    end = time.monotonic() + HANGING
    while not ask(standby, f"SELECT pg_last_wal_replay_lsn() >= '{position}'"):
        assert time.monotonic() < end
        time.sleep(0.01)


def pause(pair: tuple[Server, Server]) -> None:
    """Let the standby fall behind: it gets everything and shows nothing of it."""
    await_standby(pair)
    standby = pair[1]
    ask(standby, "SELECT pg_wal_replay_pause()")
    end = time.monotonic() + HANGING
    while ask(standby, "SELECT pg_get_wal_replay_pause_state()") != "paused":
        assert time.monotonic() < end
        time.sleep(0.01)


def await_told(call: Future[Message], caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the log says that a call waits for a primary, or the call has ended."""
    while not call.done() and "waiting for one that accepts changes" not in caplog.text:
        time.sleep(0.01)


def texts(store: Store, name: str) -> list[str]:
    return [message.text for message in store.get(name)]


# ── several hosts ───────────────────────────────────────────────────────────────────────────────


def test_of_several_hosts_the_primary_is_found(both: str, pair: tuple[Server, Server]) -> None:
    with palaver.open(both) as store, palaver.open(pair[0].address("postgres")) as other:
        history = store.create([user("one")])
        assert ["one"] == texts(other, history.id)


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_nothing_is_lost_when_the_standby_is_promoted(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The primary was killed, or is there and says nothing any more; nobody knows which."""
    settings = {"wal_retrieve_retry_interval": "100ms"}
    with (
        serving(**settings) as primary,
        serving(**settings) as standby,
        ExitStack() as rooms,
        ThreadPoolExecutor(4) as pool,
        within(HANGING),
    ):
        standby.follow(primary)
        address = together("postgres", primary, standby)
        # a server that is silent is given up after half of the patience
        patience = HANGING if how == "killed" else 8
        backend = rooms.enter_context(closing(PostgresBackend(address, patience=patience)))
        store = Store(backend)
        history, other = store.create(id="talk"), store.create(id="other")
        await_standby((primary, standby))
        if how == "killed":
            primary.stop(signal.SIGKILL)
        else:
            rooms.enter_context(primary.paused())
        opened = pool.submit(PostgresBackend, address, patience=patience)
        appended = pool.submit(history.append, user("one"), key="one")
        forked = pool.submit(other.fork, id="fork", key="fork")
        if how == "killed":
            await_told(appended, caplog)
        standby.promote()
        assert "one" == appended.result().text
        assert "fork" == forked.result().id
        with closing(opened.result()) as late:
            assert ["one"] == texts(Store(late), "talk")
        assert [] == list(store.verify())
        assert how == "silent" or "again after" in caplog.text


def test_without_a_primary_in_time_it_is_an_error(pair: tuple[Server, Server]) -> None:
    with serving() as other, within(HANGING):
        address = together("postgres", other, pair[1])
        with closing(PostgresBackend(address)) as backend:
            history = Store(backend).create()
            other.stop(signal.SIGKILL)
            set_patience(backend._connections, 1.2)
            with pytest.raises(
                StoreError, match=r"none of the servers accepted changes for 1\.2 s"
            ):
                history.append(user("one"))
        with pytest.raises(StoreError, match=r"none of the servers.*\n*.*read-only"):
            PostgresBackend(together("postgres", other, pair[1]), patience=0.5)


def test_a_server_that_became_read_only_is_left(
    both: str, pair: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Its connections are thrown away, and the change is made where changes are accepted."""
    primary, _ = pair
    with palaver.open(both) as store, ThreadPoolExecutor(1) as pool, within(HANGING):
        history = store.create(id="talk")
        ask(primary, "ALTER SYSTEM SET default_transaction_read_only = on")
        ask(primary, "SELECT pg_reload_conf()")

        def accept() -> None:
            with psycopg.connect(primary.address("postgres"), autocommit=True) as line:
                line.execute("SET default_transaction_read_only = off")
                line.execute("ALTER SYSTEM RESET default_transaction_read_only")
                line.execute("SELECT pg_reload_conf()")

        while ask(primary, "SHOW default_transaction_read_only") != "on":
            time.sleep(0.01)
        appended = pool.submit(history.append, user("one"), key="one")
        await_told(appended, caplog)
        accept()
        assert "one" == appended.result().text
        assert ["one"] == texts(store, "talk")


def test_one_read_only_server_is_an_error_at_once(pair: tuple[Server, Server]) -> None:
    connections = PostgresConnections(pair[1].address("postgres"), size=1, patience=30)

    def write(line: TimedConnection) -> None:
        line.execute("CREATE TABLE never ()")

    with closing(connections), within(20):
        first = connections.run(lambda line: line.pgconn.backend_pid)
        with pytest.raises(StoreError, match="read-only"):
            connections.run(write)
        assert first != connections.run(lambda line: line.pgconn.backend_pid)


# ── reading from the standby ────────────────────────────────────────────────────────────────────


def test_conversations_are_read_from_the_standby(both: str, pair: tuple[Server, Server]) -> None:
    with palaver.open(both) as writer, palaver.open(both, read="replica") as reader:
        history = writer.create([user("one")], id="talk")
        pause(pair)
        history.append(user("two"))
        assert ["one"] == texts(reader, "talk")  # it is behind, and that was asked for
        assert ["one", "two"] == texts(writer, "talk")


def test_what_this_store_wrote_is_read_whatever_the_standby_has(
    both: str, pair: tuple[Server, Server]
) -> None:
    with palaver.open(both, read="replica") as store:
        first = store.create([user("one")], id="talk")
        pause(pair)
        store.create([user("new")], id="new")
        first.append(user("two"))
        fork = first.fork(id="fork")
        assert ["one", "two"] == texts(store, "talk") == texts(store, "fork")
        assert ["new"] == texts(store, "new")
        fork.replace(0, user("edited"))
        assert ["edited", "two"] == texts(store, "fork")
        store.describe("talk", title="A talk")
        assert "A talk" == store.head("talk").title
        first.erase(0)
        assert "one" not in texts(store, "talk")
        store.delete("new")
        with pytest.raises(UnknownConversation):
            store.get("new")
        assert [] == list(store.verify())


def test_a_version_that_was_seen_is_not_taken_back(both: str, pair: tuple[Server, Server]) -> None:
    with palaver.open(both) as writer, palaver.open(both, read="replica") as reader:
        history = writer.create([user("one")], id="talk")
        start = writer.newest()
        pause(pair)
        history.append(user("two"))
        assert [1] == [change.version for change in reader.follow(after=start, seconds=0.1)]
        assert ["one", "two"] == texts(reader, "talk")
        assert 1 == reader.head("talk").version


@pytest.mark.parametrize("look", ["work", "list", "forks"])
def test_what_the_primary_showed_is_not_taken_back(
    both: str, pair: tuple[Server, Server], look: str
) -> None:
    with palaver.open(both, read="replica") as store, palaver.open(both) as other:
        parent = store.create([user("one")])
        fork = parent.fork()
        await_standby(pair)
        assert ["one"] == texts(store, fork.id)
        pause(pair)
        other.get(fork.id).append(user("two"))
        heads = {
            "work": lambda: [store.begin_work(fork.id, "me", seconds=60, kinds=[]).head],
            "list": lambda: list(store.list().conversations),
            "forks": lambda: store.forks(parent.id),
        }[look]()
        assert 1 == max(head.version for head in heads if head.id == fork.id)
        assert ["one", "two"] == texts(store, fork.id)
        assert ["one", "two"] == [message.text for message in fork.refresh()]


@pytest.mark.parametrize("way", ["erase", "expire"])
def test_what_was_deleted_with_others_is_not_read_from_a_standby(
    both: str, pair: tuple[Server, Server], way: str
) -> None:
    with palaver.open(both, read="replica") as store:
        name = store.create([user("one")], owner="anna").id
        await_standby(pair)
        assert ["one"] == texts(store, name)
        pause(pair)
        if way == "erase":
            assert [] == list(store.check_receipt(store.erase_owner("anna")))
        else:
            later = store.with_clock(lambda: store.head(name).updated + 10)
            assert 1 == later.expire(timedelta(milliseconds=1)).conversations
        assert name not in store
        with pytest.raises(UnknownConversation):
            store.get(name)


def test_a_writer_who_read_an_old_version_sees_the_newest_when_refused(
    both: str, pair: tuple[Server, Server]
) -> None:
    with palaver.open(both) as writer, palaver.open(both, read="replica") as reader:
        history = writer.create([user("one"), user("two")], id="talk")
        pause(pair)
        old = reader.get("talk")
        history.replace(0, user("edited"))
        old.replace(1, user("edited, too"))
        assert ["edited", "edited, too"] == texts(reader, "talk") == texts(writer, "talk")


def test_what_a_standby_does_not_have_yet_is_looked_for_on_the_primary(
    both: str, pair: tuple[Server, Server]
) -> None:
    with palaver.open(both) as writer, palaver.open(both, read="replica") as reader:
        writer.create(id="old")
        pause(pair)
        writer.create([user("new")], id="new")
        assert ["new"] == texts(reader, "new")
        assert "new" in reader
        assert "none" not in reader


def test_the_primary_answers_where_no_standby_does(postgres: str) -> None:
    with palaver.open(postgres, read="replica") as store:
        history = store.create([user("one")])
        history.append(user("two"))
        assert ["one", "two"] == texts(store, history.id)


def test_a_standby_that_was_ahead_of_the_primary_is_waited_for(
    postgres: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer than a moment: a version that is nowhere any more is said to be lost."""
    backend = PostgresBackend(postgres, read="replica")
    with (
        closing(backend),
        palaver.open(postgres) as other,
        ThreadPoolExecutor(1) as pool,
        within(HANGING),
    ):
        store = Store(backend)
        history = store.create([user("one")], id="talk")
        assert backend._replica is not None
        backend._replica.saw("talk", 1)
        with monkeypatch.context() as patient:
            patient.setattr("palaver.stores.postgres.replica._SOON", HANGING)
            read = pool.submit(texts, store, history.id)
            with pytest.raises(TimeoutError):
                read.result(0.2)
            other.get("talk").append(user("two"))
            assert ["one", "two"] == read.result()
        assert "" == caplog.text
        backend._replica.saw("talk", 7)
        assert ["one", "two"] == texts(store, history.id)
        assert "talk is at version 1, and was seen at 7" in caplog.text
        assert ["one", "two"] == texts(store, history.id)


def test_only_so_many_versions_are_remembered(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.stores.postgres.replica._KNOWN", 2)
    with palaver.open(postgres, read="replica") as store:
        names = [store.create([user(str(n))]).id for n in range(4)]
        assert [["0"], ["1"], ["2"], ["3"]] == [texts(store, name) for name in names]


def test_a_distributed_store_is_not_read_from_a_standby(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.stores.postgres.backend.is_distributed", lambda _: True)
    monkeypatch.setattr("palaver.stores.postgres.backend.numbers_ahead", lambda _: 0)
    with pytest.raises(StoreError, match="can't be read from a standby; read='primary'"):
        palaver.open(postgres, read="replica")


def test_a_child_reads_on(postgres: str) -> None:
    with palaver.open(postgres, read="replica") as store:
        name = store.create([user("one")]).id
        child = os.fork()
        if not child:
            os._exit(0 if texts(store, name) == ["one"] else 1)
        assert 0 == os.waitpid(child, 0)[1]
        assert ["one"] == texts(store, name)


@pytest.mark.parametrize("address", [":memory:", "chat.db"])
def test_a_file_has_no_standby(address: str) -> None:
    with pytest.raises(ValidationError, match=r"\$\.read: a file has no standby"):
        palaver.open(address, read="replica")


def test_what_is_read_from_is_a_known_word() -> None:
    with pytest.raises(ValidationError, match="must be 'primary' or 'replica', not 'standby'"):
        palaver.open(":memory:", read="standby")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_lost_server_is_told_of_now_and_then(
    postgres: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.stores.postgres.connections._PROGRESS", 0.0)
    connections = PostgresConnections(f"{postgres}x", size=1, patience=1)
    with closing(connections), pytest.raises(StoreError), caplog.at_level(logging.WARNING):
        connections.run(lambda line: line.pgconn.backend_pid)
    assert 1 < caplog.text.count("waiting for it since")
