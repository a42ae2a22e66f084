"""After a crash: everything is accounted for, nothing is run twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import Conversation, tool
from palaver.errors import LeaseTaken, StoreDamaged
from palaver.messages import AssistantInfo, ToolPart, assistant, complete, dump, start, user
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.conversation.ledger import LedgerEntry

pytestmark = pytest.mark.anyio


async def crashed(store: Store, *, idempotent: bool = False) -> Conversation:
    """A conversation whose process ended when one call was pending, one running and one done."""
    conversation = Conversation(store)
    conversation.add(user("go"))
    await conversation.step(Scripted(calling(("a", {}), ("b", {}), ("c", {}))))
    waiting, running, done = conversation.ledger().values()
    del waiting
    moved = [
        running.with_state(start(running.state), idempotent=idempotent),
        done.with_state(complete(start(done.state), "kept", tool="c")),
    ]
    store.put_records(conversation.id, [entry.record() for entry in moved])
    return Conversation(store, conversation.id)


def states(conversation: Conversation) -> list[tuple[str, str]]:
    """The results in the log."""
    parts = [part for message in conversation.messages for part in message.parts]
    return [(part.tool, part.state.status) for part in parts if isinstance(part, ToolPart)]


def ledger(conversation: Conversation) -> list[tuple[str, str]]:
    """The calls without a result."""
    entries: list[LedgerEntry] = list(conversation.ledger().values())
    return [(entry.tool, entry.state.status) for entry in entries]


async def test_each_call_is_accounted_for(store: Store) -> None:
    """CV-06: pending waits, running becomes an error, done gets its place."""
    conversation = await crashed(store)
    found = await conversation.recover()

    assert [("a", "waiting"), ("b", "interrupted"), ("c", "appended")] == [
        (item.tool, item.outcome) for item in found
    ]
    assert [("b", "error"), ("c", "completed")] == states(conversation)
    assert [("a", "pending")] == ledger(conversation)
    assert "it may have had effects" in " ".join(conversation.messages[-2].texts)
    assert [("a", "waiting")] == [(i.tool, i.outcome) for i in await conversation.recover()]


async def test_a_tool_that_may_run_again_does(store: Store) -> None:
    """CV-06: unless it says it may."""
    conversation = await crashed(store, idempotent=True)
    found = await conversation.recover()

    assert [("a", "waiting"), ("b", "repeat"), ("c", "appended")] == [
        (item.tool, item.outcome) for item in found
    ]
    assert [("a", "pending"), ("b", "pending")] == ledger(conversation)


async def test_what_was_running_is_not_run_before_it_is_settled(store: Store) -> None:
    """The error says what to do."""
    conversation = await crashed(store)
    from palaver.messages import ToolCallPart  # noqa: PLC0415 - only here

    calls = [p for p in conversation.messages[1].parts if isinstance(p, ToolCallPart)]
    with pytest.raises(Exception, match=r"recover\(\) settles them"):
        await conversation.run_tools(calls, tools=[tool(name=n)(lambda: "x") for n in "abc"])


async def test_an_answer_that_had_begun_is_kept(store: Store) -> None:
    """CV-04: as far as it came, marked as interrupted."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    seen: dict[str, Any] = {}

    def crash(_: object) -> None:
        seen.update(store.records(conversation.id, "step"))

    await conversation.step(Scripted(saying("x")), on_delta=crash)
    other = store.create([user("hi")])
    ((name, intent),) = seen.items()
    draft = assistant("so far", info=AssistantInfo())
    store.put_records(other.id, [("step", name, intent), ("draft", name, dump(draft))])
    again = Conversation(store, other.id)
    (found,) = await again.recover()

    assert (found.kind, found.outcome) == ("step", "kept")
    assert again.messages[-1].text == "so far"
    info = again.messages[-1].info
    assert isinstance(info, AssistantInfo)
    assert info.finish == "interrupted"
    assert info.model is not None
    assert info.model.model_id == "scripted"
    assert [] == await again.recover()


async def test_a_question_without_an_answer_is_reported(store: Store) -> None:
    """It may have been billed; nothing can be kept."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    seen: dict[str, bytes] = {}
    await conversation.step(
        Scripted(saying("x")),
        on_delta=lambda _: seen.update(store.records(conversation.id, "step")),
    )
    other = store.create([user("hi")])
    store.put_records(other.id, [("step", *next(iter(seen.items())))])
    (found,) = await Conversation(store, other.id).recover()

    assert (found.kind, found.outcome) == ("step", "nothing")
    assert "may have been billed" in found.detail


async def test_nobody_recovers_while_another_is_at_work(store: Store) -> None:
    """What looks like a crash may be another worker's step."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    other = Conversation(store, conversation.id)

    async def meanwhile(_: object) -> None:
        with pytest.raises(LeaseTaken):
            await other.recover()

    await conversation.step(Scripted(saying("x")), on_delta=meanwhile)


@pytest.mark.parametrize("kind", ["call", "usage"])
async def test_a_damaged_record_is_said_to_be_one(store: Store, kind: str) -> None:
    """A typed error, not a crash."""
    conversation = Conversation(store)
    store.put_records(conversation.id, [(kind, kind, b"{")])
    with pytest.raises(StoreDamaged, match="can't be read"):
        _ = conversation.ledger() if kind == "call" else conversation.usage
