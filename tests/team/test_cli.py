"""`palaver team`: checked, run, interrupted and gone on with, as a person would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app
from tests.patience import within

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/team"
START = [sys.executable, "-c", "import sys; from palaver.cli import main; sys.exit(main())"]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example with scripts, in a folder of its own."""
    shutil.copytree(EXAMPLES, tmp_path / "team")
    return tmp_path / "team" / "scripts.yaml"


def team(*arguments: str | Path, given: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["team", *map(str, arguments)], input=given)
    return done.exit_code, done.output


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_check_says_who_is_in_the_team(example: Path) -> None:
    """TM-05."""
    status, said = team("check", example)
    rows = ["user   human", "max    command  python3 max.py", "sarah  command  python3 sarah.py"]
    assert (0, rows) == (status, said.splitlines())
    status, said = team("check", EXAMPLES / "local.yaml", "--json")
    models = [(row["kind"], row["what"]) for row in json.loads(said)["members"]]
    assert (0, [("human", ""), ("model", "local:smollm2"), ("model", "local:smollm2")]) == (
        status,
        models,
    )


def test_check_says_which_program_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        "members:\n- {kind: human, id: u}\n- {kind: command, id: a, argv: [./no]}\n", "utf-8"
    )
    assert (0, "u  human\na  command  ./no  (not found here)\n") == team("check", file)


@pytest.mark.parametrize(
    ("line", "hinted"),
    [("hello", True), ("[NEXT: a] hello", False), ("[NEXT: v] hello", False)],
)
def test_a_line_that_calls_nobody_is_followed_by_a_hint(
    tmp_path: Path, *, line: str, hinted: bool
) -> None:
    """Without a default the person would wait for an answer that nobody was asked for."""
    file = tmp_path / "team.yaml"
    file.write_text(
        "members:\n- {kind: human, id: u}\n- {kind: human, id: v}\n"
        "- {kind: command, id: a, argv: [echo, hi]}\n",
        "utf-8",
    )
    status, said = team("run", file, "--store", tmp_path / "s.db", given=f"{line}\n")
    assert 0 == status
    hint = 'nobody was called: write "[NEXT: a]", or set `default` in the file'
    assert hinted == (hint in said)
    assert ("a: hi" in said) == (line == "[NEXT: a] hello")


def test_check_says_what_is_wrong_in_which_line(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text("members:\n- {kind: human, id: u}\n- {kind: human, idd: v}\n", "utf-8")
    for command in ("check", "run"):
        status, said = team(command, file)
        assert 1 == status
        assert "team.yaml: $.members[1].idd: line 3, column 17: no such field [team]" in said


def test_run_takes_turns_with_a_person(example: Path, tmp_path: Path) -> None:
    store = tmp_path / "chat.db"
    given = "What shall we drink?\n\nSure? [NEXT: sara, sarah]\n"
    status, said = team("run", example, "--store", store, given=given)
    expected = [
        "Max: I read 8 words, and I say: tea. [NEXT: sarah]",
        "Sarah: Tea it is.",
        "  (nobody has the name sara)",
        "Sarah: Tea it is.",
    ]
    assert (0, expected) == (status, said.splitlines()[1:])
    with palaver.open(str(store)) as opened:
        (head,) = opened.list().conversations
        assert ("tea", 5, "Decide what to drink.") == (
            head.title,
            head.size,
            opened.get(head.id).team_task,
        )


def test_run_tells_programs_everything(example: Path, tmp_path: Path) -> None:
    status, said = team("run", example, "--store", tmp_path / "c.db", "--json", given="Tea?\n")
    events = lines(said)
    assert 0 == status
    turn = ["turn", "text", "message"]  # the text may come in pieces
    kinds = [kind for kind, _ in groupby(event["event"] for event in events)]
    assert ["conversation", "floor", "message", *turn, *turn, "floor"] == kinds
    _, said_by_max, _ = [event["message"] for event in events if event["event"] == "message"]
    assert ["sarah"] == said_by_max["routing"]["resolvedAddressees"]
    assert {"event": "floor", "human": "user", "why": "drained"} == events[-1]


def test_run_shows_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        "members:\n- {kind: human, id: u}\n- {kind: human, id: v}\n"
        "- {kind: command, id: a, argv: [sh, -c, printf half; echo oh >&2; exit 4]}\n"
        "- {kind: command, id: b, argv: [echo, '[NEXT: u, b]']}\n"
        "routes: {b: [v]}\nlimits: {queue: 2}\n",
        "utf-8",
    )
    given = "[NEXT: a, b, v]\n"
    status, said = team("run", file, "--store", tmp_path / "c.db", "--as", "v", given=given)
    assert (0, [
        "  (the queue has no room for v)",
        "a: half",
        "a: (no answer) exit status 4",
        "oh",
        "b: [NEXT: u, b]",
        "  (may not call u, b)",
    ]) == (status, said.splitlines()[1:])  # fmt: skip


def test_run_goes_on_with_a_conversation_after_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends the program at once and leaves a state to go on from."""
    file, store = tmp_path / "team.json", tmp_path / "chat.db"
    slow = "cat > in; echo $$ > begun; [ -e go ] || sleep 60; echo Done."
    members: list[Any] = [{"kind": "human", "id": "u"}]
    members += [{"kind": "command", "id": "a", "argv": ["sh", "-c", slow]}]
    file.write_text(json.dumps({"members": members, "default": "a"}), "utf-8")
    with within(120):
        process = subprocess.Popen(
            [*START, "team", "run", str(file), "--store", str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write("Go.\n")
        process.stdin.flush()
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate()
        assert 130 == process.returncode
        conversation = errors.split()[1]
        assert f"paused; go on with --conversation {conversation}" == errors.splitlines()[-1]
        (tmp_path / "go").touch()
        status, said = team("run", file, "--store", store, "--conversation", conversation)
    assert (0, "a: Done.") == (status, said.splitlines()[-1])
    with palaver.open(str(store)) as opened:
        assert ["Go.", "Done."] == [message.text for message in opened.get(conversation)]
