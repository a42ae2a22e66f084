"""One conversation goes through nine frameworks and the page's API, a tool call in each.

Each of them reads what the others have written as its own, and goes on. Models are servers on this
machine that refuse what the real ones would, or scripts that remember what they were sent.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx
from agent_framework.openai import OpenAIChatClient
from langchain_core.messages import HumanMessage
from msgspec.structs import replace
from strands.models.openai import OpenAIModel

from compat import (
    adk_agent,
    agent_framework_agent,
    claude_agent,
    langchain_agent,
    llama_agent,
    openai_agents,
    pydantic_agent,
    saver_agent,
    strands_agent,
)
from compat.serving import TOKEN, Serving, server, serving
from palaver.adapters.adk import PalaverSessionService
from palaver.adapters.agent_framework import PalaverHistoryProvider
from palaver.adapters.claude_agent_sdk import PalaverSessionStore
from palaver.adapters.langgraph import PalaverSaver
from palaver.adapters.llama_index import PalaverMemory
from palaver.adapters.openai_agents import PalaverSession
from palaver.adapters.strands import PalaverSessionManager
from palaver.messages import ToolCallPart, ToolCompleted, ToolPart, new_id
from palaver.testing.providers import check_request
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.wire import to

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from palaver.stores import Store
    from palaver.testing.providers import FormatName

__all__ = ["server", "serving"]  # fixtures, found here by pytest

NEEDED: dict[FormatName, dict[str, Any]] = {
    "openai-chat": {"model": "any"},
    "openai-responses": {"model": "any"},
    "anthropic": {"model": "any", "max_tokens": 9},
    "gemini": {},
}
"""What a request has beside its messages, by format."""
BROKEN = {
    "call-without-result", "result-without-call", "result-out-of-order", "duplicate-result",
    "duplicate-call-id", "failed-result",
}  # fmt: skip
"""The repairs that a conversation would need whose calls and results don't match."""
WEATHER = Call("weather", {"city": "Rome"})


