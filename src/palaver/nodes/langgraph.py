"""The workflow nodes as nodes of a LangGraph graph.

The graph's state carries a conversation's id, the version a node left it at and what it wants next;
the messages live in palaver. LangGraph runs a node again from its start after an interrupt or a
crash: each writes under a key that follows from the task, so an answer is paid for once, a person's
words are kept once, and a tool runs once. The nodes are async: run the graph with `ainvoke`, and
with `durability="sync"` where no step may be taken twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from anyio import to_thread
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangGraph reads signatures
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from palaver.errors import ValidationError
from palaver.messages.ids import derived_id
from palaver.nodes.compress import make_room
from palaver.nodes.configs import Approve, CompressConfig, LLMConfig, ToolConfig
from palaver.nodes.context import edit_context
from palaver.nodes.human import ask_human
from palaver.nodes.llm import ask_model
from palaver.nodes.reading import read_config
from palaver.nodes.results import look
from palaver.nodes.tools import run_calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.conversation.steps import OnDelta
    from palaver.nodes.configs import HumanConfig
    from palaver.nodes.hosting import Host
    from palaver.nodes.reading import Given
    from palaver.nodes.results import Done, Question

__all__ = [
    "Node",
    "TalkState",
    "agent_graph",
    "branch",
    "by_next",
    "compress_node",
    "context_node",
    "human_node",
    "llm_node",
    "look_node",
    "route",
    "tool_node",
]

_STOPS: Final = {"llm": "llm", "tool": "tool", "human": "human", "compress": "compress", "end": END}


class TalkState(TypedDict, total=False):
    """What a graph's state holds of a conversation; a graph's own state may inherit from it.

    Without a `conversation` the graph's thread is the conversation's id. `version` is what the last
    node left it at, `outcome` and `next` what that node says (see `palaver.nodes.Done`).
    """

    conversation: str
    version: int
    outcome: str
    next: str


class Node(Protocol):
    """A node of a graph."""

    def __call__(self, state: TalkState, config: RunnableConfig) -> Awaitable[TalkState]:
        """Do it, and say how the state changes."""
        ...


def llm_node(
    host: Host,
    model: Model | None = None,
    config: Given[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    *,
    on_delta: OnDelta | None = None,
) -> Node:
    """A node that asks a model once; see `palaver.nodes.ask_model`."""
    settings = read_config("llm", config)

    async def llm(state: TalkState, config: RunnableConfig) -> TalkState:
        talk = await _talk(host, state, config)
        key = _key(config, "llm")
        return _state(await ask_model(talk, settings, model=model, key=key, on_delta=on_delta))

    return llm


def tool_node(host: Host, config: Given[ToolConfig] = ToolConfig()) -> Node:  # noqa: B008 - it is frozen
    """A node that runs the calls that wait; see `palaver.nodes.run_calls`."""
    settings = read_config("tool", config)

    async def tool(state: TalkState, config: RunnableConfig) -> TalkState:
        return _state(await run_calls(await _talk(host, state, config), settings))

    return tool


def human_node(host: Host, config: Given[HumanConfig] = Approve()) -> Node:  # noqa: B008 - it is frozen
    """A node that interrupts the graph with a question; `Command(resume=…)` brings the answer.

    The interrupt's value is the question as JSON-ready data. An answer that can't be taken
    interrupts again, and the question then says why; see `palaver.nodes.ask_human`.
    """
    settings = read_config("human", config)

    async def human(state: TalkState, config: RunnableConfig) -> TalkState:
        talk = await _talk(host, state, config)
        return _state(await ask_human(talk, settings, ask=_interrupt, key=_key(config, "human")))

    return human


def context_node(host: Host, config: Any) -> Node:  # noqa: ANN401 - as edit_context takes it
    """A node that edits the conversation by settings; see `palaver.nodes.edit_context`."""
    read_config("context", config)  # a mistake is told when the graph is built
    given = config  # read again each time: messages that it adds are new ones each time

    async def context(state: TalkState, config: RunnableConfig) -> TalkState:
        talk = await _talk(host, state, config)
        return _state(await edit_context(talk, given, key=_key(config, "context")))

    return context


def compress_node(
    host: Host,
    config: Given[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> Node:
    """A node that makes room where the token limit is crossed; see `palaver.nodes.make_room`."""
    settings = read_config("compress", config)

    async def compress(state: TalkState, config: RunnableConfig) -> TalkState:
        return _state(await make_room(await _talk(host, state, config), settings, model=model))

    return compress


def look_node(host: Host) -> Node:
    """A node that changes nothing and says what the conversation wants: where a graph begins."""

    async def look_first(state: TalkState, config: RunnableConfig) -> TalkState:
        talk = await _talk(host, state, config)
        seen = await to_thread.run_sync(look, talk)
        return {
            "conversation": talk.id,
            "version": seen.version,
            "outcome": "nothing",
            "next": seen.next,
        }

    return look_first


def route(**names: str) -> Callable[[TalkState], str]:
    """A function for conditional edges: the node that is wanted next, by your names for them.

    >>> route(llm="agent", human=END)({"next": "llm"})
    'agent'
    >>> route(tools="tools")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.tools: no such node; there are llm, tool, human, ... [ND-01]
    """
    for name in names:
        if name not in _STOPS:
            detail = f"no such node; there are {', '.join(_STOPS)}"
            raise ValidationError(detail, path=f"$.{name}", rule="ND-01")
    stops = {**_STOPS, **names}

    def wanted(state: TalkState) -> str:
        return stops[state.get("next", "end")]

    return wanted


by_next: Final = route()
"""Conditional edges for a graph whose nodes are called llm, tool, human and compress."""


def agent_graph(
    host: Host,
    model: Model | None = None,
    *,
    llm: Given[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    tool: Given[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
    compress: Given[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    prompt: str = "",
) -> StateGraph[TalkState]:
    """A whole agent: it asks, runs tools, has calls approved, makes room, until there is an answer.

    Compile it with a checkpointer. It is built from the nodes of this module and nothing else, so
    it also shows how to build another.
    """
    graph = StateGraph(TalkState)
    graph.add_node("look", look_node(host))
    graph.add_node("llm", llm_node(host, model, llm))
    graph.add_node("tool", tool_node(host, tool))
    graph.add_node("human", human_node(host, Approve(prompt=prompt)))
    graph.add_node("compress", compress_node(host, compress, model=model))
    graph.add_edge(START, "look")
    on = ["llm", "tool", "compress", END]
    for name in ("look", "llm", "human", "compress"):
        graph.add_conditional_edges(name, route(human=END), on)
    graph.add_conditional_edges("tool", by_next, [*on, "human"])
    return graph


async def branch(host: Host, state: TalkState, *, id: str | None = None) -> TalkState:  # noqa: A002 - the word for it
    """The state of a new line that goes on from an old one: the conversation as it was then.

    For time travel: `await graph.aupdate_state(old.config, await branch(host, old.values))` gives
    the config to go on from. The line that was left keeps its conversation.
    """
    if "conversation" not in state or "version" not in state:
        detail = "the state names no conversation and version: no node has run yet"
        raise ValidationError(detail, path="$", rule="ND-01")
    name = await host.branch(state["conversation"], state["version"], id=id)
    return {**state, "conversation": name, "version": 0}


async def _interrupt(question: Question) -> Any:  # noqa: ANN401 - whatever the graph is resumed with
    return interrupt(question.to_dict())


async def _talk(host: Host, state: TalkState, config: RunnableConfig) -> Conversation:
    name = state.get("conversation") or str(config.get("configurable", {}).get("thread_id") or "")
    if not name:
        detail = "neither the state nor the thread names a conversation"
        raise ValidationError(detail, path="$.conversation", rule="ND-01")
    return await host.take_up(name)


def _key(config: RunnableConfig, node: str) -> str:
    """What tells this task from all others, and is the same when it is run again."""
    known = config.get("configurable", {})
    return derived_id(f"{known.get('thread_id')} {known.get('checkpoint_ns')}", node)


def _state(done: Done) -> TalkState:
    return {
        "conversation": done.conversation,
        "version": done.version,
        "outcome": done.outcome,
        "next": done.next,
    }
