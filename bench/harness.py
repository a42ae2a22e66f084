"""Measuring side by side: every contender in every round, and the ratio of their best rounds.

A time alone says little: the machine may be busy. So whatever is compared runs in the same rounds,
in turn, each round beginning with another contender, with the garbage collector off for all of
them. A time is that of the best round, and a ratio is one of two such times; where a round takes
long and there are few of them, both times are those of the round whose ratio is in the middle.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "AtLeast",
    "AtMost",
    "Below",
    "Goal",
    "Row",
    "Run",
    "Within",
    "against_floor",
    "against_peer",
    "fsync_time",
    "middle",
    "on_one_core",
    "paired",
    "save",
    "table",
    "timed",
]

Kind = Literal["floor", "peer"]


class AtMost(NamedTuple):
    """The ratio to the floor may be no higher."""

    ratio: float

    def __str__(self) -> str:
        return f"at most {self.ratio:g}x"

    def met(self, row: Row) -> bool:
        """Tell whether a row is within it."""
        return row.ratio <= self.ratio


class AtLeast(NamedTuple):
    """Faster than the peer by no less."""

    ratio: float

    def __str__(self) -> str:
        return f"at least {self.ratio:g}x faster"

    def met(self, row: Row) -> bool:
        """Tell whether a row reaches it."""
        return row.ratio >= self.ratio


class Below(NamedTuple):
    """palaver's own figure stays below."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"below {self.value:g} {self.unit}"

    def met(self, row: Row) -> bool:
        """Tell whether a row is below it."""
        return row.palaver < self.value


class Within(NamedTuple):
    """No more than so many times the floor, or so much above it, whichever is larger."""

    ratio: float
    above: float
    unit: str

    def __str__(self) -> str:
        return f"at most {self.ratio:g}x or {self.above:g} {self.unit} more"

    def met(self, row: Row) -> bool:
        """Tell whether a row is within one of both."""
        return row.ratio <= self.ratio or row.palaver - row.other <= self.above


Goal = AtMost | AtLeast | Below | Within


class Row(NamedTuple):
    """One comparison. A floor's ratio is palaver / floor, a peer's is peer / palaver.

    `load` is the machine's load average when its topic began: what others were doing.
    """

    name: str
    palaver: float
    kind: Kind
    other: float
    n: int
    unit: str
    goal: Goal | None = None
    note: str = ""
    load: float = 0

    @property
    def ratio(self) -> float:
        """How many times slower than the floor, or faster than the peer."""
        if self.kind == "floor":
            return self.palaver / self.other if self.other else float(self.palaver > 0)
        return self.other / self.palaver

    @property
    def met(self) -> bool | None:
        """Tell whether the goal is met; None where there is none."""
        return None if self.goal is None else self.goal.met(self)

    def to_dict(self) -> dict[str, Any]:
        """The row as it stands in `results.json`."""
        return {
            "name": self.name,
            "palaver": round(self.palaver, 4),
            self.kind: round(self.other, 4),
            "ratio": round(self.ratio, 3),
            "n": self.n,
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
            "note": self.note,
            "load": round(self.load, 2),
        }


class Run(NamedTuple):
    """How much to measure."""

    quick: bool = False

    def rounds(self, full: int) -> int:
        """So many rounds, or a few where it has to be quick."""
        return max(3, full // 10) if self.quick else full


_REPEATS: Final = 3


def timed(
    rounds: int, contenders: Mapping[str, Callable[[int], object]], repeats: int = _REPEATS
) -> dict[str, float]:
    """Time the contenders in turn; milliseconds of each one's best round, for one call.

    Each is called with the number of the round, so that it can take fresh input every time.
    """
    best = dict.fromkeys(contenders, float("inf"))
    names = list(contenders)
    with _garbage_left():
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                gc.collect()
                gc.disable()
                call = contenders[name]
                begin = time.perf_counter()
                for _ in range(repeats):
                    call(number)
                took = (time.perf_counter() - begin) / repeats
                best[name] = min(best[name], took * 1_000)
    return best


@contextmanager
def _garbage_left() -> Generator[None]:
    """Look for garbage only where it is asked for, and not in what was there before."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def paired(
    rounds: int,
    palaver: Callable[[int], Callable[[], object]],
    other: Callable[[int], Callable[[], object]],
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = 1,
) -> tuple[float, float]:
    """Time two contenders in turn; milliseconds of both in the round in the middle.

    Each is called with the number of the round to get ready, and answers with what is to be timed:
    so many repetitions of it, and the time of one.
    """
    found: list[tuple[float, float]] = []
    with _garbage_left():
        for number in range(rounds):
            ready = [palaver(number), other(number)]
            took = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                gc.collect()
                gc.disable()
                begin = clock()
                for _ in range(repeats):
                    ready[which]()
                took[which] = (clock() - begin) / repeats * 1_000
            found.append((took[0], took[1]))
    return middle(found)


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The pair whose ratio is in the middle.

    >>> middle([(1, 5), (1, 90), (2, 12)])
    (2, 12)
    """
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]


@contextmanager
def on_one_core() -> Generator[None]:
    """Stay on one core, with all processes and threads that are started meanwhile."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def fsync_time(folder: Path) -> float:
    """How long the disk takes to say that 4,096 bytes are on it, in µs."""
    took: list[float] = []
    with (folder / "probe").open("wb") as file:
        for _ in range(21):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each contender's samples."""
    return {name: statistics.median(values) for name, values in samples.items()}


def against_floor(
    name: str, palaver: float, floor: float, *, n: int, unit: str = "ms",
    goal: Goal | None = None, note: str = "",
) -> Row:  # fmt: skip
    """Compare with the least that any library would need."""
    return Row(name, palaver, "floor", floor, n, unit, goal, note)


def against_peer(
    name: str, palaver: float, peer: float, *, n: int, unit: str = "ms",
    goal: Goal | None = None, note: str = "",
) -> Row:  # fmt: skip
    """Compare with what people use today."""
    return Row(name, palaver, "peer", peer, n, unit, goal, note)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, in columns.

    >>> print(table([against_floor("decode", 3, 2, n=10, goal=AtMost(2))]))
    name    palaver    other  unit    ratio       n  goal
    decode    3.000    2.000  ms      1.50x      10  at most 2x: met
    """
    width = max([len("name"), *(len(row.name) for row in rows)])
    lines = [f"{'name':{width}}  palaver    other  unit    ratio       n  goal"]
    lines += [
        f"{row.name:{width}}  {row.palaver:7.3f}  {row.other:7.3f}  {row.unit:5}  "
        f"{row.ratio:5.2f}x  {row.n:6}  {_verdict(row)}".rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _verdict(row: Row) -> str:
    said = [] if row.goal is None else [f"{row.goal}: {'met' if row.met else 'MISSED'}"]
    if row.load > (os.cpu_count() or 1):
        said.append(f"(on a busy machine: load {row.load:.1f})")
    return " ".join(said)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write `results.json`; rows that were not measured this time keep their place.

    So `--only` does not throw away what an earlier run found.
    """
    known = {row["name"]: row for row in _known(path)}
    known.update((row.name, row.to_dict()) for row in rows)
    text = json.dumps(list(known.values()), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def _known(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from json.loads(path.read_text("utf-8"))
