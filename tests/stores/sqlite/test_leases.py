"""Leases in a file: by the machine's monotonic clock, until it is started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import apsw
import pytest

import palaver
from palaver.errors import LeaseTaken
from palaver.messages.ids import now_ms
from palaver.stores import holders
from palaver.stores.sqlite import SQLiteBackend, backend

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lease_of_before_a_restart_is_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with palaver.open(path) as store:
        name = store.create().id
        held = store.lease(name, "anna", seconds=60)
        monkeypatch.setattr(backend, "boot_id", lambda: "another start of the machine")
        taken = store.lease(name, "bert", seconds=60)
        assert taken.token > held.token
        with pytest.raises(LeaseTaken, match="bert"):
            store.lease(name, "anna")


@pytest.mark.parametrize("now", [0, 86_400_000])
def test_without_a_boot_id_a_restart_is_known_by_its_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    """The clock begins anew: a lease that would begin only later, or ended before, is over."""
    monkeypatch.setattr(backend, "boot_id", lambda: "")
    monkeypatch.setattr(backend, "monotonic_ms", lambda: 1_000_000)
    with palaver.open(path) as store:
        name = store.create().id
        held = store.lease(name, "anna", seconds=60)
        with pytest.raises(LeaseTaken, match=r"anna has the lease for another 60\.000 s"):
            store.lease(name, "bert")
        monkeypatch.setattr(backend, "monotonic_ms", lambda: now)
        assert store.lease(name, "bert").token > held.token


def test_a_lease_that_an_earlier_palaver_took_meanwhile_is_over(path: Path) -> None:
    """One that had the file open before it was migrated writes wall clock times into it."""
    with palaver.open(path) as store:
        name = store.create().id
        held = store.lease(name, "anna", seconds=60)
        assert isinstance(store.backend, SQLiteBackend)
        store.backend._writer.execute(
            "UPDATE leases SET holder = 'old', token = token + 1, expires = ?", (now_ms() + 60_000,)
        )
        assert store.lease(name, "bert").token > held.token + 1


def test_the_boot_id_is_the_same_for_all_processes_of_a_start() -> None:
    assert holders.boot_id() == holders.boot_id.__wrapped__()


TAKE = """
import os, sys, time
import palaver
from palaver.stores.holders import holder_name
store = palaver.open(sys.argv[1])
store.lease("talk", sys.argv[2] or holder_name(), seconds=3_600)
print("taken", flush=True)
time.sleep(60)
"""


def taken_by_another_process(path: Path, holder: str = "") -> subprocess.Popen[bytes]:
    """A process that holds the lease of a conversation, and is to be killed."""
    command = [sys.executable, "-c", TAKE, str(path), holder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert b"taken\n" == process.stdout.readline()
    return process


@pytest.mark.parametrize("is_reaped", [True, False])
def test_the_lease_of_a_process_that_was_killed_is_over(path: Path, is_reaped: bool) -> None:  # noqa: FBT001 - a case
    with palaver.open(path) as store:
        store.create(id="talk")
        process = taken_by_another_process(path)
        with pytest.raises(LeaseTaken, match=f"process {process.pid} on"):
            store.lease("talk", "bert")
        process.kill()
        if is_reaped:
            process.wait()
        else:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        lease = store.lease("talk", "bert")
        assert 1 < lease.token
        assert lease.token == store.lease("talk", "bert").token
        process.communicate()


def test_a_lease_under_a_name_that_others_may_use_outlives_its_process(path: Path) -> None:
    with palaver.open(path) as store:
        store.create(id="talk")
        process = taken_by_another_process(path, "anna")
        process.kill()
        process.communicate()
        with pytest.raises(LeaseTaken, match="anna"):
            store.lease("talk", "bert")
        assert 1 == store.lease("talk", "anna").token


@pytest.mark.parametrize(
    "told",
    ["pid:[1] {boot}/{pid}/{start}", "{space} another/{pid}/{start}", "{space} {boot}/x/{start}",
     "{space} {boot}", "{boot}/{pid}/{start}", "", "nonsense", None],
)  # fmt: skip
def test_a_process_that_is_not_known_here_may_still_run(path: Path, told: str | None) -> None:
    """One of another container or another start of the machine, or what a damaged file says."""
    made = holders.process_of(holders.holder_name())
    if made is None:
        pytest.skip("it is seen in /proc")
    space, boot, _, start = (made.replace("/", " ")).split()
    process = (
        None if told is None else told.format(space=space, boot=boot, pid=2**22 + 1, start=start)
    )
    with palaver.open(path) as store:
        store.create(id="talk")
        store.lease("talk", "anna", seconds=60)
        assert isinstance(store.backend, SQLiteBackend)
        store.backend._writer.execute("UPDATE leases SET process = ?", (process,))
        with pytest.raises(LeaseTaken, match="anna"):
            store.lease("talk", "bert")
    assert holders.has_ended(f"{space} {boot}/{2**22 + 1}/{start}")
    assert not holders.has_ended(made)


@pytest.mark.parametrize("refusal", [None, PermissionError()])
def test_a_process_that_can_not_be_looked_at_may_still_run(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception | None
) -> None:
    """It is hidden as another user's, or this process has no file left to look with."""
    made = holders.process_of(holders.holder_name())

    def kill(pid: int, signal: int) -> None:
        assert (os.getpid(), 0) == (pid, signal)
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(holders, "_process_facts", lambda _: [])
    monkeypatch.setattr(os, "kill", kill)
    assert not holders.has_ended(made)


def test_who_waited_for_another_writer_sees_that_ones_lease(path: Path) -> None:
    """The clock is read once nobody else can write, or a lease that began later seems old."""
    with palaver.open(path) as store, ThreadPoolExecutor() as pool:
        store.create(id="talk")
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        asked = pool.submit(store.lease, "talk", "bert")
        time.sleep(0.05)
        begins = holders.monotonic_ms()
        other.execute(
            "INSERT INTO leases (cid, holder, token, expires, lasts, boot) "
            "SELECT cid, 'anna', 1, ?, 60000, ? FROM conversations",
            (begins + 60_000, holders.boot_id()),
        )
        other.execute("COMMIT")
        other.close()
        with pytest.raises(LeaseTaken, match="anna"):
            asked.result()
