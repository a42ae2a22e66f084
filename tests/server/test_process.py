"""A server in its own process: it stops well, loses nothing when killed, and tells all its events.

Everything here is one process talking to another over a socket, as it is in use.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

import palaver
from tests.cluster.free_ports import free_ports
from tests.patience import within
from tests.server.process import LiveEvent, ServerProcess, read_events, run_process

if TYPE_CHECKING:
    from pathlib import Path

FOLLOWERS = 200


def said(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_well(tmp_path: Path, number: int) -> None:
    with run_process(tmp_path, str(tmp_path / "s.db")) as server:
        server.good("POST", "conversations", {"id": "x"})
        assert 0 == server.ended(number)


def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    with run_process(tmp_path, str(tmp_path / "s.db")) as server, within(60):
        server.good("POST", "conversations", {"id": "x"})
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            body = b'{"messages": [{"role": "user", "content": "late"}]}'
            line.sendall(
                b"POST /api/conversations/x/messages HTTP/1.1\r\n"
                b"Host: 127.0.0.1:%d\r\nAuthorization: %s\r\nContent-Length: %d\r\n"
                b"Expect: 100-continue\r\n\r\n"
                % (server.port, server.client.headers["authorization"].encode(), len(body))
            )
            assert b"HTTP/1.1 100 Continue\r\n\r\n" == line.recv(65_536)  # it is under way
            line.sendall(body[:9])
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            line.sendall(body[9:])
            assert line.recv(65_536).startswith(b"HTTP/1.1 201")
        assert 0 == server.process.wait(60)
    with palaver.open(tmp_path / "s.db") as store:
        assert ["late"] == [message.text for message in store.get("x")]


def test_killed_it_has_lost_nothing(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    with run_process(tmp_path, store) as server:
        server.good("POST", "conversations", {"id": "x"})
        for number in range(20):
            server.good("POST", "conversations/x/messages", said(str(number)))
        server.ended(signal.SIGKILL)
    with run_process(tmp_path, store) as server:
        found = server.good("GET", "conversations/x/messages")["items"]
        assert list(map(str, range(20))) == [item["message"]["content"] for item in found]
        assert [] == server.good("GET", "conversations/x/verify")["problems"]


async def follow(address: str, after: str | None, until: int) -> list[LiveEvent]:
    """Events with an id, until so many have come or the stream ends."""
    found: list[LiveEvent] = []
    async with aclosing(read_events(address, after)) as stream:
        async for event in stream:
            if event.id is not None:
                found.append(event)
                if len(found) == until:
                    break
    return found


async def crowd(
    server: ServerProcess, after: list[str | None], texts: list[str]
) -> list[list[LiveEvent]]:
    """A crowd of followers while something is said; each hears until all of it was told."""
    loop = asyncio.get_running_loop()
    waiting = [asyncio.create_task(follow(server.address, last, len(texts))) for last in after]
    if not any(after):
        while "palaver_streams 200" not in server.client.get("/api/metrics").text:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    for text in texts:
        await loop.run_in_executor(
            None, server.good, "POST", "conversations/x/messages", said(text)
        )
    return await asyncio.gather(*waiting)


def test_two_hundred_followers_hear_everything_once_across_a_restart(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    with within(120):
        port = free_ports(1)  # one that is given to nobody while the server is away
        with run_process(tmp_path, store, port=port) as server:
            server.good("POST", "conversations", {"id": "x"})
            before = asyncio.run(crowd(server, [None] * FOLLOWERS, ["1", "2", "3"]))
            assert 0 == server.ended(signal.SIGTERM)
        with palaver.open(store) as between:  # said while no server was there
            between.get("x").append(palaver.user("4"))
        with run_process(tmp_path, store, port=port) as server:
            places = [one[-1].id for one in before]
            after = asyncio.run(crowd(server, places, ["5", "6"]))
            expected = server.good("GET", "conversations/x/messages")["items"]
    ids = [item["message"]["id"] for item in expected]
    assert FOLLOWERS == len(after)
    # the second crowd waits for two events, and hears first what was said in between
    for first, second in zip(before, after, strict=True):
        told = [*first, *second]
        assert [event.data["id"] for event in told] == ids[: len(told)]
        assert len({event.id for event in told}) == len(told) == 5


def test_a_stream_ends_when_the_server_stops(tmp_path: Path) -> None:
    async def hear_out() -> tuple[list[LiveEvent], int]:
        found: list[LiveEvent] = []
        status = -1
        async with aclosing(read_events(server.address, "0")) as stream:
            async for event in stream:
                if event.id is not None:
                    found.append(event)
                    status = await asyncio.to_thread(server.ended, signal.SIGTERM)
        return found, status

    with run_process(tmp_path, str(tmp_path / "s.db")) as server, within(60):
        server.good("POST", "conversations", {"id": "x", **said("a")})
        events, status = asyncio.run(hear_out())
    assert ([("message.added", "x")], 0) == (
        [(event.name, event.data["conversation"]) for event in events],
        status,
    )


def test_a_client_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    async def two() -> list[LiveEvent]:
        host, port = "127.0.0.1", server.port
        _, idle = await asyncio.open_connection(host, port)
        token = server.client.headers["authorization"]
        idle.write(
            f"GET /api/events?after=0 HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: {token}\r\n\r\n".encode()
        )
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(follow(server.address, "0", 300))
        for _ in range(3):
            many = {"messages": [{"role": "user", "content": "x" * 500}] * 100}
            await loop.run_in_executor(None, server.good, "POST", "conversations/x/messages", many)
        found = await asyncio.wait_for(task, 60)
        idle.close()
        return found

    with run_process(tmp_path, str(tmp_path / "s.db")) as server, within(60):
        server.good("POST", "conversations", {"id": "x"})
        found = asyncio.run(two())
        assert 300 == len({event.data["id"] for event in found})
        assert 0 == server.ended(signal.SIGTERM)


def test_two_servers_on_one_database_tell_each_others_changes(
    tmp_path: Path, postgres: str
) -> None:
    async def elsewhere() -> LiveEvent:
        query = f"?conversation=x&after={there.good('GET', 'info')['cursor']}"
        async with aclosing(read_events(there.address, query=query)) as stream:
            operation = {"operation": {"operation": "TRUNCATE", "keepLast": 1}}
            await asyncio.to_thread(here.good, "POST", "conversations/x/operations", operation)
            return await anext(e async for e in stream if e.name == "history.edited")

    with (
        within(90),
        run_process(tmp_path, postgres) as here,
        run_process(tmp_path, postgres) as there,
    ):
        both = {"messages": [{"role": "user", "content": text} for text in "ab"]}
        here.good("POST", "conversations", {"id": "x", **both})
        event = asyncio.run(asyncio.wait_for(elsewhere(), 60))
        found = there.good("GET", "conversations/x/messages")["items"]
    assert "TRUNCATE" == event.data["operation"]
    assert ["b"] == [item["message"]["content"] for item in found]
