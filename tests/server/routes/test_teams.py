"""A team at work through HTTP: its roster, its turns, and what a stranger may not bring."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.server import demo
from palaver.server.services.teams import TEAM_TAG, store_roster
from tests.conversation.scripted import Scripted, saying
from tests.server.scripted_server import MODEL, ScriptedServer, wait_for

if TYPE_CHECKING:
    from pathlib import Path

ROSTER: dict[str, Any] = {
    "name": "Two and a human",
    "task": "Make tea.",
    "default": "max",
    "members": [
        {"kind": "human", "id": "user", "name": "You"},
        {"kind": "model", "id": "max", "name": "Max", "model": MODEL, "system": "Be brief."},
        {"kind": "model", "id": "sarah", "model": MODEL, "visibility": "addressed"},
    ],
}
PROGRAM = [{"kind": "human", "id": "u"}, {"kind": "command", "id": "c", "argv": ["ls"]}]
YAML = """
members:
  - {kind: human, id: user}
  - {kind: model, id: max, model: "stage:actor"}
"""
FILE = """
name: Echoes
default: echo
members:
  - {kind: human, id: user}
  - {kind: command, id: echo, argv: [sh, -c, "echo Hello."], instructions: notes.txt}
"""


def path(talk: str, more: str = "") -> str:
    return f"conversations/{talk}/team{more}"


def teamed(stage: ScriptedServer, roster: object = None) -> str:
    talk = stage.ask.begun()
    stage.ask.good("PUT", path(talk), {"document": ROSTER if roster is None else roster})
    return talk


def test_a_team_speaks_and_the_floor_comes_back() -> None:
    """TM-01, TM-02: each sees what was said before its turn."""
    model = Scripted(saying("Water first. [NEXT: sarah]"), saying("It boils. [NEXT: user]"))
    with ScriptedServer(model) as stage:
        talk = teamed(stage)
        said = stage.ask.good("POST", path(talk, "/say"), {"text": "How do we begin?"})
        assert (None, "user") == (said["step"], said["message"]["speaker"]["roleId"])
        waiting = stage.ask.good("GET", path(talk))
        assert ["max"] == [turn["member"] for turn in waiting["queue"]]
        begun = stage.ask.good("POST", path(talk, "/run"))
        assert begun["step"]
        stage.over(talk)
        found = stage.ask.good("GET", path(talk))
        assert ("user", "called", 2) == tuple(
            found["state"][name] for name in ("floor", "why", "turns")
        )
        assert [
            {"from": "user", "to": "all", "count": 1},
            {"from": "max", "to": "sarah", "count": 1},
            {"from": "sarah", "to": "user", "count": 1},
        ] == found["spoke"]
        assert ("Make tea.", "Two and a human", True) == (
            found["task"],
            found["name"],
            found["roster"],
        )
        turns = [data["member"] for name, data in stage.told if name == "team.turn"]
        assert ["max", "sarah"] == turns
        pieces = [data for name, data in stage.told if name == "step.delta"]
        assert {"max": "Water first. [NEXT: sarah]", "sarah": "It boils. [NEXT: user]"} == {
            piece["name"]: piece["text"] for piece in pieces
        }
        assert ["done"] == stage.ended()
        assert [TEAM_TAG] == stage.ask.good("GET", f"conversations/{talk}")["tags"]
        assert [talk] == [each["conversation"] for each in stage.ask.good("GET", "info")["teams"]]


def test_saying_it_may_give_the_turns_at_once_and_never_twice() -> None:
    with ScriptedServer(Scripted(saying("Water first."))) as stage:
        talk = teamed(stage)
        body, key = {"text": "Tea?", "as": "You", "run": True}, {"Idempotency-Key": "k"}
        said = stage.ask.good("POST", path(talk, "/say"), body, headers=key)
        assert said["step"]
        stage.over(talk)
        again = stage.ask.good("POST", path(talk, "/say"), body, headers=key)
        assert said["message"] == again["message"]
        stage.over(talk)
        assert ["Tea?", "Water first."] == stage.ask.texts(talk)


def test_a_member_is_shown_with_reasons_what_it_would_see() -> None:
    """CX-07: before and after it spoke."""
    with ScriptedServer(Scripted(saying("Water first. [NEXT: user]"))) as stage:
        talk = teamed(stage)
        stage.ask.good("POST", path(talk, "/say"), {"text": "Tea?", "run": True})
        stage.over(talk)
        seen = stage.ask.good("GET", path(talk, "/members/max/sees"))
        assert seen["systemFlag"].startswith("Be brief.\n\nYou are Max. The others in your team: ")
        assert "Make tea." == seen["teamTask"]
        assert ["fits", "current"] == [entry["reason"] for entry in seen["explain"]["entries"]]
        seen = stage.ask.good("GET", path(talk, "/members/Sarah/sees"))
        (entry, *_) = seen["explain"]["entries"]
        assert ("addressed", "You") == (seen["explain"]["visibility"], entry["from"])
        human = stage.ask.good("GET", path(talk, "/members/user/sees"))
        assert "plain" == human["explain"]["agentType"]
        assert 404 == stage.ask.refused("GET", path(talk, "/members/bob/sees"))["status"]


def test_a_team_is_paused_resumed_and_called_off() -> None:
    with ScriptedServer(Scripted(saying("Never."), [None])) as stage:
        talk = teamed(stage)
        stage.ask.good("POST", path(talk, "/say"), {"text": "Tea? [NEXT: max, sarah]"})
        paused = stage.ask.good("POST", path(talk, "/pause"))
        assert paused["state"]["paused"]
        stage.ask.good("POST", path(talk, "/run"))
        stage.over(talk)
        assert (["paused"], ["Tea? [NEXT: max, sarah]"]) == (stage.ended(), stage.ask.texts(talk))
        resumed = stage.ask.good("POST", path(talk, "/resume"))
        assert not resumed["state"]["paused"]
        stage.ask.good("POST", path(talk, "/run"))
        wait_for(lambda: len(stage.ask.texts(talk)) == 2)
        wait_for(lambda: stage.ask.good("GET", path(talk))["state"]["begun"])
        assert 409 == stage.ask.refused("POST", path(talk, "/run"))["status"]
        stage.ask.good("POST", path(talk, "/cancel"))
        stage.over(talk)
        assert "(no answer) called off" == stage.ask.texts(talk)[-1]
        found = stage.ask.good("GET", path(talk))
        assert ([], "cancelled") == (found["queue"], found["state"]["why"])


def test_a_turn_that_is_stopped_stays_the_next_one() -> None:
    with ScriptedServer(Scripted([None], saying("At last."))) as stage:
        talk = teamed(stage)
        stage.ask.good("POST", path(talk, "/say"), {"text": "Tea?", "run": True})
        wait_for(lambda: stage.ask.good("GET", path(talk))["state"]["begun"])
        stage.ask.good("DELETE", f"conversations/{talk}/step")
        assert ["Tea?"] == stage.ask.texts(talk)
        stage.ask.good("POST", path(talk, "/run"))
        stage.over(talk)
        assert ["Tea?", "At last."] == stage.ask.texts(talk)


def test_an_ordinary_step_and_a_team_do_not_get_in_each_others_way() -> None:
    with ScriptedServer(Scripted([None])) as stage:
        talk = teamed(stage)
        stage.ask.good("POST", f"conversations/{talk}/step", {"text": "Tea?"})
        for what, body in (("/say", {"text": "Rum?"}), ("/run", None), ("/pause", None)):
            assert 409 == stage.ask.refused("POST", path(talk, what), body)["status"]
        assert 409 == stage.ask.refused("PUT", path(talk), {"document": ROSTER})["status"]


def test_a_roster_may_be_yaml_and_be_replaced() -> None:
    with ScriptedServer(Scripted(saying("Yes."))) as stage:
        talk = teamed(stage)
        stage.ask.good("POST", path(talk, "/say"), {"text": "Tea?"})
        changed = stage.ask.good("PUT", path(talk), {"document": YAML})
        assert ["user", "max"] == [member["id"] for member in changed["members"]]
        stage.ask.good("POST", path(talk, "/run"))
        stage.over(talk)
        assert ["Tea?", "Yes."] == stage.ask.texts(talk)


def changed(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON, or whatever is asked for
    members = [ROSTER["members"][0], {**ROSTER["members"][1], **fields}]
    return {"members": members}


@pytest.mark.parametrize(
    ("document", "place", "words"),
    [
        ("members: [", "$", "line 1"),
        ("members: []", "$.members", "at least two"),
        ({"members": 7}, "$.members", "expected `array`"),
        (changed(model="nobody"), "$.members[1].model", "no model is called 'nobody'"),
        (changed(model="local:/etc/x.gguf"), "$.members[1].model", "no model"),
        (changed(instructions="/etc/passwd"), "$.members[1].instructions", "files are read only"),
        (
            {"members": PROGRAM},
            "$.members[1]",
            "programs are run only",
        ),
        ("", "$.document", "length"),
    ],
)
def test_a_roster_that_can_not_be_is_refused(
    stage: ScriptedServer, document: object, place: str, words: str
) -> None:
    """TM-05; and nobody brings programs or files by HTTP."""
    talk = stage.ask.begun()
    refused = stage.ask.refused("PUT", path(talk), {"document": document})
    assert (422, place) == (refused["status"], refused["path"])
    assert words in refused["detail"]
    assert not stage.ask.good("GET", path(talk))["roster"]


def test_a_roster_that_came_with_an_import_is_no_more_trusted() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun()
        store_roster(stage.store, talk, json.dumps({"members": PROGRAM}).encode())
        for method, what in (("GET", ""), ("POST", "/run"), ("POST", "/pause")):
            refused = stage.ask.refused(method, path(talk, what))
            assert (422, "team-member") == (refused["status"], refused["rule"])


def test_a_conversation_without_a_team() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun("Tea?")
        assert [] == stage.ask.good("GET", path(talk))["members"]
        for what, body in (("/say", {"text": "Hi"}), ("/run", None), ("/cancel", None)):
            refused = stage.ask.refused("POST", path(talk, what), body)
            assert (404, "this conversation has no team") == (refused["status"], refused["detail"])
        for method, what in (("GET", ""), ("PUT", ""), ("POST", "/resume")):
            given = {"document": ROSTER} if method == "PUT" else None
            assert 404 == stage.ask.refused(method, path("none", what), given)["status"]


def test_whoever_spoke_can_be_seen_without_a_roster() -> None:
    with ScriptedServer(Scripted()) as stage:
        demo.seed(stage.store)
        stage.store.put_records(demo.TEAM, [("roster", "document", None)])
        found = stage.ask.good("GET", path(demo.TEAM))
        assert {"ada": "human", "writer": "ai", "critic": "ai"} == {
            member["id"]: member["kind"] for member in found["members"]
        }
        seen = stage.ask.good("GET", path(demo.TEAM, "/members/Critic/sees"))
        assert "critic" == seen["explain"]["agent"]


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": " "}, {"text": "Hi", "as": "max"}, {"text": 1}]
)
def test_wrong_words_are_refused(stage: ScriptedServer, body: object) -> None:
    talk = teamed(stage)
    assert 422 == stage.ask.refused("POST", path(talk, "/say"), body)["status"]
    assert [] == stage.ask.texts(talk)


# ── the team of a file ──────────────────────────────────────────────────────────────────────────


def test_the_team_of_a_file_may_run_programs(tmp_path: Path) -> None:
    """TM-04: whoever starts the server has named them."""
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    (tmp_path / "notes.txt").write_text("Say hello.")
    with palaver.open(":memory:") as store:
        with ScriptedServer(Scripted(), store=store, team=str(file)) as stage:
            (team,) = stage.ask.good("GET", "info")["teams"]
            talk = team["conversation"]
            assert "Echoes" == team["title"]
            members = stage.ask.good("GET", path(talk))["members"]
            assert ("command", "sh -c echo Hello.") == (members[1]["kind"], members[1]["model"])
            seen = stage.ask.good("GET", path(talk, "/members/echo/sees"))
            assert "Say hello." in seen["prompt"]
            stage.ask.good("POST", path(talk, "/say"), {"text": "Hi", "run": True})
            stage.over(talk)
            assert ["Hi", "Hello."] == stage.ask.texts(talk)
            refused = stage.ask.refused("PUT", path(talk), {"document": ROSTER})
            assert (409, True) == (refused["status"], "of a file" in refused["detail"])
            (tmp_path / "notes.txt").unlink()
            refused = stage.ask.refused("GET", path(talk, "/members/echo/sees"))
            assert (409, True) == (refused["status"], "notes.txt" in refused["detail"])
        with ScriptedServer(
            Scripted(), store=store, team=str(file)
        ) as stage:  # it goes on where it was
            assert ["Hi", "Hello."] == stage.ask.texts(talk)
            assert talk == stage.app.service.teams.open_file(file)
