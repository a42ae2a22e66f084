"""A small graph, for all tests of the saver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from compat.saver_agent import thread

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph


def echo(saver: BaseCheckpointSaver[Any], kind: Any = MessagesState) -> Any:
    """A graph that answers every message with its count."""
    builder = StateGraph(kind)

    def answer(state: Any) -> Any:
        return {"messages": [AIMessage(f"a{len(state['messages'])}")]}

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def say(graph: CompiledStateGraph[Any, Any, Any, Any], text: str, config: Any = None) -> Any:
    found = graph.invoke({"messages": [HumanMessage(text)]}, config or thread())["messages"]
    return [message.content for message in found]


def at(graph: Any, config: Any) -> list[Any]:
    return [message.content for message in graph.get_state(config).values["messages"]]


def shown(graph: Any, name: str) -> list[list[Any]]:
    return [
        [m.content for m in one.values.get("messages", [])]
        for one in graph.get_state_history(thread(name))
    ]
