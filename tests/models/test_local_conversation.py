"""The real embedded model in a real conversation: no network, no key, no stand-in.

It proves the plumbing, not cleverness: what a model of this size says is its own affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.conversation import Conversation, Summarise, compact, tool
from palaver.messages import AssistantInfo, ToolPart, system, user
from palaver.models.local import LocalModel
from palaver.wire.reply import TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from palaver.wire.reply import Delta

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One loop is enough here."""
    return "asyncio"


@pytest.fixture
async def local(smollm2: Path) -> AsyncIterator[LocalModel]:
    """The model, loaded when it is first asked."""
    found = LocalModel(str(smollm2), window=2_048)
    try:
        yield found
    finally:
        await found.close()


@tool(idempotent=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It is 9 degrees and dry in {city}."


async def test_a_conversation_with_the_embedded_model(local: LocalModel, tmp_path: Path) -> None:
    """CV-02, CV-04, CV-05, CV-07, CV-09: several turns, streaming, a tool, usage, a summary."""
    pieces: list[str] = []

    def hear(delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            pieces.append(delta.text)

    short = {"max_tokens": 24, "temperature": 0}
    with palaver.open(tmp_path / "chat.db") as store:
        conversation = Conversation(store, model=local, tools=[weather])
        conversation.add(system("You are brief."))
        conversation.add(user("Say hello to Max."))
        first = await conversation.step(tools=[], options=short, on_delta=hear)

        assert first.text == "".join(pieces)
        assert len(pieces) > 1
        assert isinstance(first.message.info, AssistantInfo)
        assert first.message.info.tokens is not None
        assert conversation.usage.prompt_tokens > 10

        conversation.add(user("What is the weather in Oslo?"))
        asked = await conversation.step(options={**short, "tool_choice": "weather"})
        assert ["weather"] == [call.tool for call in asked.calls]
        (outcome,) = await conversation.run_tools(asked.calls)
        assert "It is 9 degrees" in outcome.text
        assert isinstance(conversation.messages[-1].parts[0], ToolPart)

        answer = await conversation.step(tools=[], options=short)
        assert answer.text.strip()
        assert conversation.usage.total.prompt > conversation.usage.prompt_tokens

        before = conversation.tokens()
        strategy = Summarise(model=local, keep_tokens=0, max_tokens=16)
        done = await compact(conversation, strategy)
        assert done is not None
        assert done.saved > 0
        assert conversation.tokens() < before
        conversation.history.undo()
        assert conversation.messages[-1] == answer.message
        assert [] == await conversation.recover()
