"""Approval: decisions are stored before calls run, and hold only for the call that was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import Conversation, Toolbox, run_until_answer
from palaver.errors import CallChanged, StoreDamaged, ValidationError
from palaver.messages import user
from palaver.stores.records import APPROVAL
from palaver.tools import ToolOutput, approval, tool
from palaver.tools.approval import (
    ApprovalRequired,
    Decision,
    account_name,
    calls_to_ask,
    find_decisions,
    forget_decisions,
    load_allowed,
    load_decisions,
    parse_answer,
    save_decisions,
    valid_decisions,
    withdraw_allowed,
)
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.messages import ToolCallPart

pytestmark = pytest.mark.anyio


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def asked(store: Store, count: int = 1) -> tuple[Conversation, tuple[ToolCallPart, ...]]:
    """A conversation whose answer makes some calls of `pay`."""
    conversation = Conversation(store, tools=[ApprovalRequired(pay)])
    conversation.add(user("go"))
    step = await conversation.step(
        Scripted(calling(*(("pay", {"amount": 5 + i}) for i in range(count))))
    )
    return conversation, step.calls


async def run(conversation: Conversation, *calls: ToolCallPart, **fields: Any) -> list[str]:  # noqa: ANN401 - of a decision
    """Run calls as decided, one decision for all."""
    digests = conversation.digests(calls)
    decisions = {call.id: Decision(**fields, digest=digests[call.id]) for call in calls}
    outcomes = await conversation.run_tools(calls, approved=decisions)
    return [outcome.text for outcome in outcomes]


def results(conversation: Conversation) -> list[Any]:
    """The results that are in a conversation."""
    return [message.parts[0] for message in conversation.messages if message.role == "tool"]


async def test_an_approved_call_runs_and_its_result_says_who_approved(store: Store) -> None:
    conversation, (call,) = await asked(store)
    assert ["paid 5"] == await run(conversation, call, verdict="approve", by="Ann")
    part: Any = conversation.messages[-1].parts[0]
    found = part.state.metadata["approval"]
    assert ("approve", "Ann", True) == (found["verdict"], found["by"], found["at"] > 0)


async def test_a_denied_call_never_reaches_its_tool(store: Store) -> None:
    conversation, (call,) = await asked(store)
    expected = "not run: the call was denied: too dear"
    assert [expected] == await run(conversation, call, verdict="deny", by="Ann", reason="too dear")


async def test_a_call_runs_with_the_arguments_that_a_person_chose(store: Store) -> None:
    conversation, (call,) = await asked(store)
    (text,) = await run(conversation, call, verdict="edit", arguments={"amount": 3})
    assert text.endswith("paid 3")
    assert text.startswith('[run with other arguments, as a person decided: {"amount":3}]')


async def test_calls_without_a_decision_run(store: Store) -> None:
    conversation, calls = await asked(store, 2)
    digests = conversation.digests(calls)
    decision = Decision("deny", digest=digests[calls[0].id])
    outcomes = await conversation.run_tools(calls, approved={calls[0].id: decision})
    assert [True, False] == [outcome.failed for outcome in outcomes]


async def test_arguments_that_the_tool_would_refuse_are_no_decision(store: Store) -> None:
    conversation, calls = await asked(store)
    for answer in (
        {"verdict": "edit", "arguments": {"amount": "much"}},
        {"call_0": {"verdict": "edit", "arguments": {"amount": "much"}}},
    ):
        with pytest.raises(ValidationError, match=r"arguments: Expected `int`, got `str`"):
            parse_answer(answer, calls, tools=conversation.tools)


async def test_a_tool_can_not_say_of_itself_who_approved_it(store: Store) -> None:
    @tool
    def pay(amount: int) -> ToolOutput:
        """Pay."""
        return ToolOutput(f"paid {amount}", metadata={"approval": {"by": "me"}, "till": 3})

    conversation, (call,) = await asked(store)
    conversation.tools = Toolbox([ApprovalRequired(pay)])
    await run(conversation, call, verdict="approve", by="Ann")
    part: Any = conversation.messages[-1].parts[0]
    assert ("Ann", 3) == (part.state.metadata["approval"]["by"], part.state.metadata["till"])


def test_an_account_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise OSError

    assert account_name()
    monkeypatch.setattr("getpass.getuser", fails)
    assert "unknown" == account_name()


async def test_always_approves_the_tool_until_it_is_withdrawn(store: Store) -> None:
    """The next call runs unasked, and its result says who approved the tool and when."""
    conversation, calls = await asked(store)
    asks: list[str] = []

    def approve(call: ToolCallPart) -> object:
        asks.append(call.tool)
        return Decision("always", by="Ann")

    pays = calling(("pay", {"amount": 9}))
    model = Scripted(pays, saying("Done."), pays, saying("Done."), pays)
    await run_until_answer(conversation, model, approve=approve)
    assert ["pay"] == asks
    first, second = [part.state for part in results(conversation)]
    assert ("always", "Ann") == (
        first.metadata["approval"]["verdict"],
        first.metadata["approval"]["by"],
    )
    said = second.metadata["approval"]
    assert ("approve", "Ann") == (said["verdict"], said["by"])
    assert said["at"] == first.metadata["approval"]["at"]
    assert "the whole conversation" in said["reason"]
    assert ["pay"] == list(load_allowed(conversation))
    await run_until_answer(conversation, model, approve=approve)
    assert (3, ["pay"]) == (len(results(conversation)), asks)
    assert withdraw_allowed(conversation, "pay")
    assert not withdraw_allowed(conversation, "pay")
    last = await run_until_answer(conversation, model)
    assert ["pay"] == [call.tool for call in last.calls]
    assert 3 == len(results(conversation))
    assert calls


async def test_a_fork_asks_again(store: Store) -> None:
    conversation, (call,) = await asked(store)
    await run(conversation, call, verdict="always", by="Ann")
    fork = Conversation(store, conversation.history.fork())
    assert {} == load_allowed(fork)


async def test_a_call_that_changed_approves_no_tool(store: Store) -> None:
    conversation, (call,) = await asked(store)
    stale = Decision("always", by="Ann", digest="0" * 64)
    with pytest.raises(CallChanged):
        await conversation.run_tools([call], approved={call.id: stale})
    assert {} == load_allowed(conversation)


async def test_a_call_that_left_is_not_decided_by_its_tool(store: Store) -> None:
    conversation, (call,) = await asked(store)
    await run(conversation, call, verdict="always")
    assert {} == find_decisions(conversation, [call], [call])  # it has its result


async def test_decisions_are_stored_until_they_are_forgotten(store: Store) -> None:
    conversation, (call,) = await asked(store)
    digests = conversation.digests([call])
    made = {call.id: Decision("approve", digest=digests[call.id])}
    save_decisions(conversation, made)
    again = Conversation(store, conversation.id)
    assert made == load_decisions(again) == valid_decisions(made, digests)
    assert {} == valid_decisions(made, {call.id: "another"})
    forget_decisions(again, [call.id])
    assert {} == load_decisions(conversation)


async def test_a_stored_decision_names_its_digest(store: Store) -> None:
    conversation, (call,) = await asked(store)
    with pytest.raises(ValidationError, match="must be the digest of the call that was shown"):
        save_decisions(conversation, {call.id: Decision("approve")})


async def test_damaged_decisions_are_said_to_be(store: Store) -> None:
    conversation, (call,) = await asked(store)
    store.put_records(conversation.id, [(APPROVAL, call.id, b"{")])
    with pytest.raises(StoreDamaged):
        load_decisions(conversation)


async def test_a_question_is_about_the_calls_it_showed_at_first(store: Store) -> None:
    conversation, calls = await asked(store, 2)
    digests = conversation.digests(calls)
    assert [calls[0]] == calls_to_ask(conversation, calls[:1], digests, "k", anew=False)
    assert [calls[0]] == calls_to_ask(conversation, calls, digests, "k", anew=False)
    changed = {**digests, calls[0].id: "changed"}
    assert [calls[0]] == calls_to_ask(conversation, calls, changed, "k", anew=True)
    assert [] == calls_to_ask(conversation, calls, digests, "k", anew=False)


async def test_an_answered_question_is_not_asked_again(store: Store) -> None:
    conversation, calls = await asked(store)
    digests = conversation.digests(calls)
    calls_to_ask(conversation, calls, digests, "k", anew=False)
    decision = Decision("approve", digest=digests[calls[0].id])
    save_decisions(conversation, {calls[0].id: decision}, key="k")
    assert [] == calls_to_ask(conversation, calls, digests, "k", anew=False)


async def test_only_the_latest_answered_questions_are_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval, "_MAX_ANSWERED", 2)
    conversation, _ = await asked(store)
    for key in ("a", "b", "c"):
        save_decisions(conversation, {}, key=key)
    assert 2 == len(store.records(conversation.id, approval.ANSWERED))


async def test_older_records_of_questions_have_only_ids(store: Store) -> None:
    conversation, calls = await asked(store)
    record = (approval.ASKED, "k", f'["{calls[0].id}"]'.encode())
    store.put_records(conversation.id, [record])
    digests = conversation.digests(calls)
    assert [calls[0]] == calls_to_ask(conversation, calls, digests, "k", anew=True)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (True, "approve"),
        (False, "deny"),
        ("Yes", "approve"),
        ("deny", "deny"),
        ("Always", "always"),
        (Decision("deny"), "deny"),
    ],
)
async def test_an_answer_for_all_calls(store: Store, answer: object, verdict: str) -> None:
    _, calls = await asked(store, 2)
    digests = {call.id: f"digest of {call.id}" for call in calls}
    found = parse_answer(answer, calls, digests)
    expected = {call.id: (verdict, digests[call.id]) for call in calls}
    assert expected == {name: (one.verdict, one.digest) for name, one in found.items()}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("perhaps", "must be true, false, approve, always, deny or a decision"),
        ({"other": True}, "no such call waits"),
        ({}, "is not decided"),
        ({"verdict": "edit"}, 'is needed with "edit"'),
        ({"verdict": "deny", "arguments": {}}, 'goes with "edit" only'),
        ({"verdict": "deny", "digest": "another"}, "is that of another call"),
    ],
)
async def test_an_answer_that_decides_nothing_is_refused(
    store: Store, answer: object, problem: str
) -> None:
    _, calls = await asked(store)
    with pytest.raises(ValidationError, match=problem):
        parse_answer(answer, calls, {calls[0].id: "digest"})


def test_a_guarded_tool_is_described_like_the_tool_itself() -> None:
    guarded = ApprovalRequired(pay)
    assert (pay.spec, pay.idempotent, pay.timeout) == (
        guarded.spec,
        guarded.idempotent,
        guarded.timeout,
    )
    assert ["pay"] == list(Toolbox([guarded]))
