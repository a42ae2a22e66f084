"""`palaver context`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.messages import user
from palaver.stores.transfer import FORMS, export_conversation
from tests.acceptance.test_cx import SCENE
from tests.context.conversations import MAX, USER, said

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Shown = Callable[..., Result]


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    """Write a snapshot to a file, and ask for a context."""

    def run(*options: str, snapshot: object = SCENE) -> Result:
        file = tmp_path / "team.json"
        file.write_text(json.dumps(snapshot), "utf-8")
        return CliRunner().invoke(app, ["context", str(file), *options])

    return run


def test_it_prints_what_an_agent_is_shown(shown: Shown) -> None:
    answer = json.loads(shown("--agent", "max", "--system", "Be brief.", "--json").stdout)
    assert {
        "contextMessages": [
            {"from": "User", "to": "all", "content": "Hi"},
            {"from": "Max", "to": "sarah", "content": "Hello!"},
        ],
        "currentMessage": "Good day, both of you.",
        "teamTask": "Say hello",
        "maxBytes": 786_432,
        "prompt": (
            "[TEAM_TASK]\nSay hello\n\n[CONTEXT]\n- User -> all: Hi\n- Max -> sarah: Hello!\n\n"
            "[MESSAGE]\nGood day, both of you."
        ),
        "systemFlag": "Be brief.",
    } == answer


def test_for_people(shown: Shown) -> None:
    text = shown("--agent", "Max", "--type", "gemini", "--window", "1", "--explain").stdout
    for part in (
        "contextMessages\n  Max -> sarah\n    Hello!\n",
        "currentMessage\n  Good day, both of you.\n",
        "teamTask\n  Say hello\n",
        "maxBytes\n  786432\n",
        "prompt\n  Team Task:\n",
        "systemFlag\n  (none)\n",
        "msg-2 Max -> sarah: within the window",
        "1 older",
        "since its previous prompt: 2 new, 1 gone, 0 stayed",
    ):
        assert part in text


def test_instructions_come_from_a_file(shown: Shown, tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("Be kind.", "utf-8")
    options = ("--agent", "max", "--system", "Be brief.", "--instructions", str(file), "--json")
    assert "Be brief.\n\nBe kind." == json.loads(shown(*options).stdout)["systemFlag"]
    file.write_bytes(b"\xff")
    refused = shown(*options)
    assert (1, True) == (refused.exit_code, "is not UTF-8 at byte 0" in refused.output)


def test_a_budget_and_why(shown: Shown) -> None:
    options = ("--agent", "Sarah", "--type", "codex", "--max-bytes", "100", "--explain", "--json")
    told = json.loads(shown(*options).stdout)["explain"]
    assert ["bytes", "fits", "current"] == [entry["reason"] for entry in told["entries"]]
    kept = [entry for entry in told["entries"] if entry["kept"]]
    assert told["bytes"] == sum(one["bytes"] for one in (*told["parts"], *kept)) <= 100
    assert ["msg-2", "msg-3"] == [*told["since"]["stayed"], *told["since"]["added"]]


def test_what_was_before_may_not_have_fitted(shown: Shown) -> None:
    long = [{**SCENE["messages"][0], "content": "x" * 99}, *SCENE["messages"][1:]]
    snapshot = {**SCENE, "messages": long}
    options = ("--agent", "max", "--type", "codex", "--max-bytes", "60", "--explain", "--json")
    assert json.loads(shown(*options, snapshot=snapshot).stdout)["explain"]["since"] is None


def test_too_little_room_is_refused(shown: Shown) -> None:
    result = shown("--agent", "max", "--max-bytes", "10", "--json")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "45 more than the 10 there are" in result.stderr


def test_tokens_and_visibility(shown: Shown) -> None:
    options = ("--agent", "carol", "--visibility", "addressed", "--max-tokens", "99", "--json")
    answer = json.loads(shown(*options, "--explain").stdout)
    assert [{"from": "User", "to": "all", "content": "Hi"}] == answer["contextMessages"]
    assert ("plain", 99) == (answer["explain"]["agentType"], answer["explain"]["maxTokens"])
    assert "99 tokens" in shown(*options[:-1], "--explain").stdout


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_snapshot_is_read(tmp_path: Path, form: Any) -> None:  # noqa: ANN401 - a form
    file = tmp_path / "talk"
    with palaver.open(":memory:") as store, file.open("wb") as stream:
        history = store.create([said("one", USER), said("two", MAX), user("three")])
        history.set_team_task("tea")
        history.truncate(remove_first=1)
        export_conversation(store, history.id, stream, form=form)
    result = CliRunner().invoke(app, ["context", str(file), "--agent", "max", "--json"])
    answer = json.loads(result.stdout)
    assert "tea\n\nMax: two\n\nthree" == answer["prompt"]


def test_what_is_no_snapshot_is_refused(shown: Shown) -> None:
    result = shown("--agent", "max", snapshot={"version": 3})
    assert (1, True) == (result.exit_code, "Invalid snapshot format" in result.stderr)


@pytest.mark.parametrize("options", [[], ["--agent", "max", "--window", "-1"]])
def test_wrong_usage_is_status_two(shown: Shown, options: list[str]) -> None:
    assert 2 == shown(*options).exit_code


def test_nothing_in_it_steers_the_terminal(shown: Shown) -> None:
    first = {**SCENE["messages"][0], "content": "\x1b[31mred"}
    result = shown("--agent", "max", snapshot={**SCENE, "messages": [first]})
    assert ("\\x1b" in result.stdout, "\x1b" in result.stdout) == (True, False)


def test_an_empty_talk_is_fine(shown: Shown) -> None:
    nothing = {**SCENE, "messages": [], "teamTask": None}
    answer = json.loads(shown("--agent", "max", "--json", snapshot=nothing).stdout)
    assert ([], "", "", None) == (
        answer["contextMessages"], answer["currentMessage"], answer["prompt"], answer["systemFlag"],
    )  # fmt: skip
