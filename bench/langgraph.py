"""LangGraph with palaver's saver, beside its own: a turn of a long conversation, and bytes on disk.

The same graph everywhere: a message comes in, one node answers, three checkpoints are kept and what
two tasks wrote. LangGraph's `SqliteSaver` keeps the whole list in every checkpoint; with its beta
`DeltaChannel` it keeps what was written and adds it up again. All of them write to SQLite with a
write-ahead log and wait for the disk. The last turns are taken in rotation, and a time is the
median of those. LangGraph itself takes part of it, which no saver can give back: the floor. Much of
that is its reducer. `DeltaChannel` comes with a quicker one of its own, and so does palaver: the
rows that say so use it, and the goal beside `DeltaChannel` is for those.
"""

from __future__ import annotations

import gc
import importlib
import sqlite3
import statistics
import tempfile
import time
from dataclasses import make_dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import palaver
from bench.harness import AtLeast, against_floor, against_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness import Goal, Row, Run

__all__ = ["rows"]

_LAST: Final = 20
_SUMMED: Final = "SqliteSaver"
_TAKEN: Final = 500
"""Above so many turns it is given those before the last at once: one by one they take gigabytes."""
_QUESTION: Final = "What would you take along for a day in the hills, if it might rain? " * 2
_ANSWER: Final = "Boots, a coat that keeps the rain out, bread, cheese, and a flask of tea. " * 3
_THREAD: Final[Any] = {"configurable": {"thread_id": "hills"}}


def rows(run: Run) -> Iterator[Row]:
    """Turns of one conversation at three lengths."""
    with tempfile.TemporaryDirectory(prefix="palaver-bench-") as folder:
        talks = _Talks(Path(folder))
        for turns in (60,) if run.quick else (100, 500, 2_000):
            yield from _rows(turns, *talks.measure(turns))
        talks.close()


def _rows(turns: int, took: dict[str, float], size: dict[str, float]) -> Iterator[Row]:
    last = turns == 2_000  # noqa: PLR2004 - the goals are for this length
    faster: Goal | None = AtLeast(5) if last else None
    name = f"LangGraph, one turn after {turns:,}"
    for peer, goal in (("SqliteSaver", faster), ("DeltaChannel", None)):
        yield against_peer(f"{name}: {peer}", took["palaver"], took[peer], n=turns, goal=goal)
        yield against_peer(
            f"{name}, palaver's reducer: {peer}", took["reducer"], took[peer], n=turns, goal=faster
        )
    yield against_floor(f"{name}: no saver", took["palaver"], took["none"], n=turns)
    sums = f"times smaller; {_SUMMED}: by arithmetic, from its last {_LAST} turns"
    for peer, smaller in ((_SUMMED, AtLeast(100) if last else None), ("DeltaChannel", AtLeast(1))):
        yield against_peer(
            f"LangGraph, {turns:,} turns on disk: {peer}", size["palaver"], size[peer], n=turns,
            unit="MB", goal=smaller, note=sums if last else "times smaller",
        )  # fmt: skip


class _Talks:
    """The same conversation with every saver; it goes on from one length to the next."""

    def __init__(self, folder: Path) -> None:
        names = ("palaver", "reducer", "SqliteSaver", "DeltaChannel")
        self._paths = {name: folder / f"{name}.db" for name in names}
        self._turns = 0
        graphs: Any = importlib.import_module("langgraph.graph")
        self._whole: Any = graphs.MessagesState
        self._none = _talk(self._whole, None)
        self._open()

    def _open(self) -> None:
        """Open the files, and go on with the conversations in them."""
        theirs: Any = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
        ours: Any = importlib.import_module("palaver.adapters.langgraph")
        one, other, whole, deltas = self._paths.values()
        self._stores = palaver.open(str(one)), palaver.open(str(other))
        self._connections = [sqlite3.connect(of, check_same_thread=False) for of in (whole, deltas)]
        self._talks = {
            "palaver": _talk(self._whole, ours.PalaverSaver(self._stores[0])),
            "reducer": _talk(ours.MessagesState, ours.PalaverSaver(self._stores[1])),
            "SqliteSaver": _talk(self._whole, theirs(self._connections[0])),
            "DeltaChannel": _talk(_deltas(), theirs(self._connections[1])),
            "none": self._none,
        }

    def measure(self, turns: int) -> tuple[dict[str, float], dict[str, float]]:
        """Milliseconds of a turn when there are so many, and megabytes in all."""
        missing = turns - _LAST - self._turns
        at_once = {"none"} | ({_SUMMED} if turns > _TAKEN else set())
        for name, talk in self._talks.items():
            for _ in range(1 if name in at_once else missing):
                talk(missing if name in at_once else 1)
        before = self._pages()
        gc.collect()
        samples: dict[str, list[float]] = {name: [] for name in self._talks}
        for number in range(_LAST):
            for name, talk in self._talks.items():
                began = time.perf_counter()
                said = talk(1)
                samples[name].append(time.perf_counter() - began)
                assert said == 2 * (turns - _LAST + number + 1), name
        took = {name: statistics.median(values) * 1_000 for name, values in samples.items()}
        grown, self._turns = self._pages() - before, turns
        self.close()  # which brings what is in the logs into the files
        size = {name: path.stat().st_size / 1e6 for name, path in self._paths.items()}
        if _SUMMED in at_once:  # every turn keeps all that was said before it
            size[_SUMMED] = grown / _LAST / (turns - _LAST / 2) * turns**2 / 2
        self._open()
        return took, size

    def _pages(self) -> float:
        """Megabytes of a file, with what is still in its write-ahead log."""
        ask = self._connections[0].execute
        return float(prod(ask(f"PRAGMA page_{of}").fetchone()[0] for of in ("count", "size"))) / 1e6

    def close(self) -> None:
        """Close the files."""
        for store in self._stores:
            store.close()
        for connection in self._connections:
            connection.close()


def _deltas() -> Any:  # noqa: ANN401 - a state of LangGraph's
    """A state whose messages are kept as deltas."""
    channel: Any = importlib.import_module("langgraph.channels.delta").DeltaChannel
    reducer: Any = importlib.import_module("langgraph.graph.message")._messages_delta_reducer  # noqa: SLF001 - it has no public name yet
    return make_dataclass("Deltas", [("messages", Annotated[list[Any], channel(reducer)])])


def _talk(state: Any, saver: Any) -> Callable[[int], int]:  # noqa: ANN401 - LangGraph's own
    """A conversation; a call is so many turns at once, and says how many messages there are."""
    graphs: Any = importlib.import_module("langgraph.graph")
    messages: Any = importlib.import_module("langchain_core.messages")
    builder = graphs.StateGraph(state)
    builder.add_node("answer", lambda _: {"messages": [_answer(messages)]})
    builder.add_edge(graphs.START, "answer")
    graph: Any = builder.compile(checkpointer=saver)
    kept: list[Any] = []

    def turn(count: int) -> int:
        said = [messages.HumanMessage(_QUESTION)]
        for _ in range(count - 1):
            said += [_answer(messages), messages.HumanMessage(_QUESTION)]
        if saver is None:
            kept[:] = graph.invoke({"messages": kept + said})["messages"]
            return len(kept)
        return len(graph.invoke({"messages": said}, _THREAD)["messages"])

    return turn


def _answer(messages: Any) -> Any:  # noqa: ANN401 - LangChain's own
    return messages.AIMessage(
        _ANSWER,
        usage_metadata={"input_tokens": 210, "output_tokens": 48, "total_tokens": 258},
        response_metadata={"model_name": "gpt-test", "finish_reason": "stop"},
    )
