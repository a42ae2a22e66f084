"""Agents of LangChain's over palaver's history: turns with tools, edits between them, a kill."""

from __future__ import annotations

import json
import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

import palaver
from compat.langchain_agent import chain, loop, main
from palaver.adapters.langchain import PalaverChatMessageHistory, repair_messages
from palaver.messages import assistant
from palaver.testing.servers import Answer, Call, ProviderServer
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from palaver.testing.servers import Scripted

NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.langchain_agent"])
CONFIG: Any = {"configurable": {"session_id": "talk"}}
TURN = ["user", "assistant", "tool", "assistant"]


def looks(city: str) -> Answer:
    return Answer("Let me see.", calls=(Call("weather", {"city": city}),))


def sent(server: ProviderServer) -> str:
    return json.dumps(server.requests[-1].body["messages"])


def test_an_agent_with_tools_over_several_turns(address: str) -> None:
    """What is edited between turns is what is sent, and no edit makes a request fail."""
    script: list[Scripted] = [
        looks("Rome"),
        "Sunny in Rome.",
        looks("Oslo"),
        "Sunny in Oslo.",
        "Rain.",
        "Sun.",
    ]
    with ProviderServer("openai-chat", script) as server, palaver.open(address) as store:
        agent = chain(server.url, store)
        for city in ("Rome", "Oslo"):
            said = agent.invoke([HumanMessage(f"Weather in {city}?")], CONFIG)
            assert f"Sunny in {city}." == said[-1].text
        talk = store.get("talk")
        assert TURN * 2 == [message.role for message in talk.view]
        assert {"talk"} == {hit.conversation for hit in store.search("degrees Oslo")}

        whole = talk.version
        talk.replace(3, assistant("Rain in Rome."))
        talk.rewrite([range(1), range(2, len(talk.view))])  # a result without its call
        talk.truncate(keep_first=5)  # a call without its result
        agent.invoke([HumanMessage("And now?")], CONFIG)
        assert "Rain in Rome." in sent(server)
        assert "Rome: 21 degrees" not in sent(server)
        assert INTERRUPTED in sent(server)

        talk.refresh().restore(whole)
        agent.invoke([HumanMessage("And now?")], CONFIG)
        assert "Sunny in Rome." in sent(server)
        assert "Oslo: 21 degrees" in sent(server)
        assert [] == server.failures


@pytest.mark.parametrize("moment", ["tool", "result"])
def test_a_killed_agent_goes_on(address: str, moment: str) -> None:
    """Kept as it comes, nothing is asked twice: the call is carried out, the answer comes."""
    with ProviderServer("openai-chat", [looks("Rome"), "Sunny in Rome.", "Rain."]) as server:
        child = NURSERY.Process(target=main, args=(address, server.url, moment))
        child.start()
        child.join(120)
        assert -9 == child.exitcode
        with palaver.open(address) as store:
            history = PalaverChatMessageHistory(store, "talk", resuming=True)
            kept = [message.role for message in history.history.view]
            assert TURN[: 2 if moment == "tool" else 3] == kept
            assert "Sunny in Rome." == loop(server.url, history, None)
            assert "Rain." == loop(server.url, history, "And in Oslo?")
            assert [*TURN, "user", "assistant"] == [m.role for m in history.history.view]
            assert [] == list(store.verify())
        assert 3 == len(server.requests)
        assert [] == server.failures


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def calling(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": each} for each in ids])


def result(call: str, text: str = "4") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call)


def lost(call: str) -> ToolMessage:
    return ToolMessage(INTERRUPTED, tool_call_id=call, name="add", status="error")


HI, HO = HumanMessage("hi"), HumanMessage("ho")


def repaired(messages: list[BaseMessage], *, resuming: bool = False) -> list[BaseMessage]:
    """Return what follows the text of the user that stands before an answer."""
    found = repair_messages(messages, resuming=resuming)
    return found[1:] if found and found[0].content == BEGIN else found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([HI, calling("a", "b"), result("b"), result("a"), HO], None),
        ([result("a"), HI], [HI]),
        ([calling("a", "b"), result("b"), HO], [calling("a", "b"), result("b"), lost("a"), HO]),
        ([calling("a"), HI, result("a")], [calling("a"), result("a"), HI]),
        ([calling("a"), result("a"), result("a", "5")], [calling("a"), result("a")]),
        (
            [calling("a"), calling("a"), result("a")],
            [calling("a"), lost("a"), calling("a"), result("a")],
        ),
        ([HI, calling("a")], [HI, calling("a"), lost("a")]),
    ],
)
def test_calls_and_results_are_paired(
    given: list[BaseMessage], expected: list[BaseMessage] | None
) -> None:
    assert (given if expected is None else expected) == repaired(given)


@pytest.mark.parametrize("before", [[], [result("x")]])
def test_who_goes_on_finds_the_last_calls_open(before: list[BaseMessage]) -> None:
    assert [HI, calling("a", "b")] == repaired([*before, HI, calling("a", "b")], resuming=True)
    assert [calling("a", "b"), result("b")] == repaired(
        [*before, calling("a", "b"), result("b")], resuming=True
    )
    assert [calling("a"), lost("a"), HI] == repaired([*before, calling("a"), HI], resuming=True)


def test_a_call_that_could_not_be_read_is_a_call() -> None:
    broken = AIMessage(
        "", invalid_tool_calls=[{"name": "add", "args": "{", "id": "a", "error": "cut off"}]
    )
    assert [broken, result("a"), HI] == repaired([broken, result("a"), HI])
    assert [broken, lost("a"), HI] == repaired([broken, HI])


def test_thoughts_that_stand_alone_go_with_the_answer_they_led_to() -> None:
    """Claude Code writes them so; a provider that takes no thoughts refuses an empty answer."""
    thought = AIMessage([{"type": "reasoning", "reasoning": "Hm."}])
    asked = calling("a")
    joined = asked.model_copy(update={"content": thought.content})
    assert [HI, joined, result("a")] == repaired([HI, thought, asked, result("a")])
    said = AIMessage("Yes.", id="m1")
    text = {"type": "text", "text": "Yes."}
    assert [AIMessage([*thought.content, text], id="m1")] == repaired([thought, said])
    assert [HI] == repaired([thought, HI, thought])
