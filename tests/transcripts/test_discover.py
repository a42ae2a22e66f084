"""Discovery of transcripts on this machine: by names, sizes and dates, without opening a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palaver.errors import ValidationError
from palaver.transcripts import discover as module
from palaver.transcripts.discover import PROGRAMS, discover, title_of, transcript_at
from tests.transcripts.samples import DATA, database, sample

if TYPE_CHECKING:
    from palaver.transcripts.discover import FoundTranscript

SESSION = "5a1de0c4-6b1e-4c3f-9d0a-2f6f3c1b7e01"
ROLLOUT = "rollout-2026-03-01T10-00-00-019c2b7e-5b1f-7d10-8c55-6a2f3b4c5d6e"


def put(path: Path, data: bytes = b"x", *, at: int = 1_000) -> Path:
    """Write a file of a date, in seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))
    return path


def names(found: list[FoundTranscript]) -> list[tuple[str, str]]:
    return sorted((each.program, each.name) for each in found)


def test_each_program_is_found_in_its_usual_place(tmp_path: Path) -> None:
    put(tmp_path / f".claude/projects/-tea/{SESSION}.jsonl", at=5)
    put(tmp_path / ".config/claude/projects/-pot/s2.jsonl")
    put(tmp_path / f".codex/sessions/2026/03/01/{ROLLOUT}.jsonl")
    put(tmp_path / ".codex/archived_sessions/rollout-old.jsonl")
    put(tmp_path / ".gemini/tmp/ab12/chats/session-1.json")
    put(tmp_path / ".config/io.datasette.llm/logs.db")
    put(tmp_path / ".local/share/opencode/opencode.db", b"1234", at=9_000)
    put(tmp_path / ".copilot/session-state/abc/events.jsonl")
    for other in (
        ".claude/history.jsonl",
        ".claude/projects/-tea/memory/notes.md",
        f".claude/projects/-tea/{SESSION}/subagents/journal.jsonl",
        ".codex/config.toml",
        ".codex/sessions/notes.jsonl",
        ".gemini/tmp/ab12/logs.json",
        ".local/share/opencode/auth.json",
        ".copilot/session-state/abc/plan.md",
    ):
        put(tmp_path / other)
    found, problems = discover(environ={"HOME": str(tmp_path)}, platform="linux")
    assert [] == problems
    assert [
        ("claude-code", "-pot/s2"),
        ("claude-code", f"-tea/{SESSION}"),
        ("codex", f"2026/03/01/{ROLLOUT}"),
        ("codex", "rollout-old"),
        ("copilot-cli", "abc/events"),
        ("gemini-cli", "ab12/chats/session-1"),
        ("llm", "logs"),
        ("opencode", "opencode"),
    ] == names(found)
    assert set(PROGRAMS) == {each.program for each in found}
    assert (5_000, 9_000_000) == (found[0].modified, found[-1].modified)  # the newest is last
    assert 4 == found[-1].size
    by_name = {each.name: each for each in found}
    assert by_name[f"-tea/{SESSION}"].conversation == SESSION
    assert by_name[f"2026/03/01/{ROLLOUT}"].conversation == ROLLOUT[-36:]
    assert by_name["logs"].conversation is None
    assert 8 == len({each.key for each in found})
    only = discover(["codex"], environ={"HOME": str(tmp_path)}).transcripts
    assert {"codex"} == {each.program for each in only}


def test_variables_name_other_folders(tmp_path: Path) -> None:
    put(tmp_path / "home/.claude/projects/-tea/s1.jsonl")
    put(tmp_path / "c/projects/-tea/s2.jsonl")
    put(tmp_path / "x/sessions/rollout-1.jsonl")
    put(tmp_path / "d/opencode/opencode-next.db")
    put(tmp_path / "d/opencode/mine.db")
    put(tmp_path / "l/logs.db")
    put(tmp_path / "g/.gemini/tmp/p/chats/session-2.jsonl")
    put(tmp_path / "p/session-state/s.json")
    environ = {
        "HOME": str(tmp_path / "home"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "c"),
        "CODEX_HOME": str(tmp_path / "x"),
        "XDG_DATA_HOME": str(tmp_path / "d"),
        "OPENCODE_DB": "mine.db",
        "LLM_USER_PATH": str(tmp_path / "l"),
        "GEMINI_CLI_HOME": str(tmp_path / "g"),
        "COPILOT_HOME": str(tmp_path / "p"),
    }
    assert [
        ("claude-code", "-tea/s2"),
        ("codex", "rollout-1"),
        ("copilot-cli", "s"),
        ("gemini-cli", "p/chats/session-2"),
        ("llm", "logs"),
        ("opencode", "mine"),
        ("opencode", "opencode-next"),
    ] == names(discover(environ=environ).transcripts)


