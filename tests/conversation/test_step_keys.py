"""A step under a key is paid for once; an `around` stands between a call and its tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from palaver.conversation import Conversation, ToolOutput, store_access
from palaver.errors import ToolFailed
from palaver.messages import ToolPart, user
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver import Store
    from palaver.conversation import ToolContext
    from palaver.events import Event
    from palaver.messages import ToolCallPart

pytestmark = pytest.mark.anyio


def asked(store: Store) -> Conversation:
    return Conversation(store, store.create([user("Go.")]))


async def test_a_step_of_a_key_has_one_answer(store: Store) -> None:
    conversation, model = asked(store), Scripted(calling(("pay", {})), saying("Done."))
    first = await conversation.step(model, key="k")
    seen: list[Event] = []
    other = Conversation(store, conversation.id)
    other.events.on("*", seen.append)
    again = await other.step(model, key="k")
    assert (first.message, first.usage, first.calls) == (again.message, again.usage, again.calls)
    assert (False, True, 1) == (first.again, again.again, len(model.asked))
    assert [] == seen, "nothing has happened"
    assert "Done." == (await other.step(model, key="another")).text


async def test_an_answer_that_was_cut_off_is_asked_for_again(store: Store) -> None:
    conversation = asked(store)
    cut = Scripted([*saying("Don")[:1], RuntimeError("gone")])
    with pytest.raises(RuntimeError):
        await conversation.step(cut, key="k")
    step = await conversation.step(Scripted(saying("Done.")), key="k")
    assert ("Done.", False) == (step.text, step.again)


async def test_only_the_latest_answers_are_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_access, "_MAX_ANSWERS", 2)
    conversation = asked(store)
    model = Scripted(*[saying(str(number)) for number in range(5)])
    for number in range(4):
        await conversation.step(model, key=f"k{number}")
    kept = store.records(conversation.id, "answer")
    assert ["k2", "k3"] == sorted(kept)
    assert "2" == (await conversation.step(model, key="k2")).text


async def test_an_erased_answer_is_not_brought_back(store: Store) -> None:
    conversation = asked(store)
    await conversation.step(Scripted(saying("The code is 4711.")), key="k")
    conversation.history.erase(conversation.messages[-1].id)
    assert {} == store.records(conversation.id, "answer")
    step = await conversation.step(Scripted(saying("Hm.")), key="k")
    assert ("Hm.", False) == (step.text, step.again)


async def test_what_stands_around_a_call_may_refuse_it_or_run_another(store: Store) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    async def halve(
        call: ToolCallPart,
        context: ToolContext,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
    ) -> ToolOutput:
        assert context.call == call
        if call.input["amount"] > 100:
            raise ToolFailed("too dear")
        return await run(replace(call, input={"amount": 1}))

    conversation = asked(store)
    step = await conversation.step(
        Scripted(calling(("pay", {"amount": 5}), ("pay", {"amount": 500})))
    )
    first, second = await conversation.run_tools(step.calls, tools=[pay], around=halve)
    assert ("paid 1", "too dear") == (first.text, second.text)
    assert [1] == paid
    assert isinstance(conversation.messages[-1].parts[0], ToolPart)
