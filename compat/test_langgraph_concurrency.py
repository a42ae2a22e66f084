"""What others do while a graph runs: edits, other runs, erasure, a thread deleted or begun anew."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

import palaver
from compat.saver_agent import thread
from compat.saver_graphs import (
    at,
    echo,
    say,
    shown,
)
from palaver.adapters.langgraph import PalaverSaver
from palaver.adapters.langgraph.message_channel import MessageChannel
from palaver.adapters.langgraph.thread import Thread
from palaver.messages import user

if TYPE_CHECKING:
    from palaver.stores import Store


class Wide(TypedDict):
    """A state with more than messages."""

    messages: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]
    large: str


def test_an_edit_while_the_graph_runs_is_not_lost(store: Store) -> None:
    """What the graph adds comes after the edit, step by step; the next run sees the edit."""
    builder = StateGraph(MessagesState)

    def first(state: MessagesState) -> Any:
        store.get("trip").replace(0, user("edited meanwhile"))
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    def then(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"then {state['messages'][0].content}")]}

    builder.add_node("first", first)
    builder.add_node("then", then)
    builder.add_node("last", then)
    builder.add_edge(START, "first")
    builder.add_edge("first", "then")
    builder.add_edge("then", "last")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    graph.invoke({"messages": [HumanMessage("one")]}, thread(), durability="sync")
    whole = ["edited meanwhile", "a1", "then one", "then one"]
    assert whole == [m.text for m in store.get("trip")]
    assert whole == at(graph, thread())
    assert 5 == len(store.get("trip").log)


def test_someone_who_comes_at_the_very_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the change: it is looked again, and nothing is lost or mixed up."""
    graph = echo(PalaverSaver(store))
    say(graph, "one")
    left = [1]
    keep = MessageChannel.extend

    def late(stored: MessageChannel, *values: Any) -> None:
        if left:
            left.pop()
            store.get("trip").append(user("in between"))
        keep(stored, *values)

    monkeypatch.setattr(MessageChannel, "extend", late)
    say(graph, "two")
    assert ["one", "a1", "in between", "two", "a3"] == [m.text for m in store.get("trip")]
    assert ["one", "a1", "in between", "two", "a3", "three", "a6"] == say(graph, "three")


def test_a_run_inside_another_keeps_its_own_branch(address: str) -> None:
    """What another saver did meanwhile is no edit: each branch has only what its own graph said."""
    with palaver.open(address) as first, palaver.open(address) as second:
        other = echo(PalaverSaver(second))
        builder = StateGraph(MessagesState)

        def answer(state: MessagesState) -> Any:
            say(other, "other")
            return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=PalaverSaver(first))
        graph.invoke({"messages": [HumanMessage("one")]}, thread(), durability="sync")
        assert ["one", "a1"] == at(graph, thread()) == at(other, thread())
        assert ["one", "a1"] == [m.text for m in second.get("trip")]
        assert ["one", "other", "a2"] in shown(other, "trip")


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_a_thread_that_another_begins_anew_meanwhile(address: str, turns: int) -> None:
    """Deleted and made again, shorter or longer: what the graph has in hand is kept whole."""
    with palaver.open(address) as first, palaver.open(address) as second:
        other = echo(PalaverSaver(second))
        builder = StateGraph(MessagesState)

        def answer(state: MessagesState) -> Any:
            if len(state["messages"]) > 3:
                PalaverSaver(second).delete_thread("trip")
                for number in range(turns):
                    say(other, f"anew {number}")
            return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=PalaverSaver(first))
        for text in ("one", "two", "three"):
            graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability="sync")
        whole = ["one", "a1", "two", "a3", "three", "a5"]
        assert whole == at(graph, thread()) == at(other, thread())
        assert whole == [m.text for m in second.get("trip")]
        assert [] == list(second.verify())


def test_what_is_erased_while_a_graph_runs_does_not_come_back(store: Store) -> None:
    builder = StateGraph(MessagesState)

    def answer(state: MessagesState) -> Any:
        store.get("trip").erase(0)
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph: Any = builder.compile(checkpointer=PalaverSaver(store))
    graph.invoke({"messages": [HumanMessage("4711")]}, thread(), durability="sync")
    assert "a1" == store.get("trip")[-1].text
    assert not any("4711" in m.text for m in store.get("trip").log)
    assert "4711" not in str(graph.get_state(thread()).values)


