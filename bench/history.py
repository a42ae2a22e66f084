"""Histories beside a plain list, S0's deep copies, and LangGraph's message reducer.

Whatever keeps snapshots here keeps them there too. Flatness is measured by asking the same question
of a short and of a long history: the floor is the short one.
"""

from __future__ import annotations

import importlib
import json
import random
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

from bench.harness import (
    AtLeast,
    AtMost,
    Below,
    Row,
    Run,
    against_floor,
    against_peer,
    timed,
)
from palaver.history import BaseHistory, History
from palaver.messages import Message, assistant, user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["rows"]

_MANY: Final = 100_000
_EDITS: Final = 10_000
_CALLS: Final = 200
_LENGTHS: Final = (1_000, 100_000, 1_000_000)


def rows(run: Run) -> Iterator[Row]:
    """Appends, edits, memory, and questions that must not depend on the length."""
    messages = _messages(_MANY)
    yield from _appends(run, messages)
    yield from _inserts(run, messages)
    yield _snapshots(messages)
    yield _memory()
    yield from _reducer(run)
    yield from _flatness(run)


def _messages(count: int) -> list[Message]:
    return [
        user(f"question {number}") if number % 2 else assistant(f"answer {number}")
        for number in range(count)
    ]


def _appends(run: Run, messages: list[Message]) -> Iterator[Row]:
    def one_by_one(add: Callable[[Message], object]) -> None:
        for message in messages:
            add(message)

    took = timed(
        run.rounds(10),
        {
            "history": lambda _: one_by_one(History().append),
            "list": lambda _: one_by_one(list[Message]().append),
            "bulk": lambda _: History().extend(messages),
        },
        repeats=1,
    )
    note = "floor: list.append, one message at a time"
    yield against_floor(
        "append one by one", took["history"], took["list"], n=_MANY, goal=AtMost(30), note=note
    )
    yield against_floor(
        "append in bulk", took["bulk"], took["list"], n=_MANY, goal=AtMost(10), note=note
    )


def _inserts(run: Run, messages: list[Message]) -> Iterator[Row]:
    new = user("in the middle")
    plain = [{"role": message.role, "content": message.text} for message in messages]
    middle = _MANY // 2
    kept: list[Any] = []

    def insert(_: int) -> None:
        history.insert(middle, [new])

    def shallow(_: int) -> None:
        copy = list(messages)
        copy.insert(middle, new)
        kept[:] = [copy]

    def deep(_: int) -> None:
        copy = json.loads(json.dumps(plain))
        copy.insert(middle, {"role": "user", "content": "in the middle"})
        kept[:] = [copy]

    history = History(messages)
    fine = timed(run.rounds(50), {"palaver": insert, "shallow": shallow}, repeats=20)
    slow = timed(run.rounds(10), {"palaver": insert, "deep": deep}, repeats=1)
    yield against_peer(
        "insert in the middle, against a deep copy", fine["palaver"], slow["deep"], n=_MANY,
        goal=AtLeast(1_000), note="peer: the snapshot as a deep copy through JSON, as S0 has it",
    )  # fmt: skip
    yield against_peer(
        "insert in the middle, against a shallow copy", fine["palaver"], fine["shallow"], n=_MANY,
        goal=AtLeast(1), note="peer: the snapshot as list(messages)",
    )  # fmt: skip


def _broken_up(messages: list[Message], edits: int) -> BaseHistory:
    chance = random.Random(7)  # noqa: S311 - the same every time
    history = History(messages)
    for number in range(edits):
        place = chance.randrange(len(history))
        if number % 2:
            history.insert(place, [user(f"new {number}")])
        else:
            history.replace(place, user(f"new {number}"))
    return history


