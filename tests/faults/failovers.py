"""A primary is killed, and its synchronous standby promoted, while many write and one follows.

Writers and a follower have an address with both hosts, and are told nothing. What was acknowledged
is on the new primary, once; the follower hears every change once; no writer sees an error. A new
standby is made from the new primary each time, in the folder of the killed one.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import psycopg

import palaver
from palaver.messages import user
from tests.faults.tally import Tally
from tests.patience import within
from tests.stores.postgres_server import serving, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import JournalEntry
    from tests.stores.postgres_server import Server

__all__ = ["GOAL", "NAME", "run"]

NAME: Final = "primary killed and its synchronous standby promoted, PostgreSQL"
GOAL: Final = "30 failovers, none lost, none twice, writers back within 5 s of the promotion"
WRITERS: Final = 6
BACK: Final = 5.0
"""Seconds after which every writer must have gone on."""
_LIMIT: Final = 120.0


class _Writers:
    """Those who write, one who follows, and what they have done."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.stop = threading.Event()
        self.acknowledged: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.heard: list[JournalEntry] = []
        self.last = [0.0] * WRITERS
        self.reads = 0
        with palaver.open(address) as store:
            self.shared = store.create(id="shared").id
            store.get(self.shared).append(user("first"))
            self.start = store.newest()

    def write(self, number: int) -> None:
        """Write until it is over."""
        draw = random.Random(number)  # noqa: S311 - no secret
        with palaver.open(self.address) as store:
            own = [store.get(self.shared), store.create(id=f"own-{number}")]
            count = 0
            while not self.stop.is_set():
                count += 1
                self._step(store, own, draw, f"{number}-{count}")
                self.last[number] = time.monotonic()

    def _step(self, store: Store, own: list[StoredHistory], draw: random.Random, text: str) -> None:
        """Append, create or fork; half of the appends under no key, and sent again all the same."""
        chance = draw.random()
        if chance < 0.02:
            own[1] = store.create([user(text)], id=f"talk-{text}", key=text)
        elif chance < 0.04:
            own[1] = own[1].fork(id=f"fork-{text}", key=text)
            own[1].append(user(text), key=f"{text}+")
        else:
            history = draw.choice(own)
            history.append(user(text), key=text if draw.random() < 0.5 else None)
            self.acknowledged.append((history.id, text))
            return
        self.acknowledged.append((own[1].id, text))

    def guarded(self, work: Callable[[], None]) -> None:
        """Do something until it is over, or fails."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - all of them are counted
            self.errors.append(f"{type(error).__name__}: {error}")

    def follow(self) -> None:
        """Follow the whole store, until nothing more can come."""
        with palaver.open(self.address) as store:
            cursor = self.start
            while True:
                done = self.stop.is_set()
                for change in store.follow(after=cursor, seconds=1):
                    self.heard.append(change)
                    cursor = change.cursor
                if done:
                    return

    def read(self) -> None:
        """Read from the standby, where there is one; never an older version than before."""
        last = 0
        with palaver.open(self.address, read="replica") as store:
            while not self.stop.is_set():
                history = store.get(self.shared, last=5)
                found = history.version
                if found < last or len(history) != found or not history[-1].text:
                    self.errors.append(f"{len(history)} messages at {found}, after {last}")
                last = found
                self.reads += 1

    def await_all(self, since: float) -> None:
        """Wait until every writer has done a step since a time."""
        end = time.monotonic() + _LIMIT
        while min(self.last) <= since and not self.errors and time.monotonic() < end:
            time.sleep(0.01)


def run(count: int, seed: int) -> Tally:
    """Kill the primary and promote its standby so many times."""
    tally = Tally(NAME, "failovers", GOAL)
    draw = random.Random(f"failovers/{seed}")  # noqa: S311 - no secret
    with ExitStack() as rooms, within(120 + 60 * count):
        primary, standby = (
            rooms.enter_context(serving(wal_retrieve_retry_interval="200ms")) for _ in range(2)
        )
        address = together("postgres", primary, standby)
        _pair(primary, standby)
        writers = _Writers(address)
        pool = rooms.enter_context(ThreadPoolExecutor(WRITERS + 2))
        jobs: list[Callable[[], None]] = [partial(writers.write, n) for n in range(WRITERS)]
        jobs += [writers.follow, writers.read]
        work = [pool.submit(writers.guarded, job) for job in jobs]
        slowest = 0.0
        try:
            for number in range(count):
                writers.await_all(time.monotonic())  # all of them are at it
                time.sleep(draw.random() * 0.3)
                primary.stop(signal.SIGKILL)
                killed = time.monotonic()
                standby.promote()
                promoted = time.monotonic()
                writers.await_all(killed)
                taken = time.monotonic() - promoted
                slowest = max(slowest, taken)
                story = f"seed {seed}, failover {number}: {taken:.1f} s"
                if writers.errors:
                    break
                if taken > BACK:
                    tally.fail("late", story)
                else:
                    tally.count("writers back in a second" if taken < 1 else "in five seconds")
                primary, standby = standby, primary
                _pair(primary, standby)
        finally:
            writers.stop.set()
        for each in work:
            each.result()
        _prove(writers, tally, f"seed {seed}, the slowest after {slowest:.2f} s")
    return tally


def _pair(primary: Server, standby: Server) -> None:
    """Make one the other's standby, and let the other wait for it with every commit."""
    standby.follow(primary)
    with psycopg.connect(primary.address("postgres"), autocommit=True) as line:
        line.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        line.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _LIMIT
        while line.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                           ).fetchone() is None:  # fmt: skip
            assert time.monotonic() < end, "the standby does not follow"
            time.sleep(0.01)


def _prove(writers: _Writers, tally: Tally, story: str) -> None:
    """Find what was acknowledged, each once, and nothing else; and all of it in the feed."""
    with palaver.open(writers.address) as store:
        heads = list(store)
        stored = Counter(
            (head.id, message.text)
            for head in heads
            for message in store.messages(head.id, head.base, head.length)
        )
        for problem in store.verify():
            tally.fail("corrupt", f"{story}: {problem}")
    acknowledged = Counter([(writers.shared, "first"), *writers.acknowledged])
    for error in writers.errors:
        tally.fail("an error surfaced", f"{story}: {error}")
    for which in acknowledged - stored:
        tally.fail("lost", f"{story}: {which}")
    for which in stored - acknowledged:
        tally.fail("twice" if stored[which] > 1 else "not acknowledged", f"{story}: {which}")
    heard: dict[str, list[int]] = {head.id: [] for head in heads}
    for change in writers.heard:
        heard[change.conversation].append(change.version)
    for head in heads:
        if list(range(2 * (head.id == writers.shared), head.version + 1)) != heard[head.id]:
            tally.fail("missing in the feed", f"{story}: {head.id}")
