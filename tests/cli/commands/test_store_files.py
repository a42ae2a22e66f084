"""The commands that carry conversations between files and stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli import output
from palaver.cli.app import app
from palaver.messages import assistant, new_id, parse_message, system, user

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store

    Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = palaver.open(tmp_path / "chat.db")
    history = store.create([system("Be brief."), user("Hi"), assistant("Hello")], id="talk")
    history.replace(1, user("Hi there"))
    history.fork(id="side").append(user("Aside"))
    return store


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Run:
    def invoke(*arguments: str, given: bytes | None = None, into: str = "chat.db") -> Result:
        address = ["--store", str(tmp_path / into)]
        return CliRunner().invoke(app, [*arguments, *address], input=given)

    del store
    return invoke


@pytest.mark.parametrize("form", ["lines", "document"])
def test_out_and_in(run: Run, tmp_path: Path, form: str) -> None:
    file = tmp_path / "talk.json"
    assert "written to" in run("export", "talk", str(file), "--form", form).stdout
    assert 0o600 == file.stat().st_mode & 0o777
    assert "talk\n" == run("import", str(file), into="other.db").stdout
    assert run("export", "talk").stdout == run("export", "talk", into="other.db").stdout
    with palaver.open(tmp_path / "other.db") as other:
        assert ["Be brief.", "Hi", "Hello"] == [m.text for m in other.get("talk").at(0)]


def test_a_conversation_is_written_for_people_and_for_providers(run: Run) -> None:
    markdown = run("export", "talk", "--format", "markdown").stdout
    assert "\n## 3. Assistant\n" in markdown
    assert run("export", "talk", "--format", "html").stdout.startswith("<!doctype html>")
    messages = json.loads(run("export", "talk", "--format", "messages").stdout)
    assert ["system", "user", "assistant"] == [message["role"] for message in messages]
    for form, key in {"openai-chat": "messages", "openai-responses": "input",
                      "anthropic": "messages", "gemini": "contents"}.items():  # fmt: skip
        assert key in json.loads(run("export", "talk", "--format", form).stdout)
    assert 2 == run("export", "talk", "--format", "tape").exit_code


def test_what_a_provider_has_no_place_for_is_said(run: Run, store: Store) -> None:
    result = {"status": "completed", "input": {}, "output": "6", "title": "", "metadata": {},
              "time": {"start": 1, "end": 2}}  # fmt: skip
    ids = {"id": new_id(), "sessionID": new_id(), "messageID": new_id()}
    part = {"type": "tool", "callID": "c", "tool": "roll", "state": result, **ids}
    store.create([parse_message({"role": "tool", "content": [part]})], id="odd")
    found = run("export", "odd", "--format", "anthropic")
    assert "odd: " in found.stderr
    assert "lost" in found.stderr


def test_a_pipe_from_one_to_the_other(run: Run) -> None:
    written = run("export", "side").stdout_bytes
    result = run("import", "-", "--id", "copy", "--json", given=written)
    assert {"conversation": "copy", "version": 1, "messages": 4} == json.loads(result.stdout)


def test_version_1_says_what_it_leaves_out(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    result = run("export", "talk", str(file), "--form", "version-1", "--json")
    assert "1 system and tool message left out" in result.stderr
    assert str(file) == json.loads(result.stdout)["file"]
    snapshot = json.loads(file.read_bytes())
    assert ["Hi there", "Hello"] == [message["content"] for message in snapshot["messages"]]
    assert 0 == run("import", str(file)).exit_code


def test_an_export_that_fails_leaves_the_file_as_it_was(
    run: Run, store: Store, tmp_path: Path
) -> None:
    store.create([user("x", id="a"), user("y", id="a")], id="double")
    file = tmp_path / "kept.json"
    file.write_text("kept", "utf-8")
    assert 1 == run("export", "double", str(file), "--form", "version-1").exit_code
    assert "kept" == file.read_text("utf-8")
    assert ["kept.json"] == [path.name for path in tmp_path.glob("*kept*")]


def test_a_file_that_is_wrong_changes_nothing(run: Run, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    run("export", "talk", str(file))
    file.write_bytes(file.read_bytes()[:-20])
    before = list(store)
    for arguments in (["import", str(file), "--id", "x"], ["import", str(file)]):
        result = run(*arguments)
        assert 1 == result.exit_code
        assert 1 == len(result.stderr.splitlines())
    assert before == list(store)


def test_copy(run: Run, tmp_path: Path) -> None:
    target = str(tmp_path / "other.db")
    assert "2 conversations copied (5 messages), 0 there already\n" == run("copy", target).stdout
    again = json.loads(run("copy", target, "--json").stdout)
    assert {"copied": 0, "unchanged": 2, "messages": 0} == again
    with palaver.open(target) as other:
        assert "talk" == other.head("side").parent
        assert [] == list(other.verify())


def test_copy_some(run: Run, store: Store, tmp_path: Path) -> None:
    store.create(id="third")
    target = tmp_path / "other.db"
    assert "1 conversation copied" in run("copy", str(target), "thi").stdout
    assert "2 conversations copied" in run("copy", str(target), "side").stdout


def test_copy_to_itself_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("copy", str(tmp_path / "chat.db"))
    assert 1 == result.exit_code
    assert "to itself" in result.stderr


def test_a_person_who_waits_sees_a_bar(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    file = tmp_path / "talk.json"
    assert 0 == run("export", "talk", str(file)).exit_code
    assert 0 == run("import", str(file), "--id", "again").exit_code
    assert 0 == run("copy", str(tmp_path / "other.db")).exit_code


def test_a_device_is_written_in_place(tmp_path: Path) -> None:
    with output.open_output("/dev/null") as stream:
        stream.write(b"x")
    assert [] == list(tmp_path.iterdir())


def test_a_snapshot_into_a_conversation_can_be_undone(run: Run, store: Store) -> None:
    snapshot = run("export", "talk", "--form", "version-1").stdout_bytes
    store.get("side").append(user("More"))
    before = [message.text for message in store.get("side")]
    result = run("import", "-", "--into", "sid", "--json", given=snapshot)
    assert {"conversation": "side", "version": 3, "messages": 2} == json.loads(result.stdout)
    assert ["Hi there", "Hello"] == [message.text for message in store.get("side")]
    assert 0 == run("undo", "side").exit_code
    assert before == [message.text for message in store.get("side")]


def test_what_goes_into_a_conversation_has_no_id_of_its_own(run: Run, store: Store) -> None:
    assert 2 == run("import", "-", "--into", "side", "--id", "x", given=b"{}").exit_code
    whole = run("export", "talk").stdout_bytes
    refused = run("import", "-", "--into", "side", given=whole)
    assert 1 == refused.exit_code
    assert "whole conversation" in refused.stderr
    assert 1 == store.get("side").version
    assert 1 == run("import", "-", "--into", "nobody", given=whole, into="nowhere.db").exit_code
