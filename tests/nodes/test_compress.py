"""The compression node: room is made when the limit is crossed, and not otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import Conversation
from palaver.errors import ValidationError
from palaver.messages import AssistantInfo, assistant, system, user
from palaver.models import register
from palaver.nodes import (
    CompressConfig,
    DropOldestConfig,
    ask_model,
    compress_context,
    compress_handler,
    read_status,
)
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.events import Event

pytestmark = pytest.mark.anyio
DROP = {"strategies": [{"kind": "drop-oldest", "keepTokens": 120}]}


def long_conversation(store: Store, *, token_limit: int | None = None) -> Conversation:
    words = "and so on " * 12
    said = [user(f"Question {n}: {words}") for n in range(12)]
    history = store.create([system("Be brief."), *said])
    return Conversation(store, history, token_limit=token_limit)


async def test_over_the_limit_the_oldest_go(store: Store) -> None:
    conversation = long_conversation(store, token_limit=300)
    seen: list[Event] = []
    conversation.events.on("compaction.done", seen.append)
    assert "compress" == read_status(conversation).next
    done = await compress_context(conversation, DROP)
    assert ("compress", "compacted", "llm") == (done.node, done.outcome, done.next)
    assert done.version == conversation.history.version == 1
    assert conversation.tokens() <= 300
    assert "Be brief." == conversation.messages[0].text
    assert ("llm", 1) == (read_status(conversation).next, len(seen))
    again = await compress_context(conversation, DROP)
    assert ("nothing", 1) == (again.outcome, again.version)
    conversation.history.undo()
    assert 13 == len(conversation)


async def test_the_ways_are_tried_in_order_until_there_is_enough(store: Store) -> None:
    conversation = long_conversation(store)
    model = Scripted(saying("They asked a lot."))
    strategies = [
        {"kind": "clear-outputs"},
        {"kind": "summarise", "keepTokens": 100, "keepRoles": ["system"]},
        {"kind": "drop-oldest", "keepTokens": 0},
    ]
    done = await compress_context(
        conversation, {"limit": 300, "strategies": strategies}, model=model
    )
    assert ("compacted", 1, 1) == (done.outcome, done.version, len(model.asked))
    assert "summed up" in done.detail
    info = conversation.messages[2].info
    assert isinstance(info, AssistantInfo)
    assert info.summary


async def test_a_model_that_the_settings_name_sums_up(store: Store) -> None:
    register("summer", lambda name, **_: Scripted(saying("In short."), name=name))
    conversation = long_conversation(store)
    strategy = {"kind": "summarise", "keepTokens": 100, "model": "summer:one"}
    done = await compress_context(conversation, {"strategies": [strategy]})
    assert "compacted" == done.outcome
    assert "In short." == conversation.messages[2].text


async def test_a_refusal_changes_nothing_and_is_told(store: Store) -> None:
    conversation = long_conversation(store, token_limit=10)
    model = Scripted(saying(""))
    done = await compress_context(
        conversation, {"strategies": [{"kind": "summarise"}]}, model=model
    )
    # nothing is older than the newest 4,000 tokens
    assert ("nothing", 0) == (done.outcome, done.version)
    config = {"strategies": [{"kind": "summarise", "keepTokens": 100}]}
    done = await compress_context(conversation, config, model=model)
    assert ("refused", "the summary is empty") == (done.outcome, done.detail)
    assert ("llm", 0) == (done.next, conversation.history.version)


async def test_what_is_refused_gives_way_to_the_next(store: Store) -> None:
    conversation = long_conversation(store, token_limit=300)
    config = {"strategies": [{"kind": "summarise", "keepTokens": 100}, DROP["strategies"][0]]}
    done = await compress_context(conversation, config, model=Scripted(saying("")))
    assert "compacted" == done.outcome
    assert done.detail.startswith("the summary is empty; dropped ")


async def test_without_a_model_to_sum_up_the_field_is_named(store: Store) -> None:
    config = {"strategies": [{"kind": "clear-outputs"}, {"kind": "summarise"}]}
    with pytest.raises(ValidationError, match="no model") as caught:
        await compress_context(long_conversation(store), config)
    assert "$.strategies[1].model" == caught.value.path


async def test_the_token_event_is_answered(store: Store) -> None:
    """S4: the conversation tells, the engine's handler makes room, before the model is asked."""
    conversation = long_conversation(store, token_limit=300)
    config = CompressConfig(strategies=(DropOldestConfig(keep_tokens=120),))
    conversation.events.on("tokens.exceeded", compress_handler(conversation, config))
    model = Scripted(saying("Yes.", used=None))
    done = await ask_model(conversation, model=model)
    assert len(model.asked[0].body["messages"]) < 6
    assert ("answered", "end") == (done.outcome, done.next)


async def test_open_calls_stay_and_are_wanted_next(store: Store) -> None:
    conversation = long_conversation(store, token_limit=300)
    done = await ask_model(conversation, model=Scripted(calling(("pay", {}))))
    assert ("calls", "compress") == (done.outcome, done.next)
    done = await compress_context(conversation, DROP)
    assert ("compacted", "tool") == (done.outcome, done.next)
    assert done.calls == tuple(call.id for call in conversation.waiting())


async def test_without_a_limit_each_way_is_tried_once(store: Store) -> None:
    conversation = Conversation(store, store.create([user("a"), assistant("b")]))
    assert "nothing" == (await compress_context(conversation)).outcome
