"""palaver's nodes in small LangGraph graphs: each by itself, interrupts, time travel, names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

import palaver
from palaver.adapters.langgraph import PalaverSaver
from palaver.errors import ValidationError
from palaver.messages import ToolPart, assistant, user
from palaver.nodes import ConversationRegistry
from palaver.nodes.langgraph import (
    GraphState,
    agent_graph,
    branch,
    by_next,
    compress_node,
    context_node,
    human_node,
    llm_node,
    route,
    status_node,
    tool_node,
)
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.runnables import RunnableConfig

    from palaver import Store

pytestmark = pytest.mark.anyio
HERE: RunnableConfig = {"configurable": {"thread_id": "trip"}}


class OwnState(GraphState, total=False):
    """A graph's own state beside the conversation's."""

    city: str


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store() -> Iterator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


def weather(city: str) -> str:
    return f"9 °C in {city}"


def pay(amount: int) -> str:
    return f"paid {amount}"


def graph_of(*nodes: Any, state: Any = GraphState) -> Any:
    """A graph of nodes in a row."""
    graph = StateGraph(state)
    names = [f"node-{place}" for place, _ in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=InMemorySaver())


async def test_the_state_carries_no_messages_and_the_thread_is_the_conversation(
    store: Store,
) -> None:
    store.create([user("Tea?")], id="trip")
    graph = graph_of(
        llm_node(ConversationRegistry(store), Scripted(saying("Yes."))), state=OwnState
    )
    ended = await graph.ainvoke({"city": "Oslo"}, HERE)
    expected = {"conversation": "trip", "version": 1, "outcome": "answered", "next": "end"}
    assert {**expected, "city": "Oslo"} == ended
    assert ["Tea?", "Yes."] == [message.text for message in store.get("trip")]


async def test_an_agent_loops_until_there_is_an_answer(store: Store) -> None:
    store.create([user("A coat in Oslo?")], id="trip")
    model = Scripted(
        calling(("weather", {"city": "Oslo"})),
        calling(("weather", {"city": "Rome"})),
        saying("Yes."),
    )
    graph = agent_graph(ConversationRegistry(store, tools=[weather]), model).compile()
    ended = await graph.ainvoke({"conversation": "trip"})
    assert ("answered", "end") == (ended["outcome"], ended["next"])
    roles = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert roles == [message.role for message in store.get("trip")]
    again = await graph.ainvoke({"conversation": "trip"})
    assert ("nothing", "end", 3) == (again["outcome"], again["next"], len(model.asked))


async def test_an_edit_made_with_palaver_is_what_the_graph_sees_next(store: Store) -> None:
    talk = store.create([user("Tea?")], id="trip")
    model = Scripted(saying("Yes."), saying("No."))
    graph = agent_graph(ConversationRegistry(store), model).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({}, HERE)
    talk.refresh()
    talk.replace(0, user("Coffee?"))
    talk.append(user("Well?"))
    await graph.ainvoke({}, HERE)
    sent = [message["content"] for message in model.asked[1].body["messages"]]
    assert ["Coffee?", "Yes.", "Well?"] == sent


async def test_a_call_is_approved_by_an_interrupt(store: Store) -> None:
    """ND-01: the node is run again from its start, and nothing of it happens twice."""
    store.create([user("Pay.")], id="trip")
    model = Scripted(calling(("pay", {"amount": 5}), ("pay", {"amount": 500})), saying("Done."))
    host = ConversationRegistry(store, tools=[pay])
    builder = agent_graph(host, model, tool={"approval": "all"}, prompt="Pay?")
    graph = builder.compile(checkpointer=InMemorySaver())
    stopped: Any = await graph.ainvoke({}, HERE)
    (asked,) = stopped["__interrupt__"]
    assert ("approve", "Pay?") == (asked.value["kind"], asked.value["prompt"])
    assert [5, 500] == [call["input"]["amount"] for call in asked.value["calls"]]
    stopped = await graph.ainvoke(Command(resume={"call_0": "perhaps", "call_1": True}), HERE)
    (asked,) = stopped["__interrupt__"]
    assert "$.call_0: must be true" in asked.value["problem"]
    answer = {"call_0": True, "call_1": {"verdict": "deny", "reason": "too dear"}}
    ended = await graph.ainvoke(Command(resume=answer), HERE)
    assert "end" == ended["next"]
    results = [part for m in store.get("trip") for part in m.parts if isinstance(part, ToolPart)]
    assert "paid 5" == getattr(results[0].state, "output", "")
    assert "too dear" in getattr(results[1].state, "error", "")


async def test_words_and_choices_come_by_an_interrupt_and_are_kept_once(store: Store) -> None:
    host = ConversationRegistry(store)
    graph = graph_of(
        human_node(host, {"kind": "text", "prompt": "Where?", "keepPrompt": True}),
        human_node(host, {"kind": "choose", "options": ["train", "plane"]}),
    )
    stopped = await graph.ainvoke({}, HERE)
    assert "Where?" == stopped["__interrupt__"][0].value["prompt"]
    stopped = await graph.ainvoke(Command(resume="Oslo"), HERE)
    assert ["train", "plane"] == stopped["__interrupt__"][0].value["options"]
    ended = await graph.ainvoke(Command(resume="train"), HERE)
    assert ("replied", "llm") == (ended["outcome"], ended["next"])
    assert ["Where?", "Oslo", "train"] == [message.text for message in store.get("trip")]


async def test_a_context_node_edits_and_adds_new_messages_each_time(store: Store) -> None:
    store.create([user(str(number)) for number in range(5)], id="trip")
    reminder = {"operation": "APPEND", "messages": [{"role": "user", "content": "Be brief."}]}
    cut = {"operation": "truncate", "truncate": {"role": "user", "keepLast": 2}}
    host = ConversationRegistry(store)
    graph = graph_of(context_node(host, cut), context_node(host, reminder))
    await graph.ainvoke({}, HERE)
    ended = await graph.ainvoke({}, HERE)
    assert ("edited", "llm") == (ended["outcome"], ended["next"])
    talk = store.get("trip")
    assert ["4", "Be brief.", "Be brief."][1:] == [m.text for m in talk][1:]
    assert 3 == len(talk) == len({message.id for message in talk})


async def test_a_mistake_in_the_settings_is_told_when_the_graph_is_built(store: Store) -> None:
    with pytest.raises(ValidationError, match=r"\$\.truncate\.keepLast"):
        context_node(
            ConversationRegistry(store), {"operation": "truncate", "truncate": {"keepLast": "5"}}
        )
    with pytest.raises(ValidationError, match=r"\$\.approval"):
        tool_node(ConversationRegistry(store), {"approval": 5})


async def test_room_is_made_when_it_is_wanted(store: Store) -> None:
    said = [user(f"Question {number}: " + "and so on " * 12) for number in range(12)]
    store.create(said, id="trip")
    model = Scripted(saying("Yes.", used=None))
    room = {"strategies": [{"kind": "drop-oldest", "keepTokens": 120}]}
    graph = agent_graph(
        ConversationRegistry(store, token_limit=300), model, compress=room
    ).compile()
    ended = await graph.ainvoke({"conversation": "trip"})
    assert ("answered", "end") == (ended["outcome"], ended["next"])
    assert len(model.asked[0].body["messages"]) < 6
    host = ConversationRegistry(store, token_limit=300)
    alone = graph_of(status_node(host), compress_node(host, room))
    ended = await alone.ainvoke({}, HERE)
    assert ("nothing", "end") == (ended["outcome"], ended["next"])


async def test_time_travel_goes_on_from_the_conversation_as_it_was(store: Store) -> None:
    talk = store.create([user("Tea?")], id="trip")
    model = Scripted(saying("Yes."), saying("Certainly."), saying("No."))
    host = ConversationRegistry(store)
    graph = agent_graph(host, model).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({}, HERE)
    talk.refresh().append(user("Now?"))
    await graph.ainvoke({}, HERE)
    old = [s async for s in graph.aget_state_history(HERE) if s.values.get("next") == "llm"][-1]
    values: Any = old.values
    there = await graph.aupdate_state(old.config, await branch(host, values, id="other"))
    ended: Any = await graph.ainvoke(None, there)
    assert ("other", "answered") == (ended["conversation"], ended["outcome"])
    assert ["Tea?", "No."] == [message.text for message in store.get("other")]
    assert ["Tea?", "Yes.", "Now?", "Certainly."] == [m.text for m in store.get("trip")]
    with pytest.raises(ValidationError, match="no node has run yet"):
        await branch(host, {})


async def test_the_graph_and_its_conversation_live_in_one_store(store: Store) -> None:
    """With palaver's saver, and under one id: the conversation has what was said, and no more."""
    store.create([user("Pay.")], id="trip")
    model = Scripted(calling(("pay", {"amount": 5})), saying("Done."))
    builder = agent_graph(
        ConversationRegistry(store, tools=[pay]), model, tool={"approval": ["pay"]}
    )
    graph = builder.compile(checkpointer=PalaverSaver(store))
    stopped: Any = await graph.ainvoke({}, HERE, durability="sync")
    assert "pay" == stopped["__interrupt__"][0].value["calls"][0]["tool"]
    ended = await graph.ainvoke(Command(resume=True), HERE, durability="sync")
    assert ("trip", "end") == (ended["conversation"], ended["next"])
    roles = ["user", "assistant", "tool", "assistant"]
    assert roles == [message.role for message in store.get("trip")]
    assert [] == list(store.verify())


