"""Tools through HTTP: they run, fail, report, and wait for a person where they should."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from msgspec.structs import replace

import palaver
from palaver.errors import ToolFailed, ValidationError
from palaver.messages import ToolCallPart, new_id, tool_call_part
from palaver.server.services import tools
from palaver.server.services.steps import StepRunner
from palaver.server.services.tools import ServerTools, current_time, evaluate, roll_dice
from palaver.tools import ToolContext, tool
from palaver.tools.approval import ApprovalRequired
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.scripted_server import ScriptedServer, wait_for

if TYPE_CHECKING:
    from pathlib import Path

SEARCH = ("search_conversations", {"words": "marmalade"})
NO_DIGEST = "0" * 64
SUM = ("calculate", {"expression": "6 * 7"})


def waiting(stage: ScriptedServer, *calls: tuple[str, Any]) -> str:
    """A conversation in which calls of an answer wait; the model was asked once."""
    talk = stage.ask.begun("Look it up.")
    stage.step(talk, tools=True)
    assert len(calls) == len(stage.calls(talk))
    return talk


def digest_of(stage: ScriptedServer, talk: str, call: str) -> str:
    """The digest that a call is shown with."""
    shown = [one for one in stage.calls(talk) if call in (one["id"], one["callID"])]
    digest: str = shown[0]["digest"]
    return digest


def replace_call(stage: ScriptedServer, talk: str, **other: Any) -> None:  # noqa: ANN401 - fields of a call
    """REPLACE the message of the only call by one whose call is another."""
    index, message = next(
        (index, message)
        for index, message in enumerate(stage.messages(talk))
        if message["role"] == "assistant"
    )
    next(part for part in message["content"] if part["type"] == "tool-call").update(other)
    operation = {"operation": "REPLACE", "index": index, "message": message}
    stage.ask.good("POST", f"conversations/{talk}/operations", {"operation": operation})


def settle(stage: ScriptedServer, talk: str, call: str, **body: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    """Say what is to become of a call as it is shown now, and see it through."""
    body.setdefault("digest", digest_of(stage, talk, call))
    begun = stage.ask.good("POST", f"conversations/{talk}/calls/{call}", body)
    stage.over(talk)
    return begun


def test_a_call_that_asks_first_waits_until_it_is_allowed() -> None:
    with ScriptedServer(Scripted(calling(SEARCH), saying("On Mars."))) as stage:
        stage.ask.begun("marmalade is on Mars", title="Breakfast")
        talk = waiting(stage, SEARCH)
        (call,) = stage.calls(talk)
        assert ("pending", True, False) == (
            call["state"]["status"],
            call["asksFirst"],
            call["stray"],
        )
        assert ["waiting"] == stage.ended()
        head = stage.ask.good("GET", f"conversations/{talk}")
        assert {"stepping": False, "waiting": 1} == head["state"]
        begun = settle(stage, talk, call["id"], action="run")
        assert begun["step"]
        assert [("completed", "Breakfast: marmalade is on Mars")] == stage.results(talk)
        assert "On Mars." == stage.ask.texts(talk)[-1]
        assert ["waiting", "answered"] == stage.ended()
        assert [] == stage.calls(talk)


def test_a_call_that_is_denied_tells_the_model_why() -> None:
    with ScriptedServer(Scripted(calling(SEARCH), saying("I see."))) as stage:
        talk = waiting(stage, SEARCH)
        settle(stage, talk, "call_0", action="deny", reason="it is private")
        words = "not run: the call was denied: it is private"
        assert [("error", words)] == stage.results(talk)
        assert "I see." == stage.ask.texts(talk)[-1]


def test_a_call_that_is_denied_without_a_reason_and_without_going_on() -> None:
    with ScriptedServer(Scripted(calling(SEARCH))) as stage:
        talk = waiting(stage, SEARCH)
        settle(stage, talk, "call_0", action="deny", loop=False)
        assert [("error", "not run: the call was denied")] == stage.results(talk)
        assert ["waiting", "calls"] == stage.ended()


def test_what_needs_nobodys_word_runs_while_the_other_waits() -> None:
    with ScriptedServer(Scripted(calling(SUM, SEARCH), saying("42, and nothing."))) as stage:
        talk = waiting(stage, SEARCH)
        assert [("completed", "6 * 7 = 42")] == stage.results(talk)
        settle(stage, talk, "call_1", action="run")
        assert ("completed", "nothing was found") == stage.results(talk)[-1]
        assert "42, and nothing." == stage.ask.texts(talk)[-1]


def test_of_two_that_wait_the_model_goes_on_after_the_last() -> None:
    with ScriptedServer(Scripted(calling(SEARCH, SEARCH), saying("Nothing."))) as stage:
        talk = waiting(stage, SEARCH, SEARCH)
        settle(stage, talk, "call_0", action="run")
        assert ["waiting", "waiting"] == stage.ended()
        settle(stage, talk, "call_1", action="deny")
        assert ["waiting", "waiting", "answered"] == stage.ended()


def test_one_may_go_on_talking_while_a_call_waits() -> None:
    with ScriptedServer(Scripted(calling(SEARCH), saying("Fine."))) as stage:
        talk = waiting(stage, SEARCH)
        stage.step(talk, "Never mind. How are you?", tools=True)
        assert (1, "Fine.") == (len(stage.calls(talk)), stage.ask.texts(talk)[-1])


def test_a_tool_that_fails_is_a_result_that_the_model_is_told() -> None:
    wrong = ("calculate", {"expression": "1 / 0"})
    with ScriptedServer(
        Scripted(calling(wrong, ("calculate", {}), ("nobody", {})), saying("No."))
    ) as stage:
        talk = stage.ask.begun("1 / 0?")
        stage.step(talk, tools=True)
        states, words = zip(*stage.results(talk), strict=True)
        assert ("error",) * 3 == states
        assert "divides by zero" in words[0]
        assert "missing required field `expression`" in words[1]
        assert "there is no tool 'nobody'" in words[2]


def test_a_model_that_calls_without_being_offered_tools_is_told_so() -> None:
    with ScriptedServer(Scripted(calling(SUM), saying("Sorry."))) as stage:
        talk = stage.ask.begun("6 * 7?")
        stage.step(talk)
        ((state, words),) = stage.results(talk)
        assert ("error", True) == (state, "there is no tool" in words)


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("nothing", {"action": "run", "digest": NO_DIGEST}, 404),
        ("call_0", {"action": "run"}, 422),
        ("call_0", {"action": "run", "digest": "yes"}, 422),
        ("call_0", {"action": "run", "digest": NO_DIGEST}, 409),
        ("call_0", {"action": "deny", "digest": NO_DIGEST}, 409),
        ("call_0", {"action": "maybe"}, 422),
        ("call_0", {}, 422),
        ("call_0", {"action": "run", "model": "nobody"}, 422),
        ("call_0", {"action": "run", "tools": ["nothing"]}, 422),
        ("call_0", {"action": "deny", "reason": ""}, 422),
    ],
)
def test_a_wrong_settlement_is_refused(call: str, body: object, status: int) -> None:
    with ScriptedServer(Scripted(calling(SEARCH))) as stage:
        talk = waiting(stage, SEARCH)
        path = f"conversations/{talk}/calls/{call}"
        assert status == stage.ask.refused("POST", path, body)["status"]
        assert 1 == len(stage.calls(talk))


def test_calls_of_a_conversation_that_is_not_there() -> None:
    with ScriptedServer(Scripted()) as stage:
        assert 404 == stage.ask.refused("GET", "conversations/none/calls")["status"]
        body = {"action": "run", "digest": NO_DIGEST}
        assert 404 == stage.ask.refused("POST", "conversations/none/calls/c", body)["status"]


def test_a_call_that_runs_can_not_be_settled_and_is_cancelled_by_stopping() -> None:
    @tool
    async def dawdle(context: ToolContext) -> str:
        """Never come back."""
        context.progress("half way", {"part": 1})
        await anyio.sleep_forever()
        return ""

    with ScriptedServer(Scripted(calling(("dawdle", {}))), toolset=(dawdle,)) as stage:
        talk = stage.ask.begun("Take your time.")
        stage.ask.good("POST", f"conversations/{talk}/step", {"tools": ["dawdle"]})
        wait_for(lambda: "tool.progress" in [name for name, _ in stage.told])
        told = dict(stage.told)["tool.progress"]
        assert (talk, "half way") == (told["conversation"], told["title"])
        path = f"conversations/{talk}/calls/call_0"
        refused = stage.ask.refused("POST", path, {"action": "run", "digest": NO_DIGEST})
        assert (409, True) == (refused["status"], "does not wait" in refused["detail"])
        stage.ask.good("DELETE", f"conversations/{talk}/step")
        assert [("error", "cancelled")] == stage.results(talk)


# ── an approval is of one call and no other ─────────────────────────────────────────────────────


class Till:
    """A tool that remembers what it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def toolset(self) -> tuple[ApprovalRequired]:
        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        return (ApprovalRequired(pay),)