class Journey:
    """The conversation, and what everybody says in it: a question, a call, and an answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = new_id()
        self.travellers: list[str] = []

    @contextmanager
    def provider(self, form: FormatName, who: str, call: Call = WEATHER) -> Generator[str]:
        """A model that calls a tool and answers; it has to be shown what the others said."""
        thought = "Hm." if form == "anthropic" else ""  # `claude` asks for thoughts
        call = replace(call, id=f"call_{len(self.travellers)}")
        script = [Answer("", thought, calls=(call,)), Answer(f"{who}: done.", thought)]
        with ProviderServer(form, script) as started:
            yield started.url
            assert [] == started.failures
        self.arrive(who, [str(each.body) for each in started.requests])

    def arrive(self, who: str, requests: list[str]) -> None:
        """Note that someone was here, and check what the model was shown."""
        for request in requests[-2:]:
            assert [one for one in self.travellers if f"{one}: done." not in request] == []
            assert f"{who}?" in request
        self.travellers.append(who)

    # ── everybody in turn ───────────────────────────────────────────────────────────────────────

    def langgraph(self) -> None:
        look_up = Call("look_up", {"city": "Oslo"})
        with self.provider("openai-chat", "LangGraph", look_up) as url:
            graph = saver_agent.agent(PalaverSaver(self.store), url, [saver_agent.look_up])
            graph.invoke({"messages": [("user", "LangGraph?")]}, saver_agent.thread(self.name))

    def openai_agents(self) -> None:
        with self.provider("openai-responses", "OpenAI Agents") as url:
            ada = openai_agents.agent(url, "openai-responses")
            session = PalaverSession(self.store, self.name)
            asyncio.run(openai_agents.ask(ada, "OpenAI Agents?", session, openai_agents.REPAIRED))

    def claude_agent_sdk(self, folder: Path) -> None:
        call = Call("mcp__sky__weather", {"city": "Rome"})
        with self.provider("anthropic", "Claude Agent SDK", call) as url:
            sessions = PalaverSessionStore(self.store)
            chosen = claude_agent.options(sessions, url, folder, self.name)
            anyio.run(claude_agent.talk, chosen, "Claude Agent SDK?")

    def langchain(self) -> None:
        with self.provider("openai-chat", "LangChain") as url:
            config: Any = {"configurable": {"session_id": self.name}}
            langchain_agent.chain(url, self.store).invoke([HumanMessage("LangChain?")], config)

    def pydantic_ai(self) -> None:
        with self.provider("openai-chat", "pydantic-ai") as url:
            who = pydantic_agent.agent(url, "openai-chat")
            asyncio.run(pydantic_agent.ask(who, "pydantic-ai?", self.store.get(self.name)))

    def llama_index(self) -> None:
        answers = llama_agent.call("Rome", "call_llama"), llama_agent.answer("LlamaIndex: done.")
        llm = llama_agent.ScriptedLLM(*answers)
        memory = PalaverMemory(self.store, self.name)
        llama_agent.run(llama_agent.agent(llm), "LlamaIndex?", memory)
        self.arrive("LlamaIndex", [str(each) for each in llm.requests])

    def adk(self) -> None:
        service = PalaverSessionService(self.store, agent="ada")

        async def go(url: str) -> None:
            await service.adopt_session(
                app_name=adk_agent.APP, user_id=adk_agent.USER, session_id=self.name
            )
            await adk_agent.ask(adk_agent.agent(url), "ADK?", service, self.name)

        with self.provider("gemini", "ADK") as url:
            asyncio.run(go(url))

    def strands(self) -> None:
        with self.provider("openai-chat", "Strands") as url:
            model = OpenAIModel(client_args={"base_url": url, "api_key": "any"}, model_id="any")
            strands_agent.agent(model, PalaverSessionManager(self.name, self.store))("Strands?")

    def agent_framework(self) -> None:
        with self.provider("openai-responses", "Agent Framework") as url:
            client = OpenAIChatClient("any", base_url=url, api_key="any")
            provider, options = PalaverHistoryProvider(self.store), {"store": False}
            who = agent_framework_agent.agent(client, provider, default_options=options)
            asyncio.run(agent_framework_agent.ask(who, "Agent Framework?", self.name))

    def page(self, serving: Serving) -> None:
        model = "anthropic:claude"
        serving.then(
            model, Answer(calls=(Call("calculate", {"expression": "6*7"}),)), "Page: done."
        )
        address = f"{serving.url.removesuffix('/v1')}/api/conversations/{self.name}"
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            asked = {"text": "Page?", "model": model, "tools": ["calculate"]}
            client.post(f"{address}/step", json=asked).raise_for_status()
            until = time.monotonic() + 60
            while self.store.get(self.name).view[-1].text != "Page: done.":
                assert time.monotonic() < until
                time.sleep(0.05)
        self.arrive("Page", [serving.sent(model)])


def test_one_conversation_through_all_frameworks_and_the_page(
    serving: Serving, tmp_path: Path
) -> None:
    journey = Journey(serving.store)
    journey.langgraph()
    journey.openai_agents()
    journey.claude_agent_sdk(tmp_path)
    journey.langchain()
    journey.pydantic_ai()
    journey.llama_index()
    journey.adk()
    journey.strands()
    journey.agent_framework()
    journey.page(serving)
    journey.langgraph()  # and the first one reads what all the others wrote

    view = serving.store.get(journey.name).view
    asked = [each.text for each in view if each.role == "user" and each.text.endswith("?")]
    assert asked == [f"{who}?" for who in journey.travellers]
    said = [each.text for each in view if each.text.endswith(": done.")]
    assert said == [f"{who}: done." for who in journey.travellers]
    calls = [part for each in view for part in each.parts if isinstance(part, ToolCallPart)]
    results = [part for each in view for part in each.parts if isinstance(part, ToolPart)]
    assert len(calls) == len(journey.travellers) == 11
    assert [each.call_id for each in calls] == [each.call_id for each in results]
    assert [each.tool for each in calls] == [each.tool for each in results]
    assert all(isinstance(each.state, ToolCompleted) for each in results)
    for form, needed in NEEDED.items():
        written = to(form, view)
        assert () == check_request(form, {**needed, **written.body})
        repaired = {note.rule for note in written.notes if note.action == "repaired"}
        assert repaired.isdisjoint(BROKEN), form
    assert [] == list(serving.store.verify())
