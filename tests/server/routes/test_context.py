"""What an agent sees and why, through HTTP: the same as the library says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.context import WINDOW, ContextManager
from palaver.server import demo
from palaver.team.routing import describe_team

if TYPE_CHECKING:
    from tests.server.scripted_server import ScriptedServer


def asked(stage: ScriptedServer, what: str, **query: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    return stage.ask.good("GET", f"conversations/{demo.TEAM}/{what}", params=query)


def test_the_prompt_is_the_librarys(stage: ScriptedServer) -> None:
    """CX-04."""
    found = asked(stage, "context", agent="Writer", type="codex", window=2)
    face = ContextManager(stage.store.get(demo.TEAM), window=2)
    team = stage.app.service.teams.roster(demo.TEAM)
    assert team is not None
    told = describe_team(team.members[1], team)
    system = f"You write short release notes. Answer in two sentences.\n\n{told}"
    prompt = face.prompt_for("writer", "codex", name="Writer", system_instruction=system)
    assert prompt.prompt == found["prompt"]
    assert (10, prompt.system_flag) == (found["version"], found["systemFlag"])
    assert ["Ada", "Writer"] == [line["from"] for line in found["contextMessages"]]
    assert "Decide whether the release goes out on Friday." == found["teamTask"]


def test_it_is_explained_and_compared_with_the_prompt_before(stage: ScriptedServer) -> None:
    """CX-07."""
    found = asked(stage, "explain", agent="critic", visibility="addressed", window=3)
    why = found["explain"]
    assert ["fits", "fits", "not addressed", "fits", "current"] == [
        entry["reason"] for entry in why["entries"]
    ]
    sizes = why["parts"] + [entry for entry in why["entries"] if entry["kept"]]
    assert why["bytes"] == sum(part["bytes"] for part in sizes)
    assert why["bytes"] == len((found["systemFlag"] + found["prompt"]).encode())
    assert "Good. Is anything risky?" in why["entries"][0]["text"]
    assert 1 == len(why["since"]["added"])
    assert found["previousPrompt"].endswith("Yes: the page about migration names the copy now.")


def test_a_member_sees_as_its_team_has_it_but_for_what_is_asked(stage: ScriptedServer) -> None:
    own = asked(stage, "explain", agent="Critic")
    assert own == asked(stage, "team/members/critic/sees")
    assert (3, "addressed") == (own["explain"]["window"], own["explain"]["visibility"])
    wider = asked(stage, "explain", agent="critic", window=5)["explain"]
    assert (5, "addressed") == (wider["window"], wider["visibility"])
    stranger = asked(stage, "explain", agent="newcomer")["explain"]
    assert (WINDOW, "all") == (stranger["window"], stranger["visibility"])


def test_who_never_spoke_has_no_prompt_before(stage: ScriptedServer) -> None:
    found = asked(stage, "explain", agent="newcomer")
    assert (None, None) == (found["previousPrompt"], found["explain"]["since"])


def test_budgets_drop_the_oldest_first(stage: ScriptedServer) -> None:
    """CX-05, CX-06."""
    whole = asked(stage, "explain", agent="writer")
    tight = asked(stage, "explain", agent="writer", maxBytes=whole["explain"]["bytes"] - 1)
    assert "bytes" == tight["explain"]["entries"][0]["reason"]
    tight = asked(stage, "explain", agent="writer", maxTokens=whole["explain"]["tokens"] - 1)
    assert "tokens" == tight["explain"]["entries"][0]["reason"]


@pytest.mark.parametrize("what", ["context", "explain"])
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, {400}),
        ({"agent": ""}, {400, 422}),
        ({"agent": "a[b"}, {200, 422}),
        ({"agent": "max", "window": -1}, {400, 422}),
        ({"agent": "max", "visibility": "none"}, {400, 422}),
        ({"agent": "max", "maxBytes": "x"}, {400, 422}),
        ({"agent": "max", "maxBytes": 3}, {422}),
    ],
)
def test_a_wrong_question_about_what_is_seen(
    stage: ScriptedServer, what: str, query: dict[str, Any], status: set[int]
) -> None:
    answer = stage.ask.get(f"/api/conversations/{demo.TEAM}/{what}", params=query)
    assert answer.status_code in status
    path = f"conversations/none/{what}"
    assert 404 == stage.ask.refused("GET", path, params={"agent": "max"})["status"]
