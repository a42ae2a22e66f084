"""palaver and the graph see the same: edits, branches, messages removed or changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolCall
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from compat.saver_agent import thread
from compat.saver_graphs import (
    at,
    echo,
    say,
)
from palaver.adapters.langgraph import MessagesState as QuickState
from palaver.adapters.langgraph import PalaverSaver, message_channel
from palaver.messages import Message, complete, pending, start, tool_part, user
from palaver.messages.ids import NIL_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store


states = pytest.mark.parametrize("kind", [MessagesState, QuickState])
"""With LangGraph's reducer, and with palaver's."""


def test_an_edit_is_what_the_graph_sees_next(store: Store) -> None:
    graph = echo(PalaverSaver(store))
    say(graph, "one")
    say(graph, "two")
    history = store.get("trip")
    history.truncate(remove_first=2)
    history.replace(0, user("two, edited"))
    history.append(user("said elsewhere"))
    assert ["two, edited", "a3", "said elsewhere", "three", "a4"] == say(graph, "three")
    history.refresh().undo()
    history.undo()
    assert ["two, edited", "a3", "said elsewhere"] == [m.text for m in history]
    assert ["two, edited", "a3", "said elsewhere", "four", "a4"] == say(graph, "four")
    earlier = [len(one.values["messages"]) for one in graph.get_state_history(thread())]
    assert [5, 4, 3] == earlier[:3]


def test_what_is_said_is_written_once(store: Store) -> None:
    """No record repeats what is in the log, but for the input before it was a message."""
    graph = echo(PalaverSaver(store))
    for word in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(f"this is {word}")]}, thread(), durability="sync")
    answers = [message.id.encode() for message in store.get("trip") if message.role == "assistant"]
    for kind in store.kinds("trip"):
        for value in store.records("trip", kind).values():
            assert not any(answer in value for answer in answers)
    inputs = [b"this is" in value for value in store.records("trip", "langgraph").values()]
    assert 2 == sum(inputs)
    said = [one.pending_writes for one in PalaverSaver(store).list(thread()) if one.pending_writes]
    assert ["a3", "this is two", "a1", "this is one"] == [
        value[0].content for writes in said for _, channel, value in writes
        if channel == "messages"
    ]  # fmt: skip


class Custom(HumanMessage):
    """A message of one's own class."""


def test_messages_of_other_classes_are_plain_values(store: Store) -> None:
    """They come back as LangGraph brings them back; the conversation has no part in it."""
    graph = echo(PalaverSaver(store))
    graph.invoke({"messages": [Custom(content="mine", id="1")]}, thread())
    found = echo(PalaverSaver(store)).get_state(thread()).values["messages"]
    assert ["mine", "a1"] == [message.content for message in found]
    assert [] == list(store.get("trip"))


def test_much_is_remembered_but_not_everything(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was let go of is read again."""
    monkeypatch.setattr("palaver.adapters.langgraph.message_channel._MAX_SNAPSHOTS", 3)
    monkeypatch.setattr("palaver.adapters.langgraph.saver._MAX_THREADS", 1)
    monkeypatch.setattr("palaver.adapters.langgraph.put._MAX_WAITING", 1)
    graph = echo(PalaverSaver(here))
    for number in range(4):
        for name in ("one", "other"):
            said = say(graph, f"u{number}", thread(name))
            assert 2 * number + 2 == len(said)
            assert said == [m.text for m in here.get(name)]


class Plain(TypedDict):
    """A list that nodes replace, whose messages have no ids."""

    messages: list[AnyMessage]


def test_messages_without_ids_are_found_by_what_they_say(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compared with those that say the same, not with all."""
    compared: list[str] = []
    is_same: Callable[..., bool] = message_channel._is_same

    def count(snapshot: Any, message: Any) -> Any:
        compared.append(message.content)
        return is_same(snapshot, message)

    monkeypatch.setattr(message_channel, "_is_same", count)
    builder = StateGraph(Plain)

    def last(state: Plain) -> Any:
        return {"messages": state["messages"][1:]}

    builder.add_node("last", last)
    builder.add_edge(START, "last")
    graph: Any = builder.compile(checkpointer=PalaverSaver(here))
    for _ in range(3):
        graph.invoke({"messages": [HumanMessage(f"u{n}") for n in range(100)]}, thread())
    assert [f"u{n}" for n in range(1, 100)] == [m.text for m in here.get("trip")]
    assert 100 == len(here.get("trip").log)
    assert len(compared) < 1_500


def test_a_result_of_several_calls_is_several_messages(store: Store) -> None:
    """What palaver keeps as one message, the graph sees as two, and takes for known."""
    graph = echo(PalaverSaver(store))
    say(graph, "one")
    done = [
        tool_part(NIL_ID, NIL_ID, name, "look",
                  complete(start(pending({}, ""), at=1), f"saw {name}", tool="look", at=2))
        for name in ("c1", "c2")
    ]  # fmt: skip
    store.get("trip").append(Message("tool", tuple(done)))
    assert ["one", "a1", "saw c1", "saw c2", "two", "a5"] == say(graph, "two")
    last = graph.get_state(thread()).values["messages"][-1]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=last.id)]})
    assert 4 == len(store.get("trip"))
    assert 5 == len(store.get("trip").log)
    second = graph.get_state(thread()).values["messages"][3]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=second.id)]})
    assert ["one", "a1", "saw c1", "two"] == at(graph, thread())


