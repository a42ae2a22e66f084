"""`palaver import` of what other tools have written: every conversation of a file, or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli import output
from palaver.cli.app import app
from palaver.cli.commands import import_
from palaver.messages import dump, user
from palaver.stores.store import Store
from tests.transcripts.samples import DATA, database, sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def invoke(*arguments: str | Path, given: bytes | None = None) -> Result:
        address = ["--store", str(tmp_path / "chat.db")]
        return CliRunner().invoke(app, ["import", *map(str, arguments), *address], input=given)

    return invoke


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """A database of opencode's, with two conversations that say something."""
    return database(tmp_path / "o.db", "opencode.sql")


def stored_ids(tmp_path: Path) -> list[str]:
    with palaver.open(tmp_path / "chat.db") as store:
        assert [] == list(store.verify())
        return sorted(head.id for head in store)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("codex.jsonl", ["019c2b7e-5b1f-7d10-8c55-6a2f3b4c5d6e"]),
        ("opencode-export.json", ["ses_41aa"]),
        ("opencode.sql", ["ses_41aa", "ses_41ab"]),
        ("llm-threads.sql", ["01jdamaged", "01jfork", "01jnew"]),
        (
            "claude-code.jsonl",
            [
                "5a1de0c4-6b1e-4c3f-9d0a-2f6f3c1b7e01",
                "5a1de0c4-6b1e-4c3f-9d0a-2f6f3c1b7e01:a7",
            ],
        ),
    ],
)
def test_each_conversation_is_stored(  # CV-10
    name: str, ids: list[str], run: Run, tmp_path: Path
) -> None:
    file = database(tmp_path / "s.db", name) if name.endswith(".sql") else DATA / name
    result = run(file)
    assert 0 == result.exit_code, result.output
    assert ids == sorted(result.stdout.split())
    assert ids == stored_ids(tmp_path)
    assert " lost\n" in result.stderr


@pytest.mark.parametrize("name", ["requests-anthropic.jsonl", "requests-openai.jsonl"])
def test_what_has_no_id_gets_one(name: str, run: Run, tmp_path: Path) -> None:
    result = run("-", given=sample(name))
    assert 2 == len(set(result.stdout.split()))
    assert sorted(result.stdout.split()) == stored_ids(tmp_path)


def test_title_messages_and_what_was_said_about_it(
    run: Run, sessions: Path, tmp_path: Path
) -> None:
    answer = json.loads(run(sessions, "--json").stdout)
    assert {"conversation": "ses_41aa", "title": "The loose lid", "messages": 3} == answer[
        "conversations"
    ][0]
    assert ("opencode", [], 5) == (answer["from"], answer["known"], answer["lost"])
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.get("ses_41aa")
        assert ("The loose lid", "msg_02") == (history.title, history[1].id)
        about = json.loads(store.records("ses_41aa", "origin")["about"])
        assert "/home/ada/teapot" == about["cwd"]


def test_a_request_keeps_its_settings_beside_it(run: Run, tmp_path: Path) -> None:
    body = {"model": "m", "temperature": 1, "messages": [{"role": "user", "content": "Tea?"}]}
    result = run("-", "--strict", given=json.dumps(body).encode())
    assert "" == result.stderr
    with palaver.open(tmp_path / "chat.db") as store:
        about = json.loads(store.records(result.stdout.strip(), "origin")["about"])
    assert {"model": "m", "temperature": 1} == about["request"]


def test_messages_of_palaver_are_a_conversation(run: Run, tmp_path: Path) -> None:
    assert "tea\n" == run("-", "--id", "tea", given=dump([user("Tea?")])).stdout
    with palaver.open(tmp_path / "chat.db") as store:
        assert ["Tea?"] == [message.text for message in store.get("tea")]


