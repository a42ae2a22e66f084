"""Approval: one mechanism for library, nodes, chat, server and page.

A call that needs it waits in the ledger, whatever happens to the process; what was approved is what
runs; who decided and when stands on the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from palaver.conversation import Conversation
from palaver.messages import ToolPart, user
from palaver.messages.ids import now_ms
from palaver.nodes import ask_human, run_calls
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.tools import tool
from palaver.tools.approval import Decision
from tests.cli.commands.test_chat import Terminal
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from palaver import Store
    from palaver.tools import FunctionTool


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run in asyncio."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Any:  # noqa: ANN401 - a generator's own
    """A store in a file."""
    with palaver.open(str(tmp_path / "chat.db")) as opened:
        yield opened


def paying(paid: list[int], needs: bool | Callable[[Any], bool] = True) -> FunctionTool[..., Any]:  # noqa: FBT001, FBT002 - the tool's own
    """A tool that remembers what it paid."""

    @tool(needs_approval=needs)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        if amount == 13:
            raise ValueError("unlucky")
        return f"paid {amount}"

    return pay


def dear(arguments: Any) -> bool:  # noqa: ANN401 - of a call
    """Whether an amount is too large to be paid without a word."""
    return bool(arguments["amount"] > 10)


def results(talk: Conversation) -> list[Any]:
    """The states of the results."""
    found = [part for message in talk.by_role("tool") for part in message.parts]
    return [part.state for part in found if isinstance(part, ToolPart)]


# ── who and when ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("amount", "verdict", "status", "paid"),
    [
        (5, Decision("approve", by="Ann"), "completed", [5]),
        (13, Decision("approve", by="Ann"), "error", [13]),
        (5, Decision("deny", reason="too dear", by="Ann"), "error", []),
        (5, Decision("edit", arguments={"amount": 3}, by="Ann"), "completed", [3]),
    ],
)
async def test_every_result_says_who_decided_and_when(
    store: Store, amount: int, verdict: Decision, status: str, paid: list[int]
) -> None:
    """Whatever became of the call: done, failed, denied, or run with other arguments."""
    done: list[int] = []
    before = now_ms()
    model = Scripted(calling(("pay", {"amount": amount})), saying("So be it."))
    talk = Conversation(store, model=model, tools=[paying(done)])
    await talk.ask("Pay", approve=lambda _: verdict)
    (state,) = results(talk)
    found = state.metadata["approval"]
    assert (status, paid) == (state.status, done)
    assert (verdict.verdict, "Ann") == (found["verdict"], found["by"])
    assert before <= found["at"] <= now_ms()
    assert state.input == ({"amount": 3} if verdict.arguments else {"amount": amount})


@pytest.mark.anyio
async def test_the_decision_is_on_disk_before_the_tool_runs(store: Store) -> None:
    """So a crash while it runs leaves a result that says who approved it."""
    seen: list[Any] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        (entry,) = Conversation(store, talk.id).ledger().values()
        seen.append((entry.state.status, entry.state.input, getattr(entry.state, "metadata", {})))
        return f"paid {amount}"

    model = Scripted(calling(("pay", {"amount": 5})), saying("Paid."))
    talk = Conversation(store, model=model, tools=[pay])
    edited = Decision("edit", arguments={"amount": 3}, by="Ann")
    await talk.ask("Pay", approve=lambda _: edited)
    ((status, given, metadata),) = seen
    assert ("running", {"amount": 3}, "Ann") == (status, given, metadata["approval"]["by"])


# ── nodes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize("gate", [{}, {"approval": ["pay"]}])
async def test_nodes_ask_about_the_calls_that_need_it_and_no_others(
    store: Store, gate: dict[str, Any]
) -> None:
    paid: list[int] = []
    looked: list[str] = []

    def look(at: str) -> str:
        """Look at something."""
        looked.append(at)
        return at

    talk = Conversation(
        store,
        model=Scripted(calling(("look", {"at": "x"}), ("pay", {"amount": 50})), saying("Paid.")),
        tools=[paying(paid, False if gate else dear), look],
    )
    talk.add(user("Pay"))
    await talk.step()
    assert "approval" == (await run_calls(talk, gate)).outcome
    asked = await ask_human(talk)
    assert asked.question is not None
    assert ["pay"] == [call.tool for call in asked.question.calls]
    answer = {"verdict": "edit", "arguments": {"amount": 7}, "by": "Ann"}
    await ask_human(talk, ask=lambda _: answer)
    assert ("ran", [7], ["x"]) == ((await run_calls(talk, gate)).outcome, paid, looked)
    approval = results(talk)[1].metadata["approval"]
    assert ("edit", "Ann", True) == (approval["verdict"], approval["by"], approval["at"] > 0)


# ── the terminal ────────────────────────────────────────────────────────────────────────────────


PAY_5_AND_50 = Answer(calls=(Call("pay", {"amount": 5}), Call("pay", {"amount": 50})))


class Till:
    """A model behind a server, a store, and `palaver chat` with a tool that pays."""

    def __init__(self, server: ProviderServer, store: str) -> None:
        """Know where everything is."""
        self.server, self.store = server, store
        self.options = (
            *("--model", "openai:m", "--base-url", server.url, "--store", store),
            *("--tools", "tests.cli.chat_tools:pay"),
        )

    @property
    def id(self) -> str:
        """The id of the only conversation."""
        with palaver.open(self.store) as opened:
            (head,) = opened
            return head.id

    def states(self) -> list[tuple[str, str]]:
        """What became of the calls."""
        with palaver.open(self.store) as opened:
            talk = Conversation(opened, self.id)
            done = [(one.status, getattr(one, "output", "") or one.error) for one in results(talk)]
            return [*done, *(("waiting", str(call.input["amount"])) for call in talk.waiting())]

    def approvals(self) -> list[Any]:
        """What the results say about who decided."""
        with palaver.open(self.store) as opened:
            found = results(Conversation(opened, self.id))
            return [state.metadata.get("approval") for state in found]

    def terminal(self, *more: str) -> Terminal:
        """The command in a terminal."""
        return Terminal(*self.options, *more)


@pytest.fixture
def till(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """A model that wants to pay."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with ProviderServer("openai-chat") as running:
        yield Till(running, str(tmp_path / "chat.db"))
    assert [] == running.failures


