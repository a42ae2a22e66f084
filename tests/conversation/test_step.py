"""One step: asked once, stored whole, kept as far as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from palaver.conversation import Conversation
from palaver.errors import BudgetExceeded, LeaseTaken, NetworkError, ValidationError
from palaver.messages import AssistantInfo, user
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.events import Event
    from palaver.wire.reply import Delta

pytestmark = pytest.mark.anyio


def names(events: list[Event]) -> list[str]:
    """What happened, in order."""
    return [event.name for event in events]


async def test_a_step_asks_once_and_stores_the_answer(store: Store) -> None:
    """CV-01, CV-04: the reply and its usage are one change; nothing is left of the intent."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    model = Scripted(saying("Hel", "lo"))
    step = await conversation.step(model)

    assert step.text == "Hello"
    assert [{"role": "user", "content": "hi"}] == model.asked[0].body["messages"]
    assert ["hi", "Hello"] == [message.text for message in store.get(conversation.id).view]
    assert conversation.history.version == 2
    assert (10, 3, 13) == (
        conversation.usage.prompt_tokens,
        conversation.usage.completion_tokens,
        conversation.usage.total_tokens,
    )
    assert {} == store.records(conversation.id, "step")
    assert {} == store.records(conversation.id, "draft")


async def test_pieces_are_told_as_they_arrive(store: Store) -> None:
    """Plain and async functions."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    heard: list[str] = []

    async def later(delta: Delta) -> None:
        await anyio.lowlevel.checkpoint()
        heard.append(type(delta).__name__)

    await conversation.step(Scripted(saying("a", "b")), on_delta=later)
    await conversation.step(
        Scripted(saying("c")), on_delta=lambda delta: heard.append(str(getattr(delta, "text", "")))
    )

    assert heard[:2] == ["TextDelta", "TextDelta"]
    assert "c" in heard


async def test_the_intent_is_stored_before_the_model_is_asked(store: Store) -> None:
    """CV-04: whoever looks while the model thinks, sees it, and who asks."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    seen = []
    await conversation.step(
        Scripted(saying("x")),
        on_delta=lambda _: seen.append(store.records(conversation.id, "step")),
    )

    (record,) = seen[0].values()
    assert b'"scripted"' in record


async def test_a_reply_that_is_cut_off_keeps_what_had_arrived(store: Store) -> None:
    """CV-04: marked as interrupted; the error is raised as it is."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    broken = [*saying("half an ")[:1], NetworkError("gone", provider="openai")]
    with pytest.raises(NetworkError):
        await conversation.step(Scripted(broken))

    last = conversation.messages[-1]
    assert last.text == "half an "
    assert isinstance(last.info, AssistantInfo)
    assert last.info.finish == "interrupted"
    assert {} == store.records(conversation.id, "step")
    assert (await conversation.step(Scripted(saying("again")))).text == "again"


async def test_a_model_that_fails_at_once_leaves_no_message(store: Store) -> None:
    """S4: the error is raised; the history is as it was."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    with pytest.raises(NetworkError):
        await conversation.step(Scripted([NetworkError("refused", provider="openai")]))

    assert len(conversation) == 1
    assert {} == store.records(conversation.id, "step")


async def test_a_cancelled_step_keeps_what_had_arrived(store: Store) -> None:
    """The one who cancels is not kept waiting, and nothing is lost."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    heard = anyio.Event()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await heard.wait()
                scope.cancel()

            group.start_soon(stop)
            endless = Scripted([*saying("so far")[:1], None])
            await conversation.step(endless, on_delta=lambda _: heard.set())

    assert scope.cancelled_caught
    assert conversation.messages[-1].text == "so far"
    assert (await conversation.step(Scripted(saying("on")))).text == "on"


async def test_two_workers_never_step_at_once(store: Store) -> None:
    """A step holds a lease: the second worker is told so, and nothing is asked twice."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    other = Conversation(store, conversation.id)
    second = Scripted(saying("never"))

    async def meanwhile(_: Delta) -> None:
        with pytest.raises(LeaseTaken):
            await other.step(second)

    await conversation.step(Scripted(saying("x")), on_delta=meanwhile)

    assert [] == second.asked
    assert (await other.step(Scripted(saying("now")))).text == "now"


async def test_a_step_stores_its_calls_with_the_answer(store: Store) -> None:
    """CV-04: calls are pending in the ledger from the moment the answer is there."""
    conversation = Conversation(store)
    conversation.add(user("hi"))
    step = await conversation.step(Scripted(calling(("ls", {}), ("cat", {"file": "a"}))))
    entries = list(conversation.ledger().values())

    assert ["ls", "cat"] == [call.tool for call in step.calls]
    assert [("ls", "pending"), ("cat", "pending")] == [
        (entry.tool, entry.state.status) for entry in entries
    ]


