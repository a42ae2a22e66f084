"""Serving in this very process: the signals, the end, and streams asked for in a wrong way."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import palaver
from palaver.server import Settings, make_app
from palaver.server import run as module
from palaver.server.routes.server import events
from palaver.server.run import bind, serve
from palaver.server.services import Service
from tests.patience import within
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.server.app import App


@pytest.fixture
def made() -> Generator[App]:
    with palaver.open(":memory:") as store:
        yield make_app(store, Settings(token=TOKEN))


def test_a_signal_ends_it_and_handlers_are_as_before(made: App) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with bind("127.0.0.1", 0) as listening, within(60):
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        answers: list[int] = []

        def ask_and_stop() -> None:
            answers.append(httpx.get(f"{address}/api/health", timeout=60).status_code)
            os.kill(os.getpid(), signal.SIGTERM)

        asking = threading.Thread(target=ask_and_stop)
        asking.start()
        serve(made, listening)
        asking.join()
    assert [200] == answers
    assert before == signal.getsignal(signal.SIGTERM)


def test_it_can_serve_in_a_thread_too(made: App, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[Any] = []
    real = module._Server

    def noted(*args: Any) -> Any:  # noqa: ANN401 - the server's
        servers.append(real(*args))
        return servers[-1]

    monkeypatch.setattr("palaver.server.run._Server", noted)
    with bind("127.0.0.1", 0) as listening, within(60):
        serving = threading.Thread(target=serve, args=(made, listening))
        serving.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert 200 == httpx.get(f"{address}/api/health", timeout=60).status_code
        servers[0].should_exit = True
        serving.join(30)
        assert not serving.is_alive()


def test_a_service_can_be_stopped_twice() -> None:
    async def work() -> None:
        with palaver.open(":memory:") as store:
            service = Service(store, Settings(token=TOKEN))
            await service.start()
            await service.stop()
            await service.stop()

    asyncio.run(work())


def test_events_are_asked_for_by_id() -> None:
    async def work() -> bytes:
        with palaver.open(":memory:") as store:
            store.create([palaver.user("a")], id="x")
            service = Service(store, Settings(token=TOKEN))
            await service.start()
            handler: Any = events.fn
            stream = await handler(service=service, conversation="x", after="0", last_event_id=None)
            async with aclosing(stream.iterator) as chunks:
                said = b"".join([await anext(chunks), await anext(chunks)])
            await service.stop()
            return said

    assert b"event: message.added" in asyncio.run(work())


def test_wrong_events_are_refused() -> None:
    app = make_app(palaver.open(":memory:"), Settings(token=TOKEN, streams=0))
    with APIClient(app, base_url=ADDRESS) as ask:
        ask.headers["authorization"] = f"Bearer {TOKEN}"
        assert 422 == ask.refused("GET", "events?after=x")["status"]
        assert 422 == ask.refused("GET", "events", headers={"last-event-id": "-"})["status"]
        assert 429 == ask.refused("GET", "events")["status"]
        assert 400 == ask.refused("GET", "events?after=" + "1" * 50)["status"]


def test_a_thread_that_waits_holds_up_no_end() -> None:
    begun = time.monotonic()
    with APIClient(make_app(palaver.open(":memory:"), Settings(token=TOKEN)), base_url=ADDRESS):
        pass
    assert time.monotonic() - begun < 20