def _snapshots(messages: list[Message]) -> Row:
    tracemalloc.start()
    history = History(messages)
    before = tracemalloc.get_traced_memory()[0]
    chance = random.Random(7)  # noqa: S311 - the same every time
    for number in range(_EDITS):
        place = chance.randrange(len(history))
        if number % 2:
            history.insert(place, [user(f"new {number}")])
        else:
            history.replace(place, user(f"new {number}"))
    used = (tracemalloc.get_traced_memory()[0] - before) / 1e6
    tracemalloc.stop()
    copies = _EDITS * _MANY * 8 / 1e6
    return against_peer(
        "memory of 10,000 edits, every snapshot kept", used, copies, n=_EDITS, unit="MB",
        goal=Below(40, "MB"), note="peer: 10,000 shallow lists of 100,000, by arithmetic",
    )  # fmt: skip


def _memory() -> Row:
    count = 100_000
    texts = [f"a message of ordinary length, number {number}" for number in range(count)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    history = History()
    for text in texts:
        history.append(user(text))
    used = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    return against_floor(
        "memory of a message over its text", used, 8.0, n=len(history), unit="bytes",
        goal=Below(350, "bytes"), note="floor: a place in a list",
    )  # fmt: skip


def _reducer(run: Run) -> Iterator[Row]:
    # peers are installed where `make bench` runs, and nowhere else
    human: Any = importlib.import_module("langchain_core.messages").HumanMessage
    add_messages: Any = importlib.import_module("langgraph.graph.message").add_messages

    count = 10_000
    history = History(_messages(count))
    theirs: Any = [human(f"question {n}", id=str(n)) for n in range(count)]
    plain = _messages(count)
    took = timed(
        run.rounds(20),
        {
            "palaver": lambda _: history.append(user("one more")),
            "reducer": lambda n: add_messages(theirs, [human("one more", id=f"new {n}")]),
            "list": lambda _: [*plain, user("one more")],
        },
    )
    yield against_peer(
        "append, against LangGraph's add_messages", took["palaver"], took["reducer"], n=count,
        note="peer: the reducer of LangGraph's message state",
    )  # fmt: skip
    yield against_peer(
        "append, against a list made anew", took["palaver"], took["list"], n=count,
        note="peer: [*messages, message]",
    )  # fmt: skip
    took = timed(
        run.rounds(20),
        {
            "palaver": lambda _: history.recent(3, role="user"),
            "scan": lambda _: [message for message in plain if message.role == "user"][-3:],
        },
    )
    yield against_peer(
        "recent 3 of a role, against a scan", took["palaver"], took["scan"], n=count,
        note="peer: a list comprehension over all messages",
    )  # fmt: skip


def _flatness(run: Run) -> Iterator[Row]:
    for shape in ("whole", "broken-up"):
        histories = {
            length: History(_messages(length)) if shape == "whole"
            else _broken_up(_messages(length), length // 10)
            for length in (_LENGTHS[:2] if run.quick else _LENGTHS)
        }  # fmt: skip
        questions = {
            "recent 3 of a role": _recent,
            "count of a role": _count,
            "rollback anywhere": _rollback,
        }
        for name, ask in questions.items():
            asked = {str(length): ask(history) for length, history in histories.items()}
            took = timed(run.rounds(20), asked, repeats=_CALLS)
            first, last = str(min(histories)), str(max(histories))
            yield against_floor(
                f"{name}, {shape}", took[last] * 1e3, took[first] * 1e3, n=max(histories),
                unit="µs", goal=AtMost(3), note=f"floor: the same of {min(histories):,} messages",
            )  # fmt: skip


def _recent(history: BaseHistory) -> Callable[[int], object]:
    return lambda _: history.recent(3, role="user")


def _count(history: BaseHistory) -> Callable[[int], object]:
    return lambda _: history.count(role="user")


def _rollback(history: BaseHistory) -> Callable[[int], object]:
    chance = random.Random(3)  # noqa: S311 - the same every time
    if not history.batch_index:
        for _ in range(10):
            history.insert(len(history) // 2, [user("x")])
    batches = history.batch_index

    def there_and_back(_: int) -> None:
        history.rollback(chance.randrange(batches))
        history.redo()

    return there_and_back
