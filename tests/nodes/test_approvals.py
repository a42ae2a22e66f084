"""An approval is of the call that was shown: one that was changed since is asked about again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from palaver.conversation import Conversation
from palaver.errors import CallChanged, ValidationError
from palaver.messages import ToolCallPart, ToolPart, new_id, user
from palaver.nodes import Decision, ask_human, run_calls
from palaver.tools import approval
from palaver.tools.approval import load_decisions, parse_answer, save_decisions
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store
    from palaver.nodes import Question

pytestmark = pytest.mark.anyio
GATED = {"approval": ["pay"]}


class SuspendedError(Exception):
    """An engine suspends the node."""


class Till:
    """A conversation in which a payment waits, and what was paid."""

    def __init__(self, store: Store) -> None:
        self.paid: list[int] = []
        self.shown: list[tuple[str, Any]] = []
        self.talk = Conversation(store, tools=[self.pay])
        self.talk.add(user("Go."))

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"

    async def called(self, *amounts: int) -> None:
        await self.talk.step(Scripted(calling(*(("pay", {"amount": n}) for n in amounts))))

    def replace(self, amount: int, *, which: int = 0, **other: Any) -> None:  # noqa: ANN401 - fields of a message
        """REPLACE the message of the calls, as any other process may: its call is another."""
        history = self.talk.store.get(self.talk.id)
        index = next(i for i, one in enumerate(history.view) if one.role == "assistant")
        message = history.view[index]
        parts = [part for part in message.parts if isinstance(part, ToolCallPart)]
        call = parts[which]
        raw = f'{{"amount":{amount}}}'
        parts[which] = replace(call, input={"amount": amount}, raw=raw)
        history.replace(index, replace(message, content=tuple(parts), **other))

    def answer(self, answer: Any = True) -> Any:  # noqa: FBT002, ANN401 - what a person says
        """Somebody who looks at the question and says this."""

        def ask(question: Question) -> Any:  # noqa: ANN401 - an answer
            self.shown += [(call.digest, call.input["amount"]) for call in question.calls]
            return answer

        return ask

    async def suspend(self, question: Question) -> None:
        self.answer()(question)
        raise SuspendedError

    def recorded(self) -> list[Any]:
        parts = [part for message in self.talk.messages for part in message.parts]
        return [part.state.input["amount"] for part in parts if isinstance(part, ToolPart)]


@pytest.fixture
async def till(store: Store) -> Till:
    """A payment of 5 waits."""
    made = Till(store)
    await made.called(5)
    return made


@pytest.mark.parametrize(
    "verdict", ["approve", "deny", {"verdict": "edit", "arguments": {"amount": 1}}]
)
async def test_a_call_that_is_replaced_after_the_approval_waits_again(
    till: Till, verdict: object
) -> None:
    await ask_human(till.talk, ask=till.answer(verdict))
    till.replace(5_000)
    done = await run_calls(till.talk, GATED)
    assert ("approval", "human", []) == (done.outcome, done.next, till.paid)
    await ask_human(till.talk, ask=till.answer())
    assert [5, 5_000] == [amount for _, amount in till.shown]
    assert "ran" == (await run_calls(till.talk, GATED)).outcome
    assert [5_000] == till.paid == till.recorded()


async def test_a_stale_denial_holds_the_call_back_where_nothing_is_gated(till: Till) -> None:
    await ask_human(till.talk, ask=till.answer("deny"))
    till.replace(6)
    assert ("approval", []) == ((await run_calls(till.talk)).outcome, till.paid)


async def test_an_undone_replacement_is_the_call_that_was_shown(till: Till) -> None:
    await ask_human(till.talk, ask=till.answer())
    till.replace(5_000)
    till.talk.history.refresh().undo()
    await run_calls(till.talk, GATED)
    assert [5] == till.paid == till.recorded()


async def test_a_message_of_another_id_with_the_same_call_is_gated_too(till: Till) -> None:
    till.replace(9, id=new_id())
    assert ("approval", []) == ((await run_calls(till.talk, GATED)).outcome, till.paid)
    await ask_human(till.talk, ask=till.answer())
    await run_calls(till.talk, GATED)
    assert [9] == till.paid == till.recorded()


async def test_the_answer_to_a_suspended_question_is_for_what_it_showed(till: Till) -> None:
    """An engine runs the node again from its start and replays the answer to the first question."""
    with pytest.raises(SuspendedError):
        await ask_human(till.talk, ask=till.suspend, key="one")
    till.replace(5_000)
    done = await ask_human(till.talk, ask=till.answer(), key="one")
    assert ("nothing", {}) == (done.outcome, load_decisions(till.talk))
    again = await ask_human(till.talk, ask=till.answer(), key="one")  # the node is replayed
    assert ("nothing", {}) == (again.outcome, load_decisions(till.talk))
    assert "approval" == (await run_calls(till.talk, GATED)).outcome
    await ask_human(till.talk, ask=till.answer(), key="two")
    assert [5, 5_000] == [amount for _, amount in till.shown]
    await run_calls(till.talk, GATED)
    assert [5_000] == till.paid


async def test_a_replayed_answer_decides_nothing_that_came_later(till: Till) -> None:
    await ask_human(till.talk, ask=till.answer(), key="one")
    await till.called(7)
    replayed = await ask_human(till.talk, ask=till.answer(), key="one")
    assert ("nothing", 1) == (replayed.outcome, len(load_decisions(till.talk)))


async def test_keys_of_answered_questions_are_remembered_for_a_while(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval, "_MAX_ANSWERED", 3)
    for number in range(5):
        await ask_human(till.talk, ask=till.answer(), key=f"key {number}")
        till.replace(number)
    remembered = till.talk.store.records(till.talk.id, approval.ANSWERED)
    assert {"key 2", "key 3", "key 4"} == set(remembered)


async def test_of_two_calls_in_a_message_that_was_replaced_neither_is_decided(store: Store) -> None:
    till = Till(store)
    await till.called(1, 2)
    with pytest.raises(SuspendedError):
        await ask_human(till.talk, ask=till.suspend, key="one")
    till.replace(200, which=1)
    # the message is another version of itself: neither call is the one that was shown
    done = await ask_human(till.talk, ask=till.answer(), key="one")
    assert ("nothing", {}) == (done.outcome, load_decisions(till.talk))


async def test_the_answer_to_a_question_that_was_handed_back_is_for_what_it_showed(
    till: Till,
) -> None:
    asked = await ask_human(till.talk)
    assert asked.question is not None
    till.replace(5_000)
    blind = await ask_human(till.talk, ask=till.answer())
    assert ("nothing", {}, []) == (blind.outcome, load_decisions(till.talk), till.shown)
    again = await ask_human(till.talk)
    assert again.question is not None
    assert {"amount": 5_000} == again.question.calls[0].input
    assert "decided" == (await ask_human(till.talk, ask=till.answer())).outcome


async def test_an_answer_may_name_the_digest_and_another_is_refused(till: Till) -> None:
    (call,) = till.talk.waiting()
    digests = till.talk.digests([call])
    good = {"verdict": "approve", "digest": digests[call.id]}
    found = parse_answer(good, [call], digests)[call.id]
    assert ("approve", digests[call.id]) == (found.verdict, found.digest)
    stale = {"call_0": {"verdict": "approve", "digest": "0" * 64}}
    with pytest.raises(ValidationError, match=r"\$\.call_0\.digest: is that of another call"):
        parse_answer(stale, [call], digests)
    with pytest.raises(ValidationError, match="must be the digest of the call that was shown"):
        save_decisions(till.talk, {call.id: Decision("approve")})


async def test_a_decision_of_an_earlier_version_names_nothing_and_is_asked_for_again(
    till: Till,
) -> None:
    (call,) = till.talk.waiting()
    record = ("approval", call.id, b'{"verdict":"approve"}')
    till.talk.store.put_records(till.talk.id, [record])
    assert ("approval", []) == ((await run_calls(till.talk, GATED)).outcome, till.paid)
    await ask_human(till.talk, ask=till.answer())
    await run_calls(till.talk, GATED)
    assert [5] == till.paid


async def test_after_a_crash_between_the_approval_and_the_run_it_holds(
    till: Till, store: Store
) -> None:
    await ask_human(till.talk, ask=till.answer())
    later = Conversation(store, till.talk.id, tools=[till.pay])
    await later.recover()
    await run_calls(later, GATED)
    assert "nothing" == (await run_calls(later, GATED)).outcome
    assert [5] == till.paid


async def test_a_fork_needs_its_own_approval(till: Till, store: Store) -> None:
    await ask_human(till.talk, ask=till.answer())
    (call,) = till.talk.waiting()
    fork = Conversation(store, till.talk.history.fork(), tools=[till.pay])
    assert ("approval", []) == ((await run_calls(fork, GATED)).outcome, till.paid)
    approved = till.talk.digests([call])
    assert approved != fork.digests([call])
    with pytest.raises(CallChanged):
        await fork.run_tools([call], approved=approved)


async def test_a_replacement_between_looking_and_running_is_seen_by_the_runner(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask_human(till.talk, ask=till.answer())
    run, left = till.talk.run_tools, [5_000]

    async def late(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - as run_tools has them
        if left:
            till.replace(left.pop())
        return await run(*args, **more)

    monkeypatch.setattr(till.talk, "run_tools", late)
    done = await run_calls(till.talk, GATED)
    assert ("approval", []) == (done.outcome, till.paid)
