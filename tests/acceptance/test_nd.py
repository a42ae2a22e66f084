"""ND: palaver in a workflow engine, from outside, with the documents' own examples.

The engine is as small as one can be; a real one, LangGraph, has the same in `compat/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.conversation import Conversation, model
from palaver.errors import UnsupportedOperation, ValidationError
from palaver.messages import ToolPart, assistant, system, user
from palaver.nodes import (
    ConversationRegistry,
    ask_human,
    ask_model,
    compress_context,
    edit_context,
    parse_context,
    read_config,
    run_calls,
)
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from palaver import Store
    from palaver.nodes import NodeResult, Question
    from palaver.testing.servers import Scripted

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return palaver.open(str(tmp_path / "chat.db"))


def talk(store: Store) -> Conversation:
    """Seven turns of questions and answers, after a system message."""
    turns = [m for n in range(7) for m in (user(f"question {n}"), assistant(f"answer {n}"))]
    return Conversation(store, store.create([system("Be brief."), *turns]))


# ND-01


async def test_nd_01_any_engine_hosts_the_nodes(store: Store) -> None:
    """S4's uses: the model, the tools and a person, and the engine keeps no messages at all."""
    ran: list[str] = []

    def weather(city: str) -> str:
        ran.append(city)
        return "9 °C; " * 400

    def book(city: str) -> str:
        ran.append(f"booked {city}")
        return "booked"

    def person(question: Question) -> Any:  # noqa: ANN401 - an answer
        return "Oslo, please." if question.kind == "text" else {"call-2": True}

    script: list[Scripted] = [
        Answer(calls=(Call("weather", {"city": "Oslo"}, "call-1"),)),
        Answer("I'll book.", calls=(Call("book", {"city": "Oslo"}, "call-2"),)),
        "Take a coat.",
    ]
    with ProviderServer("openai-chat", script) as server:
        asked = model("openai:gpt-5", base_url=server.url, api_key="any")
        conversation = Conversation(store, model=asked, tools=[weather, book], token_limit=800)
        room = {"strategies": [{"kind": "clear-outputs", "protectTokens": 0, "protectTurns": 0,
                                "leastGain": 1}]}  # fmt: skip
        nodes: dict[str, Callable[[], Awaitable[NodeResult]]] = {
            "llm": lambda: ask_model(conversation),
            "tool": lambda: run_calls(conversation, {"approval": ["book"]}),
            "human": lambda: ask_human(conversation, ask=person),
            "compress": lambda: compress_context(conversation, room),
        }
        done = await ask_human(conversation, {"kind": "text", "prompt": "Where?"}, ask=person)
        way = [done.node]
        while done.next != "end":
            done = await nodes[done.next]()
            way.append(done.node)
        await asked.close()
    assert ["human", "llm", "tool", "compress", "llm", "tool", "human", "tool", "llm"] == way
    assert ["Oslo", "booked Oslo"] == ran
    assert "Take a coat." == conversation.messages[-1].text
    assert () == tuple(server.failures)


async def test_nd_01_a_refused_call_never_runs(store: Store) -> None:
    def wipe() -> str:
        raise AssertionError

    conversation = Conversation(store, tools=[wipe])
    conversation.add(user("Clean up."))
    with ProviderServer("anthropic", [Answer(calls=(Call("wipe"),))]) as server:
        asked = model("anthropic:claude", base_url=server.url, api_key="any")
        await ask_model(conversation, model=asked)
        await asked.close()
    assert "approval" == (await run_calls(conversation, {"approval": "all"})).outcome
    await ask_human(conversation, ask=lambda _: {"verdict": "deny", "reason": "not today"})
    done = await run_calls(conversation, {"approval": "all"})
    (part,) = conversation.messages[-1].parts
    assert isinstance(part, ToolPart)
    assert "not run: the call was denied: not today" == getattr(part.state, "error", "")
    assert "llm" == done.next


async def test_nd_01_a_node_that_is_run_again_does_nothing_twice(store: Store) -> None:
    """An engine that lost its place runs its nodes again, each under its key, in a new process."""
    calls: list[str] = []

    def pay(amount: int) -> str:
        calls.append(f"paid {amount}")
        return "paid"

    with ProviderServer("openai-chat", [Answer(calls=(Call("pay", {"amount": 5}),))]) as server:
        for _ in range(3):
            host = ConversationRegistry(store, tools=[pay])
            conversation = await host.open("trip")
            asked = model("openai:gpt-5", base_url=server.url, api_key="any")
            said = {"kind": "text", "prompt": "What?"}
            await ask_human(conversation, said, ask=lambda _: "Pay.", key="task-1")
            await ask_model(conversation, model=asked, key="task-2")
            await run_calls(conversation)
            cut = {"operation": "TRUNCATE", "removeFirst": 1}
            await edit_context(conversation, cut, key="task-3")
            await asked.close()
        assert 1 == len(server.requests)
    assert ["paid 5"] == calls
    assert ["assistant", "tool"] == [message.role for message in store.get("trip")]
    assert ["user", "assistant", "tool"] == [message.role for message in store.get("trip").log]


