"""An agent of LangChain's with a tool, for tests: in a chain with a history, and as a bare loop."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import palaver
from palaver.adapters.langchain import PalaverChatMessageHistory

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from palaver.stores import Store

__all__ = ["chain", "loop", "main"]


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: 21 degrees and sunny"


def _model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-test", base_url=url, api_key=SecretStr("any"), max_retries=0)


def chain(url: str, store: Store) -> RunnableWithMessageHistory:
    """LangChain's own agent with palaver's history around it, kept when a turn is over."""
    agent: Any = create_agent(_model(url), [weather])

    def answer(messages: list[BaseMessage]) -> list[BaseMessage]:
        found: list[BaseMessage] = agent.invoke({"messages": messages})["messages"]
        return found[len(messages) :]

    return RunnableWithMessageHistory(
        RunnableLambda(answer), lambda session_id: PalaverChatMessageHistory(store, session_id)
    )


def loop(
    url: str, history: PalaverChatMessageHistory, words: str | None, *, deadly: str = ""
) -> str:
    """A turn whose every message is kept as it comes; without words it goes on where it was."""
    model = _model(url).bind_tools([weather])
    if words is not None:
        history.add_messages([HumanMessage(words)])
    while True:
        last = history.messages[-1]
        if isinstance(last, AIMessage) and not last.tool_calls:
            return last.text
        if isinstance(last, AIMessage):
            _die(deadly == "tool")
            history.add_messages([weather.invoke(dict(call)) for call in last.tool_calls])
            _die(deadly == "result")
        else:
            history.add_messages([model.invoke(history.messages)])


def main(address: str, url: str, moment: str) -> None:
    """A turn in a process of its own, which ends before its time."""
    history = PalaverChatMessageHistory(palaver.open(address), "talk", resuming=True)
    loop(url, history, "Weather in Rome?", deadly=moment)


def _die(now: bool) -> None:  # noqa: FBT001 - now or not
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
