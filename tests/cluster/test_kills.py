"""Servers of the cluster are killed while many write: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg

import palaver
from palaver.errors import StoreError
from palaver.messages import user
from tests.cluster.nodes import nodes_of
from tests.cluster.test_cluster import move_shards
from tests.patience import within

if TYPE_CHECKING:
    from palaver.stores.records import JournalEntry

KILLS = int(os.environ.get("PALAVER_KILLS", "3"))
"""How often a worker is killed; the coordinator half as often, and as many shards are moved."""
WRITERS = 8


class Campaign:
    """Writers, a follower, and what they have done."""

    def __init__(self, address: str) -> None:
        """Make a conversation for every writer, and one for all."""
        self.address = address
        self.stop = threading.Event()
        self.ready = threading.Barrier(WRITERS + 2)  # everyone has the store open
        self.acknowledged: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.heard: list[JournalEntry] = []
        with palaver.open(address) as store:
            self.shared = store.create().id
            self.own = [store.create().id for _ in range(WRITERS)]
            self.start = store.newest()

    def write(self, number: int) -> None:
        """Append to both, half of the messages under a key; what fails is not tried again here."""
        draw = random.Random(number)  # noqa: S311 - no secret
        with palaver.open(self.address) as store:
            histories = [store.get(name) for name in (self.shared, self.own[number])]
            self.ready.wait(60)
            for count in range(1_000_000):
                if self.stop.is_set():
                    return
                history, text = draw.choice(histories), f"{number}-{count}"
                try:
                    history.append(user(text), key=text if draw.random() < 0.5 else None)
                    self.acknowledged.append((history.id, text))
                except StoreError as error:
                    self.failed.append((history.id, text))
                    self.errors.append(str(error))

    def follow(self) -> None:
        """Follow the whole store, and go on from the last change after an error."""
        with palaver.open(self.address) as store:
            cursor = self.start
            self.ready.wait(60)
            while True:
                done = self.stop.is_set()
                try:
                    for change in store.follow(after=cursor, seconds=5 if done else 1):
                        self.heard.append(change)
                        cursor = change.cursor
                except StoreError as error:
                    self.errors.append(str(error))
                    time.sleep(0.2)
                    continue
                if done:
                    return


def move_again_and_again(address: str) -> int:
    """Move a group of shards; Citus may first have to tidy up what an earlier move left."""
    for _ in range(40):
        try:
            return move_shards(address, 1)
        except psycopg.Error:
            time.sleep(0.25)
    return 0


def test_nothing_is_lost_while_servers_are_killed_and_shards_move(postgres: str) -> None:
    coordinator, workers = nodes_of(postgres)
    campaign = Campaign(postgres)
    with within(60 + 30 * KILLS), ThreadPoolExecutor(WRITERS + 1) as pool:
        work = [pool.submit(campaign.write, number) for number in range(WRITERS)]
        work.append(pool.submit(campaign.follow))
        moved = 0
        campaign.ready.wait(60)
        try:
            for number in range(KILLS):
                time.sleep(0.5)
                worker = workers[number % len(workers)]
                worker.kill()
                time.sleep(0.3)
                worker.start()
                if number % 2:
                    coordinator.kill()
                    time.sleep(0.3)
                    coordinator.start()
                    moved += move_again_and_again(postgres)
            time.sleep(0.5)
        finally:
            campaign.stop.set()
        for each in work:
            each.result()
    with palaver.open(postgres) as store:
        stored = [
            (name, message.text)
            for name in (campaign.shared, *campaign.own)
            for message in store.get(name)
        ]
        versions = {name: store.head(name).version for name in (campaign.shared, *campaign.own)}
        assert [] == list(store.verify())
    assert KILLS // 2 == moved
    assert len(stored) == len({*stored})
    assert {*campaign.acknowledged} <= {*stored} <= {*campaign.acknowledged, *campaign.failed}
    heard: dict[str, list[int]] = {name: [] for name in versions}
    for change in campaign.heard:
        heard[change.conversation].append(change.version)
    incomplete = {
        name: f"heard {len(heard[name])} of {last}, the last {heard[name][-1:]}"
        for name, last in versions.items()
        if heard[name] != list(range(1, last + 1))
    }
    assert {} == incomplete
    unclear = {error for error in campaign.errors if not re.search("node|connect|server", error)}
    assert set() == unclear
