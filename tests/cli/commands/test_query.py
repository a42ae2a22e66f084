from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from palaver.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Query = Callable[..., Result]

NOON = 1_700_000_000_000
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.", "timestamp": NOON},
    {"role": "user", "content": "tea", "timestamp": NOON + 1_000},
    {"role": "assistant", "content": "milk", "timestamp": NOON + 2_000},
    {"role": "user", "content": "more tea"},
]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    """Write the messages to a file, and query it."""

    def run(*options: str) -> Result:
        file = tmp_path / "messages.json"
        file.write_text(json.dumps(MESSAGES), "utf-8")
        return CliRunner().invoke(app, ["query", str(file), *options])

    return run


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ([], [0, 1, 2, 3]),
        (["--role", "user"], [1, 3]),
        (["--role", "user", "--role", "system"], [0, 1, 3]),
        (["--recent", "2"], [2, 3]),
        (["--recent", "0"], []),
        (["--range", "1:3"], [1, 2]),
        (["--role", "user", "--range", "1:9"], [3]),
        (["--text", "tea"], [1, 3]),
        (["--text", "tea", "--recent", "1"], [3]),
        (["--since", str(NOON + 1_000)], [1, 2]),
        (["--until", "2023-11-14T22:13:21Z"], [0]),
        (["--since", "2023-11-14T22:13:21+00:00", "--until", "2023-11-14 22:13:22"], [1]),
    ],
)
def test_the_options_select(query: Query, options: list[str], places: list[int]) -> None:
    """What matches every option, printed as it was in the file."""
    result = query(*options, "--json")
    assert [MESSAGES[place] for place in places] == json.loads(result.stdout)


def test_it_can_only_count(query: Query) -> None:
    """For people and for programs."""
    assert query("--role", "user", "--count").stdout == "2\n"
    assert json.loads(query("--count", "--json").stdout) == {"count": 4}


def test_a_line_for_each_message(query: Query) -> None:
    """Its time where it has one, its role, its text on one line."""
    first, *_, last = query().stdout.splitlines()
    assert (True, True) == (
        first.startswith("2023-11-14 22:13:20  system"), last.split() == ["user", "more", "tea"],
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        ["--recent", "-1"],
        ["--range", "3"],
        ["--range", "a:b"],
        ["--range", "3:1"],
        ["--since", "yesterday"],
        ["--role", "robot"],
    ],
)
def test_wrong_usage_is_status_two(query: Query, options: list[str]) -> None:
    """And says what would be right."""
    result = query(*options)
    assert (2, "") == (result.exit_code, result.stdout)


def test_parts_without_text_are_named(tmp_path: Path) -> None:
    """A message that says nothing still shows what it is made of."""
    file = tmp_path / "messages.jsonl"
    use = {"id": "c1", "name": "ls", "input": {}}
    message = {"role": "assistant", "content": [{"type": "tool_use", "tool_use": use}]}
    file.write_text(json.dumps(message) + "\n" + json.dumps(MESSAGES[0]), "utf-8")
    shown = CliRunner().invoke(app, ["query", str(file)]).stdout
    assert "[tool-call ls {}]" in shown
