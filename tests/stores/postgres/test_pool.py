"""The pool of PostgreSQL connections: how many, in which order, and which are used again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import errors

from palaver.errors import StoreError
from palaver.stores.postgres.connections import PostgresConnections
from tests.patience import set_patience, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.postgres.connections import TimedConnection


@pytest.fixture
def connections(postgres: str) -> Iterator[PostgresConnections]:
    made = PostgresConnections(postgres, size=2, patience=5)
    yield made
    made.close()


def session(line: TimedConnection) -> int:
    line.execute("SELECT 1")
    return line.pgconn.backend_pid


def test_one_thread_uses_one_connection(connections: PostgresConnections) -> None:
    assert 1 == len({connections.run(session) for _ in range(10)})


def test_no_more_than_so_many_are_in_use(connections: PostgresConnections) -> None:
    inside: set[int] = set()
    most: list[int] = []

    def work(line: TimedConnection) -> int:
        inside.add(line.pgconn.backend_pid)
        most.append(len(inside))
        line.execute("SELECT pg_sleep(0.01)")
        inside.remove(line.pgconn.backend_pid)
        return line.pgconn.backend_pid

    with ThreadPoolExecutor(8) as pool, within(60):
        used = {each.result() for each in [pool.submit(connections.run, work) for _ in range(40)]}
    assert 2 == len(used) == max(most)


def test_waiting_too_long_for_a_connection_is_an_error(postgres: str) -> None:
    connections = PostgresConnections(postgres, size=1, patience=30)
    done, inside = threading.Event(), threading.Event()

    def work(line: TimedConnection) -> bool:
        line.execute("SELECT 1")
        inside.set()
        return done.wait()

    with within(60), ThreadPoolExecutor(1) as pool:
        first = pool.submit(connections.run, work)
        inside.wait()
        set_patience(connections, 0.2)
        with pytest.raises(StoreError, match="in use"):
            connections.run(session)
        done.set()
        assert first.result()
        set_patience(connections, 30)
        assert connections.run(session)
    connections.close()


def test_turns_go_by_who_came_first(postgres: str) -> None:
    connections = PostgresConnections(postgres, size=1, patience=20)
    done, inside, order = threading.Event(), threading.Event(), list[int]()

    def first(line: TimedConnection) -> None:
        inside.set()
        done.wait()
        session(line)

    def task(number: int) -> None:
        connections.run(lambda _: order.append(number))

    with within(60):
        threads = [threading.Thread(target=connections.run, args=(first,))]
        threads[0].start()
        inside.wait()
        for number in range(5):
            threads.append(threading.Thread(target=task, args=(number,)))
            threads[-1].start()
            while len(connections._waiting) <= number:
                time.sleep(0.001)
        done.set()
        for thread in threads:
            thread.join()
    connections.close()
    assert [0, 1, 2, 3, 4] == order


def test_a_pipeline_that_breaks_off_is_a_lost_connection(connections: PostgresConnections) -> None:
    """Libpq may not know yet that the server is gone, when the pipeline can't be left."""
    tried: list[TimedConnection] = []

    def work(connection: TimedConnection) -> object:
        tried.append(connection)
        if len(tried) == 1:
            connection.pgconn.enter_pipeline_mode()
            raise psycopg.OperationalError("sending query failed: cannot exit pipeline mode")
        return connection.execute(b"SELECT 1").fetchone()

    assert (1,) == connections.run(work)
    assert tried[0].closed
    assert not tried[1].closed


def test_what_is_in_a_transaction_is_not_used_again(connections: PostgresConnections) -> None:
    class Interrupt(BaseException):
        """What comes from outside, such as Ctrl-C."""

    used: list[int] = []

    def work(line: TimedConnection) -> None:
        used.append(session(line))
        line.execute("BEGIN")
        raise Interrupt

    with pytest.raises(Interrupt):
        connections.run(work)
    assert used != [connections.run(session)]


