"""Agent Framework's own clients with palaver's history, before servers that refuse what is invalid.

A client of OpenAI's Responses lets the provider keep the conversation unless it is told otherwise.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

import palaver
from compat.agent_framework_agent import agent
from palaver import wire
from palaver.adapters.agent_framework import PalaverHistoryProvider
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store

CLIENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "openai-chat": (OpenAIChatCompletionClient, {}),
    "openai-responses": (OpenAIChatClient, {"store": False}),
    "openai-responses, kept by the provider": (OpenAIChatClient, {}),
}
WEATHER = Answer("", calls=(Call("weather", {"city": "Rome"}, id="c1"),))
WAYS = [(which, each_step) for which in CLIENTS for each_step in (True, False)]
WAYS.remove(("openai-responses, kept by the provider", True))  # no history provider is asked then
THOUGHT: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
        {"type": "tool_use", "id": "c0", "name": "weather", "input": {"city": "Oslo"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c0", "content": "Rain."},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
    ]},
]  # fmt: skip


async def ask_twice(
    store: Store,
    which: str,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
    same: bool = True,
    each_step: bool,
    began: str | None = None,
) -> list[dict[str, Any]]:
    """Ask two questions with a tool call in the first; return the bodies of all requests."""
    kind, options = CLIENTS[which]
    form: Any = which.partition(",")[0]
    with ProviderServer(form, [WEATHER, "Sunny.", "I said so."]) as server:
        client = kind("any", base_url=server.url, api_key="any")
        provider = PalaverHistoryProvider(store)
        more: dict[str, Any] = {"default_options": options} if options else {}
        who = agent(client, provider, meanwhile=meanwhile, each_step=each_step, **more)
        session = who.create_session(session_id="talk")
        session.service_session_id = began
        assert (await who.run("Weather?", session=session)).text == "Sunny."
        after()
        if not same:
            session = who.create_session(session_id="talk")
        assert (await who.run("And what did you say?", session=session)).text == "I said so."
        assert [] == server.failures
        return [dict(request.body) for request in server.requests]


@pytest.mark.parametrize("same", [True, False], ids=["session", "new session"])
@pytest.mark.parametrize(("which", "each_step"), WAYS)
def test_the_model_is_sent_everything_and_nothing_twice(
    here: Store, which: str, *, same: bool, each_step: bool
) -> None:
    requests = asyncio.run(ask_twice(here, which, same=same, each_step=each_step))
    last = str(requests[-1])
    for said in ("'Weather?'", "21 degrees and sunny", "'Sunny.'", "'And what did you say?'"):
        assert 1 == last.count(said), (said, last)
    assert "previous_response_id" not in requests[-1]
    roles = [message.role for message in here.get("talk")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("which", ["openai-chat", "openai-responses"])
def test_an_edit_in_mid_run_is_in_the_next_request(here: Store, which: str) -> None:
    def edit() -> None:
        here.get("talk").replace(0, palaver.user("Weather in Rome, please?"))

    requests = asyncio.run(ask_twice(here, which, meanwhile=edit, same=True, each_step=True))
    assert "Weather in Rome, please?" in str(requests[1])
    assert "'Weather?'" not in str(requests[1:])


def test_an_edit_is_in_the_next_run_also_where_the_provider_keeps_the_conversation(
    here: Store,
) -> None:
    edits: list[Callable[[], object]] = [
        lambda: here.get("talk").append(palaver.user("In Rome, that is.")),
        lambda: here.get("talk").clear(),
    ]
    which = "openai-responses, kept by the provider"
    requests = asyncio.run(ask_twice(here, which, after=edits[0], each_step=False))
    assert "In Rome, that is." in str(requests[-1])
    here.delete("talk")
    requests = asyncio.run(ask_twice(here, which, after=edits[1], each_step=False))
    assert "previous_response_id" not in requests[-1]
    assert len(requests[-1]["input"]) == 1


def test_what_began_with_the_provider_goes_on_there(here: Store) -> None:
    which = "openai-responses, kept by the provider"
    asked = asyncio.run(ask_twice(here, which, each_step=False, began="resp_elsewhere"))
    assert asked[0]["previous_response_id"] == "resp_elsewhere"
    assert asked[-1]["previous_response_id"] not in (None, "resp_elsewhere")
    assert "'Weather?'" not in str(asked[-1])
    assert len(here.get("talk")) == 6


@pytest.mark.parametrize("which", CLIENTS)
def test_the_reasoning_of_another_model_is_not_sent(here: Store, which: str) -> None:
    said = wire.from_("anthropic", {"messages": THOUGHT}).messages
    here.create(id="talk").extend(said)
    requests = asyncio.run(ask_twice(here, which, each_step="kept" not in which))
    assert "Rain." in str(requests[0])
    assert "Hm." not in str(requests)
