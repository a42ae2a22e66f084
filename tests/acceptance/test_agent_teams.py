"""Teams with tools: members call them, are told the roster, and every turn can be explained."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver.conversation import Conversation
from palaver.errors import ValidationError
from palaver.messages import ToolCallPart, ToolPart
from palaver.team import Coordinator, HumanTurn, Member, ModelMember, Team, load_team
from palaver.tools import tool
from palaver.tools.approval import Decision
from tests.conversation.scripted import calling
from tests.team.members import USER, Stage, says, scripted, who

if TYPE_CHECKING:
    from pathlib import Path

    from palaver import Store
    from palaver.tools import FunctionTool

PAY_5 = calling(("pay", {"amount": 5}))
PAY_50 = calling(("pay", {"amount": 50}))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run in asyncio."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Any:  # noqa: ANN401 - a generator's own
    """A store in a file."""
    with palaver.open(str(tmp_path / "chat.db")) as opened:
        yield opened


def paying(paid: list[int]) -> FunctionTool[..., Any]:
    """A tool that remembers what it paid; much needs an approval."""

    @tool(needs_approval=lambda arguments: arguments["amount"] > 10)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    return pay


def team_of(*more: Member, **fields: Any) -> Team:  # noqa: ANN401 - of the member
    """A human and a model that may pay, and perhaps others."""
    return Team(members=[USER, scripted("max", tools=["pay"], **fields), *more], default="max")


def states(coordinator: Coordinator) -> list[tuple[str, str]]:
    """What became of the calls."""
    parts = [part for message in coordinator.history for part in message.parts]
    found = [part.state for part in parts if isinstance(part, ToolPart)]
    return [(one.status, getattr(one, "output", "") or getattr(one, "error", "")) for one in found]


# ── tools ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_a_model_member_calls_its_tools_until_it_answers(store: Store) -> None:
    paid: list[int] = []
    lines = {"max": [PAY_5, PAY_5, "Paid twice. [NEXT: sarah]"], "sarah": ["Thanks."]}
    team = team_of(scripted("sarah"))
    stage = Stage(store, team, lines, tools=[paying(paid)])
    await stage.coordinator.say("Pay 5.")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ([5, 5], [("completed", "paid 5")] * 2) == (paid, states(stage.coordinator))
    roles = [(message.role, who(message)) for message in stage.coordinator.history]
    called = [("assistant", "max"), ("tool", "tool")]
    assert [
        ("user", "user"), *called, *called, ("assistant", "max"), ("assistant", "sarah")
    ] == roles  # fmt: skip
    assert ["pay"] == [spec.name for spec in stage.models["max"].asked[0].tools]
    assert () == tuple(stage.models["sarah"].asked[0].tools)
    third = stage.models["max"].asked[2].body["messages"]
    assert ["system", "user", "assistant", "tool", "assistant", "tool"] == [
        message["role"] for message in third
    ]
    assert "- User -> max: Pay 5." not in stage.asked("sarah")  # calls and results are no lines
    assert "paid 5" not in stage.asked("sarah")


@pytest.mark.anyio
async def test_a_tool_that_fails_or_is_not_there_is_told_to_the_member(store: Store) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        raise ValueError(f"no {amount} left")

    lines = {"max": [calling(("pay", {"amount": 1}), ("fly", {})), "Sorry."]}
    stage = Stage(store, team_of(), lines, tools=[pay])
    await stage.coordinator.say("Go.")
    await stage.coordinator.run()
    (first, failed), (second, unknown) = states(stage.coordinator)
    assert ("error", "error") == (first, second)
    assert ("no 1 left" in failed, "there is no tool 'fly'; there are: pay" in unknown) == (
        True,
        True,
    )
    assert "Sorry." == stage.said[-1][1]


@pytest.mark.anyio
async def test_a_member_that_only_calls_is_stopped(store: Store) -> None:
    stage = Stage(store, team_of(), {"max": [PAY_5] * 20}, tools=[paying([])])
    await stage.coordinator.say("Go.")
    await stage.coordinator.run()
    assert "(no answer) 20 steps and no answer without tool calls" == stage.said[-1][1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fly", r"^\$\.members\[1\]\.tools\[0\]: there is no tool 'fly'; there are: pay; MODULE"),
        ("nothing.at:all", r"tools\[0\]: nothing\.at:all can't be imported: ModuleNotFoundError"),
        ("json:nothing", r"json:nothing can't be imported: AttributeError"),
        ("tests.team.tool_sources:opened", r"has to be opened: give it to the team"),
    ],
)
def test_a_tool_that_is_not_there_is_refused_before_anything_begins(
    store: Store, name: str, words: str
) -> None:
    team = Team(members=[USER, ModelMember(id="max", model="m:m", tools=[name])])
    with pytest.raises(ValidationError, match=words):
        Coordinator(team, store, tools=[paying([])])
    assert [] == list(store)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["one", "some", "table"])
async def test_a_team_file_names_tools_by_their_place_in_python(store: Store, name: str) -> None:
    place = f"tests.team.tool_sources:{name}"
    team = Team(members=[USER, scripted("max", tools=[place])], default="max")
    stage = Stage(store, team, {"max": [calling(("weather", {"city": "Oslo"})), "Rain."]})
    await stage.coordinator.say("Oslo?")
    await stage.coordinator.run()
    assert [("completed", "rain in Oslo")] == states(stage.coordinator)


# ── approvals ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verdict", "paid", "state"),
    [
        (True, [50], ("completed", "paid 50")),
        ("too dear", [], ("error", "not run: the call was denied: too dear")),
        (Decision("edit", arguments={"amount": 7}, by="Ann"), [7], None),
    ],
)
async def test_a_call_of_a_member_waits_and_goes_on_as_it_was_decided(
    store: Store, verdict: object, paid: list[int], state: tuple[str, str] | None
) -> None:
    done: list[int] = []
    stage = Stage(store, team_of(), {"max": [PAY_50]}, tools=[paying(done)])
    coordinator = stage.coordinator
    await coordinator.say("Pay 50.")
    floor = await coordinator.run()
    assert ("user", "approval", []) == (floor.human, floor.why, done)
    (call,) = floor.calls
    assert [call] == await coordinator.waiting()
    assert floor == await coordinator.run()  # and it waits on
    again = Stage(store, team_of(), {"max": ["Done."]}, coordinator.id, tools=[paying(done)])
    made = await again.coordinator.decide(call.id, verdict)
    with pytest.raises(ValidationError, match=r"no call .* waits for a decision in this team"):
        await again.coordinator.decide(call, False)  # noqa: FBT003 - a verdict
    assert HumanTurn("user", "drained") == await again.coordinator.run()
    assert paid == done
    (found,) = states(again.coordinator)
    assert state in (None, found)
    (part,) = [part for part in again.coordinator.history[2].parts if isinstance(part, ToolPart)]
    recorded: Any = part.state
    assert made.record() == recorded.metadata["approval"]
    assert ("max", "Done.") == again.said[-1]
    question = again.models["max"].asked[0].body["messages"][1]["content"]
    assert question == stage.asked("max")  # the prompt is that of the turn's beginning


@pytest.mark.anyio
async def test_a_function_decides_about_the_calls_of_members(store: Store) -> None:
    done: list[int] = []
    asked: list[ToolCallPart] = []

    async def approve(call: ToolCallPart) -> bool:
        asked.append(call)
        return True

    lines = {"max": [calling(("pay", {"amount": 5}), ("pay", {"amount": 50})), "Paid."]}
    stage = Stage(store, team_of(timeout=5), lines, tools=[paying(done)], approve=approve)
    await stage.coordinator.say("Pay.")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ([50], [5, 50]) == ([call.input["amount"] for call in asked], sorted(done))


@pytest.mark.anyio
async def test_calling_a_turn_off_denies_the_calls_that_wait(store: Store) -> None:
    done: list[int] = []
    stage = Stage(store, team_of(), {"max": [PAY_50]}, tools=[paying(done)])
    await stage.coordinator.say("Pay 50.")
    await stage.coordinator.run()
    await stage.coordinator.cancel()
    assert HumanTurn("user", "cancelled") == await stage.coordinator.run()
    assert [("error", "not run: the call was denied: the turn has ended: called off")] == states(
        stage.coordinator
    )
    assert ([], []) == (done, Conversation(store, stage.coordinator.id).waiting())
    assert [] == await stage.coordinator.waiting()


@pytest.mark.anyio
async def test_a_question_that_is_called_off_denies_its_call(store: Store) -> None:
    async def approve(_: object) -> bool:
        await stage.coordinator.cancel()
        await anyio.sleep_forever()
        return True

    stage = Stage(store, team_of(), {"max": [PAY_50]}, tools=[paying([])], approve=approve)
    await stage.coordinator.say("Pay 50.")
    assert HumanTurn("user", "cancelled") == await stage.coordinator.run()
    assert ["error"] == [status for status, _ in states(stage.coordinator)]
    assert ("max", "(no answer) called off") == stage.said[-1]


@pytest.mark.anyio
async def test_calls_of_a_member_that_left_the_team_are_denied(store: Store) -> None:
    stage = Stage(store, team_of(), {"max": [PAY_50]}, tools=[paying([])])
    await stage.coordinator.say("Pay 50.")
    await stage.coordinator.run()
    others = Team(members=[USER, says("sarah", "Hm.")])
    left = Stage(store, others, {}, stage.coordinator.id)
    assert HumanTurn("user", "drained") == await left.coordinator.run()
    assert "max is no agent of this team any more" == left.said[-1][1]
    assert [] == Conversation(store, stage.coordinator.id).waiting()


WAITING = """
import sys, anyio, palaver
from palaver.team import Coordinator, load_team
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.models import model

