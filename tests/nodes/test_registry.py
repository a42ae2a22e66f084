"""A registry: conversations by id, settled once after a crash, shared while anybody uses them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import anyio
import pytest

from palaver.conversation import Conversation, tool
from palaver.errors import LeaseTaken
from palaver.messages import start, user
from palaver.nodes import ConversationRegistry, run_calls
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_begun_once_and_shared(store: Store) -> None:
    opened: list[str] = []
    registry = ConversationRegistry(
        store, token_limit=5, on_open=lambda conversation: opened.append(conversation.id)
    )
    conversation = await registry.open("trip")
    assert conversation is await registry.open("trip")
    assert (["trip"], 5) == (opened, conversation.token_limit)
    assert "trip" in store
    other = await ConversationRegistry(store).open("trip")
    assert other is not conversation


async def test_what_a_crash_left_is_settled_the_first_time(store: Store) -> None:
    crashed = Conversation(store, store.create([user("Go.")], id="trip"))
    await crashed.step(Scripted(calling(("pay", {}))))
    (entry,) = crashed.ledger().values()
    store.put_records("trip", [entry.with_state(start(entry.state)).record()])
    registry = ConversationRegistry(store)
    conversation = await registry.open("trip")
    assert ["interrupted"] == [item.outcome for item in registry.found["trip"]]
    assert "tool" == conversation.messages[-1].role


async def test_what_is_under_way_here_is_not_taken_for_left_behind(store: Store) -> None:
    began, ended = anyio.Event(), anyio.Event()

    @tool(name="pay")
    async def pay() -> str:
        began.set()
        await ended.wait()
        return "paid"

    store.create([user("Go.")], id="trip")
    registry = ConversationRegistry(store, tools=[pay])
    conversation = await registry.open("trip")
    await conversation.step(Scripted(calling(("pay", {}))))
    async with anyio.create_task_group() as group:
        group.start_soon(run_calls, conversation)
        await began.wait()
        assert conversation is await registry.open("trip")
        with pytest.raises(LeaseTaken):
            await ConversationRegistry(store, wait=0).open("trip")
        ended.set()
    assert "paid" in str(conversation.messages[-1].parts)
    assert {} == registry.found


async def test_a_few_are_kept_and_whoever_is_in_use_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.nodes.results._MAX_IDLE", 1)
    opened: list[str] = []
    registry = ConversationRegistry(
        store, on_open=lambda conversation: opened.append(conversation.id)
    )
    used = await registry.open("a")
    await registry.open("b")
    await registry.open("c")
    gc.collect()
    assert used is await registry.open("a")
    await registry.open("b")
    assert ["a", "b", "c", "b"] == opened


async def test_two_who_come_at_once_share_one(store: Store) -> None:
    registry, found = ConversationRegistry(store), list[Conversation]()

    async def take() -> None:
        found.append(await registry.open("trip"))

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        group.start_soon(take)
    assert found[0] is found[1]


async def test_a_branch_goes_its_own_way_from_a_version(store: Store) -> None:
    store.create([user("a")], id="trip")
    registry = ConversationRegistry(store)
    conversation = await registry.open("trip")
    conversation.add(user("b"))
    name = await registry.branch("trip", 0, id="other")
    assert ("other", ["a"]) == (name, [m.text for m in (await registry.open(name)).messages])
    assert 2 == len(conversation)
