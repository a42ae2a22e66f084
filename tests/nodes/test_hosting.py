"""A host: conversations by id, settled once after a crash, shared while anybody uses them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import anyio
import pytest

from palaver.conversation import Conversation, tool
from palaver.errors import LeaseTaken
from palaver.messages import start, user
from palaver.nodes import Host, hosting, run_calls
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_begun_once_and_shared(store: Store) -> None:
    opened: list[str] = []
    host = Host(store, token_limit=5, on_open=lambda talk: opened.append(talk.id))
    talk = await host.take_up("trip")
    assert talk is await host.take_up("trip")
    assert (["trip"], 5) == (opened, talk.token_limit)
    assert "trip" in store
    other = await Host(store).take_up("trip")
    assert other is not talk


async def test_what_a_crash_left_is_settled_the_first_time(store: Store) -> None:
    crashed = Conversation(store, store.create([user("Go.")], id="trip"))
    await crashed.step(Scripted(calling(("pay", {}))))
    (entry,) = crashed.ledger().values()
    store.keeper.keep("trip", [entry.moved(start(entry.state)).kept()])
    host = Host(store)
    talk = await host.take_up("trip")
    assert ["interrupted"] == [item.outcome for item in host.found["trip"]]
    assert "tool" == talk.messages[-1].role


async def test_what_is_under_way_here_is_not_taken_for_left_behind(store: Store) -> None:
    began, ended = anyio.Event(), anyio.Event()

    @tool(name="pay")
    async def pay() -> str:
        began.set()
        await ended.wait()
        return "paid"

    store.create([user("Go.")], id="trip")
    host = Host(store, tools=[pay])
    talk = await host.take_up("trip")
    await talk.step(Scripted(calling(("pay", {}))))
    async with anyio.create_task_group() as group:
        group.start_soon(run_calls, talk)
        await began.wait()
        assert talk is await host.take_up("trip")
        with pytest.raises(LeaseTaken):
            await Host(store, wait=0).take_up("trip")
        ended.set()
    assert "paid" in str(talk.messages[-1].parts)
    assert {} == host.found


async def test_a_few_are_kept_and_whoever_is_in_use_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "_HELD", 1)
    opened: list[str] = []
    host = Host(store, on_open=lambda talk: opened.append(talk.id))
    used = await host.take_up("a")
    await host.take_up("b")
    await host.take_up("c")
    gc.collect()
    assert used is await host.take_up("a")
    await host.take_up("b")
    assert ["a", "b", "c", "b"] == opened


async def test_two_who_come_at_once_share_one(store: Store) -> None:
    host, found = Host(store), list[Conversation]()

    async def take() -> None:
        found.append(await host.take_up("trip"))

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        group.start_soon(take)
    assert found[0] is found[1]


async def test_a_branch_goes_its_own_way_from_a_version(store: Store) -> None:
    store.create([user("a")], id="trip")
    host = Host(store)
    talk = await host.take_up("trip")
    talk.add(user("b"))
    name = await host.branch("trip", 0, id="other")
    assert ("other", ["a"]) == (name, [m.text for m in (await host.take_up(name)).messages])
    assert 2 == len(talk)
