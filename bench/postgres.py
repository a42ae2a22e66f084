"""The PostgreSQL store beside a bare INSERT of the same body, with the server's fsync on and off.

With fsync on, an append is mostly the wait for the disk. With fsync off, what is left is the server
and the program. The server is a child of this run, out of the same wheel as the tests', and reached
over its socket; `synchronous_commit` is on for both sides. The clock is the one on the wall, since
most of the work is done in the server's processes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import psycopg

import palaver
from bench.crowd import BODY, INSERT, append_own, insert_own, together
from bench.harness import AtMost, Row, Run, against_floor, fsync_time, middle, paired
from palaver.messages import dump, user
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores.postgres_server import Server

    Ready = Callable[[], object]

__all__ = ["TABLE", "rows"]

TABLE: Final = """
CREATE TABLE IF NOT EXISTS bare (
    conversation text COLLATE "C", seq integer, body text NOT NULL, PRIMARY KEY (conversation, seq)
)
"""
_CROWD: Final = 8


def rows(run: Run) -> Iterator[Row]:
    """One process, then eight, with a server that syncs and with one that does not."""
    for fsync, goal in (("on", AtMost(1.5)), ("off", AtMost(3))):
        with serving(fsync=fsync, shared_buffers="256MB", max_wal_size="4GB") as server:
            note = f"floor: a bare INSERT, psycopg, prepared; synchronous_commit=on, fsync={fsync}"
            if fsync == "on":
                note += f"; fsync takes {fsync_time(server.folder):.0f} µs"
            yield _alone(server, run.rounds(300), f"fsync {fsync}", goal, note)
            yield _crowded(server, run.rounds(300), f"fsync {fsync}", goal, note)


def _alone(server: Server, count: int, name: str, goal: AtMost, note: str) -> Row:
    with server.database() as address:
        store = palaver.open(address)
        line = psycopg.connect(address, autocommit=True)
        line.execute(TABLE)
        ours, bare = paired(9, _ours(store, count), _bare(line, count))
        store.close()
        line.close()
    return against_floor(
        f"durable append, PostgreSQL, {name}", ours / count * 1e3, bare / count * 1e3, n=count,
        unit="µs", goal=goal, note=note,
    )  # fmt: skip


def _ours(store: palaver.Store, count: int) -> Callable[[int], Ready]:
    def prepare(_number: int) -> Ready:
        history = store.create([user("hello")])
        messages = [user(BODY) for _ in range(count)]
        for _ in range(5):
            history.append(user(BODY))  # the statement is prepared, the pool has a connection

        def go() -> None:
            for message in messages:
                history.append(message)

        return go

    return prepare


def _bare(line: psycopg.Connection[Any], count: int) -> Callable[[int], Ready]:
    places = itertools.count()

    def insert(name: str, body: str) -> None:
        line.execute(INSERT, (name, next(places), body), prepare=True)

    def prepare(number: int) -> Ready:
        bodies = [dump(user(BODY)).decode() for _ in range(count)]
        for _ in range(5):
            insert(f"talk{number}", bodies[0])

        def go() -> None:
            for body in bodies:
                insert(f"talk{number}", body)

        return go

    return prepare


def _crowded(server: Server, count: int, name: str, goal: AtMost, note: str) -> Row:
    """Eight processes, each with a conversation of its own; the time of one append in all."""
    found: list[tuple[float, float]] = []
    with server.database() as address:
        palaver.open(address).close()
        with psycopg.connect(address, autocommit=True) as line:
            line.execute(TABLE)
        for _ in range(3):
            took = [
                1e6 / together(address, job, _CROWD, count=count).rate
                for job in (append_own, insert_own)
            ]
            found.append((took[0], took[1]))
    ours, bare = middle(found)
    return against_floor(
        f"durable append, PostgreSQL, {_CROWD} processes, {name}", ours, bare, n=_CROWD * count,
        unit="µs", goal=goal, note=f"{note}; {_CROWD} processes on {_CROWD} conversations",
    )  # fmt: skip
