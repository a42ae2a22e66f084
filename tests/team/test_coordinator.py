"""Turns: how they are stopped, taken again, and what becomes of those who can't be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from palaver.errors import LeaseLost, LeaseTaken, NetworkError, ValidationError
from palaver.events import Event, EventBus
from palaver.messages import user
from palaver.team import (
    Coordinator,
    Human,
    HumanTurn,
    Member,
    Team,
    TeamLimits,
    TeamState,
    TeamTurn,
)
from palaver.team.routing import describe_team
from tests.conversation.scripted import saying
from tests.team.members import USER, Stage, says, scripted, shell, who

if TYPE_CHECKING:
    from pathlib import Path

    from palaver import Store

pytestmark = pytest.mark.anyio


async def test_everything_is_stored_with_the_message_that_led_to_it(store: Store) -> None:
    """Each message and the state after it are one version: never one without the other."""
    team = Team(members=[USER, says("max", "[NEXT: sarah, user]"), says("sarah", "Hm.")])
    stage = Stage(store, team)
    await stage.coordinator.say("Go. [NEXT: max]")
    after_human = await stage.coordinator.state()
    assert (["max"], None) == ([turn.member for turn in after_human.queue], after_human.floor)
    assert HumanTurn("user", "called") == await stage.coordinator.run()
    assert ["max", "sarah"] == stage.turns
    again = Coordinator(team, store, stage.coordinator.id)
    assert TeamState(floor="user", human="user", turns=2) == await again.state()
    assert HumanTurn("user", "called") == await again.run()
    assert 3 == store.get(stage.coordinator.id).version


async def test_a_human_who_is_called_speaks_before_those_who_wait(store: Store) -> None:
    eve = Human(id="eve")
    members: list[Member] = [USER, eve, says("max", "Eve? [NEXT: eve!P1]"), says("sarah", "Hm.")]
    stage = Stage(store, Team(members=members, default="max"))
    await stage.coordinator.say("[NEXT: max, sarah]")
    assert HumanTurn("eve", "called") == await stage.coordinator.run()
    message = await stage.coordinator.say("Yes?")
    assert "eve" == who(message)
    assert HumanTurn("eve", "drained") == await stage.coordinator.run()
    assert ["max", "sarah"] == stage.turns  # and the default was not called, for somebody waited


async def test_only_a_human_of_the_team_can_speak(store: Store) -> None:
    stage = Stage(store, Team(members=[USER, Human(id="eve"), says("max", "m")]))
    assert "eve" == who(await stage.coordinator.say("Hi", speaker="EVE"))
    for name in ("max", "nobody"):
        with pytest.raises(ValidationError, match="is no human of this team"):
            await stage.coordinator.say("Hi", speaker=name)
    with pytest.raises(ValidationError, match="must not be empty"):
        await stage.coordinator.say(" \n")


async def test_a_human_who_names_nobody_there_keeps_the_floor(store: Store) -> None:
    """The default is for those who name nobody, not for those who misspell a name."""
    stage = Stage(store, Team(members=[USER, says("max", "m")], default="max"))
    await stage.coordinator.say("Hi [NEXT: mxa]")
    assert HumanTurn("user", "lost") == await stage.coordinator.run()
    assert [] == stage.turns


async def test_saying_it_again_with_its_key_is_harmless(store: Store) -> None:
    stage = Stage(store, Team(members=[USER, says("max", "m")]))
    first, again = [await stage.coordinator.say("Hi [NEXT: max]", key="once") for _ in range(2)]
    assert first == again
    await stage.coordinator.run()
    assert [("user", "Hi [NEXT: max]"), ("max", "m")] == stage.said


async def test_the_team_task_is_set_by_the_file_and_by_members(store: Store) -> None:
    members: list[Member] = [USER, scripted("max"), scripted("sarah")]
    stage = Stage(
        store,
        Team(members=members, task="Drink tea."),
        {"max": ["[TEAM_TASK: Drink coffee.] [NEXT: sarah]"], "sarah": ["Fine."]},
    )
    await stage.coordinator.say("Go. [NEXT: max]")
    await stage.coordinator.run()
    assert stage.asked("max").startswith("[TEAM_TASK]\nDrink tea.\n\n")
    assert stage.asked("sarah").startswith("[TEAM_TASK]\nDrink coffee.\n\n")
    await stage.coordinator.say("Enough.")
    assert "Drink coffee." == store.get(stage.coordinator.id).team_task


async def test_each_member_has_its_own_look(store: Store) -> None:
    """Window, visibility and system text."""
    members: list[Member] = [
        USER,
        scripted("max", window=0, system="You are Max."),
        scripted("sarah", visibility="addressed"),
    ]
    lines = {"max": ["Psst. [NEXT: user]"], "sarah": ["What?"]}
    stage = Stage(store, Team(members=members), lines)
    await stage.coordinator.say("One. [NEXT: max]")
    await stage.coordinator.run()
    await stage.coordinator.say("Two. [NEXT: sarah]")
    await stage.coordinator.run()
    system, question = stage.models["max"].asked[0].body["messages"]
    told = f"You are Max.\n\n{describe_team(members[1], stage.coordinator.team)}"
    assert (told, "[MESSAGE]\nOne.") == (system["content"], question["content"])
    assert "[MESSAGE]\nTwo." == stage.asked("sarah")


async def test_instructions_are_read_from_a_file_each_time(store: Store, tmp_path: Path) -> None:
    team = Team(members=[USER, scripted("max", system="Be brief.", instructions="max.md")])
    stage = Stage(store, team, {"max": ["m"]}, folder=tmp_path)
    await stage.coordinator.say("[NEXT: max] Go.")
    await stage.coordinator.run()
    assert stage.said[1][1].startswith("(no answer) max.md can't be read: ")
    (tmp_path / "max.md").write_text("Be kind.", "utf-8")
    await stage.coordinator.say("[NEXT: max] Again.")
    await stage.coordinator.run()
    told = stage.models["max"].asked[0].body["messages"][0]["content"]
    assert f"Be brief.\n\n{describe_team(team.members[1], team)}\n\nBe kind." == told


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([NetworkError("the line is dead", provider="openai")], "openai: the line is dead"),
        ([RuntimeError("a bug")], "RuntimeError: a bug"),
        (
            [RuntimeError("no: Bearer abcdef0123456789")],
            "RuntimeError: no: Bearer [redacted]",
        ),
        (saying(""), "it said nothing"),
        (saying("  "), "it said nothing"),
    ],
)
async def test_a_model_that_fails_does_not_hold_up_the_rest(
    line: list[Any], expected: str, store: Store
) -> None:
    team = Team(members=[USER, scripted("max"), says("sarah", "Hm.")])
    stage = Stage(store, team, {"max": [line]})
    await stage.coordinator.say("[NEXT: max, sarah]")
    await stage.coordinator.run()
    assert [("max", f"(no answer) {expected}"), ("sarah", "Hm.")] == stage.said[1:]


async def test_a_prompt_that_does_not_fit_is_a_failure(store: Store) -> None:
    team = Team(members=[USER, scripted("max", max_bytes=20)])
    stage = Stage(store, team, {"max": ["never"]})
    await stage.coordinator.say("x" * 99 + "[NEXT: max]")
    await stage.coordinator.run()
    size = 109 + len(describe_team(team.members[1], team))
    words = f"what the prompt must hold takes {size} bytes, {size - 20} more than the 20 there are"
    assert [("max", f"(no answer) {words}")] == stage.said[1:]


async def test_a_models_text_is_reported_as_it_comes_and_the_model_is_closed(store: Store) -> None:
    team = Team(members=[USER, scripted("max")])
    stage = Stage(store, team, {"max": [saying("Hel", "lo")]})
    await stage.coordinator.say("[NEXT: max]")
    await stage.coordinator.run()
    assert ["Hel", "lo"] == stage.pieces
    await stage.coordinator.close()
    message = store.get(stage.coordinator.id)[1]
    assert ("stop", "max") == (getattr(message.info, "finish", None), who(message))


# ── stopping ────────────────────────────────────────────────────────────────────────────────────


SLOW: Final = "while ! [ -e go ]; do sleep 0.01; done; echo m"


async def test_paused_it_begins_no_turn_and_goes_on_when_resumed(
    store: Store, tmp_path: Path
) -> None:
    team = Team(members=[USER, shell("max", SLOW), says("sarah", "s")])
    stage = Stage(store, team, folder=tmp_path)
    await stage.coordinator.say("[NEXT: max, sarah]")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.coordinator.run)
        await begun(stage)
        await stage.coordinator.pause()
        (tmp_path / "go").touch()
    assert ["user", "max"] == [name for name, _ in stage.said]
    assert HumanTurn(None, "paused") == await stage.coordinator.run()
    await stage.coordinator.resume()
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ["max", "sarah"] == stage.turns


async def test_cancelled_it_ends_the_turn_and_empties_the_queue(store: Store) -> None:
    team = Team(members=[USER, shell("max", "sleep 60"), says("sarah", "s")])
    stage = Stage(store, team)
    await stage.coordinator.say("[NEXT: max, sarah]")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.coordinator.run)
        await begun(stage)
        await stage.coordinator.cancel()
    assert [("max", "(no answer) called off")] == stage.said[1:]
    assert (
        TeamState(floor="user", why="cancelled", human="user", turns=1)
        == await stage.coordinator.state()
    )


async def test_cancelled_between_turns_the_queue_is_emptied(store: Store) -> None:
    stage = Stage(store, Team(members=[USER, says("max", "m")]))
    await stage.coordinator.say("[NEXT: max]")
    await stage.coordinator.cancel()
    assert HumanTurn("user", "cancelled") == await stage.coordinator.run()
    assert [] == stage.turns


async def test_a_human_may_speak_while_an_agent_is_at_work(store: Store, tmp_path: Path) -> None:
    team = Team(members=[USER, shell("max", SLOW), says("sarah", "s")])
    stage = Stage(store, team, folder=tmp_path)
    await stage.coordinator.say("[NEXT: max]")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.coordinator.run)
        await begun(stage)
        await stage.coordinator.say("And you? [NEXT: sarah]")
        (tmp_path / "go").touch()
    assert ["user", "user", "max", "sarah"] == [name for name, _ in stage.said]


async def test_interrupted_the_turn_is_taken_again(store: Store, tmp_path: Path) -> None:
    """As Ctrl-C does: the turn stays the next one, and nothing of it is in the log."""
    team = Team(members=[USER, shell("max", "[ -e go ] || sleep 60; echo m")])
    stage = Stage(store, team, folder=tmp_path)
    await stage.coordinator.say("[NEXT: max]")
    await interrupted(stage)
    assert "max" == getattr((await stage.coordinator.state()).begun, "member", None)
    (tmp_path / "go").touch()
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert [("max", "m")] == stage.said[1:]


async def test_one_that_must_not_be_asked_again_is_recorded_as_interrupted(store: Store) -> None:
    team = Team(members=[USER, shell("max", "sleep 60", rerun=False), says("sarah", "s")])
    stage = Stage(store, team)
    await stage.coordinator.say("[NEXT: max, sarah]")
    await interrupted(stage)
    await stage.coordinator.run()
    expected = "(no answer) interrupted, perhaps after it had effects; it is not asked again"
    assert [("max", expected), ("sarah", "s")] == stage.said[1:]


async def test_a_member_who_left_the_team_is_passed_over(store: Store) -> None:
    stage = Stage(store, Team(members=[USER, says("max", "m"), says("sarah", "s")]))
    await stage.coordinator.say("[NEXT: max, sarah]")
    later = Stage(
        store, Team(members=[USER, says("sarah", "s")]), conversation=stage.coordinator.id
    )
    assert HumanTurn("user", "drained") == await later.coordinator.run()
    words = "max is no agent of this team any more"
    assert [("system", words), ("sarah", "s")] == later.said[1:]


async def begun(stage: Stage) -> None:
    """Wait until somebody's turn has begun, and its program runs."""
    with anyio.fail_after(60):
        while True:
            state = await stage.coordinator.state()
            if state.begun is not None and state.begun.process is not None:
                return
            await anyio.sleep(0.01)