async def test_the_names_are_yours(store: Store) -> None:
    store.create([user("A coat?")], id="trip")
    model = Scripted(calling(("weather", {"city": "Oslo"})), saying("Yes."))
    host = ConversationRegistry(store, tools=[weather])
    builder = StateGraph(GraphState)
    builder.add_node("agent", llm_node(host, model))
    builder.add_node("tools", tool_node(host))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route(tool="tools"))
    builder.add_conditional_edges("tools", route(llm="agent"))
    ended = await builder.compile().ainvoke({"conversation": "trip"})
    assert "end" == ended["next"]
    assert END == by_next({})


async def test_without_a_conversation_and_a_thread_it_says_so(store: Store) -> None:
    graph = agent_graph(ConversationRegistry(store)).compile()
    with pytest.raises(ValidationError, match="names a conversation"):
        await graph.ainvoke({"version": 0})


async def test_an_empty_conversation_ends_at_once(store: Store) -> None:
    """There is nobody to answer, and nothing to approve."""
    ended = (
        await agent_graph(ConversationRegistry(store)).compile().ainvoke({"conversation": "new"})
    )
    assert ("nothing", "human") == (ended["outcome"], ended["next"])


async def test_an_edit_of_the_last_answer_comes_by_an_interrupt(store: Store) -> None:
    store.create([user("Tea?"), assistant("Yess.")], id="trip")
    graph = graph_of(human_node(ConversationRegistry(store), {"kind": "edit"}))
    stopped = await graph.ainvoke({}, HERE)
    assert "Yess." == stopped["__interrupt__"][0].value["text"]
    await graph.ainvoke(Command(resume="Yes."), HERE)
    assert ["Tea?", "Yes."] == [message.text for message in store.get("trip")]
