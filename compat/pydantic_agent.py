"""An agent of Pydantic AI with a tool, for tests; and a run of it that is killed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import palaver
from palaver.adapters.pydantic_ai import load, save

if TYPE_CHECKING:
    from palaver.stores import StoredHistory

__all__ = ["agent", "ask", "main"]


def agent(url: str, form: str, *, deadly: bool = False) -> Agent[None, str]:
    """An agent whose model is a server on this machine."""
    kind: Any = OpenAIResponsesModel if form == "openai-responses" else OpenAIChatModel
    model = kind("gpt-test", provider=OpenAIProvider(base_url=url, api_key="any"))
    made: Agent[None, str] = Agent(model, instructions="Be brief.")

    @made.tool_plain
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{city}: 21 degrees and sunny"

    return made


async def ask(who: Agent[None, str], words: str | None, history: StoredHistory) -> str:
    """One run, to its last word, saved as a whole."""
    found = load(history, resuming=words is None)
    result = await who.run(words, message_history=found)
    save(history, result.new_messages())
    return result.output


def main(address: str, url: str, form: str, when: str) -> None:
    """Run one turn in a process of its own, saved step by step, and die in the tool or later."""
    import asyncio  # noqa: PLC0415 - only here

    history = palaver.open(address).create(id="talk")
    who = agent(url, form, deadly=when == "tool")

    async def run() -> None:
        async with who.iter("Weather in Rome?") as steps:
            async for _ in steps:
                save(history, steps.all_messages())
                answered = any(isinstance(m, ModelResponse) for m in steps.all_messages())
                if when == "answer" and answered:
                    os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(run())