def test_chat_asks_on_the_terminal_about_the_calls_that_need_it(till: Till) -> None:
    """One is approved, one denied with a reason, one changed; the first needs no word."""
    pay = (Call("pay", {"amount": 60}),)
    till.server.then(PAY_5_AND_50, Answer(calls=pay), Answer(calls=pay), "All done.")
    terminal = till.terminal()
    try:
        terminal.until("> ")
        terminal.type("Pay.\n")
        terminal.until('[pay] asks to run with {"amount":50}')
        terminal.until("yes, no, or change the arguments? [y/n/c] ")
        terminal.type("perhaps\n")
        terminal.until("[y/n/c] ")
        terminal.type("y\n")
        terminal.until('[pay] asks to run with {"amount":60}')
        terminal.until("[y/n/c] ")
        terminal.type("n\n")
        terminal.until("why not? ")
        terminal.type("too dear\n")
        terminal.until('[pay] asks to run with {"amount":60}')
        terminal.until("[y/n/c] ")
        terminal.type("c\n")
        terminal.until("arguments, as JSON: ")
        terminal.type('{"amount": "much"}\n')
        terminal.until("Expected `int`, got `str`")
        terminal.until("[y/n/c] ")
        terminal.type("c\n")
        terminal.until("arguments, as JSON: ")
        terminal.type('{"amount": 7}\n')
        terminal.until("All done.")
    finally:
        terminal.close()
    changed = '[run with other arguments, as a person decided: {"amount":7}]\npaid 7'
    assert [
        ("completed", "paid 5"),
        ("completed", "paid 50"),
        ("error", "not run: the call was denied: too dear"),
        ("completed", changed),
    ] == till.states()
    first, *others = till.approvals()
    assert first is None
    assert [("approve", True), ("deny", True), ("edit", True)] == [
        (one["verdict"], bool(one["by"] and one["at"])) for one in others
    ]


@pytest.mark.parametrize("leave", ["ctrl-c", "ctrl-d", "kill -9"])
def test_a_question_that_is_left_is_asked_again_by_the_next_chat(till: Till, leave: str) -> None:
    """The call waits: it neither runs nor is it denied."""
    till.server.then(PAY_5_AND_50, "Paid.")
    terminal = till.terminal()
    try:
        terminal.until("> ")
        terminal.type("Pay.\n")
        terminal.until("[y/n/c] ")
        if leave == "kill -9":
            terminal.process.kill()
        else:
            terminal.interrupt() if leave == "ctrl-c" else terminal.type("\x04")
            terminal.until("pay waits for an approval")
            terminal.until("> ")
            terminal.type("\x04")
            terminal.until("messages")
    finally:
        terminal.close()
    assert [("waiting", "5"), ("waiting", "50")] == till.states()
    again = till.terminal("--conversation", till.id)
    try:
        again.until('[pay] asks to run with {"amount":50}')
        again.until("[y/n/c] ")
        again.type("y\n")
        again.until("Paid.")
    finally:
        again.close()
    assert [("completed", "paid 5"), ("completed", "paid 50")] == till.states()


