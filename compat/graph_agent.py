"""An agent as a LangGraph graph of palaver's nodes, for tests; and as a program to kill.

It looks something up, makes room, has a payment approved by an interrupt, and answers. As a process
of its own it goes on where it was, and dies by SIGKILL at the moment it was told: every moment has
a name.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from msgspec.structs import replace

import palaver
from palaver.adapters.langgraph import PalaverSaver
from palaver.conversation import model
from palaver.messages import ToolPart, user
from palaver.nodes import ConversationRegistry, human
from palaver.nodes.langgraph import agent_graph
from palaver.stores import lease
from palaver.testing.servers import Answer, Call
from palaver.tools.approval import save_decisions
from palaver.wire import from_

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from palaver.conversation import Conversation
    from palaver.testing.servers import Exchange, Scripted

__all__ = ["ASKED", "MOMENTS", "live", "provider", "slowly"]

THREAD = "trip-7"
LIMIT = 650
ASKED = [user(f"An old question {n}. " + "It goes on and on. " * 10) for n in range(4)]
MOMENTS = (
    "look",  # before anything has happened
    "answering",  # a piece of the first answer has come, and a draft of it is kept
    "answered 1",  # an answer with a call is stored, and LangGraph does not know it yet
    "in look_up",  # a tool has done its work, and nobody knows it yet
    "ran 1",  # its result is stored, and LangGraph does not know it yet
    "compacted",  # there is room, and LangGraph does not know it yet
    "asked",  # the graph is interrupted
    "decided",  # a person's decision is stored, and LangGraph does not know it yet
    "in pay",
    "ran 2",
    "answered 3",  # the last answer is stored, and LangGraph does not know it yet
    "put 4",  # LangGraph is about to store a checkpoint
)


def provider(exchange: Exchange) -> Scripted:
    """What the model says, by what it is told: look it up, pay, and be done."""
    told = from_("openai-chat", exchange.body).messages
    results = [p.tool for m in told for p in m.parts if isinstance(p, ToolPart)]
    if "pay" in results:
        return Answer("Booked.")
    if "look_up" in results:
        return Answer("It costs 5.", calls=(Call("pay", {"amount": 5}),))
    return Answer("Let me see.", calls=(Call("look_up", {"city": "Oslo"}),))


def slowly(exchange: Exchange) -> Scripted:
    """The same, so slowly that a draft of the answer is kept."""
    answer = provider(exchange)
    assert isinstance(answer, Answer)
    return replace(answer, piece=3, delay=0.4)


def tools(folder: Path, tick: Callable[[str], None]) -> list[Callable[..., str]]:
    """Two tools whose work can be counted afterwards."""

    def look_up(city: str) -> str:
        _write(folder / "did", f"look_up {city}")
        tick("in look_up")
        return "a train at nine; " * 60

    def pay(amount: int) -> str:
        _write(folder / "did", f"pay {amount}")
        tick("in pay")
        return f"paid {amount}"

    return [look_up, pay]


class Clock:
    """Names the moments, and kills at one of them."""

    def __init__(self, moment: str) -> None:
        """Wait for a moment; an empty one never comes."""
        self._moment = moment
        self._counts: dict[str, int] = {}

    def tick(self, name: str) -> None:
        """Perhaps the last thing this process does."""
        if name == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(self, name: str) -> None:
        """The same, for what comes several times."""
        self._counts[name] = self._counts.get(name, 0) + 1
        self.tick(f"{name} {self._counts[name]}")

    def listen(self, talk: Conversation) -> None:
        """Events are told when what they tell is stored, and before the node is done."""
        talk.events.on("usage.updated", lambda _: self.tick(f"answered {answers(talk)}"))
        talk.events.on("tool.completed", lambda _: self.tick(f"ran {results(talk)}"))
        talk.events.on("compaction.done", lambda _: self.tick("compacted"))


def answers(talk: Conversation) -> int:
    """How many answers there are."""
    return sum(message.role == "assistant" for message in talk.messages)


def results(talk: Conversation) -> int:
    """How many results there are."""
    return sum(message.role == "tool" for message in talk.messages)


async def main(address: str, url: str, folder: Path, *, saver: str, moment: str) -> None:
    """Run the graph to its end, from wherever it is."""
    clock = Clock(moment)
    setattr(lease, "LEASE_SECONDS", 1.0)  # noqa: B010 - a constant, shorter for the test
    _kill_after_deciding(clock)
    async with AsyncExitStack() as stack:
        store = stack.enter_context(palaver.open(address))
        kept: BaseCheckpointSaver[Any] = PalaverSaver(store)
        if saver == "theirs":
            path = str(folder / "graph.db")
            kept = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        _kill_before_putting(kept, clock)
        host = ConversationRegistry(
            store, tools=tools(folder, clock.tick), token_limit=LIMIT, wait=5,
            on_open=clock.listen,
        )  # fmt: skip
        asked = model("openai:gpt-5", base_url=url, api_key="any")
        room = {"strategies": [{"kind": "drop-oldest", "keepTokens": 300}]}
        builder = agent_graph(host, asked, tool={"approval": ["pay"]}, compress=room)
        graph = builder.compile(checkpointer=kept)
        config: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        clock.tick("look")
        told = asyncio.create_task(_kill_while_answering(host, clock))
        state = await graph.aget_state(config)
        given: Any = None if state.values else {"conversation": "talk"}
        if state.interrupts:
            given = Command(resume=True)
        while state.next or given is not None:
            await graph.ainvoke(given, config, durability="sync")
            state = await graph.aget_state(config)
            if state.interrupts:
                _tell(folder, state.interrupts[0].value)
                clock.tick("asked")
            given = Command(resume=True) if state.interrupts else None
        told.cancel()
        await asked.close()
        _tell(folder, state.values)


def _tell(folder: Path, value: Any) -> None:
    """Tell the test what a person would see."""
    _write(folder / "told", json.dumps(value))


def _write(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


async def _kill_while_answering(host: ConversationRegistry, clock: Clock) -> None:
    """A draft is an answer that is on its way."""
    while True:
        await asyncio.sleep(0.05)
        if host.store.records("talk", "draft"):
            clock.tick("answering")


def _kill_after_deciding(clock: Clock) -> None:
    def and_die(*args: Any, **kwargs: Any) -> None:
        save_decisions(*args, **kwargs)
        clock.tick("decided")

    setattr(human, "save_decisions", and_die)  # noqa: B010 - the name is the module's own


def _kill_before_putting(saver: BaseCheckpointSaver[Any], clock: Clock) -> None:
    put = saver.aput

    async def or_die(*args: Any, **kwargs: Any) -> Any:
        clock.count("put")
        return await put(*args, **kwargs)

    saver.aput = or_die  # type: ignore[method-assign]


def live(address: str, url: str, folder: Path, how: dict[str, Any]) -> None:
    """One life of the agent, in a process of its own."""
    asyncio.run(main(address, url, folder, **how))