def test_a_call_that_is_replaced_after_it_was_shown_does_not_run_by_the_old_approval() -> None:
    till = Till()
    with ScriptedServer(Scripted(calling(("pay", {"amount": 5}))), toolset=till.toolset()) as stage:
        talk = waiting(stage, ("pay", {}))
        (shown,) = stage.calls(talk)
        replace_call(stage, talk, input={"amount": 5_000}, raw='{"amount": 5000}')
        path = f"conversations/{talk}/calls/call_0"
        body = {"action": "run", "digest": shown["digest"], "loop": False}
        refused = stage.ask.refused("POST", path, body)
        assert (409, "CallChanged") == (refused["status"], refused["name"])
        (now,) = stage.calls(talk)
        assert ({"amount": 5}, {"amount": 5_000}) == (
            shown["state"]["input"],
            now["state"]["input"],
        )
        assert now["digest"] == refused["facts"]["digest"] != shown["digest"]
        assert ([], "pending") == (till.paid, now["state"]["status"])
        settle(stage, talk, "call_0", action="run", digest=now["digest"], loop=False)
        assert [5_000] == till.paid
        (result,) = stage.messages(talk)[-1]["content"]
        assert {"amount": 5_000} == result["state"]["input"], "what ran is what is recorded"


def test_a_replacement_that_comes_after_the_approval_is_taken_is_refused_by_the_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The route looks once and the runner again: between the two anybody may write."""
    till = Till()
    with ScriptedServer(Scripted(calling(("pay", {"amount": 5}))), toolset=till.toolset()) as stage:
        talk = waiting(stage, ("pay", {}))
        order = StepRunner.plan

        def ordered(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - asked for after the look
            history = stage.store.get(talk)
            (call,) = (p for p in history.view[-1].parts if isinstance(p, ToolCallPart))
            other = replace(call, input={"amount": 9}, raw='{"amount":9}')
            history.replace(len(history.view) - 1, replace(history.view[-1], content=(other,)))
            return order(*args, **more)

        digest = digest_of(stage, talk, "call_0")
        monkeypatch.setattr(StepRunner, "plan", ordered)
        path, body = f"conversations/{talk}/calls/call_0", {"action": "run", "digest": digest}
        refused = stage.ask.refused("POST", path, body)
        assert (409, "CallChanged") == (refused["status"], refused["name"])
        (now,) = stage.calls(talk)
        assert refused["facts"]["digest"] == now["digest"]
        assert ([], "pending", {"amount": 9}) == (
            till.paid,
            now["state"]["status"],
            now["state"]["input"],
        )


def test_a_replaced_tool_is_shown_and_a_call_whose_message_is_gone_can_not_be_approved() -> None:
    till = Till()
    with ScriptedServer(Scripted(calling(("pay", {"amount": 5}))), toolset=till.toolset()) as stage:
        talk = waiting(stage, ("pay", {}))
        digest = digest_of(stage, talk, "call_0")
        replace_call(stage, talk, tool="roll_dice", input={}, raw="{}")
        (now,) = stage.calls(talk)
        assert ("roll_dice", False) == (now["tool"], now["asksFirst"])
        stage.ask.good("POST", f"conversations/{talk}/undo")
        assert digest == digest_of(stage, talk, "call_0"), "it is the call that was shown again"
        operation = {"operation": "TRUNCATE", "removeLast": 1}
        stage.ask.good("POST", f"conversations/{talk}/operations", {"operation": operation})
        (gone,) = stage.calls(talk)
        assert "digest" not in gone
        path = f"conversations/{talk}/calls/call_0"
        refused = stage.ask.refused("POST", path, {"action": "run", "digest": digest})
        assert (409, []) == (refused["status"], till.paid)


def test_an_approval_that_is_given_twice_runs_once() -> None:
    till = Till()
    with ScriptedServer(Scripted(calling(("pay", {"amount": 5}))), toolset=till.toolset()) as stage:
        talk = waiting(stage, ("pay", {}))
        digest = digest_of(stage, talk, "call_0")
        settle(stage, talk, "call_0", action="run", digest=digest, loop=False)
        path = f"conversations/{talk}/calls/call_0"
        refused = stage.ask.refused("POST", path, {"action": "run", "digest": digest})
        assert (404, [5]) == (refused["status"], till.paid)


def test_of_two_who_decide_at_two_servers_one_is_heard(tmp_path: Path) -> None:
    """Whoever is answered with 202 has decided, and the other is told that it was too late."""
    till, path = Till(), tmp_path / "chat.db"
    actor = Scripted(*(calling(("pay", {"amount": number})) for number in range(6)))
    with (
        palaver.open(path) as one,
        palaver.open(path) as other,
        ScriptedServer(actor, store=one, toolset=till.toolset()) as first,
        ScriptedServer(actor, store=other, toolset=till.toolset()) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        for number in range(6):
            talk = waiting(first, ("pay", {}))
            digest = digest_of(first, talk, "call_0")

            def decide(
                stage: ScriptedServer, action: str, talk: str = talk, digest: str = digest
            ) -> int:
                body = {"action": action, "digest": digest, "loop": False}
                where = f"/api/conversations/{talk}/calls/call_0"
                return int(stage.ask.request("POST", where, json=body).status_code)

            run, deny = pool.map(decide, (first, second), ("run", "deny"))
            for stage in (first, second):
                stage.over(talk)
            assert 202 in {run, deny}
            assert {run, deny} - {202} <= {404, 409}, (run, deny)
            assert (run == 202) == (number in till.paid), (run, deny)
            assert (run, deny) != (202, 202)


def test_an_approval_holds_in_its_own_conversation_only() -> None:
    """A fork carries the message; what was shown elsewhere approves nothing there."""
    till = Till()
    with ScriptedServer(Scripted(calling(("pay", {"amount": 5}))), toolset=till.toolset()) as stage:
        talk = waiting(stage, ("pay", {}))
        digest = digest_of(stage, talk, "call_0")
        fork = stage.ask.good("POST", f"conversations/{talk}/fork", {})["id"]
        path = f"conversations/{fork}/calls/call_0"
        refused = stage.ask.refused("POST", path, {"action": "run", "digest": digest})
        assert (404, []) == (refused["status"], till.paid)


def test_tools_of_ones_own_stand_beside_those_built_in() -> None:
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    with ScriptedServer(Scripted(), toolset=([shout],)) as stage:
        found = stage.ask.good("GET", "info")["tools"]
        names = ["current_time", "calculate", "roll_dice", "search_conversations", "shout"]
        assert names == [each["name"] for each in found]


def test_a_server_whose_tools_can_not_be_opened_does_not_start() -> None:
    class Broken:
        async def __aenter__(self) -> None:
            msg = "no such server"
            raise ToolFailed(msg)

        async def __aexit__(self, *_: object) -> None:
            """Nothing was opened."""

    with (
        pytest.raises(BaseExceptionGroup, match="unhandled") as raised,
        ScriptedServer(Scripted(), toolset=(Broken(),)),
    ):
        pass
    assert raised.group_contains(ToolFailed, match="no such server", depth=1)


# ── what is built in ────────────────────────────────────────────────────────────────────────────


def test_the_time_is_told_in_any_zone() -> None:
    assert re.fullmatch(r"\w+, \d\d \w+ \d{4}, \d\d:\d\d:\d\d UTC", current_time())
    assert str(current_time("Asia/Tokyo")).endswith("JST")
    with pytest.raises(ToolFailed, match="there is no time zone 'nowhere'"):
        current_time("nowhere")


def test_dice_wait_for_die_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_ROLL_SECONDS", 0)
    with ScriptedServer(Scripted(calling(("roll_dice", {})), saying("Well."))) as stage:
        talk = stage.ask.begun("Roll!")
        stage.step(talk, tools=["roll_dice"])
        ((state, words),) = stage.results(talk)
        rolled = re.fullmatch(r"([1-6]) \+ ([1-6]) = (\d+)", words)
        assert ("completed", True) == (state, rolled is not None)
        assert rolled is not None
        assert int(rolled[3]) == int(rolled[1]) + int(rolled[2])
        titles = [data["title"] for name, data in stage.told if name == "tool.progress"]
        assert "\u2026" == titles[0]


@pytest.mark.parametrize("wrong", ["{128} * {37} = 4442", "twelve", "1" * 81, ""])
def test_what_is_no_sum_never_reaches_the_calculator(wrong: str) -> None:
    """A grammar made of this schema keeps a small model from writing it at all."""
    with ScriptedServer(
        Scripted(calling(("calculate", {"expression": wrong})), saying("No."))
    ) as stage:
        talk = stage.ask.begun("12 * 7?")
        stage.step(talk, tools=["calculate"])
        ((state, words),) = stage.results(talk)
        assert ("error", True) == (state, "$.expression" in words), words


def test_some_tools_are_chosen_by_name() -> None:
    room = ServerTools([current_time, ApprovalRequired(roll_dice)])
    assert ["roll_dice"] == list(room.select(["roll_dice", "roll_dice"]))
    assert [] == list(room.select(wanted=False))
    assert (True, False, False) == tuple(
        room.asks_first(tool_call_part(new_id(), new_id(), name, {}))
        for name in ("roll_dice", "current_time", "nobody")
    )
    with pytest.raises(ValidationError, match=r"tools\[1\]: there is no tool 'x'"):
        room.select(["roll_dice", "x"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-(2 - 5)", 3),
        ("7 // 2 + 7 % 2", 4),
        ("1,000 × 2 ÷ 4", 500.0),  # noqa: RUF001 - as people write it
        ("2 ^ 3 ^ 2", 512),
        ("2 ** -1", 0.5),
        ("1.5 ^ 2", 2.25),
        ("+4", 4),
    ],
)
def test_sums_come_out_right(text: str, value: float) -> None:
    assert value == evaluate(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no sum"),
        ("2 +", "no sum"),
        ("a", "only numbers"),
        ("True", "only numbers"),
        ("'a' * 9", "only numbers"),
        ("~1", "only numbers"),
        ("1 if 2 else 3", "only numbers"),
        ("().__class__", "only numbers"),
        ("1 & 2", "only numbers"),
        ("1 / 0", "divides by zero"),
        ("9 ^ 9 ^ 9", "more than"),
        ("9.0 ^ 9999", "more than"),
        ("1e999", "more than"),
        ("9^600 * 9^600 * 9^600", "more than"),
        ("(-8) ^ 0.5", "no real result"),
        ("1" * 201, "201 characters"),
    ],
)
def test_what_is_no_sum_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        evaluate(text)


@pytest.mark.parametrize("form", ["palaver-2", "jsonl"])
def test_a_file_brings_no_approvals(form: str) -> None:
    with ScriptedServer(Scripted(calling(SEARCH), saying("On Mars."), calling(SEARCH))) as stage:
        talk = waiting(stage, SEARCH)
        settle(stage, talk, "call_0", action="run", always=True)
        path = f"conversations/{talk}"
        assert stage.ask.good("GET", f"{path}/calls")["allowed"]
        stage.store.put_record(talk, "approval", "a-call", b'{"verdict":"approve"}')
        data = stage.ask.get(f"/api/{path}/export", params={"format": form}).content
        stage.ask.good("POST", "import", params={"id": "theirs"}, content=data)
        assert [] == stage.ask.good("GET", "conversations/theirs/calls")["allowed"]
        assert {} == stage.store.records("theirs", "approval")
        stage.step("theirs", "Again.", tools=True)
        assert 1 == len(stage.calls("theirs"))
        assert 1 == len(stage.results("theirs"))
