"""A store on a Citus cluster, for tests that `make cluster` runs; no other run collects them.

`PALAVER_CLUSTER` is the address of the coordinator. The tests run one after the other on one
database. A store has few shards there, and serves several tests: it takes seconds to make one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest

import palaver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import Store

SHARDS = 4


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here."""
    for item in items:
        if "cluster" in item.path.parts:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def coordinator() -> str:
    """The address of the coordinator."""
    address = os.environ.get("PALAVER_CLUSTER")
    assert address, "PALAVER_CLUSTER must be the address of a coordinator; `make cluster` sets it"
    return address


@pytest.fixture
def postgres(coordinator: str) -> str:
    """The address of a database without a store."""
    clear(coordinator)
    return coordinator


def clear(coordinator: str) -> None:
    """Remove the store, and end who still uses it."""
    with psycopg.connect(coordinator, autocommit=True) as line:
        line.execute(f"ALTER DATABASE postgres SET citus.shard_count = {SHARDS}".encode())
        line.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'palaver'"
        )
        line.execute("DROP SCHEMA IF EXISTS palaver CASCADE")


@pytest.fixture
def open_store(coordinator: str) -> Callable[[], Store]:
    """What opens a store, the same one every time, with whatever others left there."""
    return lambda: palaver.open(coordinator)


@pytest.fixture
def store(postgres: str) -> Iterator[Store]:
    """An empty store, open."""
    with palaver.open(postgres) as opened:
        yield opened