async def interrupted(stage: Stage) -> None:
    """Begin a turn and give it up."""
    async with anyio.create_task_group() as group:
        group.start_soon(stage.coordinator.run)
        await begun(stage)
        group.cancel_scope.cancel()


# ── others ──────────────────────────────────────────────────────────────────────────────────────


async def test_two_at_the_same_conversation_do_not_mix(store: Store) -> None:
    team = Team(members=[USER, shell("max", "sleep 60")])
    stage = Stage(store, team, lease_seconds=30)
    other = Stage(store, team, conversation=stage.coordinator.id, lease_seconds=0.1)
    await stage.coordinator.say("[NEXT: max]")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.coordinator.run)
        await begun(stage)
        with pytest.raises(LeaseTaken):
            await other.coordinator.run()
        group.cancel_scope.cancel()


async def test_one_who_lost_the_lease_stops_and_writes_nothing(store: Store) -> None:
    team = Team(members=[USER, shell("max", "sleep 60")])
    stage = Stage(store, team, lease_seconds=0.3)
    await stage.coordinator.say("[NEXT: max]")
    other: list[Any] = []

    async def robbed() -> None:
        with pytest.raises(LeaseLost):
            await stage.coordinator.run()
        other.append("lost")

    async with anyio.create_task_group() as group:
        group.start_soon(robbed)
        await begun(stage)
        lease = stage.coordinator._team_store._lease
        assert lease is not None
        store.release(lease)
        store.lease(stage.coordinator.id, "somebody else", seconds=0.01)
    assert ["lost"] == other
    assert 1 == len(store.get(stage.coordinator.id))


