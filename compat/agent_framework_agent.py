"""An agent of Agent Framework with a tool and a scripted model, also in a process of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    SupportsChatGetResponse,
    tool,
)

import palaver
from palaver.adapters.agent_framework import PalaverHistoryProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from multiprocessing.connection import Connection

    from agent_framework import ContextProvider

__all__ = ["ScriptedClient", "agent", "ask", "call", "keep_talking", "run_turns", "said"]


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Gives one answer after the other, a text or contents; remembers what it was sent."""

    def __init__(self, *answers: str | list[Any]) -> None:
        """Take the answers in order."""
        super().__init__()
        self.answers = list(answers)
        self.requests: list[list[Message]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, **_more: Any) -> Any:
        self.requests.append([Message.from_dict(each.to_dict()) for each in messages])
        given = self.answers.pop(0)
        contents: list[Any] = [Content.from_text(given)] if isinstance(given, str) else given

        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=Message("assistant", contents))

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            for content in contents:
                yield ChatResponseUpdate(contents=[content], role="assistant")

        if stream:
            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)
        return answer()


def call(name: str = "c1") -> list[Any]:
    """Make an answer that asks for the weather of Rome."""
    asked = Content.from_function_call(name, "weather", arguments='{"city": "Rome"}')
    return [Content.from_text("Let me see."), asked]


def said(messages: Any) -> list[str]:
    """The texts of messages, and what else they have."""
    return [
        "+".join(each.text if each.type == "text" else each.type for each in message.contents)
        for message in messages
    ]


def agent(
    client: SupportsChatGetResponse[Any],
    *providers: ContextProvider,
    meanwhile: Callable[[], object] = lambda: None,
    each_step: bool = True,
    **more: Any,
) -> Agent[Any]:
    """Make an agent that can look at the weather; `meanwhile` is called by its tool."""

    @tool(approval_mode="never_require")
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        meanwhile()
        return f"{city}: 21 degrees and sunny"

    return Agent(
        client=client,
        tools=more.pop("tools", [weather]),
        context_providers=providers,
        require_per_service_call_history_persistence=each_step,
        **more,
    )


async def ask(who: Agent[Any], question: Any, session: str = "talk") -> str:
    """One run, as a new process would make it: with a new session object."""
    answer = await who.run(question, session=who.create_session(session_id=session))
    return answer.messages[-1].text


def keep_talking(address: str, first: int, told: Connection, each_step: bool) -> None:  # noqa: FBT001
    """Run turns with a tool until killed, and tell of each when it is over."""
    client = ScriptedClient()
    provider = PalaverHistoryProvider(palaver.open(address), turn_seconds=1, wait_seconds=30)
    talking = agent(client, provider, each_step=each_step)
    told.send("ready")

    async def go() -> None:
        number = first
        while True:
            client.answers = [call(str(number)), f"answer {number}"]
            await ask(talking, f"question {number}")
            told.send(str(number))
            number += 1

    asyncio.run(go())


def run_turns(address: str, who: str, turns: int) -> None:
    """Run turns with a tool, side by side with others."""
    client = ScriptedClient()
    talking = agent(client, PalaverHistoryProvider(palaver.open(address), wait_seconds=60))

    async def go() -> None:
        for number in range(turns):
            name = f"{who}-{number}"
            client.answers = [call(name), f"{name} answer"]
            await ask(talking, f"{name} question")

    asyncio.run(go())
