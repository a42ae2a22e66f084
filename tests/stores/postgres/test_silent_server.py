"""A PostgreSQL server that is there and says nothing is waited for no longer than is promised.

How long is promised is the store's patience; here it is short, and a hang ends the run.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import StoreError
from palaver.messages import user
from palaver.stores import Store
from palaver.stores.postgres import PostgresBackend
from tests.patience import set_patience, within
from tests.stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from palaver.stores.postgres.connections import TimedConnection
    from tests.stores.postgres_server import Server
    from tests.stores.proxy import When

HANGING = 40
SOON = 0.3  # seconds after which a server that may be slow is asked about, and all its time is left


@pytest.fixture
def proxied(postgres_server: Server, postgres: str) -> Iterator[tuple[Proxy, str]]:
    name = postgres.partition("@/")[2].partition("?")[0]
    with (
        tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder,
        Proxy(Path(folder), postgres_server.folder) as proxy,
    ):
        yield proxy, postgres_server.address(name, Path(folder))


# ── a server that is stopped (SIGSTOP) ──────────────────────────────────────────────────────────


def test_a_stopped_server_is_an_error_and_nothing_is_lost_or_doubled(
    postgres_server: Server, postgres: str
) -> None:
    backend = PostgresBackend(postgres, pool=2)
    with closing(backend), within(HANGING), ThreadPoolExecutor(6) as pool:
        history = Store(backend).create([user("one")])
        others = [Store(backend).get(history.id) for _ in range(4)]
        backend.wait(0)  # begins to listen
        with postgres_server.paused():
            set_patience(backend._connections, 1)
            calls: list[Future[Any]] = [
                pool.submit(each.append, user(f"{n}"), key=f"{n}") for n, each in enumerate(others)
            ]
            calls.append(pool.submit(PostgresBackend, postgres, patience=1))
            calls.append(pool.submit(backend.wait, 0.2))
            errors = [call.exception() for call in calls]
            assert [StoreError] * 5 + [type(None)] == [type(error) for error in errors]
        set_patience(backend._connections, 30)
        for number, each in enumerate(others):
            each.append(user(f"{number}"), key=f"{number}")
        texts = [message.text for message in Store(backend).get(history.id)]
        assert "one" == texts[0]
        assert ["0", "1", "2", "3"] == sorted(texts[1:])
        assert [] == list(Store(backend).verify())


def test_a_store_is_closed_although_the_server_is_stopped(
    postgres_server: Server, postgres: str
) -> None:
    backend = PostgresBackend(postgres)
    with within(HANGING):
        Store(backend).create().append(user("one"))
        backend.wait(0)
        with postgres_server.paused():
            set_patience(backend._connections, 1)
            backend.close()
            with pytest.raises(StoreError, match="closed"):
                backend.newest()


def test_a_server_that_goes_on_in_time_is_no_error(
    postgres_server: Server, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = PostgresBackend(postgres)
    with closing(backend), within(HANGING):
        history = Store(backend).create()
        backend._connections.run(lambda line: setattr(line, "limit", SOON))
        with postgres_server.paused() as go_on:
            going_on = threading.Timer(SOON, go_on)
            is_at_work = backend._connections._is_at_work

            def ask(process: int, name: str, place: tuple[bytes, ...]) -> bool:
                going_on.start()  # while a second connection asks
                return is_at_work(process, name, place)

            monkeypatch.setattr(backend._connections, "_is_at_work", ask)
            history.append(user("one"))
            going_on.join()
        assert ["one"] == [message.text for message in Store(backend).get(history.id)]
        assert 1 == history.version


def test_a_long_statement_is_not_taken_for_silence(postgres: str) -> None:
    backend = PostgresBackend(postgres)
    times: list[int] = []

    def work(line: TimedConnection) -> None:
        times.append(line.pgconn.backend_pid)
        line.limit = SOON
        line.execute("SELECT pg_sleep(1)")

    with closing(backend), within(HANGING):
        backend._connections.run(work)
        assert 1 == len(times)


def test_a_stopped_session_is_given_up(postgres: str) -> None:
    """The rest of the server says that it is at work, but not for ever."""
    backend = PostgresBackend(postgres)
    stopped: list[int] = []
    stopping = threading.Timer(SOON / 2, lambda: os.kill(stopped[0], signal.SIGSTOP))

    def work(line: TimedConnection) -> int:
        if not stopped:
            stopped.append(line.pgconn.backend_pid)
            stopping.start()
            line.limit, line.longest = SOON, 3 * SOON
            line.execute("SELECT pg_sleep(30)")
        return line.pgconn.backend_pid

    try:
        with closing(backend), within(HANGING):
            assert backend._connections.run(work) not in stopped
    finally:
        stopping.join()
        os.kill(stopped[0], signal.SIGCONT)


# ── a connection through which nothing comes any more ───────────────────────────────────────────


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_whose_connection_falls_silent_is_made_once(
    proxied: tuple[Proxy, str], when: When
) -> None:
    """The server is asked what became of it on another connection."""
    proxy, address = proxied
    backend = PostgresBackend(address)
    with closing(backend), within(HANGING):
        history = Store(backend).create()
        backend._connections.run(lambda line: setattr(line, "limit", SOON))
        proxy.hush(b"swallowed", when)
        history.append(user("swallowed"))
        history.append(user("the next"))
        assert 1 == proxy.cuts
        assert ["swallowed", "the next"] == [m.text for m in Store(backend).get(history.id)]
        assert 2 == history.version


def test_a_migration_whose_connection_falls_silent(proxied: tuple[Proxy, str]) -> None:
    proxy, address = proxied
    with within(HANGING):
        proxy.hush(b"pg_advisory", "before")
        with pytest.raises(StoreError, match="did not answer"):
            PostgresBackend(address, patience=1)
        backend = PostgresBackend(address)
        assert (0, 0) != backend.migrated
        backend.close()


def test_a_follower_gets_an_error_from_a_silent_server(proxied: tuple[Proxy, str]) -> None:
    proxy, address = proxied
    backend = PostgresBackend(address, patience=1)
    with closing(backend), within(HANGING):
        history = Store(backend).create([user("one")])
        changes = Store(backend).follow(history.id, after=-1)
        assert 0 == next(changes).version
        proxy.hush_all()
        with pytest.raises(StoreError):
            next(changes)
