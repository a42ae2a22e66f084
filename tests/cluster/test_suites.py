"""What every store promises: the conformance suite, changes, programs, writers; in four places.

One PostgreSQL server; its tables in partitions, as docs/scale.md says; behind PgBouncer in
transaction mode; and distributed by Citus. A place serves all tests, one after the other.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

import palaver
from tests.cluster.conftest import clear
from tests.cluster.pgbouncer import pooling
from tests.stores.postgres.test_appends import (
    test_erasing_keeps_the_record_of_an_append,
    test_pages_of_changes_are_those_of_the_memory_store,
)
from tests.stores.postgres.test_changes import (
    test_a_fork_is_found_by_a_process_that_has_never_seen_it,
    test_a_fork_made_by_the_same_attempt_is_not_refused,
    test_a_listener_is_told_where_the_messages_stand,
    test_a_refusal_says_why,
    test_an_append_follows_an_edit_that_ends_with_the_log,
    test_an_append_is_not_refused_because_others_appended,
    test_an_append_sent_again_is_found_behind_the_changes_of_others,
    test_ids_are_unique_whatever_the_family,
    test_what_must_follow_a_version_is_refused,
    test_writers_of_one_conversation_are_not_refused,
)
from tests.stores.postgres.test_search import (
    test_hits_that_are_none_do_not_hide_those_that_are,
    test_two_feed_the_index_at_once,
)
from tests.stores.postgres_server import serving
from tests.stores.test_conformance import test_a_store_keeps_every_promise
from tests.stores.test_encryption import (
    test_a_database_is_encrypted_its_key_changed_and_made_plain_again,
    test_an_encrypted_store_on_a_server_keeps_every_promise_but_search,
    test_others_read_and_write_while_the_key_of_a_database_is_changed,
    word,
)
from tests.stores.test_erase import test_another_message_with_the_same_id_stays
from tests.stores.test_programs import (
    test_every_store_does_what_a_history_in_memory_does,
    test_writers_that_are_behind_fare_alike_in_every_store,
)
from tests.stores.test_prune import test_pruning_changes_nothing_that_can_be_seen
from tests.stores.test_writers import (
    test_eight_threads_lose_nothing,
    test_one_handle_serves_many_threads,
)
from tests.test_scale import statements

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from palaver.stores import Store

    Place = tuple[str, Callable[[], None]]

# collected here, with the fixtures of this folder
__all__ = [
    "test_a_database_is_encrypted_its_key_changed_and_made_plain_again",
    "test_a_fork_is_found_by_a_process_that_has_never_seen_it",
    "test_a_fork_made_by_the_same_attempt_is_not_refused",
    "test_a_listener_is_told_where_the_messages_stand",
    "test_a_refusal_says_why",
    "test_a_store_keeps_every_promise",
    "test_an_append_follows_an_edit_that_ends_with_the_log",
    "test_an_append_is_not_refused_because_others_appended",
    "test_an_append_sent_again_is_found_behind_the_changes_of_others",
    "test_an_encrypted_store_on_a_server_keeps_every_promise_but_search",
    "test_another_message_with_the_same_id_stays",
    "test_eight_threads_lose_nothing",
    "test_erasing_keeps_the_record_of_an_append",
    "test_every_store_does_what_a_history_in_memory_does",
    "test_hits_that_are_none_do_not_hide_those_that_are",
    "test_ids_are_unique_whatever_the_family",
    "test_one_handle_serves_many_threads",
    "test_others_read_and_write_while_the_key_of_a_database_is_changed",
    "test_pages_of_changes_are_those_of_the_memory_store",
    "test_pruning_changes_nothing_that_can_be_seen",
    "test_two_feed_the_index_at_once",
    "test_what_must_follow_a_version_is_refused",
    "test_writers_of_one_conversation_are_not_refused",
    "test_writers_that_are_behind_fare_alike_in_every_store",
    "word",
]


def _drop(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as line:
        line.execute("DROP SCHEMA IF EXISTS palaver CASCADE")


@contextmanager
def _plain() -> Generator[Place]:
    with serving() as server, server.database() as address:
        yield address, lambda: _drop(address)


@contextmanager
def _partitioned() -> Generator[Place]:
    with serving() as server, server.database() as address:

        def clear() -> None:
            _drop(address)
            palaver.open(address).close()
            with psycopg.connect(address, autocommit=True) as line:
                line.execute(statements())

        yield address, clear


@contextmanager
def _pooled() -> Generator[Place]:
    with serving() as server, server.database() as address, pooling(server) as folder:
        name = address.partition("@/")[2].partition("?")[0]
        yield server.address(name, folder), lambda: _drop(address)


PLACES = {"postgres": _plain, "partitioned": _partitioned, "pgbouncer": _pooled, "citus": None}
SUITES = {
    test_a_store_keeps_every_promise.__name__,
    test_every_store_does_what_a_history_in_memory_does.__name__,
    test_writers_that_are_behind_fare_alike_in_every_store.__name__,
}
"""What is run in all places; the rest where it was not run by `make test`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the places of a test."""
    if "place" in metafunc.fixturenames:
        places = PLACES if metafunc.function.__name__ in SUITES else ("pgbouncer", "citus")
        metafunc.parametrize("place", places, indirect=True, scope="module")


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The address of a database, and what empties it."""
    make = PLACES[request.param]
    if make is None:
        coordinator: str = request.getfixturevalue("coordinator")
        clear(coordinator)
        yield coordinator, lambda: clear(coordinator)
        return
    with make() as found:
        found[1]()
        yield found


@pytest.fixture
def postgres(place: Place) -> str:
    """The address of a database without conversations."""
    address, empty = place
    empty()
    return address


@pytest.fixture
def open_store(place: Place) -> Callable[[], Store]:
    """What opens a store, the same one every time, with whatever others left there."""
    return lambda: palaver.open(place[0])
