"""`openai-agents`, as it is, against `palaver serve`: its own sessions, and response ids."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
from agents import Agent, ModelSettings, OpenAIConversationsSession, Runner, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from pydantic import BaseModel

from compat.serving import MODELS, TALK, TOKEN, Serving, server, serving
from palaver.testing.servers import Answer, Call

__all__ = ["server", "serving"]  # fixtures, found here by pytest

agents.set_tracing_disabled(disabled=True)


class City(BaseModel):
    name: str
    degrees: int


@function_tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees"


class Turns:
    """An agent, and where its turns are: in a session, a conversation, or after a response."""

    def __init__(self, serving: Serving, model: str, **fields: Any) -> None:
        self.client = AsyncOpenAI(base_url=serving.url, api_key=TOKEN, max_retries=0, timeout=60)
        fields = {"name": "Ada", "instructions": "Be brief.", "tools": [weather], **fields}
        self.agent: Agent[Any] = Agent(model=OpenAIResponsesModel(model, self.client), **fields)
        self.state: dict[str, Any] = {}
        self.conversation: str | None = None

    async def begin(self, mode: str) -> None:
        """Begin a session or a conversation; a chain of responses begins with the first."""
        if mode == "session":
            session = OpenAIConversationsSession(openai_client=self.client)
            self.state, self.conversation = {"session": session}, await session._get_session_id()
        elif mode == "conversation_id":
            self.conversation = (await self.client.conversations.create()).id
            self.state = {"conversation_id": self.conversation}
        else:
            self.state = {"auto_previous_response_id": True}

    async def run(self, text: str) -> Any:
        result = await Runner.run(self.agent, text, **self.state)
        self._remember(result)
        return result.final_output

    async def stream(self, text: str) -> Any:
        result = Runner.run_streamed(self.agent, text, **self.state)
        kinds = [event.type async for event in result.stream_events()]
        assert "raw_response_event" in kinds
        self._remember(result)
        return result.final_output

    def _remember(self, result: Any) -> None:
        if "auto_previous_response_id" in self.state:
            self.state |= {"previous_response_id": result.last_response_id}


@pytest.mark.parametrize("mode", ["session", "conversation_id", "previous_response_id"])
@pytest.mark.parametrize("model", MODELS)
def test_turns_with_a_tool_go_on_from_an_edit(serving: Serving, model: str, mode: str) -> None:
    async def main() -> None:
        turns = Turns(serving, model)
        await turns.begin(mode)
        serving.calls_weather(model, "Rome", "Oslo")
        assert "Lovely in Rome." == await turns.run("Rome?")
        assert "Lovely in Oslo." == await turns.stream("Oslo?")
        assert TALK == serving.said(turns.conversation)
        edited = {"role": "assistant", "content": "Cold in Oslo."}
        serving.history(turns.conversation).replace(7, edited)
        serving.then(model, "Wear a coat.")
        assert "Wear a coat." == await turns.run("And now?")
        assert ("assistant", "Wear a coat.") == serving.said(turns.conversation)[-1]
        await turns.client.close()

    asyncio.run(main())
    assert "Be brief." in serving.sent(model)
    assert "Cold in Oslo." in serving.sent(model)
    assert "Lovely in Oslo." not in serving.sent(model)


def test_a_session_is_read_changed_and_cleared(serving: Serving) -> None:
    model = MODELS[0]

    async def main() -> None:
        turns = Turns(serving, model, model_settings=ModelSettings(store=False))
        await turns.begin("session")
        session: Any = turns.state["session"]
        serving.calls_weather(model, "Rome")
        await turns.run("Rome?")
        items = await session.get_items()
        assert ["message", "function_call", "function_call_output", "message"] == [
            item.get("type", "message") for item in items
        ]
        assert items[-2:] == await session.get_items(limit=2)
        assert {turns.conversation} == serving.new_conversations(), "nothing is stored twice"
        popped = await session.pop_item()
        assert popped == items[-1]
        await session.add_items([{"role": "user", "content": "Say it again."}])
        assert ("user", "Say it again.") == serving.said(turns.conversation)[-1]
        await session.clear_session()
        await turns.client.close()

    asyncio.run(main())


def test_an_agent_that_hands_over_and_answers_in_a_type(serving: Serving) -> None:
    first, second = MODELS[2], MODELS[1]

    async def main() -> None:
        expert = Turns(serving, second, name="Expert", output_type=City)
        turns = Turns(serving, first, handoffs=[expert.agent])
        await turns.begin("session")
        serving.then(first, Answer(calls=[Call("transfer_to_expert", {}, id="c1")]))
        serving.then(second, '{"name": "Rome", "degrees": 21}')
        assert City(name="Rome", degrees=21) == await turns.run("Rome?")
        await turns.client.close()

    asyncio.run(main())


def test_chat_completions_behind_an_agent(serving: Serving) -> None:
    model = MODELS[1]

    async def main() -> None:
        turns = Turns(serving, model)
        turns.agent = turns.agent.clone(model=OpenAIChatCompletionsModel(model, turns.client))
        serving.calls_weather(model, "Rome", "Oslo")
        assert "Lovely in Rome." == await turns.run("Rome?")
        assert "Lovely in Oslo." == await turns.stream("Oslo?")
        await turns.client.close()

    asyncio.run(main())
