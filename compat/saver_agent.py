"""A real LangGraph agent with tools over a scripted provider, for tests; and one that is killed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from pydantic import SecretStr

import palaver
from palaver.adapters.langchain import repair_messages
from palaver.adapters.langgraph import PalaverSaver
from palaver.messages import ToolPart
from palaver.testing.servers import Answer, Call
from palaver.wire import from_

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from palaver.testing.servers import Exchange, Scripted

__all__ = ["THREAD", "agent", "main", "provider", "thread"]

THREAD = "trip"


def thread(name: str = THREAD, **more: Any) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": name, **more}}


def provider(exchange: Exchange) -> Scripted:
    """What the model says, by what it is told: look it up, pay, and be done."""
    told = from_("openai-chat", exchange.body).messages
    last = max((i for i, m in enumerate(told) if m.role == "user"), default=0)
    results = [p.tool for m in told[last:] for p in m.parts if isinstance(p, ToolPart)]
    if "pay" in results:
        return Answer("Booked.")
    if "look_up" in results:
        return Answer("It costs 5.", calls=(Call("pay", {"amount": 5}),))
    if "trip" in told[last].text:
        return Answer("Let me see.", calls=(Call("look_up", {"city": "Oslo"}),))
    return Answer(f"You said: {told[last].text}")


@tool
def look_up(city: str) -> str:
    """Look a city up."""
    return f"{city} is far"


@tool
def pay(amount: int) -> str:
    """Pay, if a person agrees."""
    return f"{amount} paid: {interrupt({'pay': amount})}"


def agent(
    saver: BaseCheckpointSaver[Any] | None, url: str, tools: Sequence[Any] = (look_up, pay)
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """An agent that loops until no tool is called."""
    model = ChatOpenAI(
        model="gpt-test", base_url=url, api_key=SecretStr("any"), max_retries=0
    ).bind_tools(tools)
    builder = StateGraph(MessagesState)

    def answer(state: MessagesState) -> Any:
        return {"messages": [model.invoke(repair_messages(state["messages"]))]}

    builder.add_node("model", answer)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


class Mortal(PalaverSaver):
    """A saver that dies before or after one of its writes."""

    moment = -1
    steps = 0
    told: Path

    def _tick(self) -> None:
        if self.steps == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def put(self, *values: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep a checkpoint, say so, and perhaps die on the way."""
        self._tick()
        made: Any = super().put(*values)
        with self.told.open("a") as told:
            told.write(f"{made['configurable']['checkpoint_id']}\n")
        self._tick()
        return made

    def put_writes(self, *values: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep writes, and perhaps die on the way."""
        self._tick()
        super().put_writes(*values)
        self._tick()


def main(address: str, url: str, moment: int, told: Path) -> None:
    """Run one turn in a process of its own, and die at a moment; -1: in the tool."""
    saver = Mortal(palaver.open(address))
    saver.moment, saver.told = moment, told

    @tool("look_up")
    def deadly(city: str) -> str:
        """Look a city up."""
        if moment < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{city} is far"

    graph = agent(saver, url, [deadly, pay])
    graph.invoke({"messages": [("user", "Book a trip")]}, thread(), durability="sync")
