"""Teams with tools: members call them, are told the roster, and every turn can be explained."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.conversation import Conversation
from palaver.errors import ValidationError
from palaver.events import EventBus
from palaver.messages import Message, ToolCallPart, ToolPart
from palaver.team import Coordinator, HumanTurn, Member, ModelMember, Team, load_team
from palaver.team.routing import describe_team
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.tools import tool
from palaver.tools.approval import Decision
from tests.cli.commands.test_chat import Terminal
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.scripted_server import MODEL, ScriptedServer
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
    lines: dict[str, list[Any]] = {
        "max": [PAY_5, PAY_5, "Paid twice. [NEXT: sarah]"],
        "sarah": ["Thanks."],
    }
    team = team_of(scripted("sarah"))
    told: list[str] = []
    events = EventBus()
    events.on("*", lambda event: told.append(event.name))
    heard: list[Message] = []
    stage = Stage(store, team, lines, tools=[paying(paid)], events=events, on_message=heard.append)
    await stage.coordinator.say("Pay 5.")
    assert HumanTurn("user", "drained") == await stage.coordinator.run()
    assert ([5, 5], [("completed", "paid 5")] * 2) == (paid, states(stage.coordinator))
    assert list(stage.coordinator.history) == heard
    assert 2 == told.count("tool.completed") == told.count("tool.running")
    assert len(heard) == told.count("message.added")
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


@pytest.mark.anyio
async def test_a_member_without_tools_that_calls_some_is_told_that_there_are_none(
    store: Store,
) -> None:
    team = Team(members=[USER, scripted("max")], default="max")
    stage = Stage(store, team, {"max": [PAY_5, "Oh."]})
    await stage.coordinator.say("Pay.")
    await stage.coordinator.run()
    assert [("error", "$: there is no tool 'pay'; there are: none [schema]")] == states(
        stage.coordinator
    )
    assert "Oh." == stage.said[-1][1]


@pytest.mark.anyio
async def test_an_answer_without_end_is_a_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.team.coordinator.MAX_ANSWER", 10)
    stage = Stage(store, team_of(), {"max": ["on and on and on"]}, tools=[paying([])])
    await stage.coordinator.say("Go.")
    await stage.coordinator.run()
    assert "(no answer) the answer is longer than 10 bytes" == stage.said[-1][1]


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
    stage = Stage(store, team_of(timeout=60), lines, tools=[paying(done)], approve=approve)
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
    start = "To hand over, end your answer with [NEXT: NAME], where NAME is"
    assert told == {
        "max": "Be brief.\n\nYou are Max. The others in your team: User (human), Sarah, Bot.\n"
        f"{start} User or Sarah or Bot. {then}",
        "sarah": "You are Sarah. The others in your team: User (human), Max, Bot.\n"
        f"{start} User. {then}",
    }
    mute = Team(members=members, routes={"max": []})
    expected = "You hand over to nobody: those who wait speak next, then the human."
    assert expected == describe_team(members[1], mute).splitlines()[1]


# ── explain ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_explain_says_what_a_member_saw_at_each_of_its_turns(store: Store) -> None:
    """Also after the history was edited, and where the member called tools in its turn."""
    team = team_of(scripted("sarah", window=1), window=1)
    lines: dict[str, list[Any]] = {"max": [PAY_5, "One. [NEXT: sarah]", "Two."], "sarah": ["Hm."]}
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


# ── the server ──────────────────────────────────────────────────────────────────────────────────


def roster(*tools: str) -> dict[str, Any]:
    """A human, and a model with tools."""
    max_ = {"kind": "model", "id": "max", "name": "Max", "model": MODEL, "tools": list(tools)}
    return {"default": "max", "members": [{"kind": "human", "id": "user"}, max_]}


def test_over_http_a_member_calls_tools_and_its_call_is_approved() -> None:
    done: list[int] = []
    script = Scripted(PAY_5, PAY_50, saying("Paid."))
    with ScriptedServer(script, toolset=(paying(done),)) as stage:
        talk = stage.ask.begun()
        team = f"conversations/{talk}/team"
        stage.ask.good("PUT", team, {"document": roster("pay")})
        stage.ask.good("POST", f"{team}/say", {"text": "Pay.", "run": True})
        stage.over(talk)
        assert (["waiting"], [5]) == (stage.ended(), done)
        (call,) = stage.calls(talk)
        assert call["asksFirst"]
        body = {"action": "run", "digest": call["digest"], "arguments": {"amount": 7}, "by": "Ann"}
        where = f"conversations/{talk}/calls/{call['id']}"
        assert 422 == stage.ask.refused("POST", where, {**body, "arguments": {}})["status"]
        assert stage.ask.good("POST", where, body)["step"]
        stage.over(talk)
        assert ([5, 7], ["waiting", "done"]) == (done, stage.ended())
        *_, result, answer = stage.messages(talk)
        approval = result["content"][0]["state"]["metadata"]["approval"]
        assert ("Ann", "edit") == (approval["by"], approval["verdict"])
        assert ("max", "Paid.") == (answer["speaker"]["roleId"], stage.ask.texts(talk)[-1])
        sees = stage.ask.good("GET", f"{team}/members/max/sees?turn=1")
        assert script.asked[0].body["messages"][1]["content"] == sees["prompt"]
        assert (1, None) == (sees["version"], sees["previousPrompt"])
        explained = stage.ask.good("GET", f"conversations/{talk}/explain?agent=Max&turn=1")
        assert sees["prompt"] == explained["prompt"]
        for turn in ("2", "0"):
            refused = stage.ask.refused("GET", f"{team}/members/max/sees?turn={turn}")
            assert refused["status"] in {400, 422}


def test_over_http_the_second_turn_is_compared_with_the_first() -> None:
    script = Scripted(saying("One."), saying("Two."))
    with ScriptedServer(script) as stage:
        talk = stage.ask.begun()
        team = f"conversations/{talk}/team"
        stage.ask.good("PUT", team, {"document": roster()})
        for text in ("First.", "Second."):
            stage.ask.good("POST", f"{team}/say", {"text": text, "run": True})
            stage.over(talk)
        sees = [stage.ask.good("GET", f"{team}/members/max/sees?turn={n}") for n in (1, 2)]
        assert sees[0]["prompt"] == sees[1]["previousPrompt"] != sees[1]["prompt"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("os:system", "modules are imported only for a team of a file"),
        ("fly", "there is no tool 'fly'; there are: current_time"),
    ],
)
def test_over_http_a_roster_names_tools_of_the_server_and_imports_none(
    name: str, words: str
) -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun()
        refused = stage.ask.refused("PUT", f"conversations/{talk}/team", {"document": roster(name)})
        assert (422, True) == (refused["status"], words in refused["detail"])
        assert "$.members[1].tools[0]" == refused["path"]


def test_a_served_team_file_may_import_tools(tmp_path: Path) -> None:
    file = tmp_path / "team.json"
    file.write_text(json.dumps(roster("tests.team.tool_sources:pay")), "utf-8")
    with ScriptedServer(Scripted(PAY_5, saying("Paid.")), team=file) as stage:
        (talk,) = [head["id"] for head in stage.ask.good("GET", "conversations")["items"]]
        stage.ask.good("POST", f"conversations/{talk}/team/say", {"text": "Pay.", "run": True})
        stage.over(talk)
        (call,) = stage.calls(talk)
        assert call["asksFirst"]
        body = {"action": "deny", "digest": call["digest"], "reason": "no"}
        stage.ask.good("POST", f"conversations/{talk}/calls/{call['id']}", body)
        stage.over(talk)
        assert [("error", "not run: the call was denied: no")] == stage.results(talk)


# ── the command ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a generator's own
    """A team file whose model is behind a server, and that server."""
    with ProviderServer("openai-chat") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        file = tmp_path / "team.json"
        members = roster("pay")
        members["members"][1]["model"] = "openai:m"
        file.write_text(json.dumps(members), "utf-8")
        yield file, server
    assert [] == server.failures


def test_palaver_team_asks_on_the_terminal_and_explains_a_turn(
    crew: tuple[Path, ProviderServer], tmp_path: Path
) -> None:
    file, server = crew
    store = str(tmp_path / "chat.db")
    pay = Answer(calls=(Call("pay", {"amount": 50}),))
    server.then(pay, "Paid 7.", pay, "No then.")
    options = ("--store", store, "--tools", "tests.team.tool_sources:pay")
    terminal = Terminal(str(file), *options, command=("team", "run"))
    try:
        terminal.until("user> ")
        terminal.type("Pay.\n")
        terminal.until('[pay] asks to run with {"amount":50}')
        terminal.until("[y/n/c] ")
        terminal.type("c\n")
        terminal.until("arguments, as JSON: ")
        terminal.type('{"amount": 7}\n')
        terminal.until("[pay] completed: [run with other arguments")
        terminal.until("Paid 7.")
        terminal.until("user> ")
        terminal.type("Again.\n")
        terminal.until("[y/n/c] ")
        terminal.type("n\n")
        terminal.until("why not? ")
        terminal.type("\n")
        terminal.until("No then.")
        terminal.until("user> ")
        terminal.type("\x04")
        assert 0 == terminal.process.wait(30)
    finally:
        terminal.close()
    with palaver.open(store) as opened:
        (head,) = opened
        found = states(Coordinator(load_team(file), opened, head.id, tools=[paying([])]))
    changed = '[run with other arguments, as a person decided: {"amount":7}]\npaid 7'
    assert [("completed", changed), ("error", "not run: the call was denied")] == found
    arguments = ["team", "explain", str(file), "max", "--conversation", head.id, "--store", store]
    first = CliRunner().invoke(app, [*arguments, "--turn", "1"])
    assert (0, True, False) == (
        first.exit_code,
        "the current message" in first.stdout,
        "Again." in first.stdout,
    )
    second = CliRunner().invoke(app, [*arguments, "--turn", "2", "--json"])
    answer = json.loads(second.stdout)
    assert ("max", server.requests[2].body["messages"][1]["content"]) == (
        answer["explain"]["agent"],
        answer["prompt"],
    )
    missing = CliRunner().invoke(app, [*arguments, "--turn", "9"])
    assert (1, True) == (missing.exit_code, "$.turn: must be from 1 to 2" in missing.stderr)


@pytest.mark.parametrize("leave", ["ctrl-c", "ctrl-d"])
def test_palaver_team_asks_again_about_a_call_that_was_left(
    crew: tuple[Path, ProviderServer], tmp_path: Path, leave: str
) -> None:
    file, server = crew
    server.then(Answer(calls=(Call("pay", {"amount": 50}),)), "Paid.")
    store = str(tmp_path / "chat.db")
    options = ("--store", store, "--tools", "tests.team.tool_sources:pay")
    terminal = Terminal(str(file), *options, command=("team", "run"))
    try:
        terminal.until("user> ")
        terminal.type("Pay.\n")
        terminal.until("[y/n/c] ")
        if leave == "ctrl-d":
            terminal.type("\x04")
            terminal.until("pay waits for an approval")
        else:
            terminal.interrupt()
            terminal.until("paused; go on with --conversation")
        terminal.process.wait(30)
    finally:
        terminal.close()
    with palaver.open(store) as opened:
        (head,) = opened
        assert 1 == len(Conversation(opened, head.id).waiting())
    again = Terminal(str(file), *options, "--conversation", head.id, command=("team", "run"))
    try:
        again.until("[y/n/c] ")
        again.type("y\n")
        again.until("Paid.")
    finally:
        again.close()


@pytest.mark.parametrize("json_lines", [False, True])
def test_palaver_team_without_a_terminal_says_that_the_call_waits_and_fails(
    crew: tuple[Path, ProviderServer],
    tmp_path: Path,
    json_lines: bool,  # noqa: FBT001 - a parameter
) -> None:
    file, server = crew
    server.then(Answer(calls=(Call("pay", {"amount": 50}),)))
    options = ["--store", str(tmp_path / "chat.db"), "--tools", "tests.team.tool_sources:pay"]
    more = ["--json"] if json_lines else []
    done = CliRunner().invoke(app, ["team", "run", str(file), *options, *more], input="Pay.\n")
    assert 1 == done.exit_code
    assert "pay waits for an approval, and nobody can be asked here" in done.stderr
    if json_lines:
        events = [json.loads(line) for line in done.stdout.splitlines()]
        (event,) = [one for one in events if one["event"] == "approval"]
        assert [("pay", {"amount": 50})] == [
            (call["tool"], call["input"]) for call in event["calls"]
        ]


@pytest.mark.parametrize("left", [False, True])
def test_palaver_team_takes_decisions_line_by_line(
    crew: tuple[Path, ProviderServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: bool,  # noqa: FBT001 - a parameter
) -> None:
    """An empty line is an empty reason, and no message."""
    file, server = crew
    server.then(Answer("Let me see.", calls=(Call("pay", {"amount": 50}),)), "Not paid.")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    options = ["--store", str(tmp_path / "chat.db"), "--tools", "tests.team.tool_sources:pay"]
    typed = "\nPay.\n" if left else "\nPay.\nn\n\n"
    done = CliRunner().invoke(app, ["team", "run", str(file), *options], input=typed)
    assert 0 == done.exit_code, done.output
    assert ("pay waits for an approval; go on with --conversation" in done.stderr) == left
    assert ("Not paid." in done.stdout) == (not left)
    assert ("[pay] error: not run: the call was denied" in done.stdout) == (not left)


def test_palaver_team_check_lists_the_tools(crew: tuple[Path, ProviderServer]) -> None:
    file, _ = crew
    done = CliRunner().invoke(app, ["team", "check", str(file)])
    assert "max   model    openai:m, with pay" in done.stdout
