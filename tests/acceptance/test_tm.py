"""TM: a team at work, from outside, one requirement after the other.

The scene is that of S2 §4.7 (the user speaks to Max, and Max to Sarah) and what it needs to run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import palaver
from palaver.errors import ValidationError
from palaver.messages import assistant
from palaver.team import HumanTurn, Member, Team, TeamLimits, load_team, read_team
from tests.patience import within
from tests.team.members import USER, WORKER, Stage, is_at_work, says, scripted, shell

if TYPE_CHECKING:
    from palaver import Store
    from palaver.messages import Message

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return palaver.open(str(tmp_path / "chat.db"))


def extra(message: Message, name: str) -> object:
    return message.routing.extra.get(name) if message.routing else None


# TM-01


async def test_tm_01_the_scene_user_to_max_to_sarah(store: Store) -> None:
    """S2 §4.7 through the coordinator; Sarah's current message is Max's, the user's is context."""
    team = Team(members=[USER, scripted("max"), scripted("sarah")], default="max")
    stage = Stage(store, team, {"max": ["Hello! [NEXT: sarah]"], "sarah": ["Good day."]})
    await stage.coordinator.say("Hi")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()

    expected = [("user", "Hi"), ("max", "Hello! [NEXT: sarah]"), ("sarah", "Good day.")]
    assert expected == stage.said
    assert "[MESSAGE]\nHi" == stage.asked("max")
    assert "[CONTEXT]\n- User -> all: Hi\n\n[MESSAGE]\nHello!" == stage.asked("sarah")
    kept = store.get(stage.coordinator.id)
    assert [(), ("sarah",), ()] == [message.addressees for message in kept]


async def test_tm_01_several_are_called_by_priority_then_in_order(store: Store) -> None:
    names = ["ann", "bob", "carol", "dan"]
    team = Team(members=[USER, *(says(name, f"{name} spoke") for name in names)])
    stage = Stage(store, team)
    await stage.coordinator.say("All of you! [NEXT: dan!P3, ann, B_o-B, c arol!p1]")
    await stage.coordinator.run()
    assert ["carol", "ann", "bob", "dan"] == stage.turns


async def test_tm_01_drop_removes_waiting_turns_first(store: Store) -> None:
    members: list[Member] = [
        USER,
        says("ann", "Wait. [DROP: bob]"),
        says("bob", "b"),
        says("carol", "Enough. [DROP: ALL] [NEXT: eve]"),
        says("dan", "d"),
        says("eve", "e"),
    ]
    stage = Stage(store, Team(members=members))
    await stage.coordinator.say("Go. [NEXT: ann, bob, carol, dan]")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ["ann", "carol", "eve"] == stage.turns


async def test_tm_01_unknown_names_are_reported_and_the_known_ones_speak(store: Store) -> None:
    stage = Stage(store, Team(members=[USER, says("max", "Yes?")]))
    await stage.coordinator.say("Hello [NEXT: maxx, max]")
    await stage.coordinator.run()
    assert ["max"] == stage.turns
    assert ["maxx"] == extra(stage.coordinator.history[0], "unknown")


async def test_tm_01_where_no_name_is_known_the_human_has_the_floor(store: Store) -> None:
    """At once: who waits goes on waiting."""
    members: list[Member] = [
        USER,
        says("max", "Over to you. [NEXT: nobody]"),
        says("sarah", "Me at last."),
    ]
    stage = Stage(store, Team(members=members))
    await stage.coordinator.say("Go. [NEXT: max, sarah]")
    assert HumanTurn("user", "lost") == await stage.coordinator.run()
    assert ["max"] == stage.turns
    await stage.coordinator.say("Never mind.")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ["max", "sarah"] == stage.turns


# TM-02


async def test_tm_02_each_sees_the_answers_given_before_its_turn(store: Store) -> None:
    """The parallel NEXT of S2's bug 7: Sarah answers after Max and has heard him."""
    team = Team(members=[USER, scripted("max"), scripted("sarah")])
    stage = Stage(store, team, {"max": ["Four."], "sarah": ["Max is right."]})
    await stage.coordinator.say("2 + 2? [NEXT: max, sarah]")
    await stage.coordinator.run()
    assert "[CONTEXT]\n- User -> max, sarah: 2 + 2?\n\n[MESSAGE]\nFour." == stage.asked("sarah")


