"""Kill -9: a process that changes a store is killed at any moment, again and again.

It says in a ledger when each step begins and when it is acknowledged. After every kill the store
must be whole and as after the last acknowledged step, or the one that had begun; the next process
goes on from there.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from palaver.errors import PalaverError
from tests.faults.nursery import KILLED, Ledger, Nursery
from tests.faults.program import Expected, Program, picture
from tests.faults.recording import write_image
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GOAL", "NAME", "Reached", "child", "look", "read", "run"]

NAME: Final = "kill -9, SQLite"
GOAL: Final = "500 kills, none lost, none doubled"
_KILLS: Final = 12
"""Of one store, so that its programs stay short enough to run again beside."""


def child(ledger: Ledger, address: str, name: str, first: int) -> None:
    """Do steps until killed."""
    program = Program(name)
    store = program.open(address)
    number = first
    while True:
        ledger.write(f"begin {number}")
        program.step(store, number)
        ledger.write(f"ack {number}")
        number += 1


def run(count: int, seed: int) -> Tally:
    """Kill so many times."""
    tally = Tally(NAME, "kills", GOAL)
    store = 0
    with scratch() as folder, Nursery() as nursery:
        while tally.faults < count:
            name = f"kill/{seed}/{store}"
            _one_store(name, nursery, folder, min(_KILLS, count - tally.faults), tally)
            store += 1
    return tally


def _one_store(name: str, nursery: Nursery, folder: Path, kills: int, tally: Tally) -> None:
    draw = random.Random(name)  # noqa: S311 - no secret
    path, ledger = folder / "killed.db", folder / "ledger"
    write_image({}, path)
    expected = Expected(name)
    reached = 0
    for _ in range(kills):
        ledger.unlink(missing_ok=True)
        lines, grace = draw.randint(0, 14), draw.choice([0, draw.random() * 0.002])
        args = [str(path), name, reached]
        status = nursery.run("tests.faults.kills:child", args, ledger, lines=lines, grace=grace)
        told = read(ledger, reached)
        if status != KILLED:
            tally.fail("ended by itself", f"{name}, {told}")
            return
        failure, reached = look(str(path), name, expected, told)
        if failure:
            tally.fail(failure.partition(":")[0], f"{name}, {told}, {failure}")
            return
        tally.count("as acknowledged" if reached == told.acked else "one more, whole")


class Reached(NamedTuple):
    """What a ledger says of a process: how many steps were done when it ended."""

    first: int
    acked: int
    begun: int
    last: str

    def __str__(self) -> str:
        """How to see it again."""
        return f"from step {self.first}, acked {self.acked}, begun {self.begun}, last {self.last!r}"


def read(ledger: Path, first: int) -> Reached:
    """The lines of a process that began with a step."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    acked = first + sum(line.startswith("ack") for line in lines)
    begun = first + sum(line.startswith("begin") for line in lines)
    return Reached(first, acked, begun, lines[-1] if lines else "")


def look(address: str, name: str, expected: Expected, told: Reached) -> tuple[str, int]:
    """What must not be, or nothing and the step that the store has reached."""
    try:
        with Program(name).open(address) as store:
            problems = list(store.verify())
            seen = picture(store)
    except PalaverError as error:
        return f"corrupt: {error}", 0
    if problems:
        return f"corrupt: {problems[0]}", 0
    steps = expected.which(seen, told.begun)
    reached = [step for step in steps if step >= told.acked]
    if reached:
        return "", reached[0]
    return (f"lost: as after step {steps[-1]}" if steps else "half: as after no step"), 0
