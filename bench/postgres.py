"""The PostgreSQL store beside a bare INSERT, with the server's fsync on and off, and its peers.

With fsync on, an append is mostly the wait for the disk. With fsync off, what is left is the server
and the program. Where many append to one conversation, the floor has the same queue: the lock of a
row. Peers take the same turn without state: open by id, read the last 20 messages, append one; how
often each of them waits for the server is counted between the two. The server is a child of this
run, out of the same wheel as the tests', and reached over its socket; `synchronous_commit` is on
for all. The clock is the one on the wall, since most of the work is done in the server's processes.
A single process shares one core with the server. On two, each waits for the other core to wake up,
which takes longer on a virtual machine than the work, and which pair is put on one core is chance.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

import palaver
from bench.crowd import (
    BODY,
    INSERT,
    MANY,
    append_any,
    append_own,
    append_share,
    append_to_one,
    insert_own,
    insert_to_one,
    together,
)
from bench.harness import (
    AtLeast,
    AtMost,
    Row,
    Run,
    against_floor,
    against_peer,
    fsync_time,
    middle,
    on_one_core,
    paired,
)
from bench.turns import for_agents, for_langchain, for_palaver, turns
from palaver.messages import dump, user
from tests.stores.postgres_server import serving
from tests.stores.proxy import Proxy

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
_HEAD: Final = """
CREATE TABLE IF NOT EXISTS bare_head (conversation text COLLATE "C" PRIMARY KEY, length integer)
"""
_CROWD: Final = 8
_QUEUE: Final = 16
_SAID: Final = 200  # messages of a conversation that turns are taken in
_LAST: Final = 20


def rows(run: Run) -> Iterator[Row]:
    """One process, then eight, with a server that syncs and with one that does not; then peers."""
    for fsync, goal in (("on", AtMost(1.5)), ("off", AtMost(3))):
        settings = {"fsync": fsync, "shared_buffers": "256MB", "max_wal_size": "4GB"}
        note = f"floor: a bare INSERT, psycopg, prepared; synchronous_commit=on, fsync={fsync}"
        with on_one_core(), serving(**settings) as server:
            if fsync == "on":
                note += f"; fsync takes {fsync_time(server.folder):.0f} µs"
            yield _alone(server, run.rounds(300), f"fsync {fsync}", goal, f"{note}; one core")
        with serving(**settings) as server:
            yield _crowded(server, run.rounds(300), f"fsync {fsync}", goal, note)
            if fsync == "on":
                yield from _one_queue(server, run.rounds(100))
                yield _anywhere(server, run.rounds(200))
                yield from _turns(server, run.rounds(60))


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
        for _ in range(7):  # each takes less than a second
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


def _one_queue(server: Server, count: int) -> Iterator[Row]:
    """Sixteen processes that append to one conversation; the time of one append in all."""
    found: list[tuple[float, float]] = []
    tails: list[tuple[float, float]] = []
    other = 0.0
    with server.database() as address:
        _fill(address)
        with psycopg.connect(address, autocommit=True) as line:
            line.execute(TABLE)
            line.execute(_HEAD)
            line.execute("INSERT INTO bare_head VALUES (%s, 0)", (MANY[0],))
        for _ in range(3):
            ours, bare = (
                together(address, job, _QUEUE, count=count)
                for job in (append_to_one, insert_to_one)
            )
            found.append((1e6 / ours.rate, 1e6 / bare.rate))
            tails.append((ours.percentile(99), ours.percentile(50)))
            other = bare.percentile(99) / bare.percentile(50)
    name = f"append to one conversation, PostgreSQL, {_QUEUE} processes"
    palaver_time, bare_time = middle(found)
    yield against_floor(
        name, palaver_time, bare_time, n=_QUEUE * count, unit="µs", goal=AtMost(2),
        note="floor: the lock of a row and an INSERT in one statement; fsync=on",
    )  # fmt: skip
    last, half = middle(tails)
    yield against_floor(
        f"{name}: p99 beside p50", last, half, n=_QUEUE * count, goal=AtMost(5),
        note=f"palaver's own p50; that of the bare loop: p99 is {other:.1f} times p50",
    )  # fmt: skip


def _fill(address: str) -> None:
    with palaver.open(address) as store:
        for name in MANY:
            store.create([user("hello")], id=name)


def _anywhere(server: Server, count: int) -> Row:
    """Eight processes that append to any conversation, or each to a share of its own."""
    with server.database() as address:
        _fill(address)
        found = [
            tuple(
                1e6 / together(address, job, _CROWD, count=count).rate
                for job in (append_any, append_share)
            )
            for _ in range(3)
        ]
    anywhere, own = middle([(one, other) for one, other in found])
    return against_floor(
        f"append to any of {len(MANY)} conversations, PostgreSQL, {_CROWD} processes",
        anywhere, own, n=_CROWD * count, unit="µs", goal=AtMost(1 / 0.7),
        note="floor: palaver too, each process to conversations of its own; fsync=on",
    )  # fmt: skip


# ── a turn without state ────────────────────────────────────────────────────────────────────────


def _turns(server: Server, count: int) -> Iterator[Row]:
    peers = {
        "LangGraph's PostgresSaver": _with_saver,
        "OpenAI Agents' SQLAlchemySession": _with_session,
    }
    with server.database() as address, ExitStack() as stack:
        name = address.partition("@/")[2].partition("?")[0]
        mine = _with_palaver(address, stack)
        trips = _trips(server, name, partial(_with_palaver, wake=False))
        for peer, connect in peers.items():
            turn = connect(address, stack)
            note = f"round trips: {trips}, and {_trips(server, name, connect)} of the peer"
            ours, theirs = paired(9, _repeated(mine, count), _repeated(turn, count))
            yield against_peer(
                f"a turn without state, PostgreSQL: {peer}", ours / count * 1e3,
                theirs / count * 1e3, n=count, unit="µs", goal=AtLeast(5),
                note=f"open by id, read the last {_LAST} of {_SAID}, append; fsync=on; {note}",
            )  # fmt: skip


def _repeated(turn: Ready, count: int) -> Callable[[int], Ready]:
    def go() -> None:
        for _ in range(count):
            turn()

    def prepare(_number: int) -> Ready:
        for _ in range(8):
            turn()  # its connections are warm, its statements prepared
        return go

    return prepare


def _trips(server: Server, name: str, connect: Callable[[str, ExitStack], Ready]) -> int:
    """How often a turn waits for the server."""
    with (
        tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder,
        Proxy(Path(folder), server.folder) as proxy,
        ExitStack() as stack,
    ):
        turn = connect(server.address(name, Path(folder)), stack)
        _repeated(turn, 0)(0)
        before = proxy.trips
        turn()
        return proxy.trips - before


def _with_palaver(address: str, stack: ExitStack, *, wake: bool = True) -> Ready:
    store = stack.enter_context(palaver.open(address))
    if not wake:  # followers are woken behind a turn, on a connection of its own
        backend: Any = store.backend
        backend._notifier.close()  # noqa: SLF001
    if "turns" not in store:
        store.create(for_palaver(turns(_SAID)), id="turns")

    def turn() -> None:
        history = store.get("turns", last=_LAST)
        assert len(history[-_LAST:]) == _LAST
        history.append(user(BODY))

    return turn


def _with_saver(address: str, stack: ExitStack) -> Ready:
    """The least that its users do, without a graph around it: read, and store what is longer."""
    module: Any = importlib.import_module("langgraph.checkpoint.postgres")
    base: Any = importlib.import_module("langgraph.checkpoint.base")
    messages: Any = importlib.import_module("langchain_core.messages")
    saver = stack.enter_context(module.PostgresSaver.from_conn_string(address))
    saver.setup()
    thread = {"configurable": {"thread_id": "turns", "checkpoint_ns": ""}}

    def store(said: list[Any], found: Any) -> None:  # noqa: ANN401 - LangGraph's own
        version = saver.get_next_version(
            None if found is None else found.checkpoint["channel_versions"]["messages"], None
        )
        checkpoint = base.empty_checkpoint() | {
            "channel_values": {"messages": said}, "channel_versions": {"messages": version},
        }  # fmt: skip
        config = thread if found is None else found.config
        saver.put(config, checkpoint, {"source": "loop", "step": 1}, {"messages": version})

    if saver.get_tuple(thread) is None:
        store(for_langchain(turns(_SAID)), None)

    def turn() -> None:
        found = saver.get_tuple(thread)
        said = found.checkpoint["channel_values"]["messages"]
        assert len(said[-_LAST:]) == _LAST
        store([*said, messages.HumanMessage(BODY)], found)

    return turn


def _with_session(address: str, stack: ExitStack) -> Ready:
    memory: Any = importlib.import_module("agents.extensions.memory")
    alchemy: Any = importlib.import_module("sqlalchemy.ext.asyncio")
    runner = stack.enter_context(asyncio.Runner())
    engine = alchemy.create_async_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    stack.callback(lambda: runner.run(engine.dispose()))
    items = [item for batch in for_agents(turns(_SAID)) for item in batch]

    async def fill() -> None:
        session = memory.SQLAlchemySession("turns", engine=engine, create_tables=True)
        if not await session.get_items(1):
            await session.add_items(items)

    async def turn() -> None:
        session = memory.SQLAlchemySession("turns", engine=engine)
        assert len(await session.get_items(_LAST)) == _LAST
        await session.add_items([{"role": "user", "content": BODY}])

    runner.run(fill())
    return lambda: runner.run(turn())
