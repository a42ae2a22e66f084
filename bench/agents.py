"""The OpenAI Agents SDK with palaver's session and with its own, both asked through the SDK's door.

Both are called as the SDK calls them, through a worker thread, and both write to SQLite with WAL
and `synchronous=FULL`. The clock is the processor's and the disk one in memory where the programs
are compared; where it says so, it is a real disk and the clock on the wall, as a user has it.
palaver keeps messages, with roles, parts and checks, where its peer keeps the items as text.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import palaver
from bench.harness import AtLeast, Row, Run, against_peer, paired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ready = Callable[[], object]

__all__ = ["rows"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_NOTE: Final = "peer: SQLiteSession; journal_mode=wal, synchronous=2 (FULL) asked of both; threads"
_ITEMS: Final = 5  # in a turn
_LAST: Final = 20


def rows(run: Run) -> Iterator[Row]:
    """Adding a turn, in memory and on disk; reading the end and all, also anew; bytes."""
    memory = _MEMORY if _MEMORY.is_dir() else None
    for where, folder, clock in (
        ("processor time", memory, time.process_time),
        ("on disk", Path.cwd(), time.perf_counter),
    ):
        with tempfile.TemporaryDirectory(dir=folder) as made, asyncio.Runner() as runner:
            pair = _Pair(Path(made), runner)
            assert pair.durability() == {("wal", 2)}  # as the note says, of both
            yield from _adding(pair, run, where, clock)
            if folder is memory:
                yield from _reading(pair, run)


class _Pair:
    """Both kinds of session, in fresh files."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.run = runner.run

    def _file(self) -> Path:
        return self._folder / f"{next(self._numbers)}.db"

    def ours(self, path: Path | None = None) -> tuple[Any, Path]:
        """A session of palaver's, and its file: a new one, unless it is given."""
        module: Any = importlib.import_module("palaver.adapters.openai_agents")
        path = path or self._file()
        return module.PalaverSession(palaver.open(path), "talk"), path

    def theirs(self, path: Path | None = None) -> tuple[Any, Path]:
        """A session of the SDK's, and its file: a new one, unless it is given."""
        module: Any = importlib.import_module("agents.memory")
        path = path or self._file()
        return module.SQLiteSession("talk", path), path

    def durability(self) -> set[tuple[str, int]]:
        """How both write: the journal's mode, and `synchronous`, where 2 is FULL."""
        backend: Any = palaver.open(self._file()).backend
        asked = (backend._writer, self.theirs()[0]._get_connection())  # noqa: SLF001
        return {
            (one.execute("PRAGMA journal_mode").fetchone()[0],
             one.execute("PRAGMA synchronous").fetchone()[0])
            for one in asked
        }  # fmt: skip


def _turn(number: int) -> list[list[dict[str, Any]]]:
    """What a run adds, in three steps: the question; a thought, a call and its output; the end."""
    block = {"annotations": [], "text": "an answer " * 20, "type": "output_text", "logprobs": []}
    return [
        [{"role": "user", "content": f"{number} {'a question ' * 10}"}],
        [
            {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": []},
            {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
             "name": "weather", "arguments": '{"city": "Rome"}', "status": "completed"},
            {"type": "function_call_output", "call_id": f"call_{number}", "output": "sun " * 30},
        ],
        [{"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
          "content": [block]}],
    ]  # fmt: skip


def _adding(pair: _Pair, run: Run, where: str, clock: Callable[[], float]) -> Iterator[Row]:
    turns = [_turn(number) for number in range(run.rounds(100))]
    steps = (
        ("a question", slice(0, 1)),
        ("a call and its output", slice(1, 2)),
        ("a turn", slice(3)),
    )
    for name, which in steps:

        def filling(session: Any, which: slice = which) -> Ready:  # noqa: ANN401 - either kind
            async def add() -> None:
                for turn in turns:
                    for batch in turn[which]:
                        await session.add_items(batch)

            pair.run(session.get_items())  # its threads and connections are warm
            return lambda: pair.run(add())

        took = paired(
            15, lambda _n: filling(pair.ours()[0]), lambda _n: filling(pair.theirs()[0]), clock
        )
        ours, theirs = (one / len(turns) * 1e3 for one in took)
        yield against_peer(
            f"OpenAI Agents: add {name}, {where}", ours, theirs, n=len(turns), unit="µs",
            goal=AtLeast(1), note=_NOTE,
        )  # fmt: skip


def _reading(pair: _Pair, run: Run) -> Iterator[Row]:
    for count in (100, 1_000, 10_000):
        (ours, our_file), (theirs, their_file) = pair.ours(), pair.theirs()
        for session in (ours, theirs):
            for number in range(count // _ITEMS):
                for batch in _turn(number):
                    pair.run(session.add_items(batch))
        assert pair.run(ours.get_items()) == pair.run(theirs.get_items())
        for name, limit, repeats in (("the last 20", _LAST, 20), ("all", None, 1)):

            async def get(session: Any, limit: int | None, repeats: int) -> None:  # noqa: ANN401
                for _ in range(repeats):  # in one loop, as the SDK does: a loop costs more to start
                    await session.get_items(limit)

            def getting(
                session: Any,  # noqa: ANN401 - either kind
                limit: int | None = limit,
                repeats: int = repeats,
            ) -> Callable[[int], Ready]:
                return lambda _number: lambda: pair.run(get(session, limit, repeats))

            took = [
                one / repeats
                for one in paired(run.rounds(15), getting(ours), getting(theirs), time.process_time)
            ]
            yield against_peer(
                f"OpenAI Agents: {name} of {count:,} items", *(one * 1e3 for one in took),
                n=count, unit="µs", goal=AtLeast(1), note=_NOTE,
            )  # fmt: skip
        anew = paired(
            run.rounds(7), partial(_reading_anew, pair.run, pair.ours, our_file),
            partial(_reading_anew, pair.run, pair.theirs, their_file), time.process_time,
        )  # fmt: skip
        yield against_peer(
            f"OpenAI Agents: all of {count:,} items, opened anew", *(one * 1e3 for one in anew),
            n=count, unit="µs", note=f"{_NOTE}; of what is stored, only what the items say is read",
        )  # fmt: skip
        sizes = [_size(path) for path in (our_file, their_file)]
        yield against_peer(
            f"OpenAI Agents: bytes of {count:,} items", *sizes, n=count, unit="kB", note=_NOTE
        )


def _reading_anew(
    run: Callable[[Any], object],
    opened: Callable[[Path], tuple[Any, Path]],
    path: Path,
    _number: int,
) -> Ready:
    """Read all with a session that has read nothing before, as in a process that just began."""
    session, _ = opened(path)
    return lambda: run(session.get_items())


def _size(path: Path) -> float:
    """What it takes on disk, with the log that is not yet written back."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / 1e3
