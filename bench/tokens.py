"""Counting tokens: a long conversation again after one more message, and the newest that fit.

Everybody counts with the same counter. It is a cheap one, the estimate, so that what is compared is
how often it is asked; with a real vocabulary every peer's time grows with its calls.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import palaver
from bench.harness import AtLeast, AtMost, Row, Run, against_floor, against_peer, middle, paired
from bench.turns import for_langchain, for_palaver, turns
from palaver.tokens import RunningTotal, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.turns import Said
    from palaver.history import View

    Ready = Callable[[], object]

__all__ = ["rows"]

_COUNT: Final = 10_000
_BUDGET: Final = 4_000
_APPENDS: Final = 200
_FEWER: Final = 2_000
"""For a peer whose time grows with the square: it takes minutes for 10,000."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_NOTE: Final = "the same counter on both sides: the estimate"


def rows(run: Run) -> Iterator[Row]:
    """One more message, then the newest that fit."""
    said = turns(_COUNT)
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder,
        palaver.open(Path(folder) / "long.db") as store,
    ):
        yield _one_more(said, store, run.rounds(21))
    yield from _newest(said, run)


def _one_more(said: list[Said], store: palaver.Store, rounds: int) -> Row:
    """Count again after every append; the floor is the appends alone."""
    history = store.create(for_palaver(said))
    tally = RunningTotal(estimate)
    tally.total(history.view)
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        appends = counts = 0.0
        for message in for_palaver(said[:_APPENDS]):
            began = time.perf_counter()
            history.append(message)
            between = time.perf_counter()
            tally.total(history.view)
            appends, counts = appends + between - began, counts + time.perf_counter() - between
        found.append((counts / _APPENDS * 1e6, appends / _APPENDS * 1e6))
    count, append = middle(found)
    return against_floor(
        f"tokens of {_COUNT:,} messages again after one append", count, append, n=_COUNT,
        unit="µs", goal=AtMost(1), note=f"floor: the append, SQLite on a memory disk; {_NOTE}",
    )  # fmt: skip


def _newest(said: list[Said], run: Run) -> Iterator[Row]:
    for name, peer, count, rounds in (
        ("LangChain trim_messages", _langchain, _COUNT, run.rounds(5)),  # each takes seconds
        ("LlamaIndex ChatMemoryBuffer.get", _llama_index, _FEWER, 3),
    ):
        view = palaver.open(":memory:").create(for_palaver(said[:count])).view
        list(view)  # everybody has the messages at hand
        warm, theirs = RunningTotal(estimate), peer(said[:count])
        warm.total(view)
        for state, tally in (("warm", warm), ("cold", None)):
            took = paired(rounds, _ours(view, tally), _always(theirs))
            yield against_peer(
                f"newest in {_BUDGET:,} tokens of {count:,}, {state}, against {name}", *took,
                n=count, goal=AtLeast(100) if state == "warm" else None,
                note=f"peer: {name}, which keeps no counts; {_NOTE}",
            )  # fmt: skip


def _always(go: Ready) -> Callable[[int], Ready]:
    return lambda _number: go


def _ours(view: View, tally: RunningTotal | None) -> Callable[[int], Ready]:
    def prepare(_number: int) -> Ready:
        used = RunningTotal(estimate) if tally is None else tally

        def go() -> object:
            return view[used.first_fitting(view, _BUDGET) :]

        return go

    return prepare


def _langchain(said: list[Said]) -> Ready:
    kinds: Any = importlib.import_module("langchain_core.messages")
    messages = for_langchain(said)

    def count(given: Any) -> int:  # noqa: ANN401 - a peer's messages
        return sum(estimate(message.content) for message in given)

    return lambda: kinds.trim_messages(
        messages, max_tokens=_BUDGET, token_counter=count, strategy="last"
    )


def _llama_index(said: list[Said]) -> Ready:
    memory: Any = importlib.import_module("llama_index.core.memory")
    types: Any = importlib.import_module("llama_index.core.llms")
    messages = [types.ChatMessage(role=one.role, content=one.text) for one in said]
    buffer = memory.ChatMemoryBuffer.from_defaults(
        chat_history=messages, token_limit=_BUDGET, tokenizer_fn=lambda text: range(estimate(text))
    )
    get: Ready = buffer.get
    return get
