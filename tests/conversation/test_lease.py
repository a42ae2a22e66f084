"""Holding a conversation: for as long as the work takes, by all who work for it, and no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from palaver.conversation import Conversation, run_until_answer, tool
from palaver.errors import LeaseLost, LeaseTaken
from palaver.messages import user
from palaver.stores import lease
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that last a moment."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.6)


@pytest.mark.usefixtures("short")
async def test_tools_may_take_longer_than_a_lease(store: Store) -> None:
    """CV-06: nobody takes a call for cut off that is still at work."""

    async def slow() -> str:
        await anyio.sleep(1.2)
        with pytest.raises(LeaseTaken):
            await other.recover()
        return "done"

    conversation = Conversation(store, tools=[slow])
    conversation.add(user("go"))
    other = Conversation(store, conversation.id)
    step = await conversation.step(Scripted(calling(("slow", {}))))
    (outcome,) = await conversation.run_tools(step.calls)

    assert outcome.text == "done"


@pytest.mark.usefixtures("short")
async def test_work_stops_where_another_took_over(store: Store) -> None:
    """A worker whose machine slept comes back late: it is told, and its tool is called off."""

    async def endless() -> None:
        store.lease(conversation.id, conversation._access.lease.holder, seconds=0)
        store.lease(conversation.id, "another", seconds=60)
        await anyio.sleep_forever()

    conversation = Conversation(store, tools=[endless])
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("endless", {}))))
    with anyio.fail_after(60), pytest.raises((LeaseLost, LeaseTaken)):
        await conversation.run_tools(step.calls)


async def test_calls_run_one_by_one_at_once_share_the_conversation(store: Store) -> None:
    """Whoever is done first does not give away what the others still need."""
    begun, gate = anyio.Event(), anyio.Event()

    async def first() -> str:
        return "first"

    async def second() -> str:
        begun.set()
        await gate.wait()
        return "second"

    async def third() -> str:
        gate.set()
        return "third"

    conversation = Conversation(store, tools=[first, second, third])
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("first", {}), ("second", {}), ("third", {}))))
    async with anyio.create_task_group() as group:
        group.start_soon(conversation.run_tool, step.calls[1])
        await begun.wait()
        await conversation.run_tool(step.calls[0])
        with pytest.raises(LeaseTaken):
            await Conversation(store, conversation.id).recover()
        await conversation.run_tool(step.calls[2])

    assert {} == conversation.ledger()
    assert [] == await Conversation(store, conversation.id).recover()


async def test_a_step_that_can_not_begin_holds_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others need not wait for a minute."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    model = Scripted(saying("never"))
    monkeypatch.setattr(model, "format", "no such format")
    with pytest.raises(Exception, match="no such format"):
        await conversation.step(model)

    assert [] == await Conversation(store, conversation.id).recover()


async def test_recovering_may_wait_for_the_lease_of_a_process_that_is_gone(store: Store) -> None:
    """A lease outlives whoever was killed; waiting for it is the caller's choice."""
    conversation = Conversation(store)
    store.lease(conversation.id, "who was killed", seconds=0.5)
    with pytest.raises(LeaseTaken):
        await conversation.recover()

    assert [] == await conversation.recover(wait=20)


async def test_what_waits_is_run_before_the_next_step(store: Store) -> None:
    """CV-06: after a crash the loop goes on where it stood."""
    conversation = Conversation(store, tools=[tool(name="look")(lambda: "fine")])
    conversation.add(user("go"))
    step = await conversation.step(Scripted(calling(("look", {}), ("look", {}))))
    again = Conversation(store, conversation.id, tools=conversation.tools)

    assert list(step.calls) == again.waiting()
    await again.run_tool(step.calls[0])
    assert [step.calls[1]] == again.waiting()
    assert (await run_until_answer(again, Scripted(saying("done")))).text == "done"
    assert [] == again.waiting()
    assert ["user", "assistant", "tool", "tool", "assistant"] == [m.role for m in again.messages]
