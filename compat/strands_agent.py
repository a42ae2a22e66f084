"""An agent of Strands' with a tool and a scripted model, also in a process of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.model import Model

import palaver
from palaver.adapters.strands import PalaverSessionManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from multiprocessing.connection import Connection

    from strands.session.session_manager import SessionManager

__all__ = ["ScriptedModel", "agent", "call", "keep_talking", "result", "run_turns", "use"]


class ScriptedModel(Model):
    """Gives one answer after the other, a text or content blocks; remembers what it was sent."""

    def __init__(self, *answers: str | list[Any]) -> None:
        """Take the answers in order."""
        self.answers = list(answers)
        self.requests: list[list[Any]] = []

    def update_config(self, **_config: Any) -> None:
        """Take no configuration."""

    def get_config(self) -> dict[str, Any]:
        """Return no configuration."""
        return {}

    def structured_output(self, *_given: Any, **_more: Any) -> Any:
        """Give none."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_given: Any, **_more: Any) -> AsyncIterator[Any]:
        """Give the next answer, as a provider's stream."""
        self.requests.append([dict(message) for message in messages])
        said = self.answers.pop(0)
        blocks: list[Any] = [{"text": said}] if isinstance(said, str) else said
        yield {"messageStart": {"role": "assistant"}}
        for block in blocks:
            use = block.get("toolUse")
            start = (
                {} if use is None else {"toolUse": {key: use[key] for key in ("name", "toolUseId")}}
            )
            yield {"contentBlockStart": {"start": start}}
            delta = block if use is None else {"toolUse": {"input": '{"city": "Rome"}'}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        called = any("toolUse" in block for block in blocks)
        yield {"messageStop": {"stopReason": "tool_use" if called else "end_turn"}}


def call(name: str = "c1") -> list[Any]:
    """Make an answer that asks for the weather of Rome."""
    use = {"toolUseId": name, "name": "weather", "input": {"city": "Rome"}}
    return [{"text": "Let me see."}, {"toolUse": use}]


def agent(
    model: Model,
    manager: SessionManager | None,
    meanwhile: Callable[[], object] = lambda: None,
    **more: Any,
) -> Agent:
    """Make an agent that can look at the weather; `meanwhile` is called by its tool."""

    @tool
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        meanwhile()
        return f"{city}: 21 degrees and sunny"

    return Agent(
        model=model, tools=[weather], session_manager=manager, callback_handler=None, **more
    )


def use(name: str) -> dict[str, Any]:
    """Return a call of the tool, as it stands in a message."""
    return {"toolUse": {"toolUseId": name, "name": "weather", "input": {"city": "Rome"}}}


def result(name: str, text: str = "sunny") -> dict[str, Any]:
    """Return the result of a call."""
    return {"toolResult": {"toolUseId": name, "status": "success", "content": [{"text": text}]}}


def keep_talking(address: str, first: int, told: Connection) -> None:
    """Run turns with a tool until killed, and tell of each when it is over."""
    model = ScriptedModel()
    store = palaver.open(address)
    manager = PalaverSessionManager("talk", store, turn_seconds=1, wait_seconds=30)
    talking = agent(model, manager, conversation_manager=NullConversationManager())
    told.send("ready")
    number = first
    while True:
        model.answers = [call(str(number)), f"answer {number}"]
        talking(f"question {number}")
        told.send(str(number))
        number += 1


def run_turns(address: str, who: str, turns: int) -> None:
    """Run turns with a tool, side by side with others."""
    model = ScriptedModel()
    manager = PalaverSessionManager("talk", palaver.open(address), wait_seconds=60)
    talking = agent(model, manager, conversation_manager=NullConversationManager())

    async def go() -> None:
        for number in range(turns):
            name = f"{who}-{number}"
            model.answers = [call(name), f"{name} answer"]
            await talking.invoke_async(f"{name} question")

    asyncio.run(go())
