"""palaver's reducer answers what LangGraph's does, whatever it is given."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.message import add_messages as theirs

import palaver
from palaver.adapters.langgraph import MessagesState, PalaverSaver, add_messages, message_channel

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

ids = st.sampled_from(["a", "b", "c", "d", "e", None])
texts = st.sampled_from(["", "tea", "rum"])
kept: st.SearchStrategy[Any] = st.one_of(
    st.builds(HumanMessage, texts, id=ids),
    st.builds(AIMessage, texts, id=ids),
    st.builds(SystemMessage, texts, id=ids),
    st.builds(lambda text, name: ToolMessage(text, tool_call_id="1", id=name), texts, ids),
)
odd: st.SearchStrategy[Any] = st.one_of(
    kept,
    st.builds(lambda name: RemoveMessage(id=name or REMOVE_ALL_MESSAGES), ids),
    st.builds(AIMessageChunk, texts, id=ids),
    st.builds(lambda text, name: {"role": "user", "content": text, "id": name}, texts, ids),
    st.builds(lambda text: ("user", text), texts),
)


def outcome(reducer: Callable[..., Any], left: Any, right: Any) -> Any:
    """What comes out, with ids that were missing as None; or the error."""
    named = {"a", "b", "c", "d", "e"}
    try:
        found = reducer(copy.deepcopy(left), copy.deepcopy(right))
    except ValueError as error:
        return str(error)
    assert all(message.id for message in found)
    return [(type(m), m.content, m.id if m.id in named else None) for m in found]


@given(left=st.lists(kept), right=st.one_of(odd, st.lists(odd)))
def test_it_answers_what_langgraphs_does(left: list[Any], right: Any) -> None:
    assert outcome(theirs, left, right) == outcome(add_messages, left, right)


def test_a_list_that_only_grows_is_not_langgraphs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_channel, "add_any", None)
    left: list[Any] = [HumanMessage("Tea?", id="a")]
    assert [*left, AIMessage("Yes.", id="b")] == add_messages(left, AIMessage("Yes.", id="b"))


def test_a_graph_with_it_keeps_the_same() -> None:
    def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{len(state['messages'])}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    with palaver.open(":memory:") as store:
        graph: Any = builder.compile(checkpointer=PalaverSaver(store))
        thread: Any = {"configurable": {"thread_id": "talk"}}
        said: list[Any] = []
        for _ in range(3):
            said = graph.invoke({"messages": [("user", "go on")]}, thread)["messages"]
        assert ["go on", "1", "go on", "3", "go on", "5"] == [m.content for m in said]
        assert [m.content for m in said] == [m.text for m in store.get("talk")]
