"""The same turns for every library: what was said, in each one's own words.

A turn is a question, an answer that calls a tool, the tool's result, and an answer. Everyone is
given what it asks for and nothing more, made before the clock starts: what is measured is keeping
and reading, not building.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.corpus import session
from palaver.messages import (
    Message,
    assistant,
    complete,
    new_id,
    pending,
    start,
    text_part,
    tool_call_part,
    tool_part,
    user,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Call", "Said", "for_adk", "for_agents", "for_langchain", "for_palaver", "turns"]


class Call(NamedTuple):
    """A tool call: asked for in an answer, answered in a result."""

    id: str
    tool: str
    input: dict[str, Any]


class Said(NamedTuple):
    """One message, before any library has seen it."""

    role: str
    text: str
    call: Call | None = None


def turns(count: int) -> list[Said]:
    """So many messages of the corpus, without what only palaver would keep of them.

    >>> [(one.role, one.call is not None) for one in turns(4)]
    [('user', False), ('assistant', True), ('tool', True), ('assistant', False)]
    """
    return [_said(message) for message in json.loads(session(count))]


def _said(message: dict[str, Any]) -> Said:
    content = message["content"]
    if isinstance(content, str):
        return Said(message["role"], content)
    parts = {part["type"]: part for part in content}
    if "tool" in parts:
        done = parts["tool"]
        call = Call(done["callID"], done["tool"], done["state"]["input"])
        return Said("tool", done["state"]["output"], call)
    asked = parts.get("tool-call")
    called = None if asked is None else Call(asked["callID"], asked["tool"], asked["input"])
    return Said(message["role"], parts["text"]["text"], called)


def for_palaver(said: Sequence[Said]) -> list[Message]:
    """As palaver's messages."""
    talk = new_id()
    return [_message(talk, one) for one in said]


def _message(talk: str, one: Said) -> Message:
    if one.call is None:
        return user(one.text) if one.role == "user" else assistant(one.text)
    name = new_id()
    if one.role == "assistant":
        asked = tool_call_part(talk, name, one.call.tool, one.call.input, call_id=one.call.id)
        return assistant([text_part(talk, name, one.text), asked], id=name)
    running = start(pending(one.call.input, json.dumps(one.call.input)))
    done = complete(running, one.text, tool=one.call.tool)
    return Message("tool", (tool_part(talk, name, one.call.id, one.call.tool, done),), id=name)


def for_agents(said: Sequence[Said]) -> list[list[dict[str, Any]]]:
    """As input items of OpenAI Agents; an answer with a call is two of them, added together."""
    return [_items(one) for one in said]


def _items(one: Said) -> list[dict[str, Any]]:
    if one.role == "tool" and one.call is not None:
        return [{"type": "function_call_output", "call_id": one.call.id, "output": one.text}]
    items: list[dict[str, Any]] = [{"role": one.role, "content": one.text}]
    if one.call is not None:
        arguments = json.dumps(one.call.input, ensure_ascii=False)
        called = {"call_id": one.call.id, "name": one.call.tool, "arguments": arguments}
        items.append({"type": "function_call", **called})
    return items


def for_langchain(said: Sequence[Said]) -> list[Any]:
    """As LangChain's messages."""
    kinds: Any = importlib.import_module("langchain_core.messages")

    def message(one: Said) -> Any:  # noqa: ANN401 - a peer's type, unknown here
        if one.role == "user":
            return kinds.HumanMessage(one.text)
        if one.call is None:
            return kinds.AIMessage(one.text)
        if one.role == "tool":
            return kinds.ToolMessage(one.text, tool_call_id=one.call.id, name=one.call.tool)
        call = {"id": one.call.id, "name": one.call.tool, "args": one.call.input}
        return kinds.AIMessage(one.text, tool_calls=[call])

    return [message(one) for one in said]


def for_adk(said: Sequence[Said]) -> list[Any]:
    """As events of Google's ADK."""
    event: Any = importlib.import_module("google.adk.events").Event
    types: Any = importlib.import_module("google.genai.types")

    def made(one: Said) -> Any:  # noqa: ANN401 - a peer's type, unknown here
        if one.role == "tool" and one.call is not None:
            answer = types.FunctionResponse(
                id=one.call.id, name=one.call.tool, response={"output": one.text}
            )
            parts = [types.Part(function_response=answer)]
        else:
            parts = [types.Part(text=one.text)]
            if one.call is not None:
                asked = types.FunctionCall(id=one.call.id, name=one.call.tool, args=one.call.input)
                parts.append(types.Part(function_call=asked))
        role = "model" if one.role == "assistant" else "user"
        return event(author=role, content=types.Content(role=role, parts=parts))

    return [made(one) for one in said]
