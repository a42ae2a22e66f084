"""Many processes on one conversation: appends and edits of all of them at once.

Each takes out only what it put in, and tells in a ledger what was acknowledged. So at the end it is
known, message by message, what the log and the view must hold; a `Conflict` is an answer, any other
error is not.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import palaver
from palaver.errors import Conflict
from palaver.messages import ROLES, Message
from tests.faults.nursery import Ledger, Nursery
from tests.faults.scratch import scratch
from tests.faults.tally import Tally
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from palaver.stores import StoredHistory

__all__ = ["GOAL", "NAMES", "run"]

NAMES: Final = {
    "sqlite": "many processes on one conversation, SQLite",
    "postgres": "many processes on one conversation, PostgreSQL",
}
GOAL: Final = "8 processes, 30 s, in order, nothing lost, no error surfaces"
_OWN: Final = 12
"""Messages a process keeps in the view before it begins to take some out."""


def run(processes: int, seconds: float, seed: int, *, kind: str = "sqlite") -> Tally:
    """Let so many processes change one conversation for some time."""
    tally = Tally(NAMES[kind], "changes", GOAL)
    with scratch() as folder, Nursery() as nursery, _address(kind, folder) as address:
        ledger = folder / "ledger"
        with palaver.open(address) as store:
            store.create([Message("system", "begin", id="begin")], id="crowd")
        jobs = [[address, f"{seed}-{number}", seconds] for number in range(processes)]
        limit = seconds + 120
        statuses = nursery.run_all("tests.faults.crowd:child", jobs, ledger, limit=limit)
        lines = [line.split(" ", 2) for line in ledger.read_text().splitlines()]
        for status in statuses:
            if status:
                raised = [line[-1] for line in lines if line[0] == "raised"]
                tally.fail("an error surfaced", f"seed {seed}, status {status}: {raised[:1]}")
        _compare(address, lines, f"seed {seed}", tally)
    return tally


@contextmanager
def _address(kind: str, folder: Path) -> Generator[str]:
    if kind == "postgres":
        with serving() as server, server.database() as address:
            yield address
    else:
        yield str(folder / "crowd.db")


def child(ledger: Ledger, address: str, name: str, seconds: float) -> None:
    """Change the conversation until the time is over."""
    draw = random.Random(name)  # noqa: S311 - no secret
    history = palaver.open(address).get("crowd")
    worker = _Worker(ledger, name, draw, history)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            worker.change()
        except Conflict:
            ledger.write(f"conflict {name}")
            history.refresh()


class _Worker:
    """One process: the messages it has in the view, and what it does next."""

    def __init__(
        self, ledger: Ledger, name: str, draw: random.Random, history: StoredHistory
    ) -> None:
        self.ledger = ledger
        self.name = name
        self.draw = draw
        self.history = history
        self.made = 0
        self.own: list[str] = []

    def new(self) -> Message:
        """A message that nobody else has, found by its text and by its id."""
        self.made += 1
        name = f"w{self.name}-{self.made}"
        return Message(self.draw.choice(ROLES), f"says <{name}>", id=name)

    def change(self) -> None:
        """One change, and a line about it."""
        kinds = ["append"] * 5 + ["extend", "insert"]
        if len(self.own) > _OWN:
            kinds += ["replace"] * 3 + ["filter"] * 10  # more out than in
        getattr(self, self.draw.choice(kinds))()

    def tell(self, added: list[str], removed: list[str]) -> None:
        self.own = [name for name in self.own if name not in removed] + added
        self.ledger.write(f"ack {self.name} {json.dumps([added, removed])}")

    def append(self) -> None:
        self.tell([self.history.append(self.new()).id], [])

    def extend(self) -> None:
        messages = [self.new(), self.new()]
        self.history.extend(messages)
        self.tell([message.id for message in messages], [])

    def insert(self) -> None:
        message = self.new()
        self.history.insert(self.draw.randint(0, len(self.history)), [message])
        self.tell([message.id], [])

    def replace(self) -> None:
        old, message = self.draw.choice(self.own), self.new()
        places = [place for place, other in enumerate(self.history) if other.id == old]
        self.history.replace(places[0], message)
        self.tell([message.id], [old])

    def filter(self) -> None:
        old = self.draw.choice(self.own)
        self.history.filter(content_excludes=[f"<{old}>"])
        self.tell([], [old])


def _compare(address: str, lines: list[list[str]], story: str, tally: Tally) -> None:
    """What the ledger says against what the store holds."""
    acks = [json.loads(line[2]) for line in lines if line[0] == "ack"]
    added = [name for more, _ in acks for name in more]
    removed = {name for _, less in acks for name in less}
    with palaver.open(address) as store:
        for problem in store.verify():
            tally.fail("corrupt", f"{story}: {problem}")
        history = store.get("crowd")
        logged = [message.id for message in history.log]
        viewed = [message.id for message in history]
        versions = [change.version for change in store.backend.journal("crowd", -1, 10_000_000)]
    _same(["begin", *added], logged, "lost or doubled in the log", story, tally)
    _same(["begin", *(set(added) - removed)], viewed, "lost or doubled in view", story, tally)
    if versions != list(range(len(acks) + 1)):
        tally.fail("versions", f"{story}: {len(acks)} changes, {len(versions) - 1} versions")
    for worker in {line[1] for line in lines if line[0] == "ack"}:
        mine = [int(name.rpartition("-")[2]) for name in logged if name.startswith(f"w{worker}-")]
        if mine != sorted(mine):
            tally.fail("order", f"{story}: process {worker}")
    tally.count("acknowledged and there", len(acks))
    if conflicts := sum(line[0] == "conflict" for line in lines):
        tally.count("answered with a conflict", conflicts)


def _same(expected: list[str], found: list[str], failure: str, story: str, tally: Tally) -> None:
    wanted, there = Counter(expected), Counter(found)
    if wanted != there:
        tally.fail(failure, f"{story}: missing {wanted - there}, too many {there - wanted}")