async def test_what_happened_is_reported_and_a_callback_that_fails_changes_nothing(
    store: Store,
) -> None:
    events, seen = EventBus(), list[str]()

    def note(event: Event) -> None:
        seen.append(event.name)

    def fail(_: object) -> None:
        raise RuntimeError

    events.on("*", note)
    team = Team(members=[USER, says("max", "[TEAM_TASK: Tea]")])
    stage = Stage(store, team, events=events, on_message=fail)
    await stage.coordinator.say("[NEXT: max]")
    await stage.coordinator.run()
    assert ["message.added", "team_task.changed", "message.added"] == seen


async def test_a_limit_counts_from_the_humans_last_word(store: Store) -> None:
    team = Team(members=[USER, says("max", "[NEXT: max]")], limits=TeamLimits(turns=2))
    stage = Stage(store, team)
    await stage.coordinator.say("Go. [NEXT: max]")
    assert "limit" == (await stage.coordinator.run()).why
    await stage.coordinator.say("Go on.")
    assert "limit" == (await stage.coordinator.run()).why
    assert 4 == len(stage.turns)


async def test_what_others_add_meanwhile_is_seen(store: Store) -> None:
    team = Team(members=[USER, scripted("max")])
    stage = Stage(store, team, {"max": ["m"]})
    await stage.coordinator.say("Go. [NEXT: max]")
    store.get(stage.coordinator.id).append(user("By the way."))
    await stage.coordinator.run()
    assert stage.asked("max").endswith("By the way.")


def test_a_turn_has_a_mark_only_while_a_program_is_at_it() -> None:
    assert TeamTurn("1", "max").process is None
