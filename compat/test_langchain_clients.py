"""LangChain's own clients over palaver, before servers that refuse what is invalid.

They are asked with a chat history, and in an agent of LangGraph's, whole and streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, merge_message_runs
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from msgspec.structs import replace

from compat.foreign_histories import NOT_SENT, SAID, said_by_all
from compat.test_repair import EDITS
from palaver.adapters.langchain import PalaverChatMessageHistory, repair_messages
from palaver.adapters.langgraph import PalaverSaver
from palaver.messages import Speaker, ToolCallPart, assistant, new_id, user
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage

    from palaver.stores import Store, StoredHistory
    from palaver.testing.providers import FormatName

OPENAI: Any = ChatOpenAI
ANTHROPIC: Any = ChatAnthropic
GEMINI: Any = ChatGoogleGenerativeAI
CLIENTS: dict[FormatName, Callable[[str], Any]] = {
    "openai-chat": lambda url: OPENAI(model="any", base_url=url, api_key="any"),
    "openai-responses": lambda url: OPENAI(
        model="any", base_url=url, api_key="any", use_responses_api=True
    ),
    "anthropic": lambda url: ANTHROPIC(
        model="claude-any", base_url=url.removesuffix("/v1"), api_key="any"
    ),
    "gemini": lambda url: GEMINI(model="gemini-3-pro", base_url=url, api_key="any", max_retries=0),
}
OWN_REASONING = {
    "openai-chat": (),
    "openai-responses": ("'rs_1'", "'sealed-1'"),
    "anthropic": ("'My thought.'", "'signed-1'"),
    "gemini": ("MQ=='",),
}
"""What a provider wants back of its own answer, by format."""


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def joined(model: Any, messages: list[BaseMessage]) -> list[BaseMessage]:
    """Join what stands side by side for the one client that sends it as it is."""
    return merge_message_runs(messages) if isinstance(model, ChatGoogleGenerativeAI) else messages


class Repaired(AgentMiddleware[Any, Any]):
    """What the how-to page shows."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Repair what the model is sent."""
        messages = joined(request.model, repair_messages(request.messages))
        return handler(request.override(messages=messages))


def with_history(store: Store, model: Any, question: str) -> None:
    history = PalaverChatMessageHistory(store, "talk")
    history.add_messages([HumanMessage(question)])
    while True:
        answer = model.bind_tools([weather]).invoke(joined(model, history.messages))
        results = [weather.invoke(call) for call in answer.tool_calls]
        history.add_messages([answer, *results])
        if not results:
            return


def with_graph(store: Store, model: Any, question: str) -> None:
    graph: Any = create_agent(
        model, [weather], checkpointer=PalaverSaver(store), middleware=[Repaired()]
    )
    thread = {"configurable": {"thread_id": "talk"}}
    graph.invoke({"messages": [("user", question)]}, thread)


def with_stream(store: Store, model: Any, question: str) -> None:
    graph: Any = create_agent(
        model, [weather], checkpointer=PalaverSaver(store), middleware=[Repaired()]
    )
    thread = {"configurable": {"thread_id": "talk"}}
    list(graph.stream({"messages": [("user", question)]}, thread, stream_mode="messages"))


WAYS = [with_history, with_graph, with_stream]


def ask_twice(
    store: Store,
    form: FormatName,
    ask: Callable[[Store, Any, str], None],
    edit: Callable[[StoredHistory], object] = lambda _: None,
) -> str:
    """Ask two questions with a tool call in the first; return the body of the last request."""
    thought = "" if form == "openai-chat" else "My thought."
    call = Answer("", thought, calls=(Call("weather", {"city": "Rome"}, id="r1"),))
    with ProviderServer(form, [call, "Sunny.", "I said so."]) as server:
        ask(store, CLIENTS[form](server.url), "Weather?")
        edit(store.get("talk"))
        ask(store, CLIENTS[form](server.url), "And what did you say?")
        assert [] == server.failures
        assert "I said so." == store.get("talk")[-1].text
        assert [] == list(store.verify())
        return str(server.requests[-1].body)


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("form", CLIENTS)
def test_the_model_is_sent_everything_once_and_its_own_reasoning(
    here: Store, form: FormatName, ask: Callable[[Store, Any, str], None]
) -> None:
    last = ask_twice(here, form, ask)
    for said in ("'Weather?'", "21 degrees and sunny", "'Sunny.'", "'And what did you say?'"):
        assert 1 == last.count(said), (said, last)
    for said in OWN_REASONING[form]:
        assert said in last
    roles = [message.role for message in here.get("talk")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("ask", WAYS[:2])
@pytest.mark.parametrize("form", CLIENTS)
def test_what_others_wrote_is_sent_without_their_reasoning(
    here: Store, form: FormatName, ask: Callable[[Store, Any, str], None]
) -> None:
    here.create(id="talk").extend([
        user("Who?", speaker=Speaker("u1", "Ada Lovelace", "human")), assistant("You."),
        *said_by_all(),
    ])  # fmt: skip
    last = ask_twice(here, form, ask)
    assert [] == [(said, last.count(said)) for said in SAID if last.count(said) != 1]
    assert [] == [thought for thought in NOT_SENT if thought in last.replace("My thought.", "")]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_whatever_was_edited_the_strictest_provider_takes_the_next_request(
    here: Store, edit: Callable[[StoredHistory], Any]
) -> None:
    ask_twice(here, "gemini", with_history, edit)


def without_the_call(history: StoredHistory) -> None:
    """Leave the thought and a text of an answer that made a call."""
    kept = [part for part in history[1].parts if not isinstance(part, ToolCallPart)]
    history.replace(1, assistant(kept or "Wait."))


MORE_EDITS: dict[str, Callable[[StoredHistory], Any]] = {
    "without the result": EDITS["without the result"],
    "without the call": EDITS["without the call"],
    "a question before the result": lambda history: history.insert(2, [user("Well?")]),
    "another call": lambda history: history.replace(1, assistant("Wait.")),
    "no call": without_the_call,
    "another answer": lambda history: history.replace(3, assistant("")),
    "rolled back": lambda history: history.undo(),
}


@pytest.mark.parametrize("edit", MORE_EDITS.values(), ids=MORE_EDITS.keys())
def test_a_graph_that_repairs_asks_whatever_was_edited(
    here: Store, edit: Callable[[StoredHistory], Any]
) -> None:
    ask_twice(here, "gemini", with_graph, edit)


@pytest.mark.parametrize("form", CLIENTS)
def test_a_call_that_was_edited_away_is_not_sent(here: Store, form: FormatName) -> None:
    """Integrations repeat calls in `additional_kwargs`."""

    def edit(history: StoredHistory) -> None:
        history.replace(1, replace(history[1], content="Wait.", id=new_id()))
        history.rewrite([range(2), range(3, len(history.view))])

    last = ask_twice(here, form, with_history, edit)
    assert "Wait." in last
    assert "Rome" not in last
