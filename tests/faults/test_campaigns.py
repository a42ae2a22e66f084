"""The campaigns: a slice of each with all other tests, the whole of each by `make faults`.

The large ones are in shares, so that processes can work on them side by side.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults import (
    asks,
    crowd,
    cuts,
    damage,
    failovers,
    inputs,
    kills,
    power,
    server_kills,
    service,
    steps,
    takeovers,
)
from tests.faults.scratch import scratch
from tests.profiles import SCALE, scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.tally import Tally

    Told = Callable[[Tally], None]


def test_a_power_cut_leaves_what_was_acknowledged(told: Told) -> None:
    told(power.run(100, seed=0))


def test_the_recordings_hold_commits_and_checkpoints() -> None:
    with scratch() as folder:
        events = power.record("power/0/0", Path(folder) / "run.db")
    for file in ("", "-wal"):
        for kind in ("write", "sync"):
            assert any(event.kind == kind and event.file == file for event in events), (kind, file)


def test_a_killed_process_loses_nothing_and_doubles_nothing(told: Told) -> None:
    told(kills.run(5, seed=0))


def test_a_failing_call_leaves_a_store_that_works(told: Told) -> None:
    told(inputs.run(40, seed=0))


def test_damage_is_reported_or_harmless(told: Told) -> None:
    told(damage.run(40, seed=0))


@pytest.mark.parametrize("kind", crowd.NAMES)
def test_many_processes_lose_nothing(told: Told, kind: str) -> None:
    told(crowd.run(8, seconds=2, seed=0, kind=kind))


def test_a_killed_server_or_client_loses_nothing_and_doubles_nothing(told: Told) -> None:
    told(server_kills.run(4, seed=0))


def test_a_lost_connection_loses_nothing_and_doubles_nothing(told: Told) -> None:
    told(cuts.run(20, seed=0))


def test_a_step_killed_at_any_moment_is_accounted_for(told: Told) -> None:
    """CV-04, CV-06: each call once or not at all, and everybody knows which."""
    told(steps.run(8, seed=0))


@pytest.mark.parametrize("kind", asks.NAMES)
def test_a_question_killed_at_any_moment_is_asked_once(told: Told, kind: str) -> None:
    told(asks.run(2, seed=0, kind=kind))


def test_two_processes_take_over_from_a_killed_one(told: Told) -> None:
    told(takeovers.run(2, seed=0, within=60))


def test_the_service_of_the_docs_asks_once_whatever_is_repeated(told: Told) -> None:
    told(service.run(users=3, questions=1))


@pytest.mark.faults
def test_a_hundred_users_repeat_every_request(told: Told) -> None:
    told(service.run(users=scaled(100), questions=3))


@pytest.mark.faults
@pytest.mark.parametrize("kind", asks.NAMES)
def test_questions_killed_by_the_dozen(told: Told, kind: str) -> None:
    told(asks.run(scaled(30), seed=1, kind=kind))


@pytest.mark.faults
@pytest.mark.parametrize("kind", takeovers.NAMES)
def test_conversations_taken_over_fifty_times(told: Told, kind: str) -> None:
    told(takeovers.run(scaled(50), seed=1, kind=kind))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 3))
def test_steps_killed_by_the_hundred(told: Told, share: int) -> None:
    told(steps.run(scaled(100), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 9))
def test_power_cuts_by_the_thousand(told: Told, share: int) -> None:
    told(power.run(scaled(2_500), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 6))
def test_kills_by_the_hundred(told: Told, share: int) -> None:
    told(kills.run(scaled(100), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 3))
def test_servers_and_clients_killed(told: Told, share: int) -> None:
    told(server_kills.run(scaled(25), seed=share))


@pytest.mark.faults
def test_primaries_killed_and_standbys_promoted(told: Told) -> None:
    told(failovers.run(scaled(30), seed=1))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 3))
def test_connections_cut_by_the_hundred(told: Told, share: int) -> None:
    told(cuts.run(scaled(250), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 3))
def test_every_call_fails_once(told: Told, share: int) -> None:
    told(inputs.run(max(1, round(1 / SCALE)), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 5))
def test_damages_by_the_hundred(told: Told, share: int) -> None:
    told(damage.run(scaled(500), seed=share))


@pytest.mark.faults
@pytest.mark.parametrize("kind", crowd.NAMES)
def test_a_crowd_for_half_a_minute(told: Told, kind: str) -> None:
    told(crowd.run(8, seconds=scaled(30), seed=1, kind=kind))
