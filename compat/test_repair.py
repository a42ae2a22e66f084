"""What an edit leaves is a request that providers take, whichever framework makes it.

The servers are as strict as the strictest provider: the user begins, and the roles alternate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.llms import ChatMessage
from strands import Agent, tool
from strands.models.gemini import GeminiModel

from compat import strands_agent
from compat.agent_framework_agent import ScriptedClient, agent, ask, said
from palaver.adapters.agent_framework import PalaverHistoryProvider
from palaver.adapters.langchain import PalaverChatMessageHistory, repair_messages
from palaver.adapters.llama_index import PalaverMemory
from palaver.adapters.strands import PalaverSessionManager
from palaver.messages import assistant, user
from palaver.testing.servers import Answer, Call, ProviderServer, Refusal
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import StoredHistory
    from palaver.stores.store import Store


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"{city}: sunny"


EDITS: dict[str, Callable[[StoredHistory], Any]] = {
    "the last message": lambda history: history.truncate(keep_last=1),
    "the last two": lambda history: history.truncate(keep_last=2),
    "without the question": lambda history: history.truncate(remove_first=1),
    "without the answer": lambda history: history.truncate(remove_last=1),
    "without the result": lambda history: history.rewrite([range(2), range(3, 4)]),
    "without the call": lambda history: history.rewrite([range(1), range(2, 4)]),
    "erased question": lambda history: history.erase(0),
    "erased answer": lambda history: history.erase(3),
    "nothing": lambda history: history.clear(),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
@pytest.mark.parametrize("anew", ["", "opened anew"])
def test_strands_asks_a_strict_provider_whatever_was_edited(
    here: Store, edit: Callable[[StoredHistory], Any], anew: str
) -> None:
    calls = Answer(calls=(Call("weather", {"city": "Rome"}),))
    with ProviderServer("gemini", [calls, "Sunny.", "Yes.", "Yes, indeed."]) as server:

        def make() -> Agent:
            options = {"api_key": "any", "http_options": {"base_url": server.url}}
            return Agent(
                model=GeminiModel(client_args=options, model_id="gemini-2.5-flash"),
                tools=[weather], session_manager=PalaverSessionManager("talk", here),
                callback_handler=None,
            )  # fmt: skip

        agent = make()
        agent("Weather in Rome?")
        edit(here.get("talk"))
        agent = make() if anew else agent
        assert "Yes." == str(agent("And now?")).strip()
        assert "Yes, indeed." == str(agent("Sure?")).strip()
        assert [] == server.failures
    assert "Yes, indeed." == here.get("talk")[-1].text
    assert BEGIN not in [message.text for message in here.get("talk")]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_strands_alternates_for_other_providers_whatever_was_edited(
    here: Store, edit: Callable[[StoredHistory], Any]
) -> None:
    """Bedrock refuses two messages of one role side by side, also results and a question."""
    model = strands_agent.ScriptedModel(strands_agent.call(), "Sunny.", "Yes.", "Yes, indeed.")
    talking = strands_agent.agent(model, PalaverSessionManager("talk", here))
    talking("Weather in Rome?")
    edit(here.get("talk"))
    for question in ("And now?", "Sure?"):
        talking(question)
        roles = [message["role"] for message in model.requests[-1]]
        assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))]
        assert {"text": question} in model.requests[-1][-1]["content"]


def test_a_question_behind_one_without_an_answer_is_asked_with_it(here: Store) -> None:
    """The first run failed: its question stays, and providers want roles to alternate."""
    with ProviderServer("gemini", [Refusal(400), "Both."]) as server:
        options = {"api_key": "any", "http_options": {"base_url": server.url}}
        agent = Agent(
            model=GeminiModel(client_args=options, model_id="gemini-2.5-flash"),
            session_manager=PalaverSessionManager("talk", here), callback_handler=None,
        )  # fmt: skip
        with pytest.raises(Exception, match="400"):
            agent("Tea?")
        assert "Both." == str(agent("Rum?")).strip()
        assert [] == server.failures
    assert ["Tea?", "Rum?", "Both."] == [each.text.strip() for each in here.get("talk")]


def test_an_answer_that_has_become_the_first_follows_a_text_of_the_user(here: Store) -> None:
    """LangChain, LlamaIndex and Agent Framework give it to the model, and store nothing."""
    chat = PalaverChatMessageHistory(here, "chain")
    chat.add_messages([HumanMessage("Tea?"), AIMessage("Yes.")])
    memory = PalaverMemory(here, "memory")
    memory.put_messages([ChatMessage("Tea?"), ChatMessage("Yes.", role="assistant")])
    client, provider = ScriptedClient("Yes.", "Sure."), PalaverHistoryProvider(here)
    asked = agent(client, provider)
    asyncio.run(ask(asked, "Tea?", "framework"))
    for name in ("chain", "memory", "framework"):
        here.get(name).truncate(remove_first=1)
    assert [BEGIN, "Yes."] == [each.content for each in chat.messages]
    assert [BEGIN, "Yes."] == [each.content for each in memory.get()]
    assert ["Yes."] == [each.content for each in memory.get_all()]
    assert ["Yes."] == [each.text for each in here.get("chain")]
    asyncio.run(ask(asked, "Sure?", "framework"))
    assert [BEGIN, "Yes.", "Sure?"] == said(client.requests[-1])
    assert ["Yes.", "Sure?", "Sure."] == [each.text for each in here.get("framework")]


def test_a_greeting_comes_back_as_it_was_and_follows_a_text_of_the_user_in_requests(
    here: Store,
) -> None:
    chat = PalaverChatMessageHistory(here, "chain")
    chat.add_messages([AIMessage("Hello!"), HumanMessage("Tea?"), AIMessage("Yes.")])
    assert "Hello!" == chat.messages[0].content
    assert [BEGIN, "Hello!"] == [each.content for each in repair_messages(chat.messages)[:2]]
    memory = PalaverMemory(here, "memory")
    memory.put_messages([ChatMessage("Hello!", role="assistant"), ChatMessage("Tea?")])
    assert "Hello!" == memory.get_all()[0].content
    assert [BEGIN, "Hello!"] == [each.content for each in memory.get()[:2]]
    here.create(id="other").extend([assistant("Hello!"), user("Tea?")])
    other = PalaverChatMessageHistory(here, "other").messages
    assert [BEGIN, "Hello!", "Tea?"] == [each.content for each in other]
