"""What a thread has beside its messages, and threads copied, pruned and deleted."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import (
    _messages_delta_reducer,  # LangGraph has no public name for it yet
    add_messages,
)
from typing_extensions import TypedDict

from compat.saver_agent import thread
from compat.saver_graphs import (
    at,
    echo,
    say,
    shown,
)
from palaver.adapters.langchain import PalaverChatMessageHistory
from palaver.adapters.langgraph import PalaverSaver
from palaver.errors import AlreadyExists, ValidationError
from palaver.messages import user

if TYPE_CHECKING:
    from palaver.stores import Store


class Wide(TypedDict):
    """A state with two lists of messages, a counter and a large text."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]
    large: str


def test_other_channels_beside_the_messages(store: Store) -> None:
    builder = StateGraph(Wide)

    def answer(state: Wide) -> Any:
        assert "messages" in state
        return {"messages": [AIMessage("yes")], "notes": [AIMessage("noted")], "count": 1}

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph: Any = builder.compile(checkpointer=PalaverSaver(store))
    graph.invoke({"messages": [HumanMessage("one")], "large": "x" * 9_000}, thread())
    graph.invoke({"messages": [HumanMessage("two")]}, thread())
    graph = builder.compile(checkpointer=PalaverSaver(store))
    values = graph.get_state(thread()).values
    assert (2, "x" * 9_000) == (values["count"], values["large"])
    assert ["one", "yes", "two", "yes"] == [m.content for m in values["messages"]]
    assert ["noted", "noted"] == [m.content for m in values["notes"]]
    assert ["trip", "trip#/notes"] == sorted(head.id for head in store)
    large = store.records("trip", "langgraph-blobs")
    assert 1 == len(large)  # kept once, whatever the number of checkpoints
    store.get("trip#/notes").clear()
    assert [] == graph.get_state(thread()).values["notes"]


def test_a_subgraph_shares_the_messages_it_is_given(store: Store) -> None:
    inner = StateGraph(MessagesState)

    def think(state: MessagesState) -> Any:
        assert "messages" in state
        return {"messages": [AIMessage("thought")]}

    inner.add_node("think", think)
    inner.add_edge(START, "think")
    builder = StateGraph(MessagesState)
    builder.add_node("critic", inner.compile())
    builder.add_edge(START, "critic")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    for word in ("one", "two"):  # step by step: else the subgraph's may be kept first, as its own
        graph.invoke({"messages": [HumanMessage(word)]}, thread(), durability="sync")
    assert ["one", "thought", "two", "thought"] == at(graph, thread())
    names = sorted(head.id for head in store)
    assert ["trip", "trip#critic:"] == sorted({name.partition("-")[0][:12] for name in names})
    other = store.get(names[-1])
    assert other.origin is not None
    assert "trip" == other.origin[0]
    own = sum(head.length - head.base for head in store)
    assert own < 8  # four in the thread, and of the subgraphs only what they added
    PalaverSaver(store).delete_thread("trip")
    assert [] == list(store)


# ── threads ─────────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_without_checkpoints_is_where_the_graph_begins(store: Store) -> None:
    """What others have written in it, and what was forked with palaver."""
    PalaverChatMessageHistory(store, "trip").add_messages([HumanMessage("one"), AIMessage("yes")])
    graph = echo(PalaverSaver(store))
    assert ["one", "yes"] == at(graph, thread())
    assert ["one", "yes", "two", "a3"] == say(graph, "two")
    assert [["one", "yes", "two"], ["one", "yes"], ["one", "yes"]] == shown(graph, "trip")[1:]
    store.get("trip").fork(id="otherwise", at=store.get("trip").version - 1)
    other = echo(PalaverSaver(store))
    other.update_state(thread("otherwise"), {"messages": [AIMessage("no")]}, as_node="answer")
    assert ["one", "yes", "two", "no", "three", "a5"] == say(other, "three", thread("otherwise"))
    assert ["one", "yes", "two", "a3"] == at(graph, thread()) == [m.text for m in store.get("trip")]
    assert 3 == len(store.get("otherwise").log) - len(store.get("trip").log) + 1  # shared


def test_a_copied_thread_goes_its_own_way(store: Store) -> None:
    saver = PalaverSaver(store)
    graph = echo(saver)
    say(graph, "one")
    say(graph, "two")
    saver.copy_thread("trip", "copy")
    with pytest.raises(AlreadyExists, match="copy"):
        saver.copy_thread("trip", "copy")
    saver.copy_thread("nothing", "nowhere")
    before = shown(graph, "trip")
    assert before == shown(graph, "copy")
    assert ["one", "a1", "two", "a3", "here", "a5"] == say(graph, "here", thread("copy"))
    assert ["one", "a1", "two", "a3", "there", "a5"] == say(graph, "there")
    store.get("copy").truncate(keep_last=1)
    assert ["a5"] == [m.content for m in graph.get_state(thread("copy")).values["messages"]]
    past = list(graph.get_state_history(thread("copy")))[-3]
    assert ["one", "a1", "fork", "a3"] == say(graph, "fork", past.config)
    saver.delete_thread("trip")
    assert graph.get_state(thread()).values == {}
    assert before == shown(graph, "copy")[-len(before) :]
    saver.copy_thread("copy", "third")
    assert shown(graph, "copy") == shown(graph, "third")
    assert [] == list(store.verify())


