"""Leases in a file: by the machine's monotonic clock, until it is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import LeaseTaken
from palaver.messages.ids import now_ms
from palaver.stores import records
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
    assert records.boot_id() == records.boot_id.__wrapped__()
