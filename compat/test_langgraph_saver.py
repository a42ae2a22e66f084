"""The checkpoint saver inside LangGraph: its own conformance suite, and a real agent."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import palaver
from compat.saver_agent import agent, main, provider, thread
from compat.saver_graphs import at, echo, say, shown
from palaver.adapters.langgraph import PalaverSaver
from palaver.errors import StoreDamaged, ValidationError
from palaver.messages import AssistantInfo, ToolCallPart, ToolPart
from palaver.testing.servers import ProviderServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig

    from palaver.stores import Store


# ── LangGraph's own suite ───────────────────────────────────────────────────────────────────────


class Synchronous(BaseCheckpointSaver[int]):
    """The synchronous methods behind the asynchronous names, for a suite that knows only those."""

    def __init__(self, saver: PalaverSaver) -> None:
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


@pytest.mark.parametrize("kind", [PalaverSaver, lambda store: Synchronous(PalaverSaver(store))])
def test_conforms_in_full(store: Store, kind: Callable[[Store], Any]) -> None:
    """Every capability that LangGraph's suite knows is found, and passes."""

    @checkpointer_test(name="palaver")
    async def factory() -> AsyncIterator[Any]:
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
        graph = agent(PalaverSaver(store), server.url)
        stopped = graph.invoke({"messages": [("user", "Book a trip")]}, thread())
        assert {"pay": 5} == stopped["__interrupt__"][0].value
        graph = agent(PalaverSaver(store), server.url)  # another process
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
        graph = agent(PalaverSaver(store), url)
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
            graph = agent(PalaverSaver(store), server.url)
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


# ── the rest ────────────────────────────────────────────────────────────────────────────────────


def test_an_erased_message_is_gone_for_the_graph_too(store: Store) -> None:
    graph = echo(PalaverSaver(store))
    say(graph, "my secret number is 4711")
    store.get("trip").erase(0)
    for one in (graph, echo(PalaverSaver(store))):
        for past in one.get_state_history(thread()):
            assert "4711" not in str(past.values)
    everything = [
        value for kind in store.kinds("trip")
        for value in store.records("trip", kind).values()
    ]  # fmt: skip
    assert not any(b"4711" in value for value in everything)
    assert ["a1"] == at(graph, thread()) == at(echo(PalaverSaver(store)), thread())
    assert ["a1", "two", "a2"] == say(graph, "two")


@pytest.mark.parametrize("alone", [True, False])
def test_a_task_may_have_written_what_was_erased(store: Store, alone: bool) -> None:  # noqa: FBT001 - a parameter
    builder: Any = StateGraph(MessagesState)
    said = AIMessage("4711", id="said")

    def answer(state: MessagesState) -> Any:
        del state
        return {"messages": said if alone else [said]}

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=PalaverSaver(store))
    say(graph, "one")
    store.get("trip").erase(1)
    graph = builder.compile(checkpointer=PalaverSaver(store))
    assert [["one"], ["one"], []] == shown(graph, "trip")
    (first, *_) = [task for past in graph.get_state_history(thread()) for task in past.tasks]
    assert {"messages": []} == first.result


def test_a_serializer_that_encrypts_is_refused(here: Store) -> None:
    class Plain:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "none", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            del ciphername
            return ciphertext

    with pytest.raises(ValidationError, match="readable"):
        PalaverSaver(here, serde=EncryptedSerializer(Plain()))


def test_records_that_are_no_longer_readable_are_damage(here: Store) -> None:
    saver = PalaverSaver(here)
    graph = echo(saver)
    say(graph, "one")
    (name,) = here.records("trip", "langgraph-writes", last=1)
    here.put_record("trip", "langgraph-writes", name, b"\x00")
    with pytest.raises(StoreDamaged, match="what a task wrote can't be read"):
        list(saver.list(thread()))
    (name,) = here.records("trip", "langgraph", last=1)
    here.put_record("trip", "langgraph", name, b"\x00")
    with pytest.raises(StoreDamaged, match="a checkpoint can't be read"):
        graph.get_state(thread())


def test_odd_names_of_threads(here: Store) -> None:
    saver = PalaverSaver(here)
    for name in (7, "", "a\nb", "x" * 2_000):
        graph = echo(saver)
        assert ["one", "a1"] == say(graph, "one", thread(name))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (found,) = saver.list(thread(name), limit=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert name == found.config["configurable"]["thread_id"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
    assert 4 == len(list(here))
    assert 12 == len(list(saver.list(None)))


def test_a_version_follows_whatever_was_before(here: Store) -> None:
    saver = PalaverSaver(here)
    first = saver.get_next_version(None, None)
    second = saver.get_next_version(first, None)
    assert [1, 2] == [first >> 32, second >> 32]
    assert 8 == saver.get_next_version(7, None) >> 32
    assert 6 == saver.get_next_version("0000005.0.123", None) >> 32
