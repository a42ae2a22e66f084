"""Who speaks next, read from what a member wrote."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.context import find_markers
from palaver.team import CommandMember, Human, Route, Team, TurnRequest, read_route
from tests.profiles import at_least

USER = Human(id="user")
TEAM = Team(
    members=[
        USER,
        CommandMember(id="max", name="Max Power", argv=["x"]),
        CommandMember(id="sarah", argv=["x"]),
        CommandMember(id="team-lead_2", argv=["x"]),
    ],
    routes={"sarah": ["USER", "max"]},
)
SARAH = TEAM.members[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nobody in particular.", ()),
        ("[NEXT: max]", (TurnRequest("max"),)),
        ("[next:max power]", (TurnRequest("max"),)),
        ("[NEXT: MAX_POWER, TeamLead2]", (TurnRequest("max"), TurnRequest("team-lead_2"))),
        ("[NEXT: max!P1, sarah ! p3]", (TurnRequest("max", 1), TurnRequest("sarah", 3))),
        ("[NEXT: max!P3] and [NEXT: max!P1]", (TurnRequest("max", 1),)),
        ("[NEXT: , max,,]", (TurnRequest("max"),)),
        ("[NEXT:]", ()),
        ("[FROM: max]", ()),
        ("[TEAM_TASK: max]", ()),
        ("[NEXT: user]", (TurnRequest("user"),)),
    ],
)
def test_names_are_found_however_they_are_spelled(
    text: str, expected: tuple[TurnRequest, ...]
) -> None:
    """TM-01."""
    assert expected == read_route(text, USER, TEAM).calls


@pytest.mark.parametrize("name", ["bob", "max!P4", "max!", "!P1", "ma\u0131", "all"])
def test_a_name_that_nobody_has_is_reported(name: str) -> None:
    route = read_route(f"[NEXT: {name}]", USER, TEAM)
    assert ((), (name,), True) == (route.calls, route.unknown, route.lost)


def test_a_route_that_is_not_allowed_is_reported() -> None:
    """TM-03."""
    route = read_route("[NEXT: sarah, max]", SARAH, TEAM)
    assert ((TurnRequest("max"),), ("sarah",), False) == (route.calls, route.refused, route.lost)
    assert read_route("[NEXT: sarah]", SARAH, TEAM).lost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[DROP: ALL]", None),
        ("[drop: max, all]", None),
        ("[DROP: Max Power, sarah]", ("max", "sarah")),
        ("[DROP:]", ()),
    ],
)
def test_what_is_dropped(text: str, expected: tuple[str, ...] | None) -> None:
    assert expected == read_route(text, USER, TEAM).drop


def test_a_wrong_name_to_drop_is_reported_too() -> None:
    assert ("bob",) == read_route("[DROP: bob]", USER, TEAM).unknown


def test_a_route_is_kept_as_data() -> None:
    text = "[DROP: sarah] Go. [NEXT: max!P1, bob]"
    routing = read_route(text, USER, TEAM).to_routing(overflow=["max"])
    assert routing is not None
    assert ("max",) == routing.resolved_addressees
    assert {
        "rawNextMarkers": ["[NEXT: max!P1, bob]"],
        "next": [{"member": "max", "priority": 1}],
        "drop": ["sarah"],
        "unknown": ["bob"],
        "overflow": ["max"],
    } == routing.extra
    assert Route().to_routing() is None
    everything = read_route("[DROP: ALL]", USER, TEAM).to_routing()
    assert everything is not None
    assert {"drop": "ALL"} == everything.extra


def test_a_report_stays_short_and_a_long_list_is_read_quickly() -> None:
    """Linear in the text: 768 KB of names take no longer than a glance."""
    names = ",".join(f"nobody{place}" for place in range(60_000))
    started = time.process_time()
    route = read_route(f"[NEXT: {names}, max]", USER, TEAM)
    assert time.process_time() - started < 5
    assert (TurnRequest("max"),) == route.calls
    assert 20 == len(route.unknown)
    assert 100 == max(map(len, read_route(f"[NEXT: {'x' * 999}]", USER, TEAM).unknown))


@at_least(200)
@given(st.text(alphabet="[]NEXT: DROPmax,sarah!P1>`\n", max_size=80))
def test_nobody_is_called_but_members_and_only_by_markers(text: str) -> None:
    route = read_route(text, USER, TEAM)
    known = {member.id for member in TEAM.members}
    assert {call.member for call in route.calls} <= known
    if not find_markers(text):
        assert Route() == route
