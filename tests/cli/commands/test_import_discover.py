"""`palaver import --discover` and `--watch`: what other programs keep on this machine."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.cli.commands.import_ import format_size
from palaver.stores.transfer import export_conversation
from tests.transcripts.samples import database, sample
from tests.transcripts.test_discover import ROLLOUT, SESSION, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Result]

VARIABLES = (
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "LLM_USER_PATH",
    "GEMINI_CLI_HOME", "COPILOT_HOME", "OPENCODE_DB",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a session of Claude Code, one of Codex and logs of llm, in this order."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    claude = tmp_path / f".claude/projects/-tea/{SESSION}.jsonl"
    put(claude, sample("claude-code.jsonl"), at=1_000_000)
    codex = tmp_path / f".codex/sessions/2026/03/01/{ROLLOUT}.jsonl"
    put(codex, sample("codex.jsonl"), at=2_000_000)
    logs = tmp_path / ".config/io.datasette.llm/logs.db"
    logs.parent.mkdir(parents=True)
    database(logs, "llm.sql")
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    def invoke(*arguments: str | Path) -> Result:
        address = ["--store", str(home / "chat.db")]
        return CliRunner().invoke(app, ["import", *address, *map(str, arguments)])

    return invoke


def stored(home: Path) -> set[str]:
    with palaver.open(home / "chat.db") as store:
        assert [] == list(store.verify())
        return {head.id for head in store}


def test_the_list_has_program_size_date_and_name(run: Run, home: Path) -> None:
    result = run("--discover")
    assert 0 == result.exit_code
    first, second, third = result.stdout.splitlines()
    assert ["1", "claude-code", "13.9", "kB", "1970-01-12", "13:46", f"-tea/{SESSION}"] == (
        first.split()
    )
    assert second.split()[:2] == ["2", "codex"]
    assert third.split()[:2] == ["3", "llm"]
    assert "3 found" in result.stderr
    assert "no file was opened" in result.stderr
    assert not (home / "chat.db").exists()


def test_titles_are_read_where_they_are_asked_for(run: Run) -> None:
    assert "The loose lid" in run("--discover", "--titles").stdout
    found = json.loads(run("--discover", "--titles", "--json").stdout)["transcripts"]
    assert ["The loose lid", "Does it hold water?", None] == [row["title"] for row in found]
    assert [False, False, False] == [row["imported"] for row in found]
    assert "title" not in json.loads(run("--discover", "--json").stdout)["transcripts"][0]


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        (["1"], {SESSION, f"{SESSION}:a7"}),
        (["codex"], {ROLLOUT[-36:]}),
        (["5a1d"], {SESSION, f"{SESSION}:a7"}),
        ([ROLLOUT[-36:]], {ROLLOUT[-36:]}),
        (["1-2"], {SESSION, f"{SESSION}:a7", ROLLOUT[-36:]}),
    ],
)
def test_what_is_chosen_is_brought_in(
    which: list[str], ids: set[str], run: Run, home: Path
) -> None:
    rehearsed = run("--discover", "--dry-run", *which)
    assert 0 == rehearsed.exit_code, rehearsed.output
    assert not (home / "chat.db").exists()
    result = run("--discover", *which)
    assert 0 == result.exit_code, result.output
    assert ids == {line.split()[0] for line in result.stdout.splitlines()}
    assert ids == stored(home)
    assert f"{len(ids)} created" in result.stderr


def test_all_is_stored_once(run: Run, home: Path) -> None:
    lines = [json.loads(line) for line in run("--discover", "--all", "--json").stdout.splitlines()]
    assert {"created"} == {line["action"] for line in lines}
    assert {line["conversation"] for line in lines} == stored(home)
    again = run("--discover", "--all")
    assert (0, "") == (again.exit_code, again.stdout)
    assert f"{len(lines)} unchanged" in again.stderr
    assert 2 == run("--discover").stdout.count(" stored ")


def test_a_file_that_cant_be_read_is_told_and_the_others_are_stored(run: Run, home: Path) -> None:
    (home / ".config/io.datasette.llm/logs.db").write_bytes(b"SQLite format 3\0")
    result = run("--discover", "--all")
    assert 1 == result.exit_code
    assert "is no database that can be read" in result.stderr
    assert SESSION in stored(home)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--discover", "9"], "9: the list has the numbers 1 to 3"),
        (["--discover", "0-2"], "0-2: the list has the numbers 1 to 3"),
        (["--discover", "tape"], "'tape' is no number, no program (claude-code, codex"),
        (["--discover", "--all", "1"], "--all is everything: WHICH chooses"),
        (["--discover", "--watch"], "--watch needs WHICH, or --all"),
        (["--discover", "--strict"], "with --discover and --watch go only --owner"),
        (["--watch"], "Missing argument 'FILE', or --discover."),
        (["--all"], "--all, --titles and --dry-run go with --discover"),
        (["a", "b"], "give one FILE, or --discover"),
        ([], "Missing argument 'FILE', or --discover."),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: list[str], why: str, run: Run) -> None:
    result = run(*arguments)
    assert 2 == result.exit_code
    assert why in result.stderr


def test_an_empty_home_says_so(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / "nowhere"))
    result = run("--discover")
    assert (0, "") == (result.exit_code, result.stdout)
    assert "nothing found of Claude Code, Codex" in result.stderr
    assert {"transcripts": []} == json.loads(run("--discover", "--json").stdout)
    assert "nothing was said in them" in run("--discover", "codex").stderr


def test_what_cant_be_looked_at_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = ([], ["/x: Permission denied"])
    monkeypatch.setattr("palaver.cli.commands.import_.discover", lambda: found)
    assert "palaver: /x: Permission denied" in run("--discover").stderr


def test_watching_goes_on_until_it_is_interrupted_and_later_from_there(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codex = home / f".codex/sessions/2026/03/01/{ROLLOUT}.jsonl"
    lines = codex.read_bytes().splitlines(keepends=True)
    put(codex, b"".join(lines[:6]))
    looks = iter(range(2))

    def sleep(seconds: float) -> None:
        assert seconds >= 0.1
        if next(looks, None) is None:
            raise KeyboardInterrupt
        put(codex, b"".join(lines), at=3_000_000)
        put(codex.with_name("rollout-new.jsonl"), sample("codex-bare.jsonl"))

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr("palaver.transcripts.follow._REST", 0)
    result = run("--discover", "codex", "--watch", "--every", "0.1")
    assert 0 == result.exit_code, result.output
    actions = [line.split()[1] for line in result.stdout.splitlines()]
    assert ["appended", "created", "created"] == sorted(actions)
    assert "stopped; the same command goes on from here" in result.stderr
    assert "" == run("--discover", "codex", "--watch", "--every", "0.1").stdout


def test_one_file_is_watched(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(home / "one.jsonl", sample("codex.jsonl"))

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    assert "created" in run(file, "--watch").stdout
    lines = home / "snapshot.jsonl"
    with palaver.open(home / "chat.db") as store, lines.open("wb") as stream:
        export_conversation(store, ROLLOUT[-36:], stream, form="lines")
    refused = run(lines, "--watch")
    assert 1 == refused.exit_code
    assert "is a snapshot, which does not grow" in refused.stderr


def test_a_watched_file_may_be_gone_for_a_moment(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sample("codex.jsonl").splitlines(keepends=True)
    file = put(home / "one.jsonl", b"".join(lines[:6]))
    looks = iter(("gone", "there again"))

    def sleep(_: float) -> None:
        now = next(looks, None)
        if now is None:
            raise KeyboardInterrupt
        if now == "gone":
            file.unlink()
        else:
            put(file, b"".join(lines), at=3_000_000)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr("palaver.transcripts.follow._REST", 0)
    result = run(file, "--watch")
    assert 0 == result.exit_code, result.output
    assert ["created", "appended"] == [line.split()[1] for line in result.stdout.splitlines()]


def test_sizes_are_short() -> None:
    sizes = [format_size(size) for size in (0, 999, 1_000, 999_600, 5 * 10**9)]
    assert ["0 B", "999 B", "1.0 kB", "1.0 MB", "5.0 GB"] == sizes
