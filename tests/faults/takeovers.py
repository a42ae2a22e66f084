"""A worker is killed in the middle of its run, and two others take its conversation over.

Both ask the same question with the same key, as two repeats of a request do in two processes, and
wait for the lease of the dead worker: 4 seconds, as it is by default. One of them goes on where the
dead one was, the other finds the answer. Nothing is there twice: no question, no effect of a tool,
no request for an answer that was stored.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

import palaver
from palaver import Conversation
from palaver.messages import AssistantInfo, ModelRef
from palaver.tokens import counter
from palaver.tools import ToolContext  # noqa: TC001 - a tool's signature is read when it runs
from palaver.wire import Target
from tests.conversation.scripted import calling, saying
from tests.faults.nursery import KILLED, Ledger, Nursery
from tests.faults.scratch import scratch
from tests.faults.tally import Tally
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from palaver.models.base import ModelRequest
    from palaver.stores import Store

__all__ = ["GOAL", "NAMES", "run"]

NAMES: Final = {
    "sqlite": "two processes take over from a killed one, SQLite",
    "postgres": "two processes take over from a killed one, PostgreSQL",
}
GOAL: Final = "50 times, within 5 s, nothing twice"
_AT_ONCE: Final = 5
"""Conversations that lose their worker at the same time."""
_QUESTION: Final = "Pay all three."
_ANSWER: Final = "All paid."
_TOOLS: Final = 3


class _Endless:
    """A model that calls three tools, and then never ends its answer unless it may."""

    format = "openai-chat"
    window: int | None = 8_000

    def __init__(self, tell: Any, *, ends: bool) -> None:  # noqa: ANN401 - a function
        self.ref = ModelRef("openai", "scripted")
        self.target = Target()
        self._tell = tell
        self._ends = ends

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Call the tools, or answer."""
        paid = any(message["role"] == "tool" for message in request.body["messages"])
        self._tell(f"asked {int(paid)}")
        calls = [("pay", {"to": f"number {number}"}) for number in range(_TOOLS)]
        event: Any
        for event in saying(_ANSWER) if paid else calling(*calls):
            if paid and not self._ends:
                await anyio.sleep_forever()
            yield event

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """It is only ever streamed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


def victim(ledger: Ledger, address: str, name: str) -> None:
    """Ask, and never get an answer."""
    anyio.run(_ask, ledger, address, name, "victim", False)  # noqa: FBT003 - it never ends


def successor(ledger: Ledger, address: str, name: str, who: str, go: str) -> None:
    """Ask the same, once the other was killed; a process of a service is up long before."""
    counter()("loaded before it is needed")
    palaver.open(address).close()
    ledger.write(f"{name} {who} {time.monotonic():.3f} ready")
    while not Path(go).exists():
        time.sleep(0.002)
    anyio.run(_ask, ledger, address, name, who, True)  # noqa: FBT003 - it ends


async def _ask(ledger: Ledger, address: str, name: str, who: str, ends: bool) -> None:  # noqa: FBT001 - as above
    def tell(line: str) -> None:
        ledger.write(f"{name} {who} {time.monotonic():.3f} {line}")

    async def pay(to: str, context: ToolContext) -> str:
        tell(f"effect {context.call.id}")
        await anyio.sleep(0.002)
        return f"paid {to}"

    async with palaver.open(address) as store:
        history = await store.aget(name)
        talk = Conversation(store, history, model=_Endless(tell, ends=ends), tools=[pay], wait=30)
        async with talk.stream(_QUESTION, key="q") as events:
            async for _ in events:
                tell("event")
        assert events.answer is not None
        tell(f"answered {events.answer.text}")


def run(count: int, seed: int, *, kind: str = "sqlite", within: float = 5.0) -> Tally:
    """Let so many conversations lose their worker; nobody may wait longer than this."""
    tally = Tally(NAMES[kind], "takeovers", GOAL)
    draw = random.Random(f"takeover/{seed}")  # noqa: S311 - no secret
    with (
        scratch() as folder, Nursery() as nursery, Nursery() as others, _address(kind, folder) as
        address, ThreadPoolExecutor(1) as pool,
    ):  # fmt: skip
        number, slowest = 0, 0.0
        while tally.faults < count:
            many = min(_AT_ONCE, count - tally.faults)
            with palaver.open(address) as store:
                names = [store.create().id for _ in range(many)]
            ledger, go = folder / f"ledger-{number}", folder / f"go-{number}"
            pairs = [[address, name, who, str(go)] for name in names for who in ("one", "two")]
            job = "tests.faults.takeovers:successor"
            after = folder / f"after-{number}"
            succeeding = pool.submit(others.run_all, job, pairs, after)
            while not (after.exists() and after.read_bytes().count(b"\n") == len(pairs)):
                time.sleep(0.01)
            lines = draw.randint(1, many * (_TOOLS + 3))
            grace = draw.random() * 0.05
            args = [[address, name] for name in names]
            job = "tests.faults.takeovers:victim"
            ends = nursery.run_all(job, args, ledger, lines=lines, grace=grace)
            killed = time.monotonic()
            go.touch()
            ends += succeeding.result()
            text = ledger.read_text() + after.read_text()
            told = [line.split(" ", 3) for line in text.splitlines()]
            with palaver.open(address) as store:
                for name in names:
                    mine = [line[1:] for line in told if line[0] == name]
                    problem, seconds = _look(store, name, mine, killed)
                    slowest = max(slowest, seconds)
                    if ends != [KILLED] * many + [0] * (2 * many):
                        problem = f"ended otherwise: {ends}"
                    elif seconds > within:
                        problem = problem or f"late: {seconds:.1f} s"
                    if problem:
                        story = f"seed {seed}, round {number}: {problem}; {mine}"
                        tally.fail(problem.partition(":")[0], story)
                    else:
                        tally.count("taken over")
            number += 1
        if not tally.failures:
            tally.name = f"{tally.name} (slowest {slowest:.1f} s)"
    return tally


@contextmanager
def _address(kind: str, folder: Path) -> Generator[str]:
    if kind == "postgres":
        with serving(max_connections="200") as server, server.database() as address:
            yield address
    else:
        yield str(folder / "takeover.db")


def _look(store: Store, name: str, lines: list[list[str]], killed: float) -> tuple[str, float]:
    """What must not be, and after how many seconds somebody was at work again."""
    after = [(float(at), what) for who, at, what in lines if who != "victim"]
    seconds = min((at for at, what in after if what != "ready"), default=killed + 99) - killed
    effects = Counter(what for _, _, what in lines if what.startswith("effect"))
    answers = [what for _, what in after if what.startswith("answered")]
    history = store.get(name)
    questions = [message for message in history if message.text == _QUESTION]
    results = [message for message in history if message.role == "tool"]
    complete = [
        message
        for message in history
        if isinstance(message.info, AssistantInfo) and message.info.finish != "interrupted"
    ]
    asked = Counter(what for _, what in after if what.startswith("asked"))
    problems = list(store.verify(name))
    found = {
        "corrupt": problems,
        "no answer": answers != [f"answered {_ANSWER}"] * 2,
        "question twice": len(questions) != 1,
        "effect twice": max(effects.values(), default=0) > 1,
        "results": len(results) != _TOOLS,
        "answers": len(complete) != 2,
        "asked twice": max(asked.values(), default=0) > 1,
    }
    return next((f"{what}: {value}" for what, value in found.items() if value), ""), seconds
