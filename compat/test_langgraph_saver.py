"""The checkpoint saver inside LangGraph: its own conformance suite, and real graphs."""

from __future__ import annotations

import asyncio
import multiprocessing
import operator
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import (
    REMOVE_ALL_MESSAGES,
    _messages_delta_reducer,  # LangGraph has no public name for it yet
    add_messages,
)
from langgraph.types import Command
from typing_extensions import TypedDict

import palaver
from compat.saver_agent import agent, main, provider, thread
from palaver.adapters.langgraph import Saver
from palaver.adapters.langgraph.shelf import Shelf
from palaver.errors import AlreadyExists, StoreDamaged, ValidationError
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCallPart,
    ToolPart,
    complete,
    pending,
    start,
    tool_part,
    user,
)
from palaver.messages.ids import NIL_ID
from palaver.testing.servers import ProviderServer
from tests.stores.postgres import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

    from palaver.stores import Store

__all__ = ["postgres", "postgres_server"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres")
        return found
    return ":memory:" if request.param == "memory" else str(tmp_path / "chat.db")


lasting = pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
"""Where two processes can be on one store."""


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with palaver.open(address) as opened:
        yield opened


@pytest.fixture
def here() -> Iterator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


# ── LangGraph's own suite ───────────────────────────────────────────────────────────────────────


class Synchronous(BaseCheckpointSaver[int]):
    """The synchronous methods behind the asynchronous names, for a suite that knows only those."""

    def __init__(self, saver: Saver) -> None:
        super().__init__()
        self.saver = saver

    async def aget_tuple(self, config: RunnableConfig) -> Any:
        return self.saver.get_tuple(config)

    async def alist(self, config: Any, **some: Any) -> AsyncIterator[Any]:
        for one in self.saver.list(config, **some):
            yield one

    async def aput(self, *values: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.saver.put(*values)

    async def aput_writes(self, *values: Any, **more: Any) -> None:
        self.saver.put_writes(*values, **more)

    async def adelete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.saver.prune(thread_ids, strategy=strategy)


@pytest.mark.parametrize("kind", [Saver, lambda store: Synchronous(Saver(store))])
def test_conforms_in_full(address: str, kind: Callable[[Store], Any]) -> None:
    """Every capability that LangGraph's suite knows is found, and passes."""

    @checkpointer_test(name="palaver")
    async def factory() -> AsyncIterator[Any]:
        with palaver.open(address) as store:
            yield kind(store)

    report = asyncio.run(validate(factory))
    found = {name: result.failures for name, result in report.results.items()}
    assert {name: [] for name in found} == found
    assert all(result.detected and result.passed for result in report.results.values())
    assert ("FULL", 8) == (report.conformance_level(), len(report.results))


# ── a real agent ────────────────────────────────────────────────────────────────────────────────


def test_an_agent_with_tools_and_an_interrupt(store: Store) -> None:
    """Several turns; then every word, call and result is in the log, and is found."""
    with ProviderServer("openai-chat", [provider] * 20) as server:
        graph = agent(Saver(store), server.url)
        stopped = graph.invoke({"messages": [("user", "Book a trip")]}, thread())
        assert {"pay": 5} == stopped["__interrupt__"][0].value
        graph = agent(Saver(store), server.url)  # another process
        done = graph.invoke(Command(resume="yes"), thread())
        graph.invoke({"messages": [("user", "Thanks")]}, thread())
        assert [] == server.failures
    assert "Booked." == done["messages"][-1].content
    history = store.get("trip")
    roles = ["user", *["assistant", "tool"] * 2, "assistant", "user", "assistant"]
    assert roles == [message.role for message in history]
    calls = [p.tool for m in history for p in m.parts if isinstance(p, ToolCallPart)]
    results = [p for m in history for p in m.parts if isinstance(p, ToolPart)]
    assert ["look_up", "pay"] == calls == [part.tool for part in results]
    assert "5 paid: yes" == getattr(results[1].state, "output", None)
    assert isinstance(history[1].info, AssistantInfo)
    assert history[1].info.tokens is not None
    assert ["Booked."] == [hit.message.text for hit in store.search("booked")]
    assert [] == list(store.verify())


def test_the_same_asynchronously(store: Store) -> None:
    async def talk(url: str) -> Any:
        graph = agent(Saver(store), url)
        await graph.ainvoke({"messages": [("user", "Book a trip")]}, thread())
        done = await graph.ainvoke(Command(resume="yes"), thread())
        past = [one async for one in graph.aget_state_history(thread())]
        return done, past

    with ProviderServer("openai-chat", [provider] * 20) as server:
        done, past = asyncio.run(talk(server.url))
        assert [] == server.failures
    assert done["messages"] == past[0].values["messages"]
    assert [6, 5, 4, 3, 2, 1, 0] == [len(one.values.get("messages", [])) for one in past]


NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.saver_agent"])


@pytest.mark.parametrize("moment", [-1, *range(0, 18, 2), 3, 9])
def test_a_killed_agent_goes_on(tmp_path: Path, moment: int) -> None:
    """Killed before or after any write: what was acknowledged is there, and the run ends well."""
    _killed(str(tmp_path / "chat.db"), moment, tmp_path)


@pytest.mark.parametrize("moment", [-1, 4, 11])
def test_a_killed_agent_goes_on_on_postgres(postgres: str, tmp_path: Path, moment: int) -> None:
    _killed(postgres, moment, tmp_path)


def _killed(address: str, moment: int, tmp_path: Path) -> None:
    with ProviderServer("openai-chat", [provider] * 20) as server:
        told = tmp_path / "told"
        told.touch()
        child = NURSERY.Process(target=main, args=(address, server.url, moment, told))
        child.start()
        child.join(120)
        assert -9 == child.exitcode
        with palaver.open(address) as store:
            graph = agent(Saver(store), server.url)
            there = {one.config["configurable"]["checkpoint_id"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
                     for one in graph.get_state_history(thread())}  # fmt: skip
            assert set(told.read_text().split()) <= there
            begun = bool(there)
            graph.invoke(None if begun else {"messages": [("user", "Book a trip")]}, thread())
            done = graph.invoke(Command(resume="yes"), thread())
            assert "Booked." == done["messages"][-1].content
            assert [] == server.failures
            texts = [message.text for message in store.get("trip") if message.role == "user"]
            assert ["Book a trip"] == texts
            assert [] == list(store.verify())


# ── palaver and the graph see the same ──────────────────────────────────────────────────────────


def _echo(saver: BaseCheckpointSaver[Any], kind: Any = MessagesState) -> Any:
    """A graph that answers every message with its count."""
    builder = StateGraph(kind)

    def answer(state: Any) -> Any:
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def _say(graph: CompiledStateGraph[Any, Any, Any, Any], text: str, config: Any = None) -> Any:
    found = graph.invoke({"messages": [HumanMessage(text)]}, config or thread())["messages"]
    return [message.content for message in found]


def test_an_edit_is_what_the_graph_sees_next(store: Store) -> None:
    graph = _echo(Saver(store))
    _say(graph, "one")
    _say(graph, "two")
    history = store.get("trip")
    history.truncate(remove_first=2)
    history.replace(0, user("two, edited"))
    history.append(user("said elsewhere"))
    assert ["two, edited", "a3", "said elsewhere", "three", "a4"] == _say(graph, "three")
    history.refresh().undo()
    history.undo()
    assert ["two, edited", "a3", "said elsewhere"] == [m.text for m in history]
    assert ["two, edited", "a3", "said elsewhere", "four", "a4"] == _say(graph, "four")
    earlier = [len(one.values["messages"]) for one in graph.get_state_history(thread())]
    assert [5, 4, 3] == earlier[:3]


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
    graph = builder.compile(checkpointer=Saver(store))
    graph.invoke({"messages": [HumanMessage("one")]}, thread(), durability="sync")
    whole = ["edited meanwhile", "a1", "then one", "then one"]
    assert whole == [m.text for m in store.get("trip")]
    assert whole == _at(graph, thread())
    assert 5 == len(store.get("trip").log)


def test_someone_who_comes_at_the_very_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the change: it is looked again, and nothing is lost or mixed up."""
    graph = _echo(Saver(store))
    _say(graph, "one")
    left = [1]
    keep = Shelf.extend

    def late(shelf: Shelf, *values: Any) -> None:
        if left:
            left.pop()
            store.get("trip").append(user("in between"))
        keep(shelf, *values)

    monkeypatch.setattr(Shelf, "extend", late)
    _say(graph, "two")
    assert ["one", "a1", "in between", "two", "a3"] == [m.text for m in store.get("trip")]
    assert ["one", "a1", "in between", "two", "a3", "three", "a6"] == _say(graph, "three")


def test_what_is_said_is_written_once(store: Store) -> None:
    """No record repeats what is in the log, but for the input before it was a message."""
    graph = _echo(Saver(store))
    for word in ("one", "two"):
        graph.invoke({"messages": [HumanMessage(f"this is {word}")]}, thread(), durability="sync")
    answers = [message.id.encode() for message in store.get("trip") if message.role == "assistant"]
    for kind in store.keeper.kinds("trip"):
        for value in store.keeper.records("trip", kind).values():
            assert not any(answer in value for answer in answers)
    inputs = [b"this is" in value for value in store.keeper.records("trip", "langgraph").values()]
    assert 2 == sum(inputs)
    said = [one.pending_writes for one in Saver(store).list(thread()) if one.pending_writes]
    assert ["a3", "this is two", "a1", "this is one"] == [
        value[0].content for writes in said for _, channel, value in writes
        if channel == "messages"
    ]  # fmt: skip


class Custom(HumanMessage):
    """A message of one's own class."""


def test_messages_of_other_classes_are_plain_values(store: Store) -> None:
    """They come back as LangGraph brings them back; the conversation has no part in it."""
    graph = _echo(Saver(store))
    graph.invoke({"messages": [Custom(content="mine", id="1")]}, thread())
    found = _echo(Saver(store)).get_state(thread()).values["messages"]
    assert ["mine", "a1"] == [message.content for message in found]
    assert [] == list(store.get("trip"))


def test_much_is_remembered_but_not_everything(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was let go of is read again."""
    monkeypatch.setattr("palaver.adapters.langgraph.shelf._HELD", 3)
    monkeypatch.setattr("palaver.adapters.langgraph.saver._THREADS", 1)
    monkeypatch.setattr("palaver.adapters.langgraph.tasks._WAITING", 1)
    graph = _echo(Saver(here))
    for number in range(4):
        for name in ("one", "other"):
            said = _say(graph, f"u{number}", thread(name))
            assert 2 * number + 2 == len(said)
            assert said == [m.text for m in here.get(name)]


def test_a_result_of_several_calls_is_several_messages(store: Store) -> None:
    """What palaver keeps as one message, the graph sees as two, and takes for known."""
    graph = _echo(Saver(store))
    _say(graph, "one")
    done = [
        tool_part(NIL_ID, NIL_ID, name, "look",
                  complete(start(pending({}, ""), at=1), f"saw {name}", tool="look", at=2))
        for name in ("c1", "c2")
    ]  # fmt: skip
    store.get("trip").append(Message("tool", tuple(done)))
    assert ["one", "a1", "saw c1", "saw c2", "two", "a5"] == _say(graph, "two")
    last = graph.get_state(thread()).values["messages"][-1]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=last.id)]})
    assert 4 == len(store.get("trip"))
    assert 5 == len(store.get("trip").log)
    second = graph.get_state(thread()).values["messages"][3]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=second.id)]})
    assert ["one", "a1", "saw c1", "two"] == _at(graph, thread())


def test_a_fork_in_the_past_leaves_the_other_branch(store: Store) -> None:
    graph = _echo(Saver(store))
    _say(graph, "one")
    _say(graph, "two")
    past = [one for one in graph.get_state_history(thread()) if len(one.values["messages"]) == 2]
    assert ["one", "a1", "other", "a3"] == _say(graph, "other", past[0].config)
    assert ["one", "a1", "other", "a3"] == [m.text for m in store.get("trip")]
    assert ["one", "a1", "other", "a3", "more", "a5"] == _say(graph, "more")
    counts = [len(one.values["messages"]) for one in graph.get_state_history(thread())]
    assert [6, 5, 4, 4, 3, 2, 4, 3, 2, 2, 1, 0] == counts
    changed = graph.update_state(past[0].config, {"messages": [HumanMessage("updated")]})
    assert ["one", "a1", "updated"] == [
        m.content for m in graph.get_state(changed).values["messages"]
    ]
    assert 9 == len(store.get("trip").log)  # nothing was written twice


def test_messages_that_the_graph_removes(store: Store) -> None:
    graph = _echo(Saver(store))
    _say(graph, "one")
    _say(graph, "two")
    last = graph.get_state(thread()).values["messages"][-1]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=last.id)]})
    assert ["one", "a1", "two"] == [m.text for m in store.get("trip")]
    graph.update_state(thread(), {"messages": [AIMessage("a1, again", id=_id(graph, 1))]})
    assert ["one", "a1, again", "two"] == [m.text for m in store.get("trip")]
    graph.update_state(thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert [] == list(store.get("trip"))
    assert [] == graph.get_state(thread()).values["messages"]
    assert ["anew", "a1"] == _say(graph, "anew")


def _id(graph: Any, index: int) -> str:
    return str(graph.get_state(thread()).values["messages"][index].id)


def test_a_message_changed_in_place_is_noticed(store: Store) -> None:
    builder = StateGraph(MessagesState)

    def redact(state: MessagesState) -> Any:
        state["messages"][0].content = "redacted"
        return {"messages": [state["messages"][0]]}

    builder.add_node("redact", redact)
    builder.add_edge(START, "redact")
    graph = builder.compile(checkpointer=Saver(store))
    graph.invoke({"messages": [HumanMessage("secret")]}, thread(), durability="sync")
    assert ["redacted"] == [m.text for m in store.get("trip")]
    history = list(graph.get_state_history(thread()))
    assert ["redacted", "secret"] == [one.values["messages"][0].content for one in history[:2]]


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
    graph: Any = builder.compile(checkpointer=Saver(store))
    graph.invoke({"messages": [HumanMessage("one")], "large": "x" * 9_000}, thread())
    graph.invoke({"messages": [HumanMessage("two")]}, thread())
    graph = builder.compile(checkpointer=Saver(store))
    values = graph.get_state(thread()).values
    assert (2, "x" * 9_000) == (values["count"], values["large"])
    assert ["one", "yes", "two", "yes"] == [m.content for m in values["messages"]]
    assert ["noted", "noted"] == [m.content for m in values["notes"]]
    assert ["trip", "trip#/notes"] == sorted(head.id for head in store)
    large = store.keeper.records("trip", "langgraph-blobs")
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
    graph = builder.compile(checkpointer=Saver(store))
    for word in ("one", "two"):  # step by step: else the subgraph's may be kept first, as its own
        graph.invoke({"messages": [HumanMessage(word)]}, thread(), durability="sync")
    assert ["one", "thought", "two", "thought"] == _at(graph, thread())
    names = sorted(head.id for head in store)
    assert ["trip", "trip#critic:"] == sorted({name.partition("-")[0][:12] for name in names})
    other = store.get(names[-1])
    assert other.origin is not None
    assert "trip" == other.origin[0]
    own = sum(head.length - head.base for head in store)
    assert own < 8  # four in the thread, and of the subgraphs only what they added
    Saver(store).delete_thread("trip")
    assert [] == list(store)


# ── threads ─────────────────────────────────────────────────────────────────────────────────────


def test_a_copied_thread_goes_its_own_way(store: Store) -> None:
    saver = Saver(store)
    graph = _echo(saver)
    _say(graph, "one")
    _say(graph, "two")
    saver.copy_thread("trip", "copy")
    with pytest.raises(AlreadyExists, match="copy"):
        saver.copy_thread("trip", "copy")
    saver.copy_thread("nothing", "nowhere")
    before = _shown(graph, "trip")
    assert before == _shown(graph, "copy")
    assert ["one", "a1", "two", "a3", "here", "a5"] == _say(graph, "here", thread("copy"))
    assert ["one", "a1", "two", "a3", "there", "a5"] == _say(graph, "there")
    store.get("copy").truncate(keep_last=1)
    assert ["a5"] == [m.content for m in graph.get_state(thread("copy")).values["messages"]]
    past = list(graph.get_state_history(thread("copy")))[-3]
    assert ["one", "a1", "fork", "a3"] == _say(graph, "fork", past.config)
    saver.delete_thread("trip")
    assert graph.get_state(thread()).values == {}
    assert before == _shown(graph, "copy")[-len(before) :]
    saver.copy_thread("copy", "third")
    assert _shown(graph, "copy") == _shown(graph, "third")
    assert [] == list(store.verify())


def _shown(graph: Any, name: str) -> list[list[Any]]:
    return [
        [m.content for m in one.values.get("messages", [])]
        for one in graph.get_state_history(thread(name))
    ]


def test_deleting_the_last_run_goes_back_to_what_was(store: Store) -> None:
    saver = Saver(store)
    graph = _echo(saver)
    graph.invoke({"messages": [HumanMessage("one")]}, {**thread(), "metadata": {"run_id": "r1"}})
    graph.invoke({"messages": [HumanMessage("two")]}, {**thread(), "metadata": {"run_id": "r2"}})
    saver.delete_for_runs(["r2"])
    assert ["one", "a1"] == [m.text for m in store.get("trip")]
    store.get("trip").append(user("edited"))
    assert ["one", "a1", "edited", "three", "a4"] == _say(graph, "three")
    saver.delete_for_runs(["r1"])
    assert ["one", "a1", "edited", "three", "a4", "four", "a6"] == _say(graph, "four")
    saver.delete_thread("trip")
    assert [] == list(store)
    assert ["anew", "a1"] == _say(graph, "anew")


def test_pruning_leaves_the_conversation(store: Store) -> None:
    saver = Saver(store)
    graph = _echo(saver)
    _say(graph, "one")
    _say(graph, "two")
    saver.prune(["trip"])
    assert 1 == len(list(saver.list(thread())))
    assert {"langgraph", "langgraph-tip"} == set(store.keeper.kinds("trip"))
    assert ["one", "a1", "two", "a3", "three", "a5"] == _say(graph, "three")
    with pytest.raises(ValidationError, match="keep_latest or delete"):
        saver.prune(["trip"], strategy="some")


DELTAS: Any = DeltaChannel(cast("Any", _messages_delta_reducer))


class Delta(TypedDict):
    """A state whose messages LangGraph keeps as deltas."""

    messages: Annotated[list[AnyMessage], DELTAS]


@pytest.mark.filterwarnings("ignore")
def test_delta_channels_survive_pruning_and_deletion(here: Store) -> None:
    """They are LangGraph's own logs: their values are found again, also without their ancestors."""
    saver = Saver(here)
    graph = _echo(saver, Delta)
    for number in range(3):
        config: Any = {**thread(), "metadata": {"run_id": f"r{number}"}}
        graph.invoke({"messages": [HumanMessage(f"u{number}")]}, config)
    whole = _shown(graph, "trip")
    assert ["u0", "a1", "u1", "a3", "u2", "a5"] == whole[0]
    saver.delete_for_runs(["r0"])
    assert whole[: len(whole) - 3] == _shown(graph, "trip")
    saver.copy_thread("trip", "copy")
    saver.prune(["trip"])
    for name in ("trip", "copy"):
        assert whole[0] == _shown(graph, name)[0]
        said = _say(graph, "more", thread(name))
        assert [*whole[0], "more", "a7"] == said
        assert said == _shown(_echo(Saver(here), Delta), name)[0]
    history = saver.get_delta_channel_history(config=thread("nobody"), channels=["messages"])
    assert {"messages": {"writes": []}} == history


# ── two at once ─────────────────────────────────────────────────────────────────────────────────


@lasting
def test_two_processes_on_one_thread(address: str) -> None:
    """Every checkpoint shows what its own graph had; the newest is what the log says."""
    with palaver.open(address) as first, palaver.open(address) as second:
        graphs = [_echo(Saver(first)), _echo(Saver(second))]
        _say(graphs[0], "begin")
        for number in range(6):
            said = _say(graphs[number % 2], f"u{number}")
            assert [f"u{number}", f"a{2 * number + 3}"] == said[-2:]
            assert said == [m.text for m in first.get("trip")]
        Saver(second).delete_thread("trip")
        assert ["anew", "a1"] == _say(graphs[0], "anew")


@lasting
def test_a_put_that_comes_second_keeps_its_own_branch(address: str) -> None:
    """Two that go on from the same checkpoint: neither is lost, neither is mixed with the other."""
    with palaver.open(address) as first, palaver.open(address) as second:
        one, other = _echo(Saver(first)), _echo(Saver(second))
        _say(one, "begin")
        config = one.get_state(thread()).config
        assert ["begin", "a1"] == [m.content for m in other.get_state(config).values["messages"]]
        left = one.update_state(config, {"messages": [AIMessage("left")]})
        right = other.update_state(config, {"messages": [AIMessage("right")]})
        for graph in (one, other):
            assert ["begin", "a1", "left"] == _at(graph, left)
            assert ["begin", "a1", "right"] == _at(graph, right)
        assert ["begin", "a1", "right"] == [m.text for m in first.get("trip")]


def _at(graph: Any, config: Any) -> list[Any]:
    return [message.content for message in graph.get_state(config).values["messages"]]


# ── the rest ────────────────────────────────────────────────────────────────────────────────────


def test_an_erased_message_is_gone_for_the_graph_too(store: Store) -> None:
    graph = _echo(Saver(store))
    _say(graph, "my secret number is 4711")
    store.get("trip").erase(0)
    for one in (graph, _echo(Saver(store))):
        for past in one.get_state_history(thread()):
            assert "4711" not in str(past.values)
    everything = [
        value for kind in store.keeper.kinds("trip")
        for value in store.keeper.records("trip", kind).values()
    ]  # fmt: skip
    assert not any(b"4711" in value for value in everything)


def test_a_serializer_that_encrypts_is_refused(here: Store) -> None:
    class Plain:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "none", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            del ciphername
            return ciphertext

    with pytest.raises(ValidationError, match="readable"):
        Saver(here, serde=EncryptedSerializer(Plain()))


def test_records_that_are_no_longer_readable_are_damage(here: Store) -> None:
    saver = Saver(here)
    graph = _echo(saver)
    _say(graph, "one")
    (name,) = here.keeper.records("trip", "langgraph-writes", last=1)
    here.keeper.put("trip", "langgraph-writes", name, b"\x00")
    with pytest.raises(StoreDamaged, match="what a task wrote can't be read"):
        list(saver.list(thread()))
    (name,) = here.keeper.records("trip", "langgraph", last=1)
    here.keeper.put("trip", "langgraph", name, b"\x00")
    with pytest.raises(StoreDamaged, match="a checkpoint can't be read"):
        graph.get_state(thread())


def test_odd_names_of_threads(here: Store) -> None:
    saver = Saver(here)
    for name in (7, "", "a\nb", "x" * 2_000):
        graph = _echo(saver)
        assert ["one", "a1"] == _say(graph, "one", thread(name))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (found,) = saver.list(thread(name), limit=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert name == found.config["configurable"]["thread_id"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    assert 4 == len(list(here))
    assert 12 == len(list(saver.list(None)))


def test_a_version_follows_whatever_was_before(here: Store) -> None:
    saver = Saver(here)
    first = saver.get_next_version(None, None)
    second = saver.get_next_version(first, None)
    assert [1, 2] == [first >> 32, second >> 32]
    assert 8 == saver.get_next_version(7, None) >> 32
    assert 6 == saver.get_next_version("0000005.0.123", None) >> 32
