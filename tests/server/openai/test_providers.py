"""The provider changes at every response, and each gets a request that it accepts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from palaver.messages import dump
from palaver.models import model
from palaver.testing.servers import Answer, Call, ProviderServer
from tests.conversation.scripted import Scripted
from tests.models.providers import KEYS, PROVIDERS
from tests.server.openai.door import FUNCTION, Door, text_of
from tests.server.openai.test_responses import conversation_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store

TURNS = 20


class Providers:
    """A server in front of all four providers."""

    def __init__(self, door: Door, servers: dict[str, ProviderServer]) -> None:
        self.door, self.servers = door, servers
        self.names = [provider.name for provider in PROVIDERS]


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Generator[Providers]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        servers = {
            each.name: stack.enter_context(ProviderServer(each.format)) for each in PROVIDERS
        }
        door = stack.enter_context(Door(Scripted(), model=None))
        registry = door.app.service.models
        monkeypatch.setattr(registry, "_make", lambda name: model(name, base_url=servers[name].url))
        yield Providers(door, servers)


def test_every_provider_takes_over_from_every_other_with_tools_and_reasoning(
    providers: Providers,
) -> None:
    door, servers, names = providers.door, providers.servers, providers.names
    parent: dict[str, Any] = {}
    for turn in range(TURNS):
        for half in range(2):
            name = names[(turn + half) % len(names)]
            thought = f"thought {turn}"
            call = Call("weather", {"city": f"city {turn}"}, id=f"call_{turn}")
            answer = Answer(f"answer {turn}", reasoning=thought)
            servers[name].then(Answer(reasoning=thought, calls=[call]) if not half else answer)
            given: Any = f"question {turn}"
            if half:
                (made,) = [each for each in parent["output"] if each["type"] == "function_call"]
                given = [
                    {
                        "type": "function_call_output",
                        "call_id": made["call_id"],
                        "output": f"result {turn}",
                    }
                ]
            before = {"previous_response_id": parent["id"]} if parent else {}
            parent = door.create(given, model=name, tools=[FUNCTION], **before)
        assert f"answer {turn}" == text_of(parent)
    for name, server in servers.items():
        assert [] == server.failures, name
        sent = str(server.requests[-1].body)
        for turn in range(TURNS - len(names)):
            for word in ("question", "city", "result", "answer"):
                assert f"{word} {turn}" in sent, (name, word, turn)
    chat = door.app.service.conversations.get(conversation_of(parent))
    for name in names:
        notes = chat.request(door.app.service.models.get(name)).notes
        lost = [note for note in notes if note.rule == "foreign-reasoning"]
        assert lost, f"what {name} may not get is noted"


def test_reasoning_goes_back_to_its_model_even_if_the_client_stores_everything(
    providers: Providers,
) -> None:
    door, server = providers.door, providers.servers["anthropic:claude"]
    server.then(
        Answer(reasoning="deep thought", calls=[Call("weather", {}, id="c1")]), Answer("Ok")
    )
    asked = {"role": "user", "content": "Weather?"}
    fields = {"store": False, "include": ["reasoning.encrypted_content"], "tools": [FUNCTION]}
    first = door.create([asked], model="anthropic:claude", **fields)
    output = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
    history = [asked, *first["output"], output]
    assert "Ok" == text_of(door.create(history, model="anthropic:claude", **fields))
    body = server.requests[-1].body
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert ["thinking", "tool_use"] == kinds
    assert [] == server.failures
    other = providers.servers["openai:gpt-5"]
    other.then(Answer("Fine"))
    assert "Fine" == text_of(door.create(history, model="openai:gpt-5", **fields))
    assert "deep thought" not in str(other.requests[-1].body)
    assert [] == other.failures


@pytest.mark.parametrize("system", [False, True], ids=["alone", "with-system"])
def test_instructions_reach_every_provider_in_its_own_form(
    providers: Providers,
    system: bool,  # noqa: FBT001 - with a system message, or without
) -> None:
    given = [{"role": "user", "content": "Hi"}]
    if system:
        given.insert(0, {"role": "system", "content": "Be kind."})
    for name, server in providers.servers.items():
        tools = [FUNCTION, {**FUNCTION, "name": "clock"}]
        fields: dict[str, Any] = {"tools": tools, "parallel_tool_calls": False}
        choice = {"type": "function", "name": "clock"}
        server.then(Answer("Yes."), Answer(calls=[Call("clock", {}, id=f"c{name}")]))
        for more in ({}, {"tool_choice": choice}):
            providers.door.create(given, model=name, instructions="Be brief.", **fields, **more)
            sent = str(server.requests[-1].body)
            assert "Be brief." in sent
            assert ("Be kind." in sent) is system
        assert [] == server.failures, name


def test_what_is_stored_grows_with_the_turns_and_not_with_their_square() -> None:
    sizes: list[int] = []
    with ProviderServer("openai-chat") as upstream, Door(Scripted(), model=None) as door:
        registry = door.app.service.models
        registry._make = lambda name: model(name, base_url=upstream.url, api_key="k")
        parent: dict[str, Any] = {}
        for turn in range(30):
            more = {"previous_response_id": parent["id"]} if parent else {}
            given = f"{turn:02} " + "word " * 40
            parent = door.create(given, model="openai:echo", tools=[FUNCTION], **more)
            if turn in (9, 19, 29):
                sizes.append(stored_bytes(door.store, conversation_of(parent)))
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second < first * 1.1


def stored_bytes(store: Store, conversation: str) -> int:
    """The bytes of a conversation's messages, and of everything beside them."""
    messages = sum(len(dump(message)) for message in store.get(conversation).log)
    kinds = (store.records(conversation, kind) for kind in store.kinds(conversation))
    return messages + sum(len(value) for found in kinds for value in found.values())
