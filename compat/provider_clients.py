"""The frameworks' own clients of providers, each behind an agent with palaver's history.

Every run is made with new objects, as a new process would: only the store stays.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_framework import Agent as FrameworkAgent
from agent_framework import tool as framework_tool
from agent_framework.anthropic import AnthropicClient
from agent_framework.gemini import GeminiChatClient
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from agents import Runner
from anthropic import AsyncAnthropic
from google import genai
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models import Gemini
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import Runner as AdkRunner
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.anthropic import AnthropicModel as PydanticAnthropic
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.models.anthropic import AnthropicModel
from strands.models.gemini import GeminiModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel as StrandsResponses

from compat import adk_agent, openai_agents
from palaver.adapters.adk import PalaverSessionService, repair_request
from palaver.adapters.agent_framework import PalaverHistoryProvider
from palaver.adapters.openai_agents import PalaverSession
from palaver.adapters.pydantic_ai import load, save
from palaver.adapters.strands import PalaverSessionManager
from palaver.errors import UnknownConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from palaver.stores import Store
    from palaver.testing.providers import FormatName

__all__ = ["CLIENTS", "ProviderClient"]

CLAUDE, GEMINI = "claude-opus-4-8", "gemini-3-flash"


class ProviderClient(NamedTuple):
    """The provider that a client speaks to, and a run of an agent with it.

    A run is given the store, the provider's address, a question, and whether to stream.
    """

    form: FormatName
    run: Callable[[Store, str, str, bool], Coroutine[Any, Any, str]]

    def ask(self, store: Store, url: str, question: str, *, stream: bool = False) -> str:
        """One run on the conversation `talk`, to its last word."""
        return asyncio.run(self.run(store, url, question, stream)).strip()


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def adk(form: FormatName, model: Callable[[str], Any]) -> ProviderClient:
    async def run(store: Store, url: str, question: str, stream: bool) -> str:  # noqa: FBT001
        service = PalaverSessionService(store, agent="ada")
        with suppress(UnknownConversation):
            if await service.get_session(**adk_agent.TALK) is None and store.get("talk"):
                await service.adopt_session(**adk_agent.TALK)
        ada = LlmAgent(
            name="ada", model=model(url), tools=[weather], before_model_callback=repair_request
        )
        runner = AdkRunner(
            app_name=adk_agent.APP, agent=ada, session_service=service, auto_create_session=True
        )
        mode = RunConfig.model_validate({"streaming_mode": "sse" if stream else None})
        answer = ""
        async for event in runner.run_async(
            user_id=adk_agent.USER, session_id="talk", new_message=adk_agent.said(question),
            run_config=mode,
        ):  # fmt: skip
            assert event.error_code is None, event.error_message
            parts = (event.content.parts if event.content else None) or []
            if not event.partial:
                answer = "".join(part.text or "" for part in parts if not part.thought) or answer
        return answer

    return ProviderClient(form, run)


def adk_claude(url: str) -> AnthropicLlm:
    model = AnthropicLlm(model=CLAUDE)
    vars(model)["_anthropic_client"] = claude(url)  # where ADK keeps it once it has made it
    return model


def strands(form: FormatName, model: Callable[[dict[str, Any]], Any]) -> ProviderClient:
    async def run(store: Store, url: str, question: str, stream: bool) -> str:  # noqa: FBT001, ARG001 - it always streams
        given: dict[str, Any] = {"base_url": url, "api_key": "any", "max_retries": 0}
        if form == "gemini":
            given = {"api_key": "any", "http_options": {"base_url": url}}
        manager = PalaverSessionManager("talk", store)
        agent = StrandsAgent(
            model=model(given), tools=[strands_tool(weather)], session_manager=manager,
            callback_handler=None,
        )  # fmt: skip
        return str(await agent.invoke_async(question))

    return ProviderClient(form, run)


def pydantic_ai(form: FormatName, model: Callable[[str], Any]) -> ProviderClient:
    async def run(store: Store, url: str, question: str, stream: bool) -> str:  # noqa: FBT001
        try:
            history = store.get("talk")
        except UnknownConversation:
            history = store.create(id="talk")
        agent: PydanticAgent[None, str] = PydanticAgent(model(url), tools=[weather])
        if stream:
            async with agent.run_stream(question, message_history=load(history)) as streamed:
                answer = await streamed.get_output()
                save(history, streamed.new_messages())
                return answer
        result = await agent.run(question, message_history=load(history))
        save(history, result.all_messages())
        return result.output

    return ProviderClient(form, run)


def openai(url: str) -> OpenAIProvider:
    return OpenAIProvider(base_url=url, api_key="any")


def agents(form: FormatName) -> ProviderClient:
    async def run(store: Store, url: str, question: str, stream: bool) -> str:  # noqa: FBT001
        ada, session = openai_agents.agent(url, form), PalaverSession(store, "talk")
        if stream:
            return await openai_agents.stream(ada, question, session, openai_agents.REPAIRED)
        made = await Runner.run(ada, question, session=session, run_config=openai_agents.REPAIRED)
        return str(made.final_output)

    return ProviderClient(form, run)


def agent_framework(
    form: FormatName, client: Callable[[str], Any], **options: Any
) -> ProviderClient:
    async def run(store: Store, url: str, question: str, stream: bool) -> str:  # noqa: FBT001
        agent: Any = FrameworkAgent(
            client=client(url), tools=[framework_tool(approval_mode="never_require")(weather)],
            context_providers=[PalaverHistoryProvider(store)],
            require_per_service_call_history_persistence=True, **options,
        )  # fmt: skip
        session = agent.create_session(session_id="talk")
        if not stream:
            answer = await agent.run(question, session=session)
            return str(answer.text)
        streamed = agent.run(question, session=session, stream=True)
        async for _ in streamed:
            pass
        return str((await streamed.get_final_response()).text)

    return ProviderClient(form, run)


def claude(url: str) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=url, api_key="any", max_retries=0)


def google(url: str) -> genai.Client:
    return genai.Client(api_key="any", http_options={"base_url": url})


CLIENTS: Final[dict[str, ProviderClient]] = {
    "ADK: Gemini": adk(
        "gemini",
        lambda url: Gemini(model=GEMINI, base_url=url, client_kwargs={"api_key": "any"}),
    ),
    "ADK: Claude": adk("anthropic", adk_claude),
    "Strands: OpenAI": strands(
        "openai-chat", lambda given: OpenAIModel(client_args=given, model_id="any")
    ),
    "Strands: Responses": strands(
        "openai-responses", lambda given: StrandsResponses(client_args=given, model_id="any")
    ),
    "Strands: Anthropic": strands(
        "anthropic",
        lambda given: AnthropicModel(client_args=given, model_id=CLAUDE, max_tokens=500),
    ),
    "Strands: Gemini": strands(
        "gemini", lambda given: GeminiModel(client_args=given, model_id=GEMINI)
    ),
    "pydantic-ai: OpenAI": pydantic_ai(
        "openai-chat", lambda url: OpenAIChatModel("gpt-test", provider=openai(url))
    ),
    "pydantic-ai: Responses": pydantic_ai(
        "openai-responses", lambda url: OpenAIResponsesModel("gpt-5", provider=openai(url))
    ),
    "pydantic-ai: Anthropic": pydantic_ai(
        "anthropic",
        lambda url: PydanticAnthropic(
            CLAUDE, provider=AnthropicProvider(anthropic_client=claude(url))
        ),
    ),
    "pydantic-ai: Google": pydantic_ai(
        "gemini",
        lambda url: GoogleModel(GEMINI, provider=GoogleProvider(base_url=url, api_key="any")),
    ),
    "OpenAI Agents: chat": agents("openai-chat"),
    "OpenAI Agents: Responses": agents("openai-responses"),
    "Agent Framework: OpenAI": agent_framework(
        "openai-chat",
        lambda url: OpenAIChatCompletionClient("any", base_url=url, api_key="any"),
    ),
    "Agent Framework: Responses": agent_framework(
        "openai-responses",
        lambda url: OpenAIChatClient("any", base_url=url, api_key="any"),
        default_options={"store": False},
    ),
    "Agent Framework: Anthropic": agent_framework(
        "anthropic", lambda url: AnthropicClient(model=CLAUDE, anthropic_client=claude(url))
    ),
    "Agent Framework: Gemini": agent_framework(
        "gemini", lambda url: GeminiChatClient(model=GEMINI, client=google(url))
    ),
}
