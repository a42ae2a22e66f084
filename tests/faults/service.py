"""Many users of the service of `docs/howto/in-fastapi.md`, in two processes, on PostgreSQL.

The page's own code runs under uvicorn. Every user asks some questions, and every request is sent
three times with its key: to both processes at once, and once more when there is an answer. The
provider must be asked once for each question. How long a callback of the event loop computes is
measured by the processor's clock, which counts nothing that others do: none may hold the loop for
long, and none may call the store. A task ticks beside the requests, too: it tells how late it was
by the clock, and how long all threads of the process computed meanwhile. The rest is waiting for a
processor: a third process without any work tells how late its ticks are.

    python -m tests.faults.service ADDRESS URL    one process of the service; its port is printed
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

import palaver
from palaver.stores.postgres import PostgresBackend
from palaver.testing.servers import Answer, Exchange, ProviderServer
from tests.faults.tally import Tally
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["GOAL", "NAME", "run"]

NAME: Final = "every request three times, FastAPI, PostgreSQL"
GOAL: Final = "100 users, the provider asked once for each question, no callback over 50 ms"
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_PAGE: Final = _ROOT / "docs" / "howto" / "in-fastapi.md"
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TICK: Final = 0.002
_SPREAD: Final = 0.03
"""Seconds between the beginnings of two users."""
_MOST_REFUSED: Final = 10_000
_MOST_HELD: Final = 50
"""Milliseconds that a callback may compute."""
_CONFLICT: Final = 409


def run(users: int, questions: int) -> Tally:
    """Let so many users ask so many questions each."""
    tally = Tally(NAME, "questions", GOAL)
    wanted = users * questions
    with ExitStack() as stack:
        server = stack.enter_context(serving())
        address = stack.enter_context(server.database())
        palaver.open(address).close()
        provider = stack.enter_context(ProviderServer("openai-chat", [_answer] * (3 * wanted)))
        services = [stack.enter_context(_service(address, provider.url)) for _ in range(2)]
        idle = stack.enter_context(_service("", ""))
        ports = [service[0] for service in services]
        began = time.monotonic()
        refused = anyio.run(_all_users, ports, users, questions)
        seconds = time.monotonic() - began
        held = [_held(process) for _, process in (*services, idle)]
        asked = len(provider.requests)
        with palaver.open(address) as store:
            lengths = {head.size for head in store}
            problems = [problem for head in store for problem in store.verify(head.id)]
    if asked != wanted:
        tally.fail("asked again", f"{asked} requests for {wanted} questions")
    if lengths != {2 * questions} or problems:
        tally.fail("lost or doubled", f"{lengths} messages in place of {2 * questions}, {problems}")
    if blocking := sum(each.calls for each in held):
        tally.fail("blocked", f"{blocking} calls of the store in an event loop")
    if (longest := max(each.callback for each in held)) > _MOST_HELD:
        tally.fail("held", f"a callback of the event loop computed for {longest:.0f} ms")
    if not tally.failures:
        tally.count(f"asked once ({refused} refused with 409 and tried again)", wanted)
    one, two, control = held
    tally.name += (
        f"; {3 * wanted / seconds:.0f} requests a second; the event loops were held for {one} and "
        f"{two}, that of an idle process for {control}"
    )
    return tally


def _answer(asked: Exchange) -> Answer:
    said = [one["content"] for one in asked.body["messages"] if one["role"] == "user"]
    return Answer(f"You said: {said[-1]}")


# ── users ───────────────────────────────────────────────────────────────────────────────────────


async def _all_users(ports: list[int], users: int, questions: int) -> int:
    """Let all users ask at once; answer how often one was told to try again."""
    refused = 0
    httpx = importlib.import_module("httpx")

    async def user(client: Any, number: int) -> None:  # noqa: ANN401 - of httpx
        await anyio.sleep(_SPREAD * number)  # they don't all begin in the same moment
        for question in range(questions):
            text = f"question {question} of {number}"
            async with anyio.create_task_group() as group:
                for port in ports:
                    group.start_soon(send, client, port, number, text)
            await send(client, ports[question % len(ports)], number, text)

    async def send(client: Any, port: int, number: int, text: str) -> None:  # noqa: ANN401 - of httpx
        nonlocal refused
        headers = {"X-User": f"user-{number}", "Idempotency-Key": text}
        url = f"http://127.0.0.1:{port}/talks/one/questions"
        answer = None
        while answer is None or (answer.status_code == _CONFLICT and refused < _MOST_REFUSED):
            try:
                answer = await client.post(url, json={"question": text}, headers=headers)
            except httpx.TransportError:  # a connection that uvicorn had just closed
                continue
            if answer.status_code == _CONFLICT:
                refused += 1
                await anyio.sleep(float(answer.headers["Retry-After"]))
        assert answer.status_code == 200, answer.text
        assert answer.json() == f"You said: {text}", answer.text

    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as client,
        anyio.create_task_group() as group,
    ):
        for number in range(users):
            group.start_soon(user, client, number)
    return refused


# ── processes ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _service(address: str, url: str) -> Generator[tuple[int, subprocess.Popen[str]]]:
    """One process of the service, and its port."""
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.service", address, url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


class _Held(NamedTuple):
    """How long an event loop was held, in milliseconds.

    How long a callback computed at most; how late a tick was at most, and in 999 of 1,000 cases;
    and how long the process computed at most between two of them.
    """

    callback: float
    longest: float
    late: float
    computed: float
    calls: int  # of the store, in the event loop's own thread

    def __str__(self) -> str:
        return (
            f"{self.callback:.0f} ms by a callback (ticks were {self.longest:.0f} ms late at most, "
            f"99.9 % {self.late:.0f} ms, the process computing for {self.computed:.0f} ms)"
        )


def _held(process: subprocess.Popen[str]) -> _Held:
    """End a process, and answer what it measured."""
    said, _ = process.communicate("end\n", timeout=60)
    return _Held(*json.loads(said))


def _app() -> Any:  # noqa: ANN401 - of FastAPI
    """Make the application of the page, where a header says who asks."""
    fastapi = importlib.import_module("fastapi")

    def current_user(request: Any) -> str:  # noqa: ANN401 - of FastAPI
        return str(request.headers["x-user"])

    current_user.__annotations__["request"] = fastapi.Request
    service, routes, *_ = _BLOCK.findall(_PAGE.read_text("utf-8"))
    names: dict[str, Any] = {"current_user": current_user, "__name__": "service"}
    for code in (service, routes):
        exec(compile(code, str(_PAGE), "exec"), names)  # noqa: S102 - our own docs
    return names["app"]


def _count_calls(thread: int) -> Counter[str]:
    """Count the calls of a store's backend that are made in a thread from now on."""
    calls: Counter[str] = Counter()

    def counted(name: str, method: Any) -> Any:  # noqa: ANN401 - any method
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if threading.get_ident() == thread:
                calls[name] += 1
            return method(*args, **kwargs)

        return call

    for name, member in list(vars(PostgresBackend).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(PostgresBackend, name, counted(name, member))
    return calls


def _time_callbacks() -> list[float]:
    """Measure how long each callback of the event loop computes; the longest is the only entry."""
    longest = [0.0]
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        longest[0] = max(longest[0], time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    return longest


async def _serve(address: str, url: str) -> None:
    """Serve until there is a line on the input; a task ticks meanwhile."""
    uvicorn = importlib.import_module("uvicorn")
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    server, calls = None, _count_calls(threading.get_ident())
    if address:
        variables = {"CHAT_STORE": address, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any"}
        os.environ.update(variables)
        config = uvicorn.Config(_app(), log_level="warning")
        server = uvicorn.Server(config)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, ended.set)
    serving = None if server is None else asyncio.create_task(server.serve(sockets=[listening]))
    while server is not None and not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    print(listening.getsockname()[1], flush=True)  # noqa: T201 - for who started it
    callback = _time_callbacks()  # from now on: starting takes what imports take
    ticks = [(time.monotonic(), time.process_time())]
    while not ended.is_set():
        await asyncio.sleep(_TICK)
        ticks.append((time.monotonic(), time.process_time()))
    held = callback[0]
    if server is not None and serving is not None:
        server.should_exit = True
        await serving
    late = sorted(max(0.0, then[0] - one[0] - _TICK) for one, then in pairwise(ticks))
    computed = max(then[1] - one[1] for one, then in pairwise(ticks))
    often = late[int(len(late) * 0.999)]
    found = _Held(held * 1e3, late[-1] * 1e3, often * 1e3, computed * 1e3, sum(calls.values()))
    print(json.dumps(found), flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
