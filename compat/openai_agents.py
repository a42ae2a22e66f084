"""An agent of the OpenAI Agents SDK with a tool, for tests; and a run of it that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import agents
from agents import Agent, RunConfig, Runner, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI

import palaver
from palaver.adapters.openai_agents import PalaverSession, repair_input

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OPENAI", "REPAIRED", "agent", "ask", "main", "stream"]

OPENAI = ("openai-responses", "openai-chat")
agents.set_tracing_disabled(disabled=True)


@function_tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def agent(url: str, form: str, **fields: Any) -> Agent[Any]:
    """An agent whose model is a server on this machine."""
    client = AsyncOpenAI(base_url=url, api_key="any", max_retries=0)
    kind = OpenAIResponsesModel if form == "openai-responses" else OpenAIChatCompletionsModel
    fields = {"name": "Ada", "instructions": "Be brief.", "tools": [weather], **fields}
    return Agent(model=kind("gpt-test", client), **fields)


REPAIRED = RunConfig(call_model_input_filter=repair_input)


async def ask(
    who: Agent[Any], words: str, session: PalaverSession, config: RunConfig | None = None
) -> str:
    """One run, to its last word."""
    result = await Runner.run(who, words, session=session, run_config=config)
    return str(result.final_output)


async def stream(
    who: Agent[Any], words: str, session: PalaverSession, config: RunConfig | None = None
) -> str:
    """The same, streamed."""
    run = Runner.run_streamed(who, words, session=session, run_config=config)
    async for _ in run.stream_events():
        pass
    return str(run.final_output)


class Mortal(PalaverSession):
    """A session that writes down what it has done, and dies at one of its steps."""

    moment = -1
    steps = 0
    told: Path

    async def add_items(self, items: list[Any]) -> None:
        """Add, say so, and perhaps die on the way."""
        self._step()
        await super().add_items(items)
        with self.told.open("a") as told:
            told.write(json.dumps(items) + "\n")
        self._step()

    def _step(self) -> None:
        if self.steps == self.moment:
            die()
        self.steps += 1


def die() -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(address: str, url: str, form: str, moment: int, told: Path) -> None:
    """Run one turn in a process of its own, and die before or after a write; -1: in the tool."""
    session = Mortal(palaver.open(address), "talk")
    session.moment, session.told = moment, told

    @function_tool(name_override="weather")
    def deadly(city: str) -> str:
        """Tell the weather of a city."""
        if moment < 0:
            die()
        return f"{city}: 21 degrees and sunny"

    asyncio.run(ask(agent(url, form, tools=[deadly]), "Weather in Rome?", session))
