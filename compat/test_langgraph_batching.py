"""What tasks wrote goes along with the next checkpoint, and nobody returns before it is there."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import palaver
from palaver.adapters.langgraph import PalaverSaver, thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.stores import Store

WRITES = "langgraph-writes"


class Told:
    """A saver on a store that says what is written alone, and that can be held up."""

    def __init__(self, store: Store, patch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.saver = PalaverSaver(store)
        self.alone: list[str] = []
        self.open = threading.Event()
        self.arrived = threading.Event()
        self.open.set()
        put, keep = store.put_record, store.put_records

        def telling(conversation: str, kind: str, name: str, value: bytes | None) -> None:
            self.alone.append(name)
            put(conversation, kind, name, value)

        def waiting(*values: Any, **more: Any) -> None:
            self.arrived.set()
            assert self.open.wait(30)
            keep(*values, **more)

        patch.setattr(store, "put_record", telling)
        patch.setattr(store, "put_records", waiting)

    def put(self, name: str, parent: str | None = None, value: Any = None) -> None:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = name
        new: dict[str, str | int | float] = {} if value is None else {"messages": 1}
        checkpoint["channel_values"] = {} if value is None else {"messages": value}
        checkpoint["channel_versions"] = {**new}
        self.saver.put(_config(parent), checkpoint, {"source": "loop", "step": 0}, new)

    def write(self, checkpoint: str, value: Any = "word") -> None:
        self.saver.put_writes(_config(checkpoint), [("messages", value)], "task")

    def written(self) -> list[str]:
        return list(self.store.records("trip", WRITES))


def _config(checkpoint: str | None) -> Any:
    where = {"thread_id": "trip", "checkpoint_ns": ""}
    return {"configurable": where if checkpoint is None else {**where, "checkpoint_id": checkpoint}}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    with palaver.open(tmp_path / "chat.db") as store:
        yield Told(store, monkeypatch)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as workers:
        yield workers


def _long(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(thread, "_WAIT_STEP", 30)
    patch.setattr(thread, "_MAX_WAIT", 30)


def _busy(told: Told, pool: ThreadPoolExecutor) -> Any:
    """A first checkpoint, held up on its way to the store."""
    told.open.clear()
    first = pool.submit(told.put, "1")
    assert told.arrived.wait(30)
    return first


def _announced(told: Told) -> None:
    """Wait until writes stand behind the checkpoint that is held up."""
    while not told.saver._cached_thread("trip").batcher._in_flight:
        time.sleep(0.001)


def test_writes_while_nobody_is_there_are_written_at_once(told: Told) -> None:
    told.put("1")
    told.write("1")
    assert ["/1/task"] == told.alone == told.written()


SAID = [HumanMessage("word", id="m")]


@pytest.mark.parametrize(("value", "kept"), [("word", None), (SAID, None), (SAID, SAID)])
def test_the_next_checkpoint_takes_writes_along(
    told: Told, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, value: Any, kept: Any
) -> None:
    """While one is being kept, the next one follows at once: no trip to the disk of their own."""
    _long(monkeypatch)
    first = _busy(told, pool)
    writes = pool.submit(told.write, "1", value)
    _announced(told)
    told.open.set()
    first.result(30)
    told.put("2", "1", kept)
    writes.result(30)
    assert [] == told.alone
    assert ["/1/task"] == told.written()
    found = PalaverSaver(told.store).get_tuple(_config("1"))
    assert found is not None
    assert [("task", "messages", value)] == found.pending_writes
    (record,) = told.store.records("trip", WRITES).values()
    assert (b"word" in record) is (kept is None)  # what is in the log is not said again


def test_writes_that_nobody_takes_along_are_written_alone(
    told: Told, pool: ThreadPoolExecutor
) -> None:
    first = _busy(told, pool)
    writes = pool.submit(told.write, "1")
    _announced(told)
    assert not writes.done()
    told.open.set()
    first.result(30)
    writes.result(30)
    assert ["/1/task"] == told.alone == told.written()


def test_another_checkpoint_leaves_them(
    told: Told, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not follow theirs passes by; they wait no longer than they may."""
    monkeypatch.setattr(thread, "_WAIT_STEP", 30)
    monkeypatch.setattr(thread, "_MAX_WAIT", 0.2)
    first = _busy(told, pool)
    writes = pool.submit(told.write, "1")
    _announced(told)
    told.open.set()
    first.result(30)
    while not writes.done():
        told.put("0", "another")
    assert ["/1/task"] == told.alone == told.written()


def test_a_checkpoint_that_fails_leaves_them_to_be_written(
    told: Told, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "_WAIT_STEP", 0.5)
    first = _busy(told, pool)
    writes = pool.submit(told.write, "1")
    _announced(told)

    def failing(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    told.open.set()
    first.result(30)
    monkeypatch.setattr(told.store, "put_records", failing)
    with pytest.raises(OSError, match="disk full"):
        told.put("2", "1")
    writes.result(30)
    assert ["/1/task"] == told.alone == told.written()


def test_a_checkpoint_waits_for_writes_on_their_way(
    told: Told, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says of them replaces what they said: it must come after."""
    told.put("1")
    put, here, going = told.store.put_record, threading.Event(), threading.Event()

    def slow(*values: Any) -> None:
        here.set()
        assert going.wait(30)
        put(*values)

    monkeypatch.setattr(told.store, "put_record", slow)
    said = [HumanMessage("word", id="m")]
    writes = pool.submit(told.write, "1", said)
    assert here.wait(30)
    second = pool.submit(told.put, "2", "1", said)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    going.set()
    second.result(30)
    writes.result(30)
    (record,) = told.store.records("trip", WRITES).values()
    assert b"word" not in record