@pytest.mark.parametrize("anew", [False, True])
def test_what_is_deleted_while_it_is_listed_is_left_out(
    address: str,
    anew: bool,  # noqa: FBT001 - a parameter
) -> None:
    with palaver.open(address) as first, palaver.open(address) as second:
        saver, other = PalaverSaver(first), PalaverSaver(second)
        for text in ("one", "two"):
            say(echo(saver), text)
        found, every = saver.list(thread()), saver.list(None)
        next(found)
        next(every)
        other.delete_thread("trip")
        if not anew:
            assert [] == list(found) == list(every)
            return
        say(echo(other), "anew")
        for one in (*found, *every):  # of another thread of the same name, but no error
            assert one.checkpoint["id"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_checkpoint_does_not_fall_into_a_thread_begun_anew(
    address: str,
    changed: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Neither does what its messages and large values have in the store: it is stored whole."""
    with palaver.open(address) as first, palaver.open(address) as second:
        other = echo(PalaverSaver(second), Wide)
        builder = StateGraph(Wide)

        def answer(state: Wide) -> Any:
            if len(state["messages"]) > 1:
                PalaverSaver(second).delete_thread("trip")
                say(other, "anew")
            return {"messages": [AIMessage("yes")]} if changed else {"count": 1}

        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=PalaverSaver(first))
        for text in ("one", "two"):
            given = {"messages": [HumanMessage(text)], "large": "x" * 9_000}
            graph.invoke(given if text == "one" else {**given, "large": "y" * 9_000}, thread())
        whole = ["one", "yes", "two", "yes"] if changed else ["one", "two"]
        for one in (graph, other):
            assert whole == at(one, thread())
            assert "y" * 9_000 == one.get_state(thread()).values["large"]
        assert [] == list(second.verify())


def test_pruning_while_another_process_goes_on(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it adds meanwhile stays: its messages and its large values."""
    with palaver.open(address) as first, palaver.open(address) as second:
        saver, other = PalaverSaver(first), echo(PalaverSaver(second), Wide)
        say(echo(saver, Wide), "one")
        all_of = Thread.all
        looks: list[int] = []

        def late(known: Thread) -> Any:
            found = all_of(known)
            looks.append(1)
            if len(looks) == 3:  # it knows what to remove, and what is left
                other.invoke({"messages": [HumanMessage("two")], "large": "x" * 9_000}, thread())
            return found

        monkeypatch.setattr(Thread, "all", late)
        saver.prune(["trip"])
        assert ["one", "a1", "two", "a3"] == at(other, thread())
        assert ["one", "a1", "two", "a3"] == [m.text for m in first.get("trip")]
        assert "x" * 9_000 == other.get_state(thread()).values["large"]


def test_a_checkpoint_without_new_messages_for_a_deleted_thread(address: str) -> None:
    """Records alone begin the thread again too, where another process can find them."""
    with palaver.open(address) as first, palaver.open(address) as second:
        saver = PalaverSaver(first)
        say(echo(saver), "one")
        found = saver.get_tuple(thread())
        assert found is not None
        PalaverSaver(second).delete_thread("trip")
        later: Any = {**found.checkpoint, "id": "f" * 32}
        saver.put(found.config, later, found.metadata, {})
        there = PalaverSaver(second).get_tuple(thread())
        assert there is not None
        assert found.checkpoint["channel_values"] == there.checkpoint["channel_values"]
        assert [] == list(first.verify())


def test_records_alone_take_no_part_in_a_thread_begun_anew_at_that_moment(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint would name a version that the new conversation does not have."""
    with palaver.open(address) as first, palaver.open(address) as second:
        saver, other = PalaverSaver(first), echo(PalaverSaver(second))
        for text in ("one", "two"):
            say(echo(saver), text)
        found = saver.get_tuple(thread())
        assert found is not None
        keep = first.backend.keep

        def late(*values: Any, **named: Any) -> None:
            monkeypatch.undo()
            PalaverSaver(second).delete_thread("trip")
            say(other, "anew")
            keep(*values, **named)

        monkeypatch.setattr(first.backend, "keep", late)
        saver.put(found.config, {**found.checkpoint, "id": "f" * 32}, found.metadata, {})
        assert ["one", "a1", "two", "a3"] == at(other, thread()) == at(echo(saver), thread())
        assert ["anew", "a1"] in shown(other, "trip")
        assert [] == list(second.verify())


@pytest.mark.parametrize("times", [1, 3])
def test_a_thread_that_others_delete_again_and_again(
    address: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with palaver.open(address) as first, palaver.open(address) as second:
        graph = echo(PalaverSaver(first))
        say(graph, "one")
        commit, left = first.backend.commit, [None] * times

        def late(*values: Any, **named: Any) -> Any:
            if left:
                left.pop()
                PalaverSaver(second).delete_thread("trip")
            return commit(*values, **named)

        monkeypatch.setattr(first.backend, "commit", late)
        say(graph, "two")
        assert ["one", "a1", "two", "a3"] == at(echo(PalaverSaver(second)), thread())


def test_a_thread_begun_anew_and_edited_at_that_moment(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is of another conversation, which the store would take for damage."""
    with palaver.open(address) as first, palaver.open(address) as second:
        say(echo(PalaverSaver(first)), "one")
        graph, commit = echo(PalaverSaver(first)), first.backend.commit

        def late(*values: Any, **named: Any) -> Any:
            monkeypatch.undo()
            PalaverSaver(second).delete_thread("trip")
            anew = second.create(id="trip")
            anew.append(user("anew"))
            anew.replace(0, user("and edited"))
            anew.truncate(keep_last=0)
            return commit(*values, **named)

        monkeypatch.setattr(first.backend, "commit", late)
        say(graph, "two")
        assert ["one", "a1", "two", "a3"] == at(echo(PalaverSaver(second)), thread())


def test_a_thread_begun_anew_while_it_is_read(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter than it was: what was there before is gone, and that is no error."""
    with palaver.open(address) as first, palaver.open(address) as second:
        other = echo(PalaverSaver(second))
        for text in ("one", "two"):
            say(other, text)
        read = MessageChannel.read

        def late(known: MessageChannel, *values: Any, **named: Any) -> Any:
            monkeypatch.undo()
            PalaverSaver(second).delete_thread("trip")
            say(other, "anew")
            return read(known, *values, **named)

        monkeypatch.setattr(MessageChannel, "read", late)
        saver = PalaverSaver(first)
        assert saver.get_tuple(thread()) is None
        assert ["anew", "a1"] == at(echo(saver), thread())


def test_a_thread_deleted_while_the_graph_runs_begins_again(address: str) -> None:
    """Another process takes it away: what the graph has in hand is kept anew, and whole."""
    with palaver.open(address) as first, palaver.open(address) as second:
        builder = StateGraph(MessagesState)

        def answer(state: MessagesState) -> Any:
            if len(state["messages"]) > 1:
                PalaverSaver(second).delete_thread("trip")
            return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=PalaverSaver(first))
        for text in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability="sync")
        assert ["one", "a1", "two", "a3"] == at(graph, thread())
        assert ["one", "a1", "two", "a3"] == [m.text for m in second.get("trip")]
        assert [] == list(first.verify())


def test_two_processes_on_one_thread(address: str) -> None:
    """Every checkpoint shows what its own graph had; the newest is what the log says."""
    with palaver.open(address) as first, palaver.open(address) as second:
        graphs = [echo(PalaverSaver(first)), echo(PalaverSaver(second))]
        say(graphs[0], "begin")
        for number in range(6):
            said = say(graphs[number % 2], f"u{number}")
            assert [f"u{number}", f"a{2 * number + 3}"] == said[-2:]
            assert said == [m.text for m in first.get("trip")]
        PalaverSaver(second).delete_thread("trip")
        assert ["anew", "a1"] == say(graphs[0], "anew")


def test_a_put_that_comes_second_keeps_its_own_branch(address: str) -> None:
    """Two that go on from the same checkpoint: neither is lost, neither is mixed with the other."""
    with palaver.open(address) as first, palaver.open(address) as second:
        one, other = echo(PalaverSaver(first)), echo(PalaverSaver(second))
        say(one, "begin")
        config = one.get_state(thread()).config
        assert ["begin", "a1"] == [m.content for m in other.get_state(config).values["messages"]]
        left = one.update_state(config, {"messages": [AIMessage("left")]})
        right = other.update_state(config, {"messages": [AIMessage("right")]})
        for graph in (one, other):
            assert ["begin", "a1", "left"] == at(graph, left)
            assert ["begin", "a1", "right"] == at(graph, right)
        assert ["begin", "a1", "right"] == [m.text for m in first.get("trip")]
