"""Many users of the service of `docs/howto/in-fastapi.md`, in two processes, on PostgreSQL.

The page's own code runs under uvicorn. Every user asks some questions, and every request is sent
three times with its key: to both processes at once, and once more when there is an answer. The
provider must be asked once for each question. In each process a task ticks beside the requests: it
tells how long the event loop was held. Some of that is the machine's doing, where others want its
processors too: a third process without any work tells how late its ticks are. Whatever the machine
does, a process can hold its loop no longer than all of its threads computed meanwhile: the loop
waits for the interpreter's lock only while another thread has it, and the store is never called in
the loop's own thread, which is counted.

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
GOAL: Final = "100 users, the provider asked once for each question"
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_PAGE: Final = _ROOT / "docs" / "howto" / "in-fastapi.md"
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TICK: Final = 0.002
_SPREAD: Final = 0.03
"""Seconds between the beginnings of two users."""
_MOST_REFUSED: Final = 10_000
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
    if not tally.failures:
        tally.count(f"asked once ({refused} refused with 409 and tried again)", wanted)
    one, two, control = held
    tally.name += (
        f"; {3 * wanted / seconds:.0f} requests a second; the event loops were held for {one} and "
        f"{two}, that of an idle process for {control}"
    )
    return tally


def _answer(asked: Exchange) -> Answer:
    return Answer(f"You said: {asked.body['messages'][-1]['content']}")


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
    """How long an event loop was held between two ticks, in milliseconds.

    At most, in 999 of 1,000 cases, and how long at most the process computed meanwhile: all its
    threads, and the loop's own. The rest is waiting for a processor.
    """

    longest: float
    late: float
    computed: float
    busy: float
    calls: int  # of the store, in the event loop's own thread

    def __str__(self) -> str:
        return (
            f"{self.longest:.0f} ms by the clock (99.9 %: {self.late:.0f} ms); it computed"
            f" for at most {self.computed:.0f} ms meanwhile, its loop for {self.busy:.0f} ms"
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


class _Tick(NamedTuple):
    """A moment, and how long the process and this thread of it have computed until then."""

    clock: float
    computed: float
    busy: float

    @classmethod
    def now(cls) -> _Tick:
        return cls(time.monotonic(), time.process_time(), time.thread_time())

    def since(self, before: _Tick) -> _Tick:
        """What came after another tick, and after the time that lies between two anyway."""
        clock = max(0.0, self.clock - before.clock - _TICK)
        return _Tick(clock, self.computed - before.computed, self.busy - before.busy)


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
    ticks = [_Tick.now()]
    while not ended.is_set():
        await asyncio.sleep(_TICK)
        ticks.append(_Tick.now())
    if server is not None and serving is not None:
        server.should_exit = True
        await serving
    gaps = [then.since(one) for one, then in pairwise(ticks)]
    late = sorted(gap.clock for gap in gaps)
    computed, busy = max(gap.computed for gap in gaps), max(gap.busy for gap in gaps)
    figures = (late[-1], late[int(len(late) * 0.999)], computed, busy)
    held = _Held(*(each * 1_000 for each in figures), sum(calls.values()))
    print(json.dumps(held), flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
