"""PgBouncer in transaction mode: it is found, and nothing is left on its connections."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.messages import user
from palaver.stores import Store
from palaver.stores.postgres import PostgresBackend
from tests.cluster.pgbouncer import pooling
from tests.patience import within
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.postgres.connections import TimedConnection

LEFT_BEHIND = b"""
SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),
       (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels())
"""


@pytest.fixture(scope="module")
def ways() -> Iterator[tuple[str, str]]:
    """The address of a database through the pooler, and its own."""
    with serving() as server, server.database() as direct, pooling(server) as folder:
        name = direct.partition("@/")[2].partition("?")[0]
        yield server.address(name, folder), direct


def test_a_pooler_is_found_and_the_doctor_says_so(ways: tuple[str, str]) -> None:
    for address, expected in zip(ways, (True, False), strict=True):
        done = CliRunner().invoke(app, ["doctor", "--store", address, "--json"])
        assert expected == json.loads(done.output)["pooler"]
    said = CliRunner().invoke(app, ["doctor", "--store", ways[0]])
    assert "through a pooler: followers poll" in said.output
    assert 0 == said.exit_code


def test_nothing_is_left_on_the_connections_of_others(ways: tuple[str, str]) -> None:
    through, _ = ways
    with palaver.open(through) as store, within(120), ThreadPoolExecutor(8) as pool:
        histories = [store.create([user("tea")]) for _ in range(8)]
        list(pool.map(lambda each: [each.append(user("more")) for _ in range(20)], histories))
        histories[0].erase(0)
        store.wait(0)
        assert [] != store.search("tea")

    def look() -> tuple[object, ...] | None:
        with psycopg.connect(through, prepare_threshold=None) as line:
            line.execute("SELECT pg_sleep(0.1)")  # so that each has a connection of its own
            return line.execute(LEFT_BEHIND).fetchone()

    with ThreadPoolExecutor(8) as pool, within(60):
        found = {each.result() for each in [pool.submit(look) for _ in range(8)]}
    assert {("0", "0", 0, 0)} == found


def test_a_follower_hears_everything_and_the_log_says_how(
    ways: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    through, direct = ways
    with palaver.open(through) as pooled, palaver.open(direct) as other, within(60):
        history = other.create()
        heard = pooled.follow(history.id, after=-1)
        assert 0 == next(heard).version
        for version in range(1, 4):
            history.append(user("more"))
            assert version == next(heard).version
        pooled.wait(0)
        assert 1 == caplog.text.count("followers look every 0.25 s")


def test_a_long_statement_is_not_taken_for_silence(ways: tuple[str, str]) -> None:
    times: list[int] = []

    def work(line: TimedConnection) -> None:
        times.append(1)
        line.execute("SELECT pg_sleep(1.9)")

    backend = PostgresBackend(ways[0], patience=1.6)
    with closing(backend), within(40):
        Store(backend).create()
        backend._connections.run(work)
        assert [1] == times
