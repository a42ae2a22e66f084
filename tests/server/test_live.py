"""Live events inside one process: their places, the short memory, and the store behind it."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import StoreError, ValidationError
from palaver.server import live as module
from palaver.server.errors import RequestRefused
from palaver.server.live import Live, read_event_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.server.live import EventPosition
    from palaver.stores import Store


@asynccontextmanager
async def following(store: Store, **settings: Any) -> AsyncGenerator[Live]:  # noqa: ANN401 - JSON, or whatever is asked for
    live = Live(store, **settings)
    await live.start()
    try:
        yield live
    finally:
        await live.stop()


async def told(
    live: Live, count: int, *, conversation: str | None = None, after: EventPosition | None = None
) -> list[tuple[str | None, str, dict[str, Any]]]:
    """So many events with an id, as they come."""
    found: list[tuple[str | None, str, dict[str, Any]]] = []
    async with aclosing(live.stream(conversation, after)) as stream:
        async for chunk in stream:
            for block in chunk.decode().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
                if "data" in fields and "id" in fields:
                    found.append((fields["id"], fields["event"], json.loads(fields["data"])))
            if len(found) >= count:
                return found
    return found


def run(work: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    return asyncio.run(asyncio.wait_for(work, 120))


def test_events_are_told_as_they_happen() -> None:
    async def work() -> list[Any]:
        store = palaver.open(":memory:")
        async with following(store) as live:
            hearing = asyncio.create_task(told(live, 3))
            await asyncio.sleep(0.1)
            history = store.create([palaver.user("a"), palaver.user("b")], id="x")
            history.truncate(keep_last=1)
            return await hearing

    events = run(work())
    assert ["message.added", "message.added", "history.edited"] == [name for _, name, _ in events]
    assert {"conversation": "x", "version": 1, "operation": "TRUNCATE"}.items() <= events[2][
        2
    ].items()
    first, second, third = (read_event_id(str(one)) for one, _, _ in events)
    assert first < second < third
    assert first[1] == 1  # the first of two in one change
    assert second[1] == third[1] == 0


@pytest.mark.parametrize("kept", [10_000, 2])
def test_whoever_comes_back_misses_nothing(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the memory, or, where it is too short, from the store."""
    monkeypatch.setattr(module, "_BUFFERED", kept)

    async def work() -> None:
        store = palaver.open(":memory:")
        history = store.create(id="x")
        async with following(store) as live:
            for number in range(20):
                history.extend([palaver.user(f"{number}a"), palaver.user(f"{number}b")])
            store.create([palaver.user("other")], id="y")
            history.append(palaver.user("last"))
            whole = await told(live, 42, after=(0, 0))
            ids = [str(one) for one, _, _ in whole]
            assert 42 == len(set(ids))
            for place in (0, 1, 7, 20, 39, 40):
                rest = await told(live, 41 - place, after=read_event_id(ids[place]))
                assert whole[place + 1 :] == rest
            alone = await told(live, 1, conversation="y", after=(0, 0))
            assert ["y"] == [data["conversation"] for _, _, data in alone]

    run(work())


def test_an_id_beyond_the_newest_goes_on_from_the_newest() -> None:
    """The client heard of a store that has been replaced since, such as by a backup."""

    async def work() -> None:
        store = palaver.open(":memory:")
        history = store.create([palaver.user("one")], id="x")
        async with following(store) as live:
            hearing = asyncio.create_task(told(live, 1, after=(10**12, 3)))
            await asyncio.sleep(0.1)
            history.append(palaver.user("two"))
            ((place, name, _),) = await hearing
            assert "message.added" == name
            assert (10**12, 3) > read_event_id(str(place))

    run(work())