def test_a_fork_in_the_past_leaves_the_other_branch(store: Store) -> None:
    graph = echo(PalaverSaver(store))
    say(graph, "one")
    say(graph, "two")
    past = [one for one in graph.get_state_history(thread()) if len(one.values["messages"]) == 2]
    assert ["one", "a1", "other", "a3"] == say(graph, "other", past[0].config)
    assert ["one", "a1", "other", "a3"] == [m.text for m in store.get("trip")]
    assert ["one", "a1", "other", "a3", "more", "a5"] == say(graph, "more")
    counts = [len(one.values["messages"]) for one in graph.get_state_history(thread())]
    assert [6, 5, 4, 4, 3, 2, 4, 3, 2, 2, 1, 0] == counts
    changed = graph.update_state(past[0].config, {"messages": [HumanMessage("updated")]})
    assert ["one", "a1", "updated"] == [
        m.content for m in graph.get_state(changed).values["messages"]
    ]
    assert 9 == len(store.get("trip").log)  # nothing was written twice


def test_a_past_that_waits_is_what_the_conversation_shows(store: Store) -> None:
    """An interrupt of long ago is the newest checkpoint: an edit of it is what the graph sees."""

    def approve(state: MessagesState) -> dict[str, Any]:
        assert state["messages"]
        return {"messages": [AIMessage(interrupt("Is that right?"))]}

    builder = StateGraph(MessagesState)
    builder.add_node("approve", approve)
    builder.add_edge(START, "approve")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    for word in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(word)]}, thread())
        graph.invoke(Command(resume="yes"), thread())
    (*_, past) = (each for each in graph.get_state_history(thread()) if each.next == ("approve",))
    graph.invoke(None, past.config)
    history = store.get("trip")
    assert ["one"] == [m.text for m in history]
    assert ["one"] == [m.content for m in graph.get_state(thread()).values["messages"]]
    history.append(user("think again"))
    found = graph.invoke(Command(resume="no"), thread())
    assert ["one", "think again", "no"] == [m.content for m in found["messages"]]
    assert ["one", "think again", "no"] == [m.text for m in history.refresh()]


def test_an_update_of_the_past_is_what_the_conversation_shows(store: Store) -> None:
    """Also where it changes something else than the messages."""

    class State(MessagesState):
        mood: str

    def answer(state: State) -> dict[str, Any]:
        assert state["messages"]
        return {"messages": [AIMessage("yes")]}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    say(graph, "one")
    past = graph.get_state(thread())
    say(graph, "two")
    graph.update_state(past.config, {"mood": "good"}, as_node="answer")
    assert ["one", "yes"] == [m.text for m in store.get("trip")]
    assert ["one", "yes", "three", "yes"] == say(graph, "three")


def test_messages_that_the_graph_removes(store: Store) -> None:
    graph = echo(PalaverSaver(store))
    say(graph, "one")
    say(graph, "two")
    last = graph.get_state(thread()).values["messages"][-1]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=last.id)]})
    assert ["one", "a1", "two"] == [m.text for m in store.get("trip")]
    graph.update_state(thread(), {"messages": [AIMessage("a1, again", id=_id(graph, 1))]})
    assert ["one", "a1, again", "two"] == [m.text for m in store.get("trip")]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert [] == list(store.get("trip"))
    assert [] == graph.get_state(thread()).values["messages"]
    assert ["anew", "a1"] == say(graph, "anew")


def _id(graph: Any, index: int) -> str:
    return str(graph.get_state(thread()).values["messages"][index].id)


