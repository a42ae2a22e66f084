"""Where a team stands, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import StoreDamaged
from palaver.team import Route, TeamState, TeamTurn, TurnRequest
from palaver.team.state import read_state
from tests.profiles import at_least

NAMES = ("ann", "bob", "carol")


def waiting(state: TeamState) -> list[tuple[str, int]]:
    return [(turn.member, turn.priority) for turn in state.queue]


def test_turns_of_the_same_priority_keep_their_order() -> None:
    state, _ = TeamState().enqueue(Route(calls=(TurnRequest("ann", 3), TurnRequest("bob"))), 9)
    state, _ = state.enqueue(
        Route(calls=(TurnRequest("carol"), TurnRequest("ann", 1), TurnRequest("bob", 3))), 9
    )
    assert [("ann", 1), ("bob", 2), ("carol", 2), ("ann", 3), ("bob", 3)] == waiting(state)


def test_what_is_dropped_makes_room_first() -> None:
    state, _ = TeamState().enqueue(Route(calls=(TurnRequest("ann"), TurnRequest("bob"))), 2)
    state, overflow = state.enqueue(
        Route(calls=(TurnRequest("carol"), TurnRequest("ann")), drop=("bob",)), 2
    )
    assert [("ann", 2), ("carol", 2)] == waiting(state)
    assert ("ann",) == overflow
    assert () == state.enqueue(Route(drop=None), 2)[0].queue


def test_a_turn_begins_and_ends_and_is_counted() -> None:
    state, _ = TeamState().enqueue(Route(calls=(TurnRequest("ann"), TurnRequest("bob"))), 9)
    begun = state.begin_turn()
    assert ("ann", [("bob", 2)]) == (begun.begun and begun.begun.member, waiting(begun))
    assert "mark" == getattr(begun.set_process("mark").begun, "process", None)
    assert (None, 1) == (begun.end_turn().begun, begun.end_turn().turns)
    assert (0, "eve", None) == (
        (heard := begun.end_turn().hand_to("eve", "lost").hear("eve")).turns,
        heard.human,
        heard.floor,
    )
    assert TeamState() == TeamState().set_process("mark")


def test_it_is_read_as_it_was_written() -> None:
    state = TeamState(
        queue=(TeamTurn("1", "ann", 3),), begun=TeamTurn("2", "bob"), floor="eve", turns=4
    )
    kind, name, value = state.record()
    assert value is not None
    assert ("team", state) == (kind, read_state({name: value}))
    assert TeamState() == read_state({})


def test_a_damaged_one_is_an_error() -> None:
    with pytest.raises(StoreDamaged, match="the stored state of the team can't be read"):
        read_state({"state": b'{"queue": 3}'})


@at_least(200)
@given(st.lists(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 3)), max_size=5)))
def test_no_turn_is_lost_and_the_queue_is_in_order(rounds: list[list[tuple[str, int]]]) -> None:
    """A plain list, sorted by priority and by when it was called, says the same."""
    state, model = TeamState(), list[tuple[str, int]]()
    for calls in rounds:
        room = 12 - len(model)
        state, overflow = state.enqueue(
            Route(calls=tuple(TurnRequest(*call) for call in calls)), 12
        )
        model = sorted([*model, *calls[:room]], key=lambda call: call[1])
        assert tuple(name for name, _ in calls[room:]) == overflow
    assert model == waiting(state)
