"""The tool node: what waits is run once; what a person has to approve is not run before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import Conversation, ToolOutput
from palaver.errors import StoreDamaged, ValidationError
from palaver.messages import ToolCallPart, ToolCompleted, ToolPart, complete, start, user
from palaver.nodes import AskApproval, Decision, ask_human, read_status, run_calls
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store
    from palaver.conversation import ToolContext

pytestmark = pytest.mark.anyio


class Till:
    """Two tools that remember what they did."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def pay(self, amount: int) -> str:
        self.did.append(f"paid {amount}")
        return f"paid {amount}"

    def look_up(self, what: str) -> str:
        self.did.append(f"looked for {what}")
        if what == "nothing":
            raise LookupError(what)
        return what


async def called(store: Store, till: Till, *calls: tuple[str, object]) -> Conversation:
    conversation = Conversation(store, tools=[till.pay, till.look_up])
    conversation.add(user("Go."))
    await conversation.step(Scripted(calling(*calls)))
    return conversation


def results(conversation: Conversation) -> list[tuple[str, str]]:
    parts = [part for message in conversation.messages for part in message.parts]
    found = [part for part in parts if isinstance(part, ToolPart)]
    return [(p.tool, getattr(p.state, "output", getattr(p.state, "error", ""))) for p in found]


async def test_what_waits_is_run_and_then_the_model_is_wanted(store: Store) -> None:
    till = Till()
    conversation = await called(store, till, ("look_up", {"what": "tea"}), ("pay", {"amount": 5}))
    done = await run_calls(conversation)
    assert [("look_up", "tea"), ("pay", "paid 5")] == results(conversation)
    assert ("tool", "ran", "llm", ()) == (done.node, done.outcome, done.next, done.calls)
    assert done.added == tuple(message.id for message in conversation.recent(2))
    again = await run_calls(conversation)
    assert ("nothing", "llm") == (again.outcome, again.next)
    assert 2 == len(till.did)


async def test_a_call_that_fails_is_a_result_and_is_named(store: Store) -> None:
    conversation = await called(store, Till(), ("look_up", {"what": "nothing"}))
    (call,) = conversation.waiting()
    done = await run_calls(conversation)
    assert ((call.id,), "1 ran, 1 failed", "llm") == (done.failed, done.detail, done.next)


@pytest.mark.parametrize("approval", ["all", ["pay"]])
async def test_nothing_of_an_answer_runs_before_it_is_approved(
    store: Store, approval: object
) -> None:
    till = Till()
    conversation = await called(store, till, ("look_up", {"what": "tea"}), ("pay", {"amount": 5}))
    config = {"approval": approval}
    done = await run_calls(conversation, config)
    looked, paid = conversation.waiting()
    gated = (looked.id, paid.id) if approval == "all" else (paid.id,)
    assert ("approval", "human", gated) == (done.outcome, done.next, done.calls)
    assert [] == till.did
    await ask_human(conversation, ask=lambda _: True)
    done = await run_calls(conversation, config)
    assert ("ran", "llm") == (done.outcome, done.next)
    assert ["looked for tea", "paid 5"] == sorted(till.did)


async def test_what_is_denied_does_not_run_and_the_model_is_told(store: Store) -> None:
    till = Till()
    conversation = await called(store, till, ("look_up", {"what": "tea"}), ("pay", {"amount": 5}))
    answer = {"call_0": True, "call_1": {"verdict": "deny", "reason": "too dear", "by": "Ann"}}
    await ask_human(conversation, AskApproval(), ask=lambda _: answer)
    done = await run_calls(conversation, {"approval": "all"})
    assert ["looked for tea"] == till.did
    assert ("pay", "not run: the call was denied: too dear") == results(conversation)[1]
    assert (1, "llm") == (len(done.failed), done.next)
    left = conversation.store.records(conversation.id, "approval")
    assert {} == left, "what was decided is settled"


