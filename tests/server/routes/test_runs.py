"""Runs and costs, through HTTP: they agree with the tokens and with the messages."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import BadAnswer
from palaver.server.demo import TRIP
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.scripted_server import ScriptedServer


def finishes(stage: ScriptedServer, conversation: str) -> list[dict[str, Any]]:
    """The `step-finish` parts of a conversation: what the page writes below each answer."""
    return [
        part
        for message in stage.messages(conversation)
        if message["role"] == "assistant"
        for part in message["content"]
        if isinstance(part, dict) and part["type"] == "step-finish"
    ]


def steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for turn in report["turns"] for step in turn["steps"]]


def test_what_was_asked_and_called_is_shown_with_its_times_and_figures() -> None:
    actor = Scripted(
        calling(("calculate", {"expression": "3 + 4"}), used=(100, 20)), saying("7.", used=(150, 5))
    )
    with ScriptedServer(actor) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "What is 3 + 4?", tools=True)
        found = stage.ask.good("GET", f"conversations/{talk}/runs")
        assert (0, 4, 4) == (found["start"], found["stop"], found["length"])
        (turn,) = found["turns"]
        assert ("What is 3 + 4?", False) == (turn["text"], turn["partial"])
        asked, said = turn["steps"]
        (call,) = asked["calls"]
        assert ("calculate", "completed", 2) == (call["tool"], call["status"], call["index"])
        assert asked["start"] <= asked["end"] <= call["start"] <= call["end"] <= said["start"]
        assert ("finished", "tool-calls") == (asked["outcome"], asked["finish"])
        shown = [part["tokens"] for part in finishes(stage, talk)]
        assert shown == [asked["tokens"], said["tokens"]]
        assert {"read": 0, "written": 0, "expected": None, "lost": 0, "cause": None} == said[
            "cache"
        ]


def test_the_totals_are_those_of_the_tokens_and_of_the_messages(stage: ScriptedServer) -> None:
    for talk in (head.id for head in stage.store):
        tokens = stage.ask.good("GET", f"conversations/{talk}/tokens")["usage"]
        spent = stage.ask.good("GET", f"conversations/{talk}/costs")
        assert tokens == spent["usage"]
        assert spent["complete"]
        assert spent["dated"] == sum(point["calls"] for point in spent["points"])
        shown = steps(stage.ask.good("GET", f"conversations/{talk}/runs"))
        parts = finishes(stage, talk)
        assert [(part["tokens"], part.get("cost")) for part in parts] == [
            (step["tokens"], step["cost"]) for step in shown if step["tokens"] is not None
        ]
        if spent["length"] == len(stage.messages(talk)):  # nothing was edited away
            assert tokens["calls"] == len(parts)
            assert (tokens["cost"] or 0) == pytest.approx(sum(part["cost"] for part in parts))


def test_what_was_removed_was_paid_for() -> None:
    with ScriptedServer(Scripted(saying("Yes.", used=(100, 3)))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        stage.ask.good("POST", f"conversations/{talk}/undo", {})
        assert [] == steps(stage.ask.good("GET", f"conversations/{talk}/runs"))
        for path in ("tokens", "costs"):
            usage = stage.ask.good("GET", f"conversations/{talk}/{path}")["usage"]
            assert (1, 100) == (usage["calls"], usage["promptTokens"])


def test_an_interrupted_answer_is_shown_as_one() -> None:
    with ScriptedServer(
        Scripted([*saying("Half", used=None)[:1], BadAnswer("broke off")])
    ) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        (step,) = steps(stage.ask.good("GET", f"conversations/{talk}/runs"))
        assert ("interrupted", None, None) == (step["outcome"], step["end"], step["tokens"])


def test_a_long_conversation_is_read_page_by_page(stage: ScriptedServer) -> None:
    messages = stage.store.get(TRIP).messages
    talk = stage.store.create(messages).id
    whole = steps(stage.ask.good("GET", f"conversations/{talk}/runs"))
    stop, found = len(messages), list[Any]()
    while stop:
        page = stage.ask.good("GET", f"conversations/{talk}/runs?stop={stop}&limit=10")
        assert stop - page["start"] <= 10
        found[:0] = steps(page)
        stop = page["start"]
    assert whole == found


def test_the_store_counts_all_conversations(stage: ScriptedServer) -> None:
    found = stage.ask.good("GET", "costs?days=365")
    assert found["complete"]
    assert found["conversations"] == found["counted"] == len(list(stage.store))
    assert found["total"]["calls"] == sum(point["calls"] for point in found["points"])
    assert found["top"] == sorted(found["top"], key=lambda one: -one["cost"])


@pytest.mark.parametrize(
    "path",
    [
        "conversations/none/runs", "conversations/none/costs",
        f"conversations/{TRIP}/runs?limit=5", f"conversations/{TRIP}/runs?limit=1001",
        f"conversations/{TRIP}/runs?stop=-1", "costs?days=0", "costs?days=9999",
        "costs?offset=900",
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused(stage: ScriptedServer, path: str) -> None:
    assert stage.ask.refused("GET", path)["status"] in {400, 404, 422}
