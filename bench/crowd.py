"""Many processes at work on one server at the same time, and how long each of their steps took.

A job is a function of this or another module, named so that a new process can find it: it is given
the server's address and the process's number, gets ready, and answers with the step to repeat. All
processes begin together.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg

import palaver
from palaver.messages import dump, user

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    _Report = tuple[float, float, list[float]]
    Step = Callable[[], object]
    Job = Callable[[str, int], Step]

__all__ = [
    "BODY",
    "INSERT",
    "MANY",
    "Spell",
    "append_any",
    "append_own",
    "append_share",
    "append_to_one",
    "insert_own",
    "insert_to_one",
    "together",
]

BODY: Final = "x" * 400
INSERT: Final = "INSERT INTO bare (conversation, seq, body) VALUES (%s, %s, %s)"
INSERT_TO_ONE: Final = """
WITH head AS (UPDATE bare_head SET length = length + 1 WHERE conversation = %s RETURNING length)
INSERT INTO bare (conversation, seq, body) SELECT %s, length, %s FROM head
"""
MANY: Final = [f"talk-{number:03}" for number in range(200)]
"""Conversations for many processes, each a share of them or all of them."""
_SHARES: Final = 8
_WARM: Final = 5


class Spell(NamedTuple):
    """What came of it: from the first begin to the last end, and every step's milliseconds."""

    seconds: float
    steps: list[float]

    @property
    def rate(self) -> float:
        """Steps in a second, of all processes together."""
        return len(self.steps) / self.seconds

    def percentile(self, percent: float) -> float:
        """The time that so many of the steps stayed within.

        >>> Spell(1, [float(n) for n in range(100)]).percentile(99)
        99.0
        """
        ordered = sorted(self.steps)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def together(
    address: str, job: Job, processes: int, *, count: int | None = None, seconds: float = 0
) -> Spell:
    """Have a job done by many processes: so many steps each, or for so long."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(processes)
    told: Queue[_Report] = context.Queue()
    tasks = [_Task(job, address, number, count, seconds) for number in range(processes)]
    crowd = [context.Process(target=_work, args=(task, start, told)) for task in tasks]
    for process in crowd:
        process.start()
    reports = [told.get(timeout=600) for _ in crowd]
    for process in crowd:
        process.join()
    began, ended = min(report[0] for report in reports), max(report[1] for report in reports)
    return Spell(ended - began, list(itertools.chain.from_iterable(r[2] for r in reports)))


class _Task(NamedTuple):
    """What one process is to do."""

    job: Job
    address: str
    number: int
    steps: int | None
    seconds: float


def _work(task: _Task, start: Barrier, told: Queue[_Report]) -> None:
    step = task.job(task.address, task.number)
    for _ in range(_WARM):
        step()
    took: list[float] = []
    start.wait()
    began = last = time.monotonic()
    while last - began < task.seconds if task.steps is None else len(took) < task.steps:
        step()
        now = time.monotonic()
        took.append((now - last) * 1e3)
        last = now
    told.put((began, last, took))


def append_own(address: str, _number: int) -> Step:
    """Append to a conversation of one's own."""
    history = palaver.open(address).create()
    return lambda: history.append(user(BODY))


def append_to_one(address: str, _number: int) -> Step:
    """Append to the conversation that everyone appends to."""
    history = palaver.open(address).get(MANY[0])
    return lambda: history.append(user(BODY))


def append_share(address: str, number: int) -> Step:
    """Append to those conversations that only this process appends to."""
    return _append_to(address, number, MANY[number::_SHARES])


def append_any(address: str, number: int) -> Step:
    """Append to any conversation: others were mostly there meanwhile."""
    return _append_to(address, number, MANY)


def _append_to(address: str, number: int, names: list[str]) -> Step:
    store = palaver.open(address)
    histories = [store.get(name) for name in names]
    draw = random.Random(number)  # noqa: S311 - repeatable, not a secret
    return lambda: draw.choice(histories).append(user(BODY))


def insert_to_one(address: str, _number: int) -> Step:
    """The least that it takes to stand in one queue: the lock of a row, and a row."""
    line = psycopg.connect(address, autocommit=True)

    def step() -> None:
        body = dump(user(BODY)).decode()
        line.execute(INSERT_TO_ONE, (MANY[0], MANY[0], body), prepare=True)

    return step


def insert_own(address: str, number: int) -> Step:
    """The least that any store would do: a row with the same body."""
    line = psycopg.connect(address, autocommit=True)
    places = itertools.count()
    name = f"{number} {time.monotonic()}"

    def step() -> None:
        body = dump(user(BODY)).decode()
        line.execute(INSERT, (name, next(places), body), prepare=True)

    return step