@pytest.mark.parametrize("after", [(0, 0), (1, 1)])
def test_a_client_ahead_of_the_memory_is_told_nothing_twice(
    after: EventPosition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store tells it what happened before the thread that follows has seen it."""

    async def work() -> None:
        store = palaver.open(":memory:")
        history = store.create(id="x")
        live = Live(store)
        follow = live._follow
        monkeypatch.setattr(live, "_follow", str)  # it sees nothing yet
        await live.start()
        try:
            history.extend([palaver.user("a"), palaver.user("b")])
            hearing = asyncio.create_task(told(live, 3 - after[1], after=after))
            await asyncio.sleep(0.1)  # it has looked into the memory, and waits for more
            threading.Thread(target=follow, args=(1,), daemon=True).start()
            await asyncio.sleep(0.3)
            history.append(palaver.user("c"))
            assert ["1.1", "2", "3"][after[1] :] == [place for place, _, _ in await hearing]
        finally:
            await live.stop()

    run(work())


def test_clients_that_come_at_once_are_counted_before_their_streams_begin() -> None:
    async def work() -> None:
        async with following(palaver.open(":memory:"), streams=5) as live:
            for _ in range(5):
                live.reserve_stream()
            with pytest.raises(RequestRefused, match="too many live streams"):
                live.reserve_stream()

    run(work())


def test_a_new_server_tells_the_same_ids() -> None:
    async def work() -> None:
        store = palaver.open(":memory:")
        history = store.create(id="x")
        async with following(store) as live:
            hearing = asyncio.create_task(told(live, 4))
            await asyncio.sleep(0.1)
            history.extend([palaver.user("a"), palaver.user("b")])
            history.fork(id="y")  # a change that is told as nothing
            history.extend([palaver.user("c"), palaver.user("d")])
            before = await hearing
        async with following(store) as live:
            assert before[1:] == await told(live, 3, after=read_event_id(str(before[0][0])))
            assert before[3:] == await told(live, 1, after=read_event_id(str(before[2][0])))

    run(work())


def test_what_is_only_true_for_a_moment_has_no_id() -> None:
    async def work() -> list[bytes]:
        store = palaver.open(":memory:")
        async with following(store) as live, aclosing(live.stream("x")) as stream:
            found = [await anext(stream)]
            live.emit("step.delta", {"conversation": "y", "text": "for others"})
            live.emit("step.delta", {"conversation": "x", "text": "hi"})
            found.append(await anext(stream))
            return found

    first, second = run(work())
    assert b"retry: 500\nid: 0\n\n" == first
    assert b'event: step.delta\ndata: {"conversation":"x","text":"hi"}\n\n' == second


def test_lists_are_told_what_changed() -> None:
    async def work() -> bytes:
        store = palaver.open(":memory:")
        async with following(store) as live, aclosing(live.stream()) as stream:
            await anext(stream)
            store.create(id="x", title="Tea")
            told = await anext(stream)
            store.delete("x")
            live.emit_changed("x")
            return told + await anext(stream)

    said = run(work())
    assert b'event: conversation.changed\ndata: {"id":"x","conversation":"x","version":0' in said
    assert b'event: conversation.deleted\ndata: {"id":"x"' in said


def test_a_quiet_stream_has_a_heartbeat_with_the_place() -> None:
    async def work() -> bytes:
        store = palaver.open(":memory:")
        store.create([palaver.user("a")])
        async with (
            following(store, heartbeat=0.05) as live,
            aclosing(live.stream("nobody")) as stream,
        ):
            await anext(stream)
            return await anext(stream)

    assert run(work()).startswith(b":\nid: ")


def test_a_call_that_runs_is_told_without_an_id() -> None:
    """What the ledger shows is seen and not journaled, so it has no place in the journal."""

    async def work() -> tuple[list[str], bytes]:
        store = palaver.open(":memory:")
        call = {"type": "tool_use", "tool_use": {"id": "c1", "name": "clock", "input": {}}}
        result = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "noon"}}
        said = [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
        async with following(store) as live:
            hearing = asyncio.create_task(told(live, 4))
            async with aclosing(live.stream()) as stream:
                await anext(stream)
                store.create(said, id="x")
                raw = await anext(stream)
            return [name for _, name, _ in await hearing], raw

    names, raw = run(work())
    assert ["message.added", "tool.pending", "tool.completed", "message.added"] == names
    running = next(block for block in raw.split(b"\n\n") if b"tool.running" in block)
    assert b"id: " not in running


def test_a_store_that_is_away_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_REST", 0.01)

    async def work() -> list[Any]:
        store = palaver.open(":memory:")
        history = store.create(id="x")
        real, failed = store.backend.journal, 0

        def journal(*args: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
            nonlocal failed
            failed += 1
            if failed < 4:
                msg = "the database is away"
                raise StoreError(msg)
            return real(*args)

        async with following(store) as live:
            monkeypatch.setattr(store.backend, "journal", journal)
            history.append(palaver.user("a"))
            return await told(live, 1, after=read_event_id(live.last))

    assert ["message.added"] == [name for _, name, _ in run(work())]
    assert "the database is away" in caplog.text


def test_there_is_room_for_so_many_and_no_more() -> None:
    async def work() -> None:
        async with following(palaver.open(":memory:"), streams=1) as live:
            live.reserve_stream()
            async with aclosing(live.stream()) as stream:
                await anext(stream)
                with pytest.raises(RequestRefused, match="too many live streams"):
                    live.reserve_stream()
            assert 0 == live.streams
            live.reserve_stream()

    run(work())


@pytest.mark.parametrize("text", ["", "x", "1.", ".1", "-1", "1.2.3", "9" * 40, "\u0663"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be the id of an event"):
        read_event_id(text)
