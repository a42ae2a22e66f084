"""Tokens and making room, through HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import Unavailable
from palaver.messages import Message, user
from palaver.server.demo import TEAM, DemoClock, DemoUsage, MessageWriter
from tests.conversation.scripted import Scripted, saying
from tests.server.client import text_of
from tests.server.scripted_server import MODEL, ScriptedServer

LONG = "a long story about tea " * 60


def talked(stage: ScriptedServer, turns: int = 4) -> str:
    """A conversation of some turns, each with a call and its output."""
    scribe, given = MessageWriter("talk", DemoClock()), {"q": "tea"}
    used = DemoUsage("openai", "gpt-6", (10, 5, 0), 0.01)
    messages: list[Message] = [scribe.say("system", "Be brief.")]
    for turn in range(turns):
        call = f"call_{turn}"
        messages += [
            scribe.say("user", f"question {turn}"),
            scribe.answer("Let me see.", used, calls=[(call, "look", given)]),
            scribe.result(call, "look", given, LONG),
            scribe.answer(f"answer {turn}", used),
        ]
    return stage.store.create(messages).id


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [said if isinstance(said := text_of(message), str) else "" for message in messages]


def test_tokens_by_message_and_by_role() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun("one", "two words")
        found = stage.ask.good("GET", f"conversations/{talk}/tokens")
        assert (1, 8_000, 6_400, MODEL) == (
            found["version"] + 1,
            found["window"],
            found["limit"],
            found["model"],
        )
        assert "tokenizer" == found["source"]
        items = found["items"]
        assert [(0, "user"), (1, "user")] == [(item["index"], item["role"]) for item in items]
        assert found["total"] == sum(item["tokens"] for item in items)
        assert {"system": 0, "user": found["total"], "assistant": 0, "tool": 0} == found["byRole"]
        assert (None, 0) == (found["usage"]["last"], found["usage"]["calls"])


def test_the_providers_figures_come_first() -> None:
    """CV-07."""
    with ScriptedServer(Scripted(saying("Yes.", used=(1_000, 30)))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        found = stage.ask.good("GET", f"conversations/{talk}/tokens")
        assert ("api", 1_030) == (found["source"], found["total"])
        assert (1_000, 30, 1) == (
            found["usage"]["promptTokens"],
            found["usage"]["completionTokens"],
            found["usage"]["calls"],
        )


def test_a_long_conversation_is_told_in_stretches() -> None:
    with ScriptedServer(Scripted()) as stage:
        mixed = [user("q") if n % 3 else Message("assistant", "a") for n in range(1_500)]
        talk = stage.store.create([*mixed, *(user("x") for _ in range(3_001))]).id
        found = stage.ask.good("GET", f"conversations/{talk}/tokens")
        items = found["items"]
        assert len(items) <= 2_000
        assert [0, *(item["stop"] for item in items[:-1])] == [item["start"] for item in items]
        assert (4_501, found["total"]) == (
            items[-1]["stop"],
            sum(item["tokens"] for item in items),
        )
        assert ("role" in items[0], "user") == (False, items[-1]["role"])
        assert "index" not in items[0]


def test_an_erased_message_is_counted_anew() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun(LONG, "two")
        path = f"conversations/{talk}/tokens"
        before = stage.ask.good("GET", path)["total"]
        stage.ask.good("POST", f"conversations/{talk}/erase", {"message": 0})
        assert stage.ask.good("GET", path)["total"] < before / 10


def test_a_conversation_that_was_begun_anew_under_its_old_id() -> None:
    with ScriptedServer(Scripted()) as stage:
        stage.ask.begun(LONG, id="same")
        before = stage.ask.good("GET", "conversations/same/tokens")["total"]
        stage.ask.good("DELETE", "conversations/same")
        stage.ask.begun("two", id="same")
        assert stage.ask.good("GET", "conversations/same/tokens")["total"] < before / 10


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("conversations/none/tokens", 404),
        (f"conversations/{TEAM}/tokens?model=nobody", 422),
        (f"conversations/{TEAM}/tokens?model=", 422),
    ],
)
def test_a_wrong_question_about_tokens(stage: ScriptedServer, path: str, status: int) -> None:
    assert stage.ask.refused("GET", path)["status"] in {status, 400}


# ── making room ─────────────────────────────────────────────────────────────────────────────────


def test_a_preview_changes_nothing_and_what_it_showed_is_what_happens() -> None:
    """CV-09."""
    with ScriptedServer(Scripted()) as stage:
        talk = talked(stage)
        before = stage.messages(talk)
        asked = {"kind": "drop-oldest", "keepTokens": 600}
        path = f"conversations/{talk}/compact"
        shown = stage.ask.good("POST", path, {**asked, "preview": True})
        assert (0, False) == (shown["version"], shown["done"])
        assert before == stage.messages(talk)
        done = stage.ask.good("POST", path, asked)
        assert (1, True) == (done["version"], done["done"])
        same = ("before", "after", "removed", "added", "cacheLost", "result")
        assert [shown[name] for name in same] == [done[name] for name in same]
        gone = {item["id"] for item in shown["removed"]}
        assert [m for m in before if m["id"] not in gone] == stage.messages(talk)
        assert len(stage.messages(talk)) == shown["after"]["messages"]
        assert ["user", "assistant", "tool", "assistant"] == [
            item["role"] for item in shown["removed"][:4]
        ]
        stage.ask.good("POST", f"conversations/{talk}/undo", {})
        assert before == stage.messages(talk)


def test_old_outputs_are_cleared() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = talked(stage)
        asked = {"kind": "clear-outputs", "protectTokens": 0, "protectTurns": 1}
        done = stage.ask.good("POST", f"conversations/{talk}/compact", asked)
        assert "cleared the outputs of 3 tool calls" == done["result"]["detail"]
        assert (17, 17) == (done["before"]["messages"], done["after"]["messages"])
        assert done["after"]["tokens"] < done["before"]["tokens"] / 2
        assert done["result"]["saved"] == done["before"]["tokens"] - done["after"]["tokens"]


def test_the_summary_that_was_previewed_is_the_one_that_is_kept() -> None:
    model = Scripted(saying("They talked about tea."), saying("Another summary."))
    with ScriptedServer(model) as stage:
        talk = talked(stage)
        asked = {
            "kind": "summarise",
            "keepTokens": 400,
            "instructions": "Be very brief.",
            "keepRoles": ["system"],
        }
        path = f"conversations/{talk}/compact"
        shown = stage.ask.good("POST", path, {**asked, "preview": True})
        assert "They talked about tea." == texts(shown["added"])[1]
        done = stage.ask.good("POST", path, asked)
        assert shown["added"] == done["added"]
        assert 1 == len(model.asked)
        assert "Be very brief." == model.asked[0].body["messages"][-1]["content"]
        assert "They talked about tea." in texts(stage.messages(talk))


def test_a_preview_of_another_version_is_not_used() -> None:
    model = Scripted(saying("They talked about tea."), saying("Another summary."))
    with ScriptedServer(model) as stage:
        talk = talked(stage)
        asked = {"kind": "summarise", "keepTokens": 400}
        path = f"conversations/{talk}/compact"
        stage.ask.good("POST", path, {**asked, "preview": True})
        more = {"messages": [{"role": "user", "content": "more"}]}
        stage.ask.good("POST", f"conversations/{talk}/messages", more)
        done = stage.ask.good("POST", path, asked)
        assert "Another summary." == texts(done["added"])[1]
        assert "more" == texts(stage.messages(talk))[-1]


def test_where_there_is_nothing_to_gain_nothing_happens() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun("one")
        asked = {"kind": "drop-oldest", "keepTokens": 5}
        done = stage.ask.good("POST", f"conversations/{talk}/compact", asked)
        assert (0, False, None, []) == (
            done["version"],
            done["done"],
            done["result"],
            done["removed"],
        )
        assert done["before"] == done["after"]


def test_a_poor_summary_is_refused_and_nothing_changes() -> None:
    failing: list[Any] = [Unavailable("no room", provider="openai")]
    with ScriptedServer(Scripted(saying(""), failing), steps=1) as stage:
        talk = talked(stage)
        path = f"conversations/{talk}/compact"
        refused = stage.ask.refused("POST", path, {"kind": "summarise", "keepTokens": 400})
        assert (409, "CompactionRefused") == (refused["status"], refused["name"])
        refused = stage.ask.refused("POST", path, {"kind": "summarise", "keepTokens": 400})
        assert (409, "Unavailable") == (refused["status"], refused["name"])
        assert 0 == stage.ask.good("GET", f"conversations/{talk}")["version"]


def test_no_room_is_made_while_a_step_is_under_way() -> None:
    with ScriptedServer(Scripted([None])) as stage:
        talk = stage.ask.begun("Tea?")
        stage.ask.good("POST", f"conversations/{talk}/step", {})
        asked = {"kind": "drop-oldest", "preview": True}
        refused = stage.ask.refused("POST", f"conversations/{talk}/compact", asked)
        assert (409, "LeaseTaken") == (refused["status"], refused["name"])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"kind": "explode"}, "$.kind"),
        ({}, "$.kind"),
        ({"kind": "drop-oldest", "keepTokens": -1}, "$.keepTokens"),
        ({"kind": "drop-oldest", "keepRoles": ["king"]}, "$.keepRoles[0]"),
        ({"kind": "summarise", "model": "nobody"}, "$.model"),
        ({"kind": "summarise", "instructions": ""}, "$.instructions"),
    ],
)
def test_a_wrong_way_to_make_room_is_refused(
    stage: ScriptedServer, body: object, path: str
) -> None:
    talk = stage.ask.begun("one")
    for _ in range(5):  # and no place is lost
        refused = stage.ask.refused("POST", f"conversations/{talk}/compact", body)
        assert (422, path) == (refused["status"], refused["path"])
    wanted = {"kind": "drop-oldest"}
    assert 404 == stage.ask.refused("POST", "conversations/none/compact", wanted)["status"]
