"""palaver's reducer answers what LangGraph's does, whatever it is given."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph import MessagesState as TheirState
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


DEEDS = st.tuples(
    st.sampled_from([
        "nothing", "answer", "dict", "replace", "again", "rename", "rename and replace", "edit",
        "append", "remove", "one without an id",
    ]),
    st.integers(0, 9),
)  # fmt: skip


def do(state: Any, deed: tuple[str, int], number: int) -> Any:
    """Do one of the things that nodes do to messages, also in place; return what a node would."""
    what, which = deed
    messages = state["messages"] or [HumanMessage("of nobody", id="of nobody")]
    chosen = messages[which % len(messages)]
    what = what if state["messages"] else "answer"
    name = f"answer {number}"
    said: Any = AIMessage(name, id=name)
    if what in ("rename", "rename and replace"):
        chosen.id = f"renamed {number}"
    elif what == "edit":
        chosen.content += f" edited {number}"
    elif what == "append":
        messages.append(HumanMessage("in place", id=f"in place {number}"))
    if what in ("replace", "rename and replace"):
        said = AIMessage(name, id=chosen.id)
    elif what == "again":
        said = chosen
    elif what == "dict":
        said = {"role": "assistant", "content": name, "id": name}
    elif what == "remove":
        said = RemoveMessage(id=str(chosen.id))
    elif what == "one without an id":
        said = [AIMessage(name), HumanMessage("and", id=f"and {number}")]
    return {} if what == "nothing" else {"messages": said}


def play(
    state: Any, saver: Any, turns: list[list[tuple[str, int]]], durability: str = "async"
) -> list[Any]:
    """Run turns of so many nodes on one thread; between two, the last result may be changed."""
    script: list[tuple[str, int]] = []
    numbers = itertools.count()
    builder: Any = StateGraph(state)
    for node in ("one", "two"):
        builder.add_node(node, lambda state: do(state, script.pop(0), next(numbers)))
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(checkpointer=saver)
    thread: Any = {"configurable": {"thread_id": "talk"}}
    seen: list[Any] = []
    for at, (first, second) in enumerate(turns):
        script[:] = [first, second]
        question = HumanMessage(f"question {at}", id=f"question {at}")
        asked = {"messages": [question]}
        found = graph.invoke(asked, thread, durability=durability)["messages"]
        seen.append([(type(m), m.content, m.id if " " in str(m.id) else None) for m in found])
        for message in found[at:]:
            message.content = "what the caller does to its messages is its own"
    return seen


@example([[("nothing", 0)] * 2, [("nothing", 0), ("replace", 1)]], "exit", 500)
@given(
    st.lists(st.lists(DEEDS, min_size=2, max_size=2), min_size=1, max_size=5),
    st.sampled_from(["sync", "async", "exit"]),
    st.sampled_from([-1, 500]),
)
def test_a_graph_sees_the_same_whatever_its_nodes_do(
    turns: list[Any], durability: str, scattered: int
) -> None:
    with (
        palaver.open(":memory:") as store,
        mock.patch.object(message_channel, "_MAX_SCATTERED", scattered),
    ):
        ours = play(MessagesState, PalaverSaver(store), turns, durability)
    assert play(TheirState, InMemorySaver(), turns, durability) == ours


def test_a_node_that_runs_before_anything_is_added_may_rename() -> None:
    """As where a graph goes on after an interrupt: no input comes first."""

    def rename(state: Any) -> Any:
        state["messages"][-1].id = "new"
        return {"messages": [AIMessage("instead", id="new")]}

    for kind in (TheirState, MessagesState):
        builder: Any = StateGraph(kind)
        builder.add_node("rename", rename)
        builder.add_edge(START, "rename")
        with palaver.open(":memory:") as store:
            graph: Any = builder.compile(PalaverSaver(store), interrupt_before=["rename"])
            thread: Any = {"configurable": {"thread_id": "talk"}}
            graph.invoke({"messages": [HumanMessage("Tea?")]}, thread)
            found = graph.invoke(None, thread)["messages"]
            assert [("new", "instead")] == [(m.id, m.content) for m in found]


def test_a_thread_that_grows_is_looked_at_twice_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it is read, and once after the nodes ran; not at every message for its id."""
    looked: list[int] = []
    look = message_channel._Loaded.is_unchanged

    def count(self: Any, start: int = 0, stop: int | None = None) -> bool:
        looked.append(len(self.fields[start:stop]))
        return look(self, start, stop)

    monkeypatch.setattr(message_channel._Loaded, "is_unchanged", count)
    turns = [[("answer", 0), ("nothing", 0)]] * 3
    with palaver.open(":memory:") as store:
        saver = PalaverSaver(store)
        play(MessagesState, saver, turns)
        looked.clear()
        monkeypatch.setattr(message_channel, "_ids_of", lambda rest: {None for _ in rest[1:]})
        play(MessagesState, saver, [[("dict", 0), ("nothing", 0)]])
    assert sum(looked) < 2 * 8 + 8


def test_messages_that_came_one_by_one_are_copied_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copies are whole, deep inside too, and share nothing with what the caller has."""
    monkeypatch.setattr(message_channel, "_MAX_SCATTERED", 3)
    call = {"name": "add", "args": {"numbers": [1, 2]}, "id": "c", "type": "tool_call"}
    said: list[Any] = [
        HumanMessage("2 and 2?", id="q"),
        AIMessage([{"type": "text", "text": "Hm."}], id="a", tool_calls=[call]),
        ToolMessage("4", tool_call_id="c", id="t", artifact={"sum": 4}),
        AIMessage("Four.", id="b", response_metadata={"usage": {"tokens": 1}}, extra={"more": 1}),
    ]
    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", lambda _: {"messages": said})
    builder.add_edge(START, "answer")
    thread: Any = {"configurable": {"thread_id": "talk"}}
    with palaver.open(":memory:") as store:
        graph: Any = builder.compile(checkpointer=PalaverSaver(store))
        graph.invoke({"messages": HumanMessage("Begin.", id="begin")}, thread)
        copied = graph.get_state(thread).values["messages"][1:]
        assert said == copied
        assert not {id(each) for each in said} & {id(each) for each in copied}
        copied[1].tool_calls[0]["args"]["numbers"].append(3)
        assert call["args"] == {"numbers": [1, 2]}
        again = graph.get_state(thread).values["messages"][1:]
        assert said == again
        assert [id(each) for each in copied[2:]] == [id(each) for each in again[2:]]


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