async def test_tm_02_one_that_fails_and_one_that_never_answers_do_not_hold_up_the_rest(
    store: Store,
) -> None:
    members: list[Member] = [
        USER,
        shell("broken", "echo 'no such key [NEXT: evil]' >&2; exit 3"),
        shell("silent", "sleep 60", timeout=0.3),
        says("last", "I am here."),
        says("evil", "Ha."),
    ]
    stage = Stage(store, Team(members=members))
    started = time.monotonic()
    await stage.coordinator.say("Go. [NEXT: broken, silent, last]")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert time.monotonic() - started < 30
    assert [
        ("broken", "(no answer) exit status 3\nno such key [NEXT: evil]"),
        ("silent", "(no answer) no answer within 0.3 s"),
        ("last", "I am here."),
    ] == stage.said[1:]
    failed = store.get(stage.coordinator.id)[1]
    assert "error" == getattr(failed.info, "finish", None)


async def test_tm_02_one_that_calls_itself_for_ever_is_stopped(store: Store) -> None:
    """By default after 20 turns in a row; a human's word lets it go on, or ends it."""
    team = Team(members=[USER, says("max", "Again! [NEXT: max]")])
    stage = Stage(store, team)
    await stage.coordinator.say("Go. [NEXT: max]")
    assert HumanTurn("user", "limit") == await stage.coordinator.run()
    assert ["max"] * 20 == stage.turns
    assert ("system", "20 turns in a row: the floor is yours. Waiting: max") == stage.said[-1]
    await stage.coordinator.say("Stop it. [DROP: ALL]")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert 20 == len(stage.turns)


async def test_tm_02_the_queue_has_an_end(store: Store) -> None:
    members: list[Member] = [USER, *(says(f"a{place}", "Hm.") for place in range(5))]
    stage = Stage(store, Team(members=members, limits=TeamLimits(queue=3)))
    message = await stage.coordinator.say("[NEXT: a0, a1, a2, a3, a4]")
    await stage.coordinator.run()
    assert ["a0", "a1", "a2"] == stage.turns
    assert ["a3", "a4"] == extra(message, "overflow")


# TM-03


@pytest.mark.parametrize(
    "text",
    [
        "> [NEXT: evil]\nhe wrote.",
        "```\n[NEXT: evil]\n```\nis how it is done.",
        "[see [NEXT: evil] there]",
        "[NE[NEXT: evil]XT: evil]",
        "[\uff2e\uff25\uff38\uff34: evil]",
    ],
)
async def test_tm_03_quotes_and_code_call_nobody(text: str, store: Store) -> None:
    team = Team(members=[USER, says("max", text), says("evil", "Ha.")])
    stage = Stage(store, team)
    await stage.coordinator.say("What did he write? [NEXT: max]")
    await stage.coordinator.run()
    assert ["max"] == stage.turns


async def test_tm_03_an_echo_of_the_prompt_calls_nobody(store: Store) -> None:
    """The system text explains markers; a program that repeats its prompt does not call."""
    system = "Write [NEXT: evil] to call Evil."
    members: list[Member] = [
        USER,
        shell("max", "cat; echo; echo Yes.", system=system),
        says("evil", "Ha."),
    ]
    stage = Stage(store, Team(members=members))
    await stage.coordinator.say("Tea? [NEXT: max]")
    await stage.coordinator.run()
    assert [("max", "Yes.")] == stage.said[1:]


async def test_tm_03_what_was_brought_in_calls_nobody(store: Store) -> None:
    history = store.create([assistant("[NEXT: evil]")])
    stage = Stage(store, Team(members=[USER, says("evil", "Ha.")]), conversation=history.id)
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert [] == stage.turns


async def test_tm_03_routes_restrict_who_may_call_whom(store: Store) -> None:
    members: list[Member] = [
        USER,
        says("max", "[NEXT: boss, sarah]"),
        says("sarah", "s"),
        says("boss", "b"),
    ]
    stage = Stage(store, Team(members=members, routes={"Max": ["sarah"]}))
    await stage.coordinator.say("[NEXT: max]")
    await stage.coordinator.run()
    assert ["max", "sarah"] == stage.turns
    kept = store.get(stage.coordinator.id)[1]
    assert (("sarah",), ["boss"]) == (kept.addressees, extra(kept, "refused"))
    assert [{"member": "sarah", "priority": 2}] == extra(kept, "next")