def test_chat_without_a_terminal_says_that_the_call_waits_and_fails(till: Till) -> None:
    till.server.then(PAY_5_AND_50, "Fine.")
    done = CliRunner().invoke(app, ["chat", *till.options], input="Pay.\n")
    words = (
        "pay waits for an approval, and nobody can be asked here: run palaver chat --conversation "
        f"{till.id} in a terminal, or decide on the page"
    )
    assert words in done.stderr
    assert 1 == done.exit_code
    assert [("completed", "paid 5"), ("waiting", "50")] == till.states()
    more = CliRunner().invoke(
        app, ["chat", *till.options, "--conversation", till.id], input="And now?\n"
    )
    assert (1, True, "Fine.\n") == (more.exit_code, words in more.stderr, more.stdout)


# ── the server ──────────────────────────────────────────────────────────────────────────────────


def call_of(stage: ScriptedServer, talk: str) -> dict[str, Any]:
    """The only call that waits."""
    (call,) = stage.calls(talk)
    return call


@pytest.mark.parametrize(
    ("body", "paid", "status", "verdict"),
    [
        ({"action": "run", "by": "Ann"}, [50], "completed", "approve"),
        ({"action": "run", "arguments": {"amount": 7}, "by": "Ann"}, [7], "completed", "edit"),
        ({"action": "deny", "reason": "too dear", "by": "Ann"}, [], "error", "deny"),
    ],
)
def test_over_http_a_call_is_approved_changed_or_denied_and_that_is_recorded(
    body: dict[str, Any], paid: list[int], status: str, verdict: str
) -> None:
    done: list[int] = []
    script = Scripted(calling(("pay", {"amount": 50})), saying("So be it."))
    with ScriptedServer(script, toolset=(paying(done, dear),)) as stage:
        talk = stage.ask.begun("Pay 50.")
        stage.step(talk, tools=True)
        call = call_of(stage, talk)
        assert call["asksFirst"]
        path = f"conversations/{talk}/calls/{call['id']}"
        stage.ask.good("POST", path, {**body, "digest": call["digest"]})
        stage.over(talk)
        (state,) = [
            part["state"]
            for message in stage.messages(talk)
            if message["role"] == "tool"
            for part in message["content"]
        ]
        assert (paid, status) == (done, state["status"])
        approval = state["metadata"]["approval"]
        assert (verdict, "Ann") == (approval["verdict"], approval["by"])
        assert approval["at"] <= now_ms()
        assert "So be it." == stage.ask.texts(talk)[-1]


def test_over_http_whoever_gives_no_name_decides_for_the_account_of_the_server() -> None:
    script = Scripted(calling(("pay", {"amount": 50})), saying("Paid."))
    with ScriptedServer(script, toolset=(paying([]),)) as stage:
        talk = stage.ask.begun("Pay 50.")
        stage.step(talk, tools=True)
        call = call_of(stage, talk)
        path = f"conversations/{talk}/calls/{call['id']}"
        stage.ask.good("POST", path, {"action": "run", "digest": call["digest"]})
        stage.over(talk)
        (found,) = results(Conversation(stage.store, talk))
        assert found.metadata["approval"]["by"]


def test_over_http_only_calls_that_need_it_wait() -> None:
    """A tool may decide it by its arguments."""
    done: list[int] = []
    both = calling(("pay", {"amount": 5}), ("pay", {"amount": 50}))
    with ScriptedServer(Scripted(both), toolset=(paying(done, dear),)) as stage:
        talk = stage.ask.begun("Pay 5 and 50.")
        stage.step(talk, tools=True)
        assert ([5], {"amount": 50}) == (done, call_of(stage, talk)["state"]["input"])


@pytest.mark.parametrize(
    "body",
    [
        {"action": "deny", "arguments": {"amount": 1}},
        {"action": "run", "arguments": [1]},
        {"action": "run", "by": ""},
        {"action": "run", "arguments": {"amount": "much"}},
        {"action": "run", "reason": "because"},
    ],
)
def test_over_http_a_decision_that_makes_no_sense_is_refused_and_the_call_waits_on(
    body: dict[str, Any],
) -> None:
    with ScriptedServer(Scripted(calling(("pay", {"amount": 50}))), toolset=(paying([]),)) as stage:
        talk = stage.ask.begun("Pay 50.")
        stage.step(talk, tools=True)
        call = call_of(stage, talk)
        path = f"conversations/{talk}/calls/{call['id']}"
        refused = stage.ask.refused("POST", path, {**body, "digest": call["digest"]})
        assert 422 == refused["status"]
        assert "pending" == call_of(stage, talk)["state"]["status"]