def test_strict_stores_nothing(run: Run, sessions: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    refused = run(sessions, "--strict", "--report", report)
    assert (1, "") == (refused.exit_code, refused.stdout)
    assert "5 things are lost and --strict: nothing imported" in refused.stderr
    assert [] == stored_ids(tmp_path)
    assert 5 == json.loads(report.read_bytes())["lost"]
    refused = run(sessions, "--strict", "--json")
    assert 1 == refused.exit_code
    assert [] == json.loads(refused.stdout)["conversations"]
    assert [] == stored_ids(tmp_path)


def test_what_is_there_already_is_refused_or_left_out(
    run: Run, sessions: Path, tmp_path: Path
) -> None:
    assert "ses_41ab\n" == run(sessions, "--conversation", "ses_41ab").stdout
    refused = run(sessions)
    assert 1 == refused.exit_code
    assert "the store has 'ses_41ab' already: --missing leaves out what is there" in refused.stderr
    assert ["ses_41ab"] == stored_ids(tmp_path)
    assert "ses_41aa\n" == run(sessions, "--missing").stdout
    again = run(sessions, "--missing", "--json")
    assert ([], ["ses_41aa", "ses_41ab"]) == (
        json.loads(again.stdout)["conversations"],
        json.loads(again.stdout)["known"],
    )
    other = run(sessions, "--conversation", "ses_41ab")
    assert "--id gives another" in other.stderr
    assert "mine\n" == run(sessions, "--conversation", "ses_41ab", "--id", "mine").stdout


def test_an_id_for_several_is_refused(run: Run, sessions: Path, tmp_path: Path) -> None:
    refused = run(sessions, "--id", "mine")
    assert 1 == refused.exit_code
    assert "--id can't name them all" in refused.stderr
    assert [] == stored_ids(tmp_path)


@pytest.mark.parametrize("failure", [OSError("the disk is full"), KeyboardInterrupt()])
def test_what_fails_halfway_leaves_nothing(
    run: Run,
    sessions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
) -> None:
    create = Store.create

    def fail_at_the_second(self: Store, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if options["id"] == "ses_41ab":
            raise failure
        return create(self, *arguments, **options)

    monkeypatch.setattr(Store, "create", fail_at_the_second)
    assert 0 != run(sessions).exit_code
    assert [] == stored_ids(tmp_path)


def test_what_another_began_meanwhile_stays(
    run: Run, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Store.create

    def begin_it_first(self: Store, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if options["id"] == "ses_41ab":
            create(self, [user("mine")], id="ses_41ab")
        return create(self, *arguments, **options)

    monkeypatch.setattr(Store, "create", begin_it_first)
    assert 1 == run(sessions).exit_code
    assert ["ses_41ab"] == stored_ids(tmp_path)


def test_an_unusable_id_is_replaced(run: Run, tmp_path: Path) -> None:
    export = json.loads(sample("opencode-export.json"))
    export["info"]["id"] = "x" * 10_000
    (name,) = run("-", given=json.dumps(export).encode()).stdout.split()
    assert [name] == stored_ids(tmp_path)
    assert 36 == len(name)


def test_nothing_to_import(run: Run, tmp_path: Path) -> None:
    refused = run("-", given=b'{"model": "m", "messages": []}')
    assert 1 == refused.exit_code
    assert "nothing was said in standard input" in refused.stderr
    refused = run("-", given=b"Dear diary")
    assert "in no format that palaver knows" in refused.stderr
    assert run("-", given=b"").stderr.endswith(": standard input is empty\n")
    assert "standard input: $.role: is not JSON" in run("-", given=b'{"role": "user"').stderr
    damaged = run("-", "--from", "codex", given=b"broken")
    assert "line 1: " in damaged.stderr
    assert [] == stored_ids(tmp_path)


def test_a_wrong_file_makes_no_store(run: Run, tmp_path: Path) -> None:
    assert 1 == run("-", given=b"Dear diary").exit_code
    assert not (tmp_path / "chat.db").exists()


def test_many_that_are_there_already(
    run: Run, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_, "_LISTED", 1)
    assert 0 == run(sessions).exit_code
    assert "the store has 'ses_41aa' and 1 more already" in run(sessions).stderr


def test_only_a_snapshot_goes_into_another(run: Run, sessions: Path, tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        store.create(id="tea")
    refused = run(sessions, "--into", "tea")
    assert 1 == refused.exit_code
    assert "no snapshot of version 1" in refused.stderr
    snapshot = b'{"messages": [], "teamTask": null, "timestamp": 5, "version": 1}'
    assert 2 == run("-", "--missing", given=snapshot).exit_code
    assert 2 == run("-", "--branches", given=snapshot).exit_code
    assert 2 == run("-", "--conversation", "1", given=snapshot).exit_code


def test_a_folder_of_opencode(run: Run, tmp_path: Path) -> None:
    for name in ("session", "message", "part"):
        (tmp_path / "storage" / name).mkdir(parents=True)
    assert "nothing was said" in run(tmp_path / "storage").stderr


def test_a_person_who_waits_sees_a_bar(
    run: Run, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    assert 0 == run(sessions).exit_code