async def work(file, store, conversation, stage):
    with ProviderServer("openai-chat", [Answer(calls=(Call("pay", {"amount": 50}),))]) as server:
        team = Coordinator(load_team(file), palaver.open(store), conversation, lease_seconds=1,
                           models=lambda name: model(name, base_url=server.url, api_key="any"))
        team.events.on("tool.running", lambda _: print("running", flush=True))
        if stage == "runs":
            await team.run()
            await team.decide((await team.waiting())[0], True)
        floor = await team.run()
        print(floor.why, flush=True)
        await anyio.sleep_forever()

anyio.run(work, *sys.argv[1:])
"""


@pytest.mark.parametrize("stage", ["waits", "runs"])
def test_a_call_of_a_team_survives_kill_9(tmp_path: Path, stage: str) -> None:
    """One that waits still waits; one that was running is not run again, and is said to be."""
    file, store = tmp_path / "team.json", str(tmp_path / "chat.db")
    tools = [
        "tests.team.tool_sources:slow_pay" if stage == "runs" else "tests.team.tool_sources:pay"
    ]
    members = [
        {"kind": "human", "id": "user"},
        {"kind": "model", "id": "max", "model": "openai:m", "tools": tools},
    ]
    file.write_text(json.dumps({"members": members, "default": "max"}), "utf-8")
    with palaver.open(store) as opened:
        coordinator = Coordinator(load_team(file), opened)
        anyio.run(coordinator.say, "Pay 50.")
        argv = [sys.executable, "-c", WAITING, str(file), store, coordinator.id, stage]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert (
                "running" if stage == "runs" else "approval"
            ) == process.stdout.readline().strip()
            process.kill()
        lines = {"m": ["Done."]}
        again = Stage(opened, load_team(file), lines, coordinator.id, lease_seconds=1)
        floor = anyio.run(again.coordinator.run)
        if stage == "runs":
            ((status, words),) = states(again.coordinator)
            assert ("error", True) == (status, words.startswith("interrupted: the process ended"))
            assert HumanTurn("user", "drained") == floor
            return
        (call,) = floor.calls
        assert ("approval", {"amount": 50}) == (floor.why, call.input)
        anyio.run(partial(again.coordinator.decide, call, True))  # noqa: FBT003 - a verdict
        assert HumanTurn("user", "drained") == anyio.run(again.coordinator.run)
        assert [("completed", "paid 50")] == states(again.coordinator)


# ── the roster ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_model_members_are_told_who_is_there_and_how_to_hand_over(store: Store) -> None:
    members: list[Member] = [
        USER,
        scripted("max", system="Be brief."),
        scripted("sarah"),
        says("bot", "b"),
    ]
    team = Team(members=members, routes={"sarah": ["user"], "bot": []}, default="max")
    lines = {"max": ["Hm. [NEXT: sarah]"], "sarah": ["Fine."]}
    stage = Stage(store, team, lines)
    await stage.coordinator.say("Go.")
    await stage.coordinator.run()
    told = {
        name: model.asked[0].body["messages"][0]["content"] for name, model in stage.models.items()
    }
    then = "Without that, those who wait speak next, then the human."
    assert told == {
        "max": "Be brief.\n\nYou are Max. The others in your team: User (human), Sarah, Bot.\n"
        f"To hand over, end your answer with [NEXT: NAME], where NAME is User or Sarah or Bot. {then}",
        "sarah": "You are Sarah. The others in your team: User (human), Max, Bot.\nTo hand over, "
        f"end your answer with [NEXT: NAME], where NAME is User. {then}",
    }


# ── explain ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_explain_says_what_a_member_saw_at_each_of_its_turns(store: Store) -> None:
    """Also after the history was edited, and where the member called tools in its turn."""
    team = team_of(scripted("sarah", window=1), window=1)
    lines = {"max": [PAY_5, "One. [NEXT: sarah]", "Two."], "sarah": ["Hm."]}
    stage = Stage(store, team, lines, tools=[paying([])])
    coordinator = stage.coordinator
    await coordinator.say("First.")
    await coordinator.run()
    await coordinator.say("Second. [TEAM_TASK: Drink tea.]")
    await coordinator.run()
    coordinator.history.truncate(keep_last=1)
    coordinator.history.undo()
    for member, turn, place in (("max", 1, 0), ("max", 2, 2), ("SARAH", 1, 0)):
        asked = (
            stage.asked(member.lower(), place)
            if place != 0
            else stage.models[member.lower()].asked[0].body["messages"][1]["content"]
        )
        assert asked == coordinator.prompt(member, turn).prompt
    first, second = coordinator.explain("max", 1), coordinator.explain("max", 2)
    assert ["First."] == [
        coordinator.history.view.log[coordinator.history.view.find(one.id)].text
        for one in first.entries
    ]
    assert ("current", 2) == (second.entries[-1].reason, len(second.entries))
    assert coordinator.explain("max").version == coordinator.history.version


@pytest.mark.anyio
async def test_explain_names_the_turns_and_the_members_that_there_are(store: Store) -> None:
    stage = Stage(store, team_of(), {"max": ["One."]}, tools=[paying([])])
    await stage.coordinator.say("First.")
    await stage.coordinator.run()
    for turn in (0, 2, -1):
        with pytest.raises(ValidationError, match=r"\$\.turn: must be from 1 to 1, the turns that"):
            stage.coordinator.explain("max", turn)
    for name in ("user", "nobody"):
        with pytest.raises(ValidationError, match="is no agent of this team; there are: max"):
            stage.coordinator.explain(name)


@pytest.mark.anyio
async def test_explain_works_on_an_imported_copy_too(store: Store) -> None:
    """Its versions are others, and what was before the turn is still there."""
    stage = Stage(store, team_of(), {"max": ["One.", "Two."]}, tools=[paying([])])
    for text in ("First.", "Second."):
        await stage.coordinator.say(text)
        await stage.coordinator.run()
    copy = store.create(list(stage.coordinator.history))
    other = Coordinator(team_of(), store, copy, tools=[paying([])])
    for turn in (1, 2):
        assert stage.coordinator.prompt("max", turn).prompt == other.prompt("max", turn).prompt