# ND-02


async def test_nd_02_the_documents_example_keeps_the_last_five_of_the_user(store: Store) -> None:
    """S1 §5, example 2, to the letter."""
    conversation = talk(store)
    config = """
    {
      "operation": "truncate",
      "truncate": {
        "role": "user",
        "keepLast": 5
      }
    }
    """
    await edit_context(conversation, config)
    expected = [f"question {number}" for number in range(2, 7)]
    assert expected == [message.text for message in conversation.messages]


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        ({"operation": "truncate", "truncate": {"role": "user", "keepLast": 5}},
         {"operation": "TRUNCATE", "role": "user", "keepLast": 5}),
        ({"operation": "truncate", "truncate": {"keepFirst": 9, "removeFirst": 1, "removeLast": 2,
                                                "range": {"start": 1, "end": 4}}},
         {"operation": "TRUNCATE", "keepFirst": 9, "removeFirst": 1, "removeLast": 2,
          "range": {"start": 1, "end": 4}}),
        ({"operation": "insert", "insert": {"position": 3, "messages": [
            {"role": "user", "content": "new", "id": "n", "timestamp": 1}]}},
         {"operation": "INSERT", "position": 3, "messages": [
             {"role": "user", "content": "new", "id": "n", "timestamp": 1}]}),
        ({"operation": "replace", "replace": {"index": 2, "message":
            {"role": "tool", "content": "new", "id": "n", "timestamp": 1}}},
         {"operation": "REPLACE", "index": 2, "message":
             {"role": "tool", "content": "new", "id": "n", "timestamp": 1}}),
        ({"operation": "filter", "filter": {"roles": ["user", "assistant"],
                                            "contentContains": ["1", "2"],
                                            "contentExcludes": ["question 2"]}},
         {"operation": "FILTER", "roles": ["user", "assistant"], "contentContains": ["1", "2"],
          "contentExcludes": ["question 2"]}),
        ({"operation": "clear", "clear": {"keepSystemMessage": False}},
         {"operation": "CLEAR", "keepSystemMessage": False}),
        ({"operation": "clear"}, {"operation": "CLEAR"}),
    ],
    ids=["truncate", "truncate by all options", "insert", "replace", "filter", "clear", "bare"],
)  # fmt: skip
async def test_nd_02_the_nested_and_the_flat_form_do_the_same(
    store: Store, nested: dict[str, Any], flat: dict[str, Any]
) -> None:
    one, other, plain = talk(store), talk(store), talk(store)
    await edit_context(one, nested)
    await edit_context(other, flat)
    plain.history.execute(flat)
    expected = [(message.role, message.text) for message in plain.messages]
    assert expected == [(message.role, message.text) for message in one.messages]
    assert expected == [(message.role, message.text) for message in other.messages]
    assert len(expected) != 15 or nested["operation"] == "replace", "it does something"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"operation": "truncate", "truncate": {"role": "user", "keepLast": "5"}},
         "$.truncate.keepLast"),
        ({"operation": "truncate", "truncate": {"rolle": "user", "keepLast": 5}},
         "$.truncate.rolle"),
        ({"operation": "insert", "insert": {"position": -1, "messages": []}}, "$.insert.position"),
        ({"operation": "REPLACE", "index": 1.0, "message": {"role": "user", "content": "x"}},
         "$.index"),
        ({"operation": "filter", "filter": {"roles": ["robot"]}}, "$.filter.roles[0]"),
        ({"operation": "clear", "clear": {"keepSystemMessage": "no"}},
         "$.clear.keepSystemMessage"),
        ({"operation": "truncate", "truncate": {"keepLast": 5}, "createNewBatch": True},
         "$.createNewBatch"),
    ],
)  # fmt: skip
async def test_nd_02_a_bad_config_names_the_field_and_changes_nothing(
    store: Store, config: dict[str, Any], field: str
) -> None:
    conversation = talk(store)
    with pytest.raises(ValidationError) as caught:
        await edit_context(conversation, config)
    assert field == caught.value.path
    assert str(caught.value).startswith(f"{field}: ")
    assert 0 == conversation.history.version


def test_nd_02_the_documents_error_texts_stand() -> None:
    with pytest.raises(ValidationError, match="Truncate configuration is required"):
        parse_context({"operation": "truncate"})
    with pytest.raises(UnsupportedOperation, match="Unsupported operation type: shuffle"):
        parse_context({"operation": "shuffle"})


def test_nd_02_the_other_nodes_settings_name_their_fields_too() -> None:
    with pytest.raises(ValidationError, match=r"^\$\.strategies\[0\]\.keepTokens: is missing"):
        read_config("compress", {"strategies": [{"kind": "drop-oldest"}]})