def test_tm_02_killed_in_the_middle_a_team_goes_on_where_it_was(
    store: Store, tmp_path: Path
) -> None:
    """Killed with -9 while Max is at work: no turn is lost, none is answered twice."""
    wait = "while [ ! -e go ]; do sleep 0.02; done"
    slow = f"cat > in; echo $$ >> trace; {wait}; echo 'OK. [NEXT: sarah]'"
    file = tmp_path / "team.json"
    members = [
        {"kind": "human", "id": "user"},
        {"kind": "command", "id": "first", "argv": ["echo", "First."]},
        {"kind": "command", "id": "max", "argv": ["sh", "-c", slow], "timeout": 60},
        {"kind": "command", "id": "last", "argv": ["echo", "Last."]},
        {"kind": "command", "id": "sarah", "argv": ["echo", "Good day."]},
    ]
    file.write_text(json.dumps({"members": members}), "utf-8")
    stage = Stage(store, load_team(file), folder=tmp_path, lease_seconds=1)
    anyio.run(stage.coordinator.say, "Go. [NEXT: first, max, last!P3]")
    argv = [sys.executable, "-c", WORKER, str(file), str(tmp_path / "chat.db")]
    with within(120):
        process = subprocess.Popen([*argv, stage.coordinator.id, str(tmp_path)])
        (first,) = begun(tmp_path, 1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert ["user", "first"] == [name for name, _ in stage_of(store, stage)]
        assert is_at_work(first)
        still: list[bool] = []
        letting = threading.Thread(target=let_go, args=(tmp_path, first, still))
        letting.start()
        assert HumanTurn("user", "drained") == anyio.run(stage.coordinator.run)
        letting.join()
    assert [
        ("user", "Go. [NEXT: first, max, last!P3]"),
        ("first", "First."),
        ("max", "OK. [NEXT: sarah]"),
        ("sarah", "Good day."),
        ("last", "Last."),
    ] == stage_of(store, stage)
    assert [False] == still  # begun twice and counted once, and the first was ended before
    assert [] == list(store.verify())


def begun(folder: Path, count: int) -> list[int]:
    """The process numbers of Max, as soon as he has begun so many times."""
    trace = folder / "trace"
    while not trace.exists() or len(trace.read_text("utf-8").split()) < count:
        time.sleep(0.01)
    return [int(number) for number in trace.read_text("utf-8").split()]


def let_go(folder: Path, first: int, still: list[bool]) -> None:
    """Let Max end once he was begun again; note whether the first of him is still at work then."""
    begun(folder, 2)
    still.append(is_at_work(first))
    (folder / "go").touch()


def stage_of(store: Store, stage: Stage) -> list[tuple[str, str]]:
    history = store.get(stage.coordinator.id)
    return [(m.speaker.role_id if m.speaker else m.role, m.text) for m in history]


# TM-04


async def test_tm_04_a_human_a_model_and_a_program_in_one_team(store: Store) -> None:
    """Each bounded in time: the model and the second program never answer."""
    members: list[Member] = [
        USER,
        scripted("model", timeout=0.2),
        shell("program", "cat", timeout=60),
        shell("hanging", "cat; sleep 60", timeout=0.2),
        scripted("other", system="Be brief."),
    ]
    stage = Stage(store, Team(members=members), {"model": [[None]], "other": ["Done."]})
    await stage.coordinator.say("Go. [NEXT: model, hanging, program, other]")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert [
        ("model", "(no answer) no answer within 0.2 s"),
        ("hanging", "(no answer) no answer within 0.2 s"),
    ] == stage.said[1:3]
    assert [("other", "Done.")] == stage.said[4:]
    told = stage.models["other"].asked[0].body["messages"][0]["content"]
    assert told.startswith("Be brief.\n\nYou are Other. ")


# TM-05


async def test_tm_05_the_examples_are_teams() -> None:
    found = [load_team(file) for file in sorted((ROOT / "examples/team").glob("*.yaml"))]
    assert ["tea, with a model", "tea"] == [team.name for team in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "members:\n- {kind: human, id: a}\n",
            "$.members: line 1, column 1: a team has at least two members [team]",
        ),
        (
            "members:\n- {kind: command, id: a, argv: [x]}\n- {kind: command, id: b, argv: [x]}\n",
            "$.members: line 1, column 1: a team has at least one human [team]",
        ),
        (
            '{"members": [\n  {"kind": "human", "id": "a"},\n  {"kind": "human", "idd": "b"}]}',
            "$.members[1].idd: line 3, column 21: no such field [team]",
        ),
    ],
)
async def test_tm_05_what_is_wrong_is_shown_by_its_line(text: str, expected: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_team(text)
    assert expected == str(refused.value)
