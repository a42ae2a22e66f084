"""Stores to test the saver on, and a small graph, for all of its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import palaver
from compat.saver_agent import thread
from tests.stores.postgres import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from palaver.stores import Store

__all__ = [
    "address",
    "at",
    "echo",
    "here",
    "lasting",
    "postgres",
    "postgres_server",
    "say",
    "shown",
    "store",
]


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
