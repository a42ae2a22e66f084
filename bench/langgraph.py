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

import importlib
import shutil
import sqlite3
import statistics
import tempfile
import time
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import palaver
from bench.harness import AtLeast, against_floor, against_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness import Goal, Row, Run

__all__ = ["rows"]

_LAST: Final = 20
_QUESTION: Final = "What would you take along for a day in the hills, if it might rain? " * 2
_ANSWER: Final = "Boots, a coat that keeps the rain out, bread, cheese, and a flask of tea. " * 3
_THREAD: Final[Any] = {"configurable": {"thread_id": "hills"}}


def rows(run: Run) -> Iterator[Row]:
    """Turns of conversations of three lengths."""
    for turns in (60,) if run.quick else (100, 500, 2_000):
        yield from _rows(turns)


def _rows(turns: int) -> Iterator[Row]:
    last = turns == 2_000  # noqa: PLR2004 - the goals are for this length
    folder = Path(tempfile.mkdtemp(prefix="palaver-bench-"))
    try:
        took, size = _measured(folder, turns)
    finally:
        shutil.rmtree(folder)
    faster: Goal | None = AtLeast(5) if last else None
    name = f"LangGraph, one turn after {turns:,}"
    for peer, goal in (("SqliteSaver", faster), ("DeltaChannel", None)):
        yield against_peer(f"{name}: {peer}", took["palaver"], took[peer], n=turns, goal=goal)
        yield against_peer(
            f"{name}, palaver's reducer: {peer}", took["reducer"], took[peer], n=turns, goal=faster
        )
    yield against_floor(f"{name}: no saver", took["palaver"], took["none"], n=turns)
    for peer, smaller in (("SqliteSaver", AtLeast(100) if last else None),
                          ("DeltaChannel", AtLeast(1))):  # fmt: skip
        yield against_peer(
            f"LangGraph, {turns:,} turns on disk: {peer}", size["palaver"], size[peer], n=turns,
            unit="MB", goal=smaller, note="times smaller",
        )  # fmt: skip


def _measured(folder: Path, turns: int) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of a turn at the end, and megabytes in all."""
    for name in ("palaver", "reducer", "SqliteSaver", "DeltaChannel"):
        (folder / name).mkdir()
    store = palaver.open(str(folder / "palaver" / "chat.db"))
    other = palaver.open(str(folder / "reducer" / "chat.db"))
    connections = {
        name: sqlite3.connect(folder / name / "chat.db", check_same_thread=False)
        for name in ("SqliteSaver", "DeltaChannel")
    }
    graphs: Any = importlib.import_module("langgraph.graph")
    theirs: Any = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
    ours: Any = importlib.import_module("palaver.adapters.langgraph")
    whole: Any = graphs.MessagesState
    contenders = {
        "palaver": _talk(whole, ours.PalaverSaver(store)),
        "reducer": _talk(ours.MessagesState, ours.PalaverSaver(other)),
        "SqliteSaver": _talk(whole, theirs(connections["SqliteSaver"])),
        "DeltaChannel": _talk(_deltas(), theirs(connections["DeltaChannel"])),
        "none": _talk(whole, None),
    }
    for talk in contenders.values():
        for _ in range(turns - _LAST):
            talk()
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(_LAST):
        for name, talk in contenders.items():
            began = time.perf_counter()
            said = talk()
            samples[name].append(time.perf_counter() - began)
            assert said == 2 * (turns - _LAST + len(samples[name])), name
    store.close()
    other.close()
    for connection in connections.values():
        connection.close()
    took = {name: statistics.median(values) * 1_000 for name, values in samples.items()}
    size = {
        name: sum(file.stat().st_size for file in (folder / name).iterdir()) / 1e6
        for name in contenders
        if name != "none"
    }
    return took, size


def _deltas() -> Any:  # noqa: ANN401 - a state of LangGraph's
    """A state whose messages are kept as deltas."""
    channel: Any = importlib.import_module("langgraph.channels.delta").DeltaChannel
    reducer: Any = importlib.import_module("langgraph.graph.message")._messages_delta_reducer  # noqa: SLF001 - it has no public name yet
    return make_dataclass("Deltas", [("messages", Annotated[list[Any], channel(reducer)])])


def _talk(state: Any, saver: Any) -> Callable[[], int]:  # noqa: ANN401 - LangGraph's own
    """A conversation; each call is a turn, and says how many messages there are."""
    graphs: Any = importlib.import_module("langgraph.graph")
    messages: Any = importlib.import_module("langchain_core.messages")
    builder = graphs.StateGraph(state)
    builder.add_node("answer", lambda _: {"messages": [_answer(messages)]})
    builder.add_edge(graphs.START, "answer")
    graph: Any = builder.compile(checkpointer=saver)
    kept: list[Any] = []

    def turn() -> int:
        question = [messages.HumanMessage(_QUESTION)]
        if saver is None:
            kept[:] = graph.invoke({"messages": kept + question})["messages"]
            return len(kept)
        return len(graph.invoke({"messages": question}, _THREAD)["messages"])

    return turn


def _answer(messages: Any) -> Any:  # noqa: ANN401 - LangChain's own
    return messages.AIMessage(
        _ANSWER,
        usage_metadata={"input_tokens": 210, "output_tokens": 48, "total_tokens": 258},
        response_metadata={"model_name": "gpt-test", "finish_reason": "stop"},
    )
