"""An agent of LlamaIndex's with a tool and a scripted model, also in a process of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from pydantic import PrivateAttr

import palaver
from palaver.adapters.llama_index import PalaverMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from llama_index.core.memory import BaseMemory

__all__ = ["ScriptedLLM", "agent", "answer", "call", "keep_talking", "result", "run", "write_turns"]


class ScriptedLLM(MockFunctionCallingLLM):
    """Gives one answer after the other, and remembers what it was sent."""

    _answers: list[ChatMessage] = PrivateAttr(default_factory=list)
    _requests: list[list[ChatMessage]] = PrivateAttr(default_factory=list)

    def __init__(self, *answers: ChatMessage) -> None:
        """Take the answers in order."""
        super().__init__(response_generator=self._next)
        self._answers = list(answers)

    @property
    def requests(self) -> list[list[ChatMessage]]:
        """What it was sent, request by request."""
        return self._requests

    def _next(self, messages: Sequence[ChatMessage], **_more: Any) -> ChatMessage:
        self._requests.append(list(messages))
        return self._answers.pop(0)


def answer(text: str) -> ChatMessage:
    """Make an answer of text."""
    return ChatMessage(text, role="assistant")


def call(city: str, name: str = "c1") -> ChatMessage:
    """Make an answer that asks for the weather."""
    block = ToolCallBlock(tool_call_id=name, tool_name="weather", tool_kwargs={"city": city})
    return ChatMessage([TextBlock(text="Let me see."), block], role="assistant")


def result(text: str, name: str = "c1") -> ChatMessage:
    """Make a tool's result."""
    return ChatMessage(text, role="tool", additional_kwargs={"tool_call_id": name})


def agent(llm: ScriptedLLM, meanwhile: Callable[[], object] = lambda: None) -> FunctionAgent:
    """Make an agent that can look at the weather; `meanwhile` is called by its tool."""

    def weather(city: str) -> str:
        """Tell the weather of a city."""
        meanwhile()
        return f"{city}: 21 degrees and sunny"

    return FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(weather)], streaming=False)


def run(who: FunctionAgent, words: str, memory: BaseMemory) -> str:
    """Run a turn of an agent."""
    workflow: Any = who  # the overload that fits is one that they deprecate

    async def go() -> str:
        return str(await workflow.run(user_msg=words, memory=memory))

    return asyncio.run(go())


def keep_talking(address: str, first: int, told: Connection) -> None:
    """Run turns with a tool until killed, and tell of each when it is over."""
    memory = PalaverMemory(palaver.open(address), "talk")
    told.send("ready")
    number = first
    while True:
        name = str(number)
        llm = ScriptedLLM(call("Rome", name), answer(f"answer {name}"))
        run(agent(llm), f"question {name}", memory)
        told.send(name)
        number += 1


def write_turns(address: str, who: str, turns: int) -> None:
    """Write turns in three changes each, message after message of one writer."""
    memory = PalaverMemory(palaver.open(address), "talk")
    for number in range(turns):
        name = f"{who}-{number}"
        memory.put(ChatMessage(f"{name} question"))
        memory.put_messages([call("Rome", name), result("sunny", name)])
        memory.put(answer(f"{name} answer"))