async def test_events_are_told_after_the_change_is_stored(store: Store) -> None:
    """CV-08: what a handler is told is in the store already; a failing one changes nothing."""
    conversation = Conversation(store)
    seen: list[Event] = []

    def look(event: Event) -> None:
        stored = store.get(conversation.id)
        assert stored.version >= event.version
        seen.append(event)
        msg = "this handler always fails"
        raise RuntimeError(msg)

    conversation.events.on("*", look)
    conversation.add(user("hi"))
    await conversation.step(Scripted(calling(("ls", {}), used=(5, 5))))

    assert ["message.added", "message.added", "tool.pending", "usage.updated"] == names(seen)


async def test_the_limit_is_told_once_for_each_crossing(store: Store) -> None:
    """CV-08: not again while it stays crossed; again after it fell and rose."""
    conversation = Conversation(store, token_limit=50)
    crossings: list[Event] = []
    conversation.events.on("tokens.exceeded", crossings.append)
    conversation.add(user("hi"))
    await conversation.step(Scripted(saying("a", used=(40, 5))))
    assert [] == crossings
    await conversation.step(Scripted(saying("b", used=(60, 5))))
    assert len(crossings) == 1
    assert (crossings[0].data["tokens"], crossings[0].data["limit"]) == (65, 50)
    assert crossings[0].data["source"] == "api"
    await conversation.check_tokens()
    assert len(crossings) == 1
    conversation.clear()
    await conversation.step(Scripted(saying("c", used=(10, 5))))
    await conversation.step(Scripted(saying("d", used=(70, 5))))
    assert len(crossings) == 2


@pytest.mark.parametrize("limit", [0, 1])
async def test_limits_of_nothing_and_of_one(store: Store, limit: int) -> None:
    """They are crossed by the first message, and the step goes on."""
    conversation = Conversation(store, token_limit=limit)
    crossings: list[Event] = []
    conversation.events.on("tokens.exceeded", crossings.append)
    conversation.add(user("hi"))

    assert (await conversation.step(Scripted(saying("a", used=None)))).text == "a"
    assert len(crossings) == 1
    assert crossings[0].data["source"] == "count"


async def test_usage_is_carried_forward_by_what_came_since(store: Store) -> None:
    """CV-07: the provider's figure, and our own count of what came in or left after it."""
    conversation = Conversation(store, count=len)
    conversation.add(user("x" * 100))
    await conversation.step(Scripted(saying("y", used=(1_000, 50))))
    assert conversation.tokens() == 1_050
    conversation.add(user("z" * 30))
    assert conversation.tokens() == 1_050 + 30 + 4
    conversation.history.undo()
    assert conversation.tokens() == 1_050
    conversation.history.truncate(remove_first=1)
    assert conversation.tokens() == 1_050 - 100 - 4


async def test_a_model_without_figures_is_counted_by_us(store: Store) -> None:
    """CV-07: no usage, no invention."""
    conversation = Conversation(store, count=len)
    conversation.add(user("x" * 10))
    step = await conversation.step(Scripted(saying("y" * 5, used=None)))

    assert step.usage.last is None
    assert step.usage.cost is None
    assert conversation.tokens() == 14 + 9


async def test_no_step_is_begun_beyond_the_budget(store: Store) -> None:
    """A sum of money may be set; unknown costs are not money."""
    from palaver.conversation import ModelPrice, Prices  # noqa: PLC0415 - only here

    prices = Prices({"scripted": ModelPrice(input=1_000_000.0, output=0.0)})
    conversation = Conversation(store, prices=prices, budget=15.0)
    conversation.add(user("hi"))
    first = await conversation.step(Scripted(saying("a")))
    assert isinstance(first.message.info, AssistantInfo)
    assert (first.message.info.cost, first.message.info.cost_computed) == (10.0, True)
    await conversation.step(Scripted(saying("b")))
    late = Scripted(saying("c"))
    with pytest.raises(BudgetExceeded, match=r"20\.0000 of 15\.0000"):
        await conversation.step(late)
    assert [] == late.asked


async def test_without_a_model_there_is_no_step(store: Store) -> None:
    """The error says what to do."""
    with pytest.raises(ValidationError, match="no model: give one"):
        await Conversation(store).step()


@pytest.mark.parametrize(
    "message", [{}, {"role": "user"}, {"content": "x"}, {"role": "user", "content": ""}]
)
def test_a_message_needs_a_role_and_content(store: Store, message: dict[str, str]) -> None:
    """S1's own words; empty text is refused for users and systems."""
    with pytest.raises(ValidationError, match="Invalid message format: role and content"):
        Conversation(store).add(message)


def test_what_s4_asks_for_beside_steps(store: Store) -> None:
    """CV-01: add, messages, clear, recent, by role."""
    conversation = Conversation(store)
    conversation.add({"role": "system", "content": "be brief"})
    added = conversation.add({"role": "user", "content": "hi"})

    assert added.text == "hi"
    assert len(conversation) == 2
    assert ["hi"] == [message.text for message in conversation.recent(1)]
    assert ["be brief"] == [message.text for message in conversation.by_role("system")]
    conversation.clear()
    assert ["system"] == [message.role for message in conversation.messages]