async def test_other_arguments_are_run_and_said(store: Store) -> None:
    till = Till()
    conversation = await called(store, till, ("pay", {"amount": 500}))
    decision = Decision("edit", arguments={"amount": 5}, by="Ann")
    await ask_human(conversation, ask=lambda _: decision)
    await run_calls(conversation, {"approval": ["pay"]})
    assert ["paid 5"] == till.did
    told = '[run with other arguments, as a person decided: {"amount":5}]\npaid 5'
    assert [("pay", told)] == results(conversation)
    (part,) = conversation.messages[-1].parts
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolCompleted)
    approval = dict(part.state.metadata["approval"])
    assert 64 == len(approval.pop("digest"))
    assert approval.pop("at") > 0
    assert {"verdict": "edit", "arguments": {"amount": 5}, "by": "Ann"} == approval
    assert {"amount": 5} == part.state.input, "what ran is what is recorded"
    (asked,) = (p for p in conversation.messages[1].parts if isinstance(p, ToolCallPart))
    assert {"amount": 500} == asked.input, "what the model asked for stands"


async def test_decisions_hold_for_an_engines_own_tools_too(store: Store) -> None:
    """A denial is a denial, whoever runs the calls."""
    ran: list[str] = []

    async def execute(call: ToolCallPart, _: ToolContext) -> ToolOutput:
        ran.append(f"{call.tool} {call.input}")
        return ToolOutput("done")

    conversation = Conversation(store, executor=execute)
    conversation.add(user("Go."))
    await conversation.step(Scripted(calling(("pay", {"amount": 5}), ("pay", {"amount": 7}))))
    answer = {"call_0": "deny", "call_1": {"verdict": "edit", "arguments": {"amount": 1}}}
    await ask_human(conversation, ask=lambda _: answer)
    await run_calls(conversation, {"approval": "all"})
    assert ["pay {'amount': 1}"] == ran
    assert ("pay", "not run: the call was denied") == results(conversation)[0]


async def test_a_fork_has_its_calls_run_by_itself(store: Store) -> None:
    """A call that came with the log and has no entry in the ledger waits too."""
    till = Till()
    conversation = await called(store, till, ("pay", {"amount": 5}))
    fork = Conversation(store, conversation.history.fork(), tools=[till.pay])
    assert [] == fork.waiting()
    assert "tool" == read_status(fork).next
    done = await run_calls(fork)
    assert ("ran", "llm") == (done.outcome, done.next)
    assert [("pay", "paid 5")] == results(fork)
    assert "nothing" == (await run_calls(fork)).outcome


async def test_what_a_crash_has_cut_off_is_not_run_before_it_is_settled(store: Store) -> None:
    till = Till()
    conversation = await called(store, till, ("pay", {"amount": 5}), ("look_up", {"what": "tea"}))
    cut, done = conversation.ledger().values()
    moved = [
        cut.with_state(start(cut.state)),
        done.with_state(complete(start(done.state), "tea", tool="t")),
    ]
    store.put_records(conversation.id, [entry.record() for entry in moved])
    seen = read_status(conversation)
    assert ("tool", [cut.id]) == (seen.next, [call.id for call in seen.running])
    with pytest.raises(ValidationError, match=r"recover\(\) settles them"):
        await run_calls(conversation)
    await conversation.recover()
    assert ("nothing", "llm") == (
        (await run_calls(conversation)).outcome,
        read_status(conversation).next,
    )
    assert [] == till.did


async def test_a_result_that_only_wants_its_place_gets_it(store: Store) -> None:
    till = Till()
    conversation = await called(store, till, ("pay", {"amount": 5}))
    (entry,) = conversation.ledger().values()
    kept = entry.with_state(complete(start(entry.state), "paid before", tool="pay"))
    store.put_records(conversation.id, [kept.record()])
    await run_calls(conversation)
    assert ([("pay", "paid before")], []) == (results(conversation), till.did)


async def test_a_damaged_decision_is_said_to_be_one(store: Store) -> None:
    conversation = await called(store, Till(), ("pay", {"amount": 5}))
    store.put_records(conversation.id, [("approval", "x", b"{")])
    with pytest.raises(StoreDamaged, match="can't be read"):
        await run_calls(conversation)
