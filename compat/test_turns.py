"""The turns of runs on a conversation: leases that are renewed while a run is silent."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.adapters import _turns
from palaver.adapters._turns import Turn, check_seconds
from palaver.errors import LeaseTaken, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store


@pytest.fixture
def talk(here: Store) -> Store:
    """A store with a conversation."""
    here.create(id="talk")
    return here


def is_taken(store: Store) -> bool:
    """Whether somebody has the turn; if not, it is left as it was."""
    try:
        store.release(store.lease("talk", "somebody", seconds=1))
    except LeaseTaken:
        return True
    return False


def wait_until(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_turn_is_taken_gone_on_with_and_released(talk: Store) -> None:
    turn = Turn(talk, "talk", 60)
    assert [False, True, True] == [turn.take(), turn.take(), turn.take()]
    assert is_taken(talk)
    turn.release()
    turn.release()
    assert not is_taken(talk)
    assert turn.take() is False  # somebody had it
    turn.release()
    assert turn.take() is True
    lease = turn.let_go()
    assert turn.lease is None
    assert is_taken(talk)
    turn.release(lease)
    assert not is_taken(talk)


def test_a_turn_lasts_while_its_run_is_silent(talk: Store) -> None:
    turns = [Turn(talk, "talk", 0.3), Turn(talk, talk.create(id="other").id, 60)]
    for turn in turns:
        turn.take()
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert is_taken(talk)
        time.sleep(0.02)
    assert turns[0].take() is True
    turns[0].release()
    assert not is_taken(talk)


def test_a_turn_of_which_nobody_has_the_object_ends(talk: Store) -> None:
    Turn(talk, "talk", 0.1).take()
    wait_until(lambda: not is_taken(talk))


def test_a_run_that_is_silent_for_too_long_has_had_its_turn(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.1, silent_seconds=0.3)
    turn.take()
    began = time.monotonic()
    wait_until(lambda: not is_taken(talk))
    assert time.monotonic() - began > 0.3
    assert turn.take() is False  # somebody had it
    until = time.monotonic() + 0.25
    while time.monotonic() < until:  # and it lasts again
        assert is_taken(talk)
        time.sleep(0.02)
    turn.release()


def test_a_turn_that_went_to_another_run_is_left_to_it(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.15)
    turn.take()
    assert turn.lease is not None
    talk.release(turn.lease)  # as if this process had been asleep for long
    other = talk.lease("talk", "another", seconds=0.5)
    time.sleep(0.2)
    with pytest.raises(LeaseTaken):
        turn.take()
    talk.release(other)
    assert turn.take() is False
    assert turn.take() is True
    turn.release()


def test_a_turn_that_was_free_in_between_is_not_taken_again_by_its_thread(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.3)
    turn.take()
    assert turn.lease is not None
    talk.release(turn.lease)
    talk.release(talk.lease("talk", "another", seconds=60))  # and has ended by now
    wait_until(lambda: not turn._is_watched)
    assert not is_taken(talk)
    assert turn.take() is False
    turn.release()


def test_a_store_that_fails_for_a_moment_costs_no_turn(
    talk: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn, lease = Turn(talk, "talk", 0.6), talk.lease
    turn.take()

    def fail(*_given: Any, **_more: Any) -> Any:
        monkeypatch.setattr(talk, "lease", lease)
        raise StoreError("no connection")

    monkeypatch.setattr(talk, "lease", fail)
    wait_until(lambda: "not renewed: no connection" in caplog.text)
    time.sleep(0.6)
    assert is_taken(talk)
    turn.release()


def take_turn(address: str, told: Any) -> None:
    """In a child: a thread of its own renews its turns."""
    turn = Turn(palaver.open(address), "talk", 0.1)
    turn.take()
    told.send("taken")
    time.sleep(60)


def test_a_child_renews_its_turns_itself(tmp_path: Any) -> None:
    address = str(tmp_path / "chat.db")
    with palaver.open(address) as store:
        turn = Turn(store, store.create(id="talk").id, 0.1)
        turn.take()  # whose thread the child lacks
        turn.release()
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    child = fork.Process(target=take_turn, args=(address, there))
    child.start()
    assert here.poll(20)
    with palaver.open(address) as store:
        for _ in range(20):
            assert is_taken(store)
            time.sleep(0.02)
        child.kill()
        child.join()
        wait_until(lambda: not is_taken(store))


def test_one_thread_renews_all_turns(talk: Store) -> None:
    turns = [Turn(talk, talk.create().id, 0.2) for _ in range(20)]
    for turn in turns:
        turn.take()
    assert 1 == sum(each.name == "palaver-turns" for each in threading.enumerate())
    wait_until(lambda: len(_turns._watches[0]._due) >= len(turns))
    for turn in turns:
        turn.release()
    wait_until(lambda: not any(turn._is_watched for turn in turns))


def test_wrong_times_are_refused() -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="turn_seconds must be more than 0"):
            check_seconds(seconds, 0)
    with pytest.raises(ValueError, match="wait_seconds must be 0 or more"):
        check_seconds(1, -1)
