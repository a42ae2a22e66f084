"""An agent of ADK with a tool, for tests; and a run of it that is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.models import Gemini
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai.types import Content, FunctionCall, Part

import palaver
from palaver.adapters.adk import PalaverSessionService, repair_request
from palaver.testing.servers import Answer, Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.sessions.base_session_service import BaseSessionService
    from google.adk.sessions.session import Session

    from palaver.stores.store import Store
    from palaver.testing.servers import ProviderServer

__all__ = [
    "APP", "HERE", "TALK", "TURN", "USER", "ScriptedModel", "agent", "ask", "content",
    "keep_talking", "looks", "main", "roles", "run_turns", "said", "scripted", "sent", "weather",
]  # fmt: skip

APP, USER = "tea", "ann"
HERE: Any = {"app_name": APP, "user_id": USER}
TALK: Any = {**HERE, "session_id": "talk"}
TURN = ["user", "assistant", "tool", "assistant"]


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def content(*parts: Any, role: str = "model") -> Content:
    """What is said in so many parts."""
    return Content(role=role, parts=[Part(**part) for part in parts])


def agent(url: str, **fields: Any) -> LlmAgent:
    """An agent whose model is a server on this machine."""
    model = Gemini(model="gemini-2.5-flash", base_url=url, client_kwargs={"api_key": "any"})
    given: Any = {"name": "ada", "instruction": "Be brief.", "tools": [weather], "model": model}
    given |= {"before_model_callback": repair_request, **fields}
    return LlmAgent(**given)


class ScriptedModel(BaseLlm):
    """A model that says what it was told to, whatever it is asked."""

    script: list[Content]

    async def generate_content_async(
        self,
        llm_request: LlmRequest,  # noqa: ARG002 - whatever it is asked
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> AsyncGenerator[LlmResponse, None]:
        """Say the next answer."""
        yield LlmResponse(content=self.script.pop(0))


def said(text: str) -> Content:
    """What a user says."""
    return Content(role="user", parts=[Part(text=text)])


async def ask(who: LlmAgent, words: str, service: BaseSessionService, session_id: str) -> str:
    """One run, to its last word."""
    runner = Runner(app_name=APP, agent=who, session_service=service)
    events = runner.run_async(user_id=USER, session_id=session_id, new_message=said(words))
    last = ""
    async for event in events:
        parts = (event.content.parts if event.content else None) or []
        last = "".join(part.text or "" for part in parts) or last
    return last


def looks(city: str) -> Answer:
    """An answer that asks for the weather."""
    return Answer("Let me see.", calls=(Call("weather", {"city": city}),))


def sent(server: ProviderServer) -> str:
    """What the last request held of the conversation."""
    return json.dumps(server.requests[-1].body["contents"])


def roles(store: Store, name: str = "talk") -> list[str]:
    """The roles of a conversation's messages."""
    return [message.role for message in store.get(name)]


class Mortal(PalaverSessionService):
    """A service that writes down what it has done, and dies at one of its steps."""

    moment = -1
    steps = 0
    told: Path

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append, say so, and perhaps die on the way."""
        self._step()
        found = await super().append_event(session, event)
        with self.told.open("a") as told:
            told.write(json.dumps(event.id) + "\n")
        self._step()
        return found

    def _step(self) -> None:
        if self.steps == self.moment:
            die()
        self.steps += 1


def die() -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(address: str, url: str, moment: int, told: Path) -> None:
    """Run one turn in a process of its own, and die before or after a write; -1: in the tool."""
    service = Mortal(palaver.open(address), turn_seconds=0.5)
    service.moment, service.told = moment, told

    def deadly(city: str, tool_context: Any) -> str:
        """Tell the weather of a city."""
        if moment < 0:
            die()
        tool_context.state["user:city"] = city
        return f"{city}: 21 degrees and sunny"

    deadly.__name__ = "weather"
    asyncio.run(ask(agent(url, tools=[deadly]), "Weather in Rome?", service, "talk"))


def scripted(answer: str) -> LlmAgent:
    """An agent that asks for the weather once, and then answers."""
    call = Part(function_call=FunctionCall(name="weather", args={"city": answer}))
    parts = [Content(role="model", parts=[part]) for part in (call, Part(text=answer))]
    return agent("", model=ScriptedModel(model="scripted", script=parts))


def keep_talking(address: str, first: int, told: Connection) -> None:
    """Take turn after turn, from a number on, and tell the number of each; until it is killed."""
    service = PalaverSessionService(palaver.open(address), turn_seconds=0.5)
    told.send(-1)

    async def go() -> None:
        for number in itertools.count(first):
            await ask(scripted(f"answer {number}"), f"question {number}", service, "talk")
            told.send(number)

    asyncio.run(go())


def run_turns(address: str, name: str, turns: int) -> None:
    """Take so many turns on a session that others write to."""
    service = PalaverSessionService(palaver.open(address))

    async def go() -> None:
        for _ in range(turns):
            await ask(scripted(f"{name} answer"), f"{name} question", service, "talk")

    asyncio.run(go())
