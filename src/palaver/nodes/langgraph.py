"""The workflow nodes as nodes of a LangGraph graph.

The graph's state has a conversation's id, its version after the last node, and the node that should
run next; the messages are in palaver. LangGraph runs a node again from its start after an interrupt
or a crash: each node writes under a key that is derived from the task, so that an answer is paid
for once, a person's reply is stored once, and a tool runs once. The nodes are async: run the graph
with `ainvoke`, and with `durability="sync"` if no step may be taken twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from anyio import to_thread

from palaver.errors import ValidationError, needs_extra
from palaver.messages.ids import derive_id
from palaver.nodes.agent import ask_model, run_calls
from palaver.nodes.config import AskApproval, CompressConfig, LLMConfig, ToolConfig, read_config
from palaver.nodes.context import compress_context, edit_context
from palaver.nodes.human import ask_human
from palaver.nodes.results import read_status

with needs_extra("langgraph"):
    from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangGraph reads signatures
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation import Conversation
    from palaver.conversation.step import OnDelta
    from palaver.models.base import Model
    from palaver.nodes.config import ConfigInput, HumanConfig
    from palaver.nodes.results import ConversationRegistry, NodeResult, Question

__all__ = [
    "GraphState",
    "Node",
    "agent_graph",
    "branch",
    "by_next",
    "compress_node",
    "context_node",
    "human_node",
    "llm_node",
    "route",
    "status_node",
    "tool_node",
]

_NODE_NAMES: Final = {
    "llm": "llm",
    "tool": "tool",
    "human": "human",
    "compress": "compress",
    "end": END,
}


class GraphState(TypedDict, total=False):
    """The part of a graph's state that concerns the conversation; your own state may inherit it.

    Without a `conversation` the thread id of the graph is the conversation's id. `version` is the
    version after the last node, `outcome` and `next` are that node's (see
    `palaver.nodes.NodeResult`).
    """

    conversation: str
    version: int
    outcome: str
    next: str


class Node(Protocol):
    """A node of a graph."""

    def __call__(self, state: GraphState, config: RunnableConfig) -> Awaitable[GraphState]:
        """Run the node, and return the change of the state."""
        ...


def llm_node(
    registry: ConversationRegistry,
    model: Model | None = None,
    config: ConfigInput[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    *,
    on_delta: OnDelta | None = None,
) -> Node:
    """Make a node that asks a model once; see `palaver.nodes.ask_model`."""
    settings = read_config("llm", config)

    async def llm(state: GraphState, config: RunnableConfig) -> GraphState:
        conversation = await _open(registry, state, config)
        key = _key(config, "llm")
        asked = ask_model(conversation, settings, model=model, key=key, on_delta=on_delta)
        return _state(await asked)

    return llm


def tool_node(
    registry: ConversationRegistry,
    config: ConfigInput[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
) -> Node:
    """Make a node that runs the calls that wait; see `palaver.nodes.run_calls`."""
    settings = read_config("tool", config)

    async def tool(state: GraphState, config: RunnableConfig) -> GraphState:
        return _state(await run_calls(await _open(registry, state, config), settings))

    return tool


def human_node(
    registry: ConversationRegistry,
    config: ConfigInput[HumanConfig] = AskApproval(),  # noqa: B008 - it is frozen
) -> Node:
    """Make a node that interrupts the graph with a question, answered by `Command(resume=…)`.

    The interrupt's value is the question as JSON-ready data. An answer that can't be accepted
    interrupts again, and the question then says why; see `palaver.nodes.ask_human`.
    """
    settings = read_config("human", config)

    async def human(state: GraphState, config: RunnableConfig) -> GraphState:
        conversation = await _open(registry, state, config)
        key = _key(config, "human")
        return _state(await ask_human(conversation, settings, ask=_interrupt, key=key))

    return human


def context_node(registry: ConversationRegistry, config: Any) -> Node:  # noqa: ANN401 - as edit_context takes it
    """Make a node that edits the conversation by settings; see `palaver.nodes.edit_context`."""
    read_config("context", config)  # so that a mistake is reported when the graph is built
    given = config  # read again each time, so that the messages it adds are new each time

    async def context(state: GraphState, config: RunnableConfig) -> GraphState:
        conversation = await _open(registry, state, config)
        return _state(await edit_context(conversation, given, key=_key(config, "context")))

    return context


def compress_node(
    registry: ConversationRegistry,
    config: ConfigInput[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> Node:
    """Make a node that compresses a conversation; see `palaver.nodes.compress_context`."""
    settings = read_config("compress", config)

    async def compress(state: GraphState, config: RunnableConfig) -> GraphState:
        conversation = await _open(registry, state, config)
        return _state(await compress_context(conversation, settings, model=model))

    return compress


def status_node(registry: ConversationRegistry) -> Node:
    """Make a node that changes nothing and reads which node is next: the start of a graph."""

    async def status(state: GraphState, config: RunnableConfig) -> GraphState:
        conversation = await _open(registry, state, config)
        found = await to_thread.run_sync(read_status, conversation)
        return {
            "conversation": conversation.id,
            "version": found.version,
            "outcome": "nothing",
            "next": found.next,
        }

    return status


def route(**names: str) -> Callable[[GraphState], str]:
    """Return a function for conditional edges: the next node, by your names for the nodes.

    >>> route(llm="agent", human=END)({"next": "llm"})
    'agent'
    >>> route(tools="tools")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.tools: no such node; there are llm, tool, human, ...
    """
    for name in names:
        if name not in _NODE_NAMES:
            detail = f"no such node; there are {', '.join(_NODE_NAMES)}"
            raise ValidationError(detail, path=f"$.{name}", rule="node")
    nodes = {**_NODE_NAMES, **names}

    def wanted(state: GraphState) -> str:
        return nodes[state.get("next", "end")]

    return wanted


by_next: Final = route()
"""Conditional edges for a graph whose nodes are named llm, tool, human and compress."""


def agent_graph(
    registry: ConversationRegistry,
    model: Model | None = None,
    *,
    llm: ConfigInput[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    tool: ConfigInput[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
    compress: ConfigInput[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    prompt: str = "",
) -> StateGraph[GraphState]:
    """Build an agent: it asks the model, runs and approves calls, compresses, until the answer.

    Compile it with a checkpointer. It is built from the nodes of this module and nothing else, so
    that it also shows how to build another graph.
    """
    graph = StateGraph(GraphState)
    graph.add_node("look", status_node(registry))
    graph.add_node("llm", llm_node(registry, model, llm))
    graph.add_node("tool", tool_node(registry, tool))
    graph.add_node("human", human_node(registry, AskApproval(prompt=prompt)))
    graph.add_node("compress", compress_node(registry, compress, model=model))
    graph.add_edge(START, "look")
    on = ["llm", "tool", "compress", END]
    for name in ("look", "llm", "human", "compress"):
        graph.add_conditional_edges(name, route(human=END), on)
    graph.add_conditional_edges("tool", by_next, [*on, "human"])
    return graph


async def branch(
    registry: ConversationRegistry,
    state: GraphState,
    *,
    id: str | None = None,  # noqa: A002 - the word for it
) -> GraphState:
    """Return the state of a new branch: a fork of the conversation at the state's version.

    For time travel: `await graph.aupdate_state(old.config, await branch(registry, old.values))`
    returns the config to continue from. The old branch keeps its conversation.
    """
    if "conversation" not in state or "version" not in state:
        detail = "the state names no conversation and version: no node has run yet"
        raise ValidationError(detail, path="$", rule="no-conversation")
    name = await registry.branch(state["conversation"], state["version"], id=id)
    return {**state, "conversation": name, "version": 0}


async def _interrupt(question: Question) -> Any:  # noqa: ANN401 - whatever the graph is resumed with
    return interrupt(question.to_dict())


async def _open(
    registry: ConversationRegistry, state: GraphState, config: RunnableConfig
) -> Conversation:
    name = state.get("conversation") or str(config.get("configurable", {}).get("thread_id") or "")
    if not name:
        detail = "neither the state nor the thread names a conversation"
        raise ValidationError(detail, path="$.conversation", rule="no-conversation")
    return await registry.open(name)


def _key(config: RunnableConfig, node: str) -> str:
    """A key of this task, which is the same when the task is run again."""
    known = config.get("configurable", {})
    return derive_id(f"{known.get('thread_id')} {known.get('checkpoint_ns')}", node)


def _state(result: NodeResult) -> GraphState:
    return {
        "conversation": result.conversation,
        "version": result.version,
        "outcome": result.outcome,
        "next": result.next,
    }
