"""Processes that write to one file take turns, and a single writer hardly stops."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.sqlite.connections import FairTurns
from tests.patience import within

if TYPE_CHECKING:
    from pathlib import Path


class Time:
    """A time that only sleeping and working takes."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found


def write(turns: FairTurns, clock: Time, *, seconds: float = 0.001) -> None:
    turns.begin()
    clock.now += seconds
    turns.end()


def test_everybody_who_writes_all_the_time_gets_a_turn(path: Path) -> None:
    """Eight writers that each hold the file for a moment, again at once, until all had ten turns.

    The one that came first takes itself for alone and has some hundred; without breaks, the last
    one would have its first turn after thousands.
    """
    backends = [SQLiteBackend(str(path)) for _ in range(8)]
    counts = [0] * len(backends)
    start = threading.Barrier(len(backends))

    def work(number: int) -> None:
        start.wait()
        while min(counts) < 10 and sum(counts) < 2_000:
            backends[number]._write(lambda: time.sleep(0.002))
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(backends))]
    with within(60):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for backend in backends:
        backend.close()
    assert min(counts) >= 10, counts


def test_who_writes_alone_hardly_stops(clock: Time) -> None:
    turns = FairTurns()
    for _ in range(10_000):
        write(turns, clock)
    assert 0 < clock.slept < 0.01 * 10_000 * 0.001


def test_who_writes_now_and_then_never_stops(clock: Time) -> None:
    turns = FairTurns()
    turns.wait(0)
    waited = clock.slept
    for _ in range(1_000):
        write(turns, clock)
        clock.now += 0.01
    assert waited == clock.slept


def test_who_met_others_stops_after_a_turn_and_more_and_more_seldom(clock: Time) -> None:
    turns = FairTurns()
    turns.wait(0)
    turns_had = list[int]()
    for _ in range(7):
        before, writes = clock.slept, 0
        while clock.slept == before:
            write(turns, clock)
            writes += 1
        turns_had.append(writes)
    assert sorted(turns_had) == turns_had
    assert turns_had[0] < 20
    assert turns_had[-1] > 10 * turns_had[0]
    turns.wait(0)
    before = clock.slept
    for _ in range(20):
        write(turns, clock)
    assert clock.slept > before


def test_a_file_that_stays_locked_is_waited_for_for_a_minute(clock: Time) -> None:
    turns, times = FairTurns(), 0
    began = clock.now
    while turns.wait(times):
        times += 1
    assert 60 < clock.now - began < 61
    assert turns.wait(0)
