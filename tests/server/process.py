"""A server in a process of its own, as `palaver serve` runs it, and a client of its live events."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from palaver.server import Settings, make_app, run, serve
from palaver.server.run import bind
from tests.server.client import TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from palaver.stores import Store

__all__ = ["LiveEvent", "ServerProcess", "read_events", "run_in_thread", "run_process"]

BEARER = {"authorization": f"Bearer {TOKEN}"}


class ServerProcess:
    """A server that was started, and can be asked, stopped and killed."""

    def __init__(self, folder: Path, store: str, *options: str, port: int = 0) -> None:
        token = folder / "token"
        if not token.exists():
            token.touch(0o600)
            token.write_text(TOKEN)
        command = [sys.executable, "-c", "from palaver.cli import main; raise SystemExit(main())",
                   "serve", "--json", "--cold", "--port", str(port), "--token-file", str(token),
                   "--store", store, *options]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.said: dict[str, Any] = json.loads(line)
        self.address: str = self.said["address"]
        self.port = int(self.address.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.address, headers=BEARER, timeout=60)

    def good(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
        answer = self.client.request(method, f"/api/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def wait_until_up(self) -> None:
        """Wait until it answers: its socket listens before it does."""
        assert self.client.get("/api/health").status_code == 200

    def ended(self, number: int, patience: float = 60) -> int:
        """Send a signal; answer the exit status."""
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(patience)


@contextmanager
def run_process(folder: Path, store: str, *options: str, port: int = 0) -> Generator[ServerProcess]:
    """A server for as long as the block lasts."""
    running = ServerProcess(folder, store, *options, port=port)
    try:
        running.wait_until_up()
        yield running
    finally:
        running.client.close()
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


@contextmanager
def run_in_thread(store: Store, **limits: Any) -> Generator[int]:  # noqa: ANN401 - Settings' own
    """The port of a server in a thread of this process, for as long as the block lasts."""
    app = make_app(store, Settings(token=TOKEN, rate=0, **limits))
    servers: list[Any] = []

    class Noted(run._Server):
        def __init__(self, *args: Any) -> None:  # noqa: ANN401 - the server's own
            super().__init__(*args)
            servers.append(self)

    with bind("127.0.0.1", 0) as listening, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_Server", Noted)
        port = int(listening.getsockname()[1])
        thread = threading.Thread(target=serve, args=(app, listening), daemon=True)
        thread.start()
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/api/health", timeout=60).is_success
            yield port
        finally:
            servers[0].should_exit = True
            thread.join(60)
        assert not thread.is_alive()


class LiveEvent(NamedTuple):
    """A live event."""

    id: str | None
    name: str
    data: dict[str, Any]


async def read_events(
    address: str, after: str | None = None, query: str = ""
) -> AsyncGenerator[LiveEvent, None]:
    """Live events, until the stream ends; read by hand, as a client of no great wit would."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    last = f"Last-Event-ID: {after}\r\n" if after else ""
    writer.write(
        f"GET /api/events{query} HTTP/1.1\r\nHost: {host}:{port}\r\n{last}"
        f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        fields: dict[str, str] = {}
        pending = b""
        while True:
            size = int(await reader.readline() or b"0", 16)
            if not size:
                return
            pending += await reader.readexactly(size)
            await reader.readline()
            *lines, pending = pending.split(b"\n")
            for line in lines:
                if line:
                    name, _, value = line.decode().partition(": ")
                    fields[name] = value
                    continue
                if "data" in fields:
                    data = json.loads(fields["data"])
                    yield LiveEvent(fields.get("id"), fields["event"], data)
                fields = {}
    except (ConnectionError, asyncio.IncompleteReadError):
        return
    finally:
        writer.close()
