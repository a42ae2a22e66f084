"""The server under load, beside a litestar application that does nothing at all.

Both are served by uvicorn in a process of their own and asked by the same program over the same
number of connections: by `wrk` where it is installed, else by a small client of this file (the note
says which). The floor is a bare handler: no gate, no token, no thread, no store. A read is of the
last fifty messages of a conversation of a thousand; an append is on disk when it is answered.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.harness import AtMost, Row, Run, against_floor
from palaver.messages import user
from palaver.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["rows"]

_TOKEN: Final = "a-token-for-the-benchmark"  # noqa: S105 - of no use elsewhere
_MESSAGES: Final = 1_000
_LINES: Final = 16
_BODY: Final = json.dumps({"messages": [{"role": "user", "content": "What about tea? " * 8}]})
_WRK: Final = shutil.which("wrk")
_MILLI: Final = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "m": 60_000.0}
_OURS: Final = """
import sys, palaver
from palaver.server import Settings, make_app
from palaver.server.run import bind, serve
listening = bind("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
settings = Settings(token=sys.argv[2], rate=0)
serve(make_app(palaver.open(sys.argv[1]), settings), listening)
"""
_BARE: Final = """
import uvicorn
from litestar import Litestar, Request, get, post
from palaver.server.run import bind  # made so that asyncio sends at once
@get("/")
async def nothing() -> None:
    return None
@post("/", status_code=200)
async def taken(request: Request) -> None:
    await request.body()
listening = bind("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
app = Litestar([nothing, taken], openapi_config=None, logging_config=None)
config = uvicorn.Config(app, log_level="warning", access_log=False)
uvicorn.Server(config).run([listening])
"""


class _Load(NamedTuple):
    """What came of asking: requests a second, and what one in a hundred waits longer than."""

    a_second: float
    p99: float


class _Ask(NamedTuple):
    """What is asked, and where."""

    port: int
    path: str
    body: str = ""


def rows(run: Run) -> Iterator[Row]:
    """Reads, then appends: how many a second, and how long the slowest wait."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bench.db"
        with open_store(place) as store:
            store.create([user(f"message {n} " * 20) for n in range(_MESSAGES)], id="read")
            store.create(id="write")
        with _server(_OURS, str(place), _TOKEN) as ours, _server(_BARE) as bare:
            reading = "/api/conversations/read/messages"
            writing = "/api/conversations/write/messages"
            yield from _both(run, "last 50 messages", _Ask(ours, reading), _Ask(bare, "/"), 4)
            head = _Ask(ours, "/api/conversations/read")
            yield from _both(run, "head of a conversation", head, _Ask(bare, "/"), 4)
            append = _Ask(ours, writing, _BODY)
            yield from _both(run, "append, kept on disk", append, _Ask(bare, "/", _BODY), 8)
        with open_store(place) as store:
            kept = store.get("write")
            assert len(kept) == kept.version > 0


def _both(run: Run, what: str, ours: _Ask, bare: _Ask, most: float) -> Iterator[Row]:
    """One load after the other, in turn; of each the best."""
    found: dict[int, list[_Load]] = {ours.port: [], bare.port: []}
    seconds, rounds = (0.5, 1) if run.quick else (2.0, 5)
    for _ in range(rounds):
        for ask in (bare, ours):
            found[ask.port].append(_loaded(ask, seconds))
    best = {port: max(load.a_second for load in loads) for port, loads in found.items()}
    slow = {port: min(load.p99 for load in loads) for port, loads in found.items()}
    asked = round(best[ours.port] * seconds * rounds)
    how = (
        f"{'wrk' if _WRK else 'a client in Python'}, {_LINES} connections; floor: an empty handler"
    )
    yield against_floor(
        f"server: {what}", 1_000 / best[ours.port], 1_000 / best[bare.port],
        n=asked, goal=AtMost(most),
        note=f"{best[ours.port]:,.0f} a second beside {best[bare.port]:,.0f}; {how}",
    )  # fmt: skip
    yield against_floor(
        f"server: {what}, p99", slow[ours.port], slow[bare.port],
        n=asked, goal=AtMost(most), note=how,
    )  # fmt: skip


@contextmanager
def _server(program: str, *arguments: str) -> Generator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            asyncio.run(_asked(_Ask(port, "/"), 0.2))
            yield port
        finally:
            process.terminate()


def _loaded(ask: _Ask, seconds: float) -> _Load:
    return _with_wrk(ask, seconds) if _WRK else asyncio.run(_asked(ask, seconds))


def _with_wrk(ask: _Ask, seconds: float) -> _Load:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if ask.body:
            script.write(f'wrk.method = "POST"\nwrk.body = {json.dumps(ask.body)}\n')
        script.write(f'wrk.headers["Authorization"] = "Bearer {_TOKEN}"\n')
        script.flush()
        command = [
            str(_WRK), "-t1", f"-c{_LINES}", f"-d{max(round(seconds), 1)}s", "--latency",
            "-s", script.name, f"http://127.0.0.1:{ask.port}{ask.path}",
        ]  # fmt: skip
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - wrk
    assert "Non-2xx" not in said, said
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s|m)\b", said)
    assert rate is not None, said
    assert slow is not None, said
    return _Load(float(rate[1]), float(slow[1]) * _MILLI[slow[2]])


async def _asked(ask: _Ask, seconds: float) -> _Load:
    """The same without wrk: so many connections, each asking again as soon as it is answered."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    request = (
        f"{'POST' if ask.body else 'GET'} {ask.path} HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\n"
        f"Authorization: Bearer {_TOKEN}\r\nContent-Length: {len(ask.body)}\r\n\r\n{ask.body}"
    ).encode()

    async def line() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            times.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(line() for _ in range(_LINES)))
    times.sort()
    return _Load(len(times) / seconds, times[int(len(times) * 0.99)] * 1_000)
