"""Through a pooler: nothing that belongs to a session is used, and followers look by themselves.

`pooler=True` is what a store does when it finds one; `make cluster` runs a real PgBouncer.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.errors import StoreError
from palaver.messages import user
from palaver.stores import Store
from palaver.stores.postgres import PostgresBackend
from palaver.stores.postgres.connections import PostgresConnections, TimedConnection
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = b"""
SELECT current_setting('statement_timeout'), (SELECT count(*) FROM pg_prepared_statements),
       (SELECT count(*) FROM pg_listening_channels())
"""


@pytest.fixture
def backend(postgres: str) -> Iterator[PostgresBackend]:
    with closing(PostgresBackend(postgres, pooler=True)) as made:
        yield made


def test_nothing_of_a_session_is_used(backend: PostgresBackend) -> None:
    store = Store(backend)
    history = store.create()
    for number in range(10):
        history.append(user(f"tea {number}"))
    assert [] != store.search("tea")
    history.erase(0)
    backend.wait(0)
    found = backend._connections.run(lambda line: line.execute(SESSION).fetchone())
    assert ("0", 0, 0) == found


def test_followers_look_by_themselves_and_say_so_once(
    backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(backend)
    start = store.newest()
    history = store.create()
    heard = store.follow(after=start)
    assert 0 == next(heard).version
    backend.wait(0)
    backend.wait(0)
    history.append(user("one"))
    assert 1 == next(heard).version
    assert 1 == caplog.text.count("followers look every 0.25 s")


def test_a_pooler_is_found(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process answers than the one that was said when connecting."""
    with palaver.open(postgres) as store:
        assert not store.examine().pooler
        assert "pooler" not in CliRunner().invoke(app, ["doctor", "--store", postgres]).output
    monkeypatch.setattr(PostgresConnections, "_set_up", lambda *_: False)
    with palaver.open(postgres) as store:
        assert store.examine().pooler
        done = CliRunner().invoke(app, ["doctor", "--store", postgres])
        assert "through a pooler: followers poll" in done.output


def test_nobody_is_asked_where_it_is_said(postgres: str) -> None:
    with closing(PostgresBackend(postgres, pooler=False)) as backend:
        assert "1min" == backend._connections.run(
            lambda line: (line.execute("SHOW statement_timeout").fetchone() or [""])[0]
        )


def test_connections_that_lose_what_was_acknowledged_are_refused(postgres: str) -> None:
    name = postgres.partition("@/")[2].partition("?")[0]
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    try:
        palaver.open(postgres).close()  # it sets that itself
        with pytest.raises(StoreError, match="pooler have synchronous_commit = off"):
            PostgresBackend(postgres, pooler=True)
    finally:
        with psycopg.connect(postgres, autocommit=True) as line:
            line.execute(f"ALTER DATABASE {name} RESET synchronous_commit".encode())


def test_a_long_statement_is_not_taken_for_silence(postgres: str) -> None:
    times: list[int] = []

    def work(line: TimedConnection) -> None:
        times.append(1)
        line.limit = 0.3
        line.execute("SELECT pg_sleep(1)")

    backend = PostgresBackend(postgres, pooler=True)
    with closing(backend), within(40):
        backend._connections.run(work)
        assert [1] == times


def test_large_tables_are_not_rewritten(postgres: str) -> None:
    with closing(PostgresBackend(postgres, pooler=True, rewrite=0)) as backend:
        history = Store(backend).create([user("one")])
        history.erase(0)
        assert "one" not in [message.text for message in Store(backend).get(history.id)]