@pytest.mark.parametrize("limit", ["_OLD", "_UNUSED"])
def test_old_and_unused_connections_are_closed(
    connections: PostgresConnections, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = threading.Barrier(2)

        def work(line: TimedConnection) -> TimedConnection:
            both.wait(30)
            return line

        lines = [each.result() for each in [pool.submit(connections.run, work) for _ in range(2)]]
    assert 2 == len(connections._idle)
    monkeypatch.setattr(f"palaver.stores.postgres.connections.{limit}", 0.0)
    time.sleep(0.01)
    used = connections.run(lambda line: line)
    assert [line.closed for line in lines if line is not used] == [limit == "_UNUSED"]
    assert used.closed is (limit == "_OLD")


def test_a_store_that_is_closed_in_use(connections: PostgresConnections) -> None:
    def work(line: TimedConnection) -> TimedConnection:
        connections.close()
        session(line)
        return line

    assert connections.run(work).closed
    with pytest.raises(StoreError, match="closed"):
        connections.run(session)


def test_what_the_server_says_is_wrong_is_no_lost_connection(
    connections: PostgresConnections,
) -> None:
    times: list[int] = []

    def work(line: TimedConnection) -> None:
        times.append(session(line))
        line.execute("SELECT no_such_thing")

    with pytest.raises(StoreError, match="no_such_thing") as caught:
        connections.run(work)
    assert isinstance(caught.value.__cause__, psycopg.errors.UndefinedColumn)
    assert times == [connections.run(session)]


def test_what_needs_a_lost_node_of_a_cluster_is_tried_again(postgres: str) -> None:
    """The connection to the coordinator is as good as before."""
    pool = PostgresConnections(postgres, size=1, patience=30)
    lost = [errors.ConnectionFailure("refused"), errors.InternalError_("postmaster was shut down")]

    def work(connection: TimedConnection) -> int:
        if lost:
            raise lost.pop()
        return connection.execute(b"SELECT 1").rowcount

    assert 1 == pool.run(work)
    assert [] == lost
    pool.close()
    short = PostgresConnections(postgres, size=1, patience=0.1)
    with pytest.raises(StoreError, match="refused"):
        short.run(lambda _: refuse())
    short.close()


def refuse() -> None:
    msg = "refused"
    raise errors.ConnectionFailure(msg)


# ── statements that are asked often ─────────────────────────────────────────────────────────────

SLOW = b"SELECT ARRAY[%s::bigint, 2] FROM pg_sleep(%s::text::float8)"


def prepared(line: TimedConnection) -> int:
    rows = line.execute("SELECT count(*) FROM pg_prepared_statements WHERE name ~ '^palaver_'")
    return int(rows.fetchall()[0][0])


def test_a_statement_that_is_asked_often_is_prepared(connections: PostgresConnections) -> None:
    def ask(line: TimedConnection) -> None:
        for number in range(6):
            assert ([number, 2],) == line.ask(SLOW, (number, "0"))
            assert int(number > 1) == prepared(line)

    connections.run(ask)


def test_an_answer_that_takes_long_or_is_sent_in_parts(connections: PostgresConnections) -> None:
    """Longer than an answer is waited for at once, and more than a socket takes at once."""

    def ask(line: TimedConnection) -> None:
        for number in range(4):
            assert ([number, 2],) == line.ask(SLOW, (number, "0.2"))
            text = "x" * 4_000_000
            length = b"SELECT ARRAY[length(%s::text)::bigint, %s]"
            assert ([4_000_000, number],) == line.ask(length, (text, number))

    with within(60):
        connections.run(ask)


def test_what_is_wrong_with_a_prepared_statement_is_an_error(
    connections: PostgresConnections,
) -> None:
    def ask(line: TimedConnection) -> list[object]:
        found: list[object] = []
        for number in (1, 2, 4, 0, 5):
            try:
                found.append(line.ask(b"SELECT ARRAY[20 / %s::bigint]", (number,)))
            except errors.DivisionByZero as error:
                found.append(type(error))
        return found

    expected = [([20],), ([10],), ([5],), errors.DivisionByZero, ([4],)]
    assert expected == connections.run(ask)


def test_a_lost_server_is_noticed_by_a_prepared_statement(
    connections: PostgresConnections, postgres: str
) -> None:
    def ask(line: TimedConnection) -> None:
        for number in range(4):
            line.ask(SLOW, (number, "0"))
        with psycopg.connect(postgres, autocommit=True) as another:
            another.execute("SELECT pg_terminate_backend(%s)", (line.pgconn.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            line.ask(SLOW, (1, "0"))
        assert line.closed

    connections.run(ask)