def test_a_message_changed_in_place_is_noticed(store: Store) -> None:
    builder = StateGraph(MessagesState)

    def redact(state: MessagesState) -> Any:
        state["messages"][0].content = "redacted"
        return {"messages": [state["messages"][0]]}

    builder.add_node("redact", redact)
    builder.add_edge(START, "redact")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    graph.invoke({"messages": [HumanMessage("secret")]}, thread(), durability="sync")
    assert ["redacted"] == [m.text for m in store.get("trip")]
    history = list(graph.get_state_history(thread()))
    assert ["redacted", "secret"] == [one.values["messages"][0].content for one in history[:2]]


@states
def test_a_message_changed_in_place_and_not_returned_is_noticed_too(here: Store, kind: Any) -> None:
    """An old message, the same object, with another text: the log has both, the view the new."""
    builder = StateGraph(kind)

    def redact(state: Any) -> Any:
        state["messages"][0].content += "!"
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    builder.add_node("redact", redact)
    builder.add_edge(START, "redact")
    graph: Any = builder.compile(checkpointer=PalaverSaver(here))
    for text in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability="sync")
    assert ["one!!", "a1", "two", "a3"] == [m.text for m in here.get("trip")]
    assert ["one", "one!", "one!!"] == [m.text for m in here.get("trip").log if "one" in m.text]


@states
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_arguments_that_are_corrected_in_place_are_stored(
    here: Store, kind: Any, durability: Any
) -> None:
    """As a human does between two steps, and a node with what it returns."""
    builder: Any = StateGraph(kind)

    def ask(_: Any) -> Any:
        call = ToolCall(name="search", args={"query": "wrong"}, id="c")
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def mark(state: Any) -> Any:
        state["messages"][-1].additional_kwargs["seen"] = True
        return {"messages": state["messages"][-1]}

    builder.add_node("ask", ask)
    builder.add_node("mark", mark)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "mark")
    graph: Any = builder.compile(checkpointer=PalaverSaver(here), interrupt_before=["mark"])
    graph.invoke({"messages": [HumanMessage("one")]}, thread(), durability=durability)
    answer = graph.get_state(thread()).values["messages"][-1]
    answer.tool_calls[0]["args"]["query"] = "corrected"
    graph.update_state(thread(), {"messages": answer})
    graph.invoke(None, thread(), durability=durability)
    later: Any = builder.compile(checkpointer=PalaverSaver(here))
    lists = [one.values.get("messages", []) for one in later.get_state_history(thread())]
    asked = [said[1] for said in lists if len(said) == 2]
    queries = [message.tool_calls[0]["args"]["query"] for message in asked]
    assert ["corrected", "corrected", "wrong"] == queries
    assert {"seen": True} == asked[0].additional_kwargs


def _shouting(left: list[Any], right: list[Any]) -> Any:
    """A reducer that does what it should not."""
    for message in left[:1]:
        message.content += "!"
    return add_messages(left, right)


class Shouting(TypedDict):
    """A state with that reducer."""

    messages: Annotated[list[AnyMessage], _shouting]


def test_what_a_reducer_changes_in_place_is_noticed_a_step_later(here: Store) -> None:
    """The step after an input runs no node, and is not looked through; the next one is."""
    graph = echo(PalaverSaver(here), Shouting)
    for text in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability="sync")
    assert ["one!!!", "a1", "two", "a3"] == [m.text for m in here.get("trip")]


def test_a_message_changed_while_it_is_being_kept_is_noticed(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node runs while the checkpoint before it is on its way to the disk."""
    graph = echo(PalaverSaver(here))
    question = HumanMessage("one")
    commit = here.backend.commit

    def slow(change: Any) -> Any:
        question.content = "one!"
        return commit(change)

    monkeypatch.setattr(here.backend, "commit", slow)
    graph.invoke({"messages": [question]}, thread(), durability="sync")
    assert ["one!", "a1"] == at(graph, thread()) == [m.text for m in here.get("trip")]


@states
def test_what_is_done_to_messages_after_a_run_is_the_callers_own(here: Store, kind: Any) -> None:
    """The objects that a run gave away may change; the next run reads what the log says."""
    graph = echo(PalaverSaver(here), kind)
    for number, text in enumerate(("one", "two")):
        given = graph.invoke({"messages": [HumanMessage(text)]}, thread())["messages"]
        given[0].content = "shortened for the screen"
        given[-1].id = "another"
        given.clear()
        there = graph.get_state(thread()).values["messages"]
        assert ["one", "a1", "two", "a3"][: 2 * number + 2] == [m.content for m in there]
        assert "another" not in {m.id for m in there}
    assert ["one", "a1", "two", "a3"] == [m.text for m in here.get("trip")]