def test_on_a_mac_llm_is_in_application_support(tmp_path: Path) -> None:
    put(tmp_path / "Library/Application Support/io.datasette.llm/logs.db")
    put(tmp_path / ".config/io.datasette.llm/logs.db")
    (found,) = discover(["llm"], environ={"HOME": str(tmp_path)}, platform="darwin").transcripts
    assert "Library" in found.path.parts


def test_no_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / f".claude/projects/-tea/{SESSION}.jsonl")

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a file was opened")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert 1 == len(discover(environ={"HOME": str(tmp_path)}).transcripts)


def test_agents_on_the_side_belong_to_their_session(tmp_path: Path) -> None:
    project = tmp_path / ".claude/projects/-tea"
    put(project / "s1.jsonl", b"12345", at=3)
    side = put(project / "s1/subagents/agent-a.jsonl", b"678", at=7)
    put(project / "gone/subagents/agent-b.jsonl")
    session, orphan = sorted(discover(environ={"HOME": str(tmp_path)}).transcripts)[::-1]
    assert ("-tea/s1", 8, 7_000, (side,)) == (
        session.name, session.size, session.modified, session.agents
    )  # fmt: skip
    assert "-tea/gone/subagents/agent-b" == orphan.name


def test_the_folder_of_an_older_opencode_is_one_transcript(tmp_path: Path) -> None:
    storage = tmp_path / ".local/share/opencode/storage"
    put(storage / "message/s1/m1.json", b"12", at=4)
    put(storage / "session/p/s1.json", b"345")
    environ = {"HOME": str(tmp_path)}
    assert [] == discover(environ=environ).transcripts  # it has no parts
    put(storage / "part/m1/p1.json", b"6")
    (found,) = discover(environ=environ).transcripts
    assert ("storage", 6, 1_000_000) == (found.name, found.size, found.modified)
    assert title_of(found) is None


def test_links_to_folders_are_not_followed_except_the_first(tmp_path: Path) -> None:
    real = put(tmp_path / "real/-tea/s1.jsonl").parent.parent
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/projects").symlink_to(real)
    (real / "loop").symlink_to(real)
    assert ["-tea/s1"] == [
        each.name for each in discover(environ={"HOME": str(tmp_path)}).transcripts
    ]


def test_what_cant_be_looked_at_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = put(tmp_path / ".claude/projects/-tea/s1.jsonl").parent
    put(tmp_path / ".claude/projects/-tea/s2.jsonl")
    (project / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    environ = {"HOME": str(tmp_path)}
    assert 2 == len(discover(environ=environ).transcripts)  # a link to nowhere is no transcript
    monkeypatch.setattr(module, "MAX_FOUND", 1)
    found, (problem,) = discover(environ=environ)
    assert 1 == len(found)
    assert "more than 1 files" in problem
    scandir = os.scandir

    def deny(folder: Path) -> object:
        if str(folder).endswith("-tea"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", deny)
    assert ([], [f"{project}: Permission denied"]) == discover(environ=environ)


def test_an_entry_that_cant_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / ".config/io.datasette.llm/logs.db")

    class Entry:
        name = "logs.db"
        path = "/x/logs.db"

        def is_file(self) -> bool:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_entries", lambda *_: [("logs.db", Entry())])
    found, problems = discover(["llm"], environ={"HOME": str(tmp_path)})
    assert [] == found
    assert ["/x/logs.db: Permission denied"] == problems


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(ValidationError, match="'tape' is no program that is looked for: claude"):
        discover(["tape"])


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("claude-code.jsonl", "The loose lid"),
        ("codex.jsonl", "Does it hold water?"),
        ("gemini-cli.json", "The hot water"),
    ],
)
def test_a_title_is_read_from_the_beginning(name: str, title: str, tmp_path: Path) -> None:
    file = put(tmp_path / name, sample(name))
    assert title == title_of(transcript_at(file, "codex"))


def test_what_has_no_title_has_none(tmp_path: Path) -> None:
    empty = transcript_at(put(tmp_path / "a.jsonl", b""), "claude-code")
    assert title_of(empty) is None
    rest = transcript_at(put(tmp_path / "b.json", b"[1, 2"), "gemini")
    assert title_of(rest) is None
    logs = transcript_at(database(tmp_path / "logs.db", "llm.sql"), "llm")
    assert title_of(logs) is None
    gone = transcript_at(put(tmp_path / "c.jsonl", (DATA / "codex.jsonl").read_bytes()), "codex")
    gone.path.unlink()
    assert title_of(gone) is None