def test_a_copy_goes_on_from_a_past_that_it_shares(store: Store) -> None:
    """What has no new messages is put into the copy's own conversation, too."""
    saver = PalaverSaver(store)
    graph = echo(saver)
    say(graph, "one")
    say(graph, "two")
    saver.copy_thread("trip", "copy")
    states = [*graph.get_state_history(thread("copy"))]
    past = next(one for one in states if len(one.values["messages"]) == 2)
    graph.update_state(past.config, {"messages": []}, as_node="answer")
    assert ["one", "a1"] == at(graph, thread("copy"))
    assert ["one", "a1"] == [m.text for m in store.get("copy")]
    assert ["one", "a1", "other", "a3"] == say(graph, "other", thread("copy"))
    assert ["one", "a1", "two", "a3"] == at(graph, thread())


def test_deleting_the_last_run_goes_back_to_what_was(store: Store) -> None:
    saver = PalaverSaver(store)
    graph = echo(saver)
    graph.invoke({"messages": [HumanMessage("one")]}, {**thread(), "metadata": {"run_id": "r1"}})
    graph.invoke({"messages": [HumanMessage("two")]}, {**thread(), "metadata": {"run_id": "r2"}})
    saver.delete_for_runs(["r2"])
    assert ["one", "a1"] == [m.text for m in store.get("trip")]
    store.get("trip").append(user("edited"))
    assert ["one", "a1", "edited", "three", "a4"] == say(graph, "three")
    saver.delete_for_runs(["r1"])
    assert ["one", "a1", "edited", "three", "a4", "four", "a6"] == say(graph, "four")
    saver.delete_thread("trip")
    assert [] == list(store)
    assert ["anew", "a1"] == say(graph, "anew")


def test_pruning_leaves_the_conversation(store: Store) -> None:
    saver = PalaverSaver(store)
    graph = echo(saver)
    say(graph, "one")
    say(graph, "two")
    saver.prune(["trip"])
    assert 1 == len(list(saver.list(thread())))
    assert {"langgraph", "langgraph-tip"} == set(store.kinds("trip"))
    assert ["one", "a1", "two", "a3", "three", "a5"] == say(graph, "three")
    with pytest.raises(ValidationError, match="keep_latest or delete"):
        saver.prune(["trip"], strategy="some")


DELTAS: Any = DeltaChannel(cast("Any", _messages_delta_reducer))


class Delta(TypedDict):
    """A state whose messages LangGraph keeps as deltas."""

    messages: Annotated[list[AnyMessage], DELTAS]


@pytest.mark.filterwarnings("ignore")
def test_delta_channels_survive_pruning_and_deletion(here: Store) -> None:
    """They are LangGraph's own logs: their values are found again, also without their ancestors."""
    saver = PalaverSaver(here)
    graph = echo(saver, Delta)
    for number in range(3):
        config: Any = {**thread(), "metadata": {"run_id": f"r{number}"}}
        graph.invoke({"messages": [HumanMessage(f"u{number}")]}, config)
    whole = shown(graph, "trip")
    assert ["u0", "a1", "u1", "a3", "u2", "a5"] == whole[0]
    saver.delete_for_runs(["r0"])
    assert whole[: len(whole) - 3] == shown(graph, "trip")
    saver.copy_thread("trip", "copy")
    saver.prune(["trip"])
    for name in ("trip", "copy"):
        assert whole[0] == shown(graph, name)[0]
        said = say(graph, "more", thread(name))
        assert [*whole[0], "more", "a7"] == said
        assert said == shown(echo(PalaverSaver(here), Delta), name)[0]
    history = saver.get_delta_channel_history(config=thread("nobody"), channels=["messages"])
    assert {"messages": {"writes": []}} == history


class Notes(TypedDict):
    """A state whose messages have another name."""

    notes: Annotated[list[AnyMessage], add_messages]


def test_a_channel_of_another_name_leaves_a_conversation_that_is_there(here: Store) -> None:
    here.create([user("one")], id="trip")
    builder = StateGraph(Notes)

    def note(state: Notes) -> Any:
        return {"notes": [AIMessage(f"n{len(state['notes'])}")]}

    builder.add_node("note", note)
    builder.add_edge(START, "note")
    for name in ("trip", "new"):
        for graph in (builder.compile(checkpointer=PalaverSaver(here)) for _ in range(2)):
            graph.invoke({"notes": [HumanMessage("note")]}, thread(name))
    notes = ["note", "n1", "note", "n3"]
    assert [["one"], notes] == [[m.text for m in here.get(n)] for n in ("trip", "trip#/notes")]
    assert notes == [m.text for m in here.get("new")]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.filterwarnings("ignore")
def test_a_delta_channel_begins_with_the_conversation_too(here: Store, durability: Any) -> None:
    here.create([user("one")], id="trip")
    graph = echo(PalaverSaver(here), Delta)
    for text, whole in (("two", ["one", "two", "a2"]), ("3", ["one", "two", "a2", "3", "a4"])):
        graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability=durability)
        assert whole == at(graph, thread()) == at(echo(PalaverSaver(here), Delta), thread())
