"""The model node: one question, one answer, paid for once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import Conversation, Toolbox
from palaver.errors import NetworkError, ValidationError
from palaver.messages import system, user
from palaver.models import register
from palaver.nodes import LLMConfig, ask_model
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio


def weather(city: str) -> str:
    return f"9 °C in {city}"


def pay(amount: int) -> str:
    return f"paid {amount}"


def talk(
    store: Store, model: Scripted | None = None, *, token_limit: int | None = None
) -> Conversation:
    history = store.create([system("Be brief."), user("A coat in Oslo?")])
    tools = Toolbox([weather, pay])
    return Conversation(store, history, model=model, tools=tools, token_limit=token_limit)


async def test_an_answer_without_calls_is_the_end(store: Store) -> None:
    conversation = talk(store, Scripted(saying("Take one.")))
    done = await ask_model(conversation)
    assert ("llm", "answered", "end") == (done.node, done.outcome, done.next)
    assert done.added == (conversation.messages[-1].id,)
    assert "Take one." == conversation.messages[-1].text
    assert (conversation.id, conversation.history.version) == (done.conversation, done.version)


async def test_an_answer_with_calls_wants_the_tools(store: Store) -> None:
    conversation = talk(store, Scripted(calling(("weather", {"city": "Oslo"}))))
    done = await ask_model(conversation)
    assert ("calls", "tool") == (done.outcome, done.next)
    assert done.calls == tuple(call.id for call in conversation.waiting())
    assert 1 == len(done.calls)


async def test_the_settings_choose_tools_and_options(store: Store) -> None:
    model = Scripted(saying("Yes."))
    config = {"tools": ["weather"], "options": {"temperature": 0}}
    await ask_model(talk(store), config, model=model)
    (asked,) = model.asked
    assert ["weather"] == [tool.name for tool in asked.tools]
    assert {"temperature": 0} == asked.options


async def test_a_tool_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(ValidationError, match=r"there is no tool 'fly'; there are: pay") as caught:
        await ask_model(talk(store, Scripted()), {"tools": ["pay", "fly"]})
    assert "$.tools[1]" == caught.value.path


async def test_a_model_that_the_settings_name_is_made_and_closed(store: Store) -> None:
    closed: list[str] = []

    class Named(Scripted):
        async def close(self) -> None:
            closed.append(self.ref.model_id)

    register("play", lambda name, **_: Named(saying("From " + name), name=name))
    conversation = talk(store)
    await ask_model(conversation, "model: play:hamlet")
    assert "From hamlet" == conversation.messages[-1].text
    assert ["hamlet"] == closed
    with pytest.raises(ValidationError, match="names no model") as caught:
        await ask_model(conversation, LLMConfig(model="hamlet"))
    assert "$.model" == caught.value.path


async def test_without_any_model_it_says_so(store: Store) -> None:
    with pytest.raises(ValidationError, match="no model"):
        await ask_model(talk(store))


async def test_under_a_key_it_is_paid_for_once(store: Store) -> None:
    """ND-01: an engine that runs a node again gets the answer that is there."""
    model = Scripted(calling(("weather", {"city": "Oslo"})), saying("Another."))
    conversation = talk(store)
    first = await ask_model(conversation, model=model, key="task-1")
    again = await ask_model(Conversation(store, conversation.id), model=model, key="task-1")
    assert 1 == len(model.asked)
    assert first.added == again.added
    assert (False, True) == (first.again, again.again)
    assert (first.outcome, first.next, first.calls) == (again.outcome, again.next, again.calls)
    other = await ask_model(conversation, model=model, key="task-2")
    assert (2, False) == (len(model.asked), other.again)


async def test_a_question_that_failed_is_asked_again_under_its_key(store: Store) -> None:
    failure = NetworkError("gone", provider="play")
    model = Scripted([*saying("Take")[:1], failure], saying("Take one."))
    conversation = talk(store)
    with pytest.raises(NetworkError):
        await ask_model(conversation, model=model, key="task-1")
    done = await ask_model(conversation, model=model, key="task-1")
    assert ("Take one.", False) == (conversation.messages[-1].text, done.again)
    assert "Take" == conversation.messages[-2].text, "what had arrived is kept"


async def test_over_the_limit_it_wants_room_first(store: Store) -> None:
    model = Scripted(saying("Yes.", used=(900, 100)))
    done = await ask_model(talk(store, token_limit=500), model=model)
    assert "compress" == done.next
