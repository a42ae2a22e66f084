"""OpenAI's paths of `palaver serve`, beside the bare upstream and beside LiteLLM's proxy.

The upstream is a small server that streams an answer of twenty pieces in OpenAI's Chat format. It
is asked directly, through palaver, which stores what is said, and through LiteLLM, which stores
nothing, by its quickest path. Each is a process of its own, and the client is the same: how long
until the first piece of text, one request after the other and with many streams at once.

LiteLLM's proxy has an environment of its own, since its pins differ from everybody's: give the path
of its command as the variable LITELLM, or have it on PATH. Without it its rows are left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.harness import AtLeast, Row, Run, Within, against_floor, against_peer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["rows"]

_TOKEN: Final = "a-token-for-the-benchmark"  # noqa: S105 - of no use elsewhere
_AT_ONCE: Final = 200
_FIRST: Final = b'elta":'  # Chat: "delta":{"content":…}; Responses: "delta":"…"
_UPSTREAM: Final = """
import asyncio, json, sys
def chunk(delta, **more):
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}
    return b"data: " + json.dumps(body).encode() + b"\\n\\n"
first = chunk({"role": "assistant", "content": "word "})
later = chunk({"content": "word "})
last = chunk({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
usage = {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}
used = chunk({}, choices=[], usage=usage)
def framed(data):
    return f"{len(data):x}\\r\\n".encode() + data + b"\\r\\n"
async def talk(reader, writer):
    while True:
        try:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        length = next((int(line.split(b":")[1]) for line in head.split(b"\\r\\n")
                       if line.lower().startswith(b"content-length")), 0)
        body = await reader.readexactly(length)
        slow = b"slowly" in body
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n"
                     b"Transfer-Encoding: chunked\\r\\n\\r\\n" + framed(first))
        for _ in range(19):
            if slow:
                await asyncio.sleep(0.05)
            writer.write(framed(later))
        writer.write(framed(last) + framed(used) + framed(b"data: [DONE]\\n\\n") + b"0\\r\\n\\r\\n")
async def main():
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_OURS: Final = """
import sys, palaver
from palaver.server import Settings, make_app
from palaver.server.run import bind, serve
listening = bind("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
settings = Settings(token=sys.argv[2], rate=0, requests=500, steps=500)
serve(make_app(palaver.open(sys.argv[1]), settings), listening)
"""


class _Ask(NamedTuple):
    """What is asked, and where."""

    port: int
    path: str
    model: str

    def request(self, text: str) -> bytes:
        """Return the request, whole."""
        said: dict[str, object]
        if self.path.endswith("responses"):
            said = {"input": text}
        else:
            said = {"messages": [{"role": "user", "content": text}]}
        body = json.dumps({"model": self.model, "stream": True, **said})
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {_TOKEN}\r\nContent-Type: application/json\r\n"
            "Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()


class _Times(NamedTuple):
    """Milliseconds until the first text: in the middle, and what one in a hundred exceeds."""

    p50: float
    p99: float


def rows(run: Run) -> Iterator[Row]:
    """One stream after the other, then many at once, through each."""
    with tempfile.TemporaryDirectory() as folder, _server(_UPSTREAM) as upstream:
        address = f"http://127.0.0.1:{upstream}/v1"
        keys = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
        store = str(Path(folder) / "bench.db")
        with _server(_OURS, store, _TOKEN, **keys) as ours, _litellm(folder, address) as theirs:
            bare = _Ask(upstream, "/v1/chat/completions", "gpt-5")
            for path in ("chat/completions", "responses"):
                mine = _Ask(ours, f"/v1/{path}", "openai:gpt-5")
                peer = None if theirs is None else _Ask(theirs, "/v1/chat/completions", "gpt-5")
                yield from _compare(run, path, bare, mine, peer)


def _compare(run: Run, path: str, bare: _Ask, mine: _Ask, peer: _Ask | None) -> Iterator[Row]:
    asked = [ask for ask in (bare, mine, peer) if ask is not None]
    for ask in asked:
        asyncio.run(_one_by_one(ask, 10))
    for how, measure, count in (
        ("one by one", _one_by_one, 20 if run.quick else 300),
        (f"{_AT_ONCE} at once", _at_once, _AT_ONCE),
    ):
        rounds = 1 if run.quick else 3
        found: dict[_Ask, list[_Times]] = {ask: [] for ask in asked}
        for _ in range(rounds):
            for ask in asked:
                found[ask].append(asyncio.run(measure(ask, count)))
        best = {
            ask: _Times(min(t.p50 for t in times), min(t.p99 for t in times))
            for ask, times in found.items()
        }
        for index, name in enumerate(_Times._fields):
            title = f"door: first text of {path}, {how}, {name}"
            goal = Within(1, 5, "ms") if measure is _one_by_one and name == "p50" else None
            yield against_floor(
                title, best[mine][index], best[bare][index], n=count * rounds, unit="ms", goal=goal,
                note="floor: the upstream itself; palaver stores what is said",
            )  # fmt: skip
            if peer is not None:
                yield against_peer(
                    f"{title}, LiteLLM", best[mine][index], best[peer][index], n=count * rounds,
                    unit="ms", goal=AtLeast(1 / 1.5), note="peer: LiteLLM's proxy, storing nothing",
                )  # fmt: skip


async def _one_by_one(ask: _Ask, count: int) -> _Times:
    return _times([await _first_text(ask, "Tea?") for _ in range(count)])


async def _at_once(ask: _Ask, count: int) -> _Times:
    asking = (_first_text(ask, "Tea, slowly?") for _ in range(count))
    return _times(list(await asyncio.gather(*asking)))


def _times(found: list[float]) -> _Times:
    found.sort()
    return _Times(found[len(found) // 2], found[int(len(found) * 0.99)])


async def _first_text(ask: _Ask, text: str) -> float:
    """Ask once, read to the end, and return the milliseconds until the first piece of text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
    begun, took, said = time.perf_counter(), 0.0, b""
    writer.write(
        ask.request(text).replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1)
    )
    while data := await reader.read(65_536):
        said += data
        if not took and _FIRST in said:
            took = (time.perf_counter() - begun) * 1_000
        if said.endswith(b"0\r\n\r\n"):  # the upstream leaves the connection open
            break
    writer.close()
    assert took, said
    assert b" 200 " in said[:20], said
    return took


@contextmanager
def _server(program: str, *arguments: str, **variables: str) -> Generator[int]:
    """Run a server in a process of its own; its port."""
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603 - our own
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def _litellm(folder: str, address: str) -> Generator[int | None]:
    """Run LiteLLM's proxy if there is one; its port."""
    command = os.environ.get("LITELLM") or shutil.which("litellm")
    if command is None:
        yield None
        return
    config = Path(folder) / "litellm.json"  # which is YAML, too
    model = {"model": "openai/gpt-5", "api_base": address, "api_key": "none"}
    settings = {
        "model_list": [{"model_name": "gpt-5", "litellm_params": model}],
        "general_settings": {"master_key": _TOKEN},
    }
    config.write_text(json.dumps(settings))
    port = _free_port()
    arguments = [command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(  # noqa: S603 - the caller's own
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            asyncio.run(_wait_for(port))
            yield port
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    msg = "LiteLLM's proxy does not begin to listen"
    raise RuntimeError(msg)
