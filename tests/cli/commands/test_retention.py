"""`palaver expire`, and what other commands do with an owner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.messages import user
from palaver.messages.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Result]

DAY = 86_400_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command on a store in the test's folder."""
    place = str(tmp_path / "chat.db")

    def run(*arguments: str, given: str | None = None, status: int = 0) -> Result:
        result = CliRunner(env={"PALAVER_STORE": place}).invoke(app, arguments, input=given)
        assert status == result.exit_code, result.output
        return result

    return run


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store with conversations of two owners, most of them old."""
    now = now_ms()
    with palaver.open(tmp_path / "chat.db") as store:
        old = store.with_clock(lambda: now - 200 * DAY)
        for name, owner in (("tea", "anna"), ("rum", "jim"), ("ale", "anna")):
            old.create([user(f"{name}, please")], id=name, owner=owner, tags=[name])
        store.create([user("water, please")], id="water", owner="anna")
    return tmp_path


def answer(result: Result) -> Any:  # noqa: ANN401 - JSON
    return json.loads(result.stdout)


@pytest.mark.usefixtures("filled")
def test_lists_and_searches_can_be_of_an_owner(run: Run) -> None:
    found = answer(run("list", "--owner", "anna", "--json"))["conversations"]
    assert {("tea", "anna"), ("ale", "anna"), ("water", "anna")} == {
        (head["id"], head["owner"]) for head in found
    }
    assert "@jim" in run("list").stdout
    assert 1 == len(answer(run("search", "please", "--owner", "jim", "--json")))
    assert "jim" == answer(run("show", "rum", "--json"))["owner"]


@pytest.mark.usefixtures("filled")
def test_what_is_made_gets_an_owner(run: Run, tmp_path: Path) -> None:
    made = run("append", "--new", "hello", "--owner", "max").stdout.strip()
    fork = run("fork", made).stdout.strip()
    other = run("fork", made, "--owner", "eva").stdout.strip()
    run("append", made, "hello", "--owner", "max", status=2)
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]', "utf-8")
    given = run("import", str(tmp_path / "chat.json"), "--owner", "max").stdout.strip()
    run("export", made, str(tmp_path / "made.jsonl"))
    again = run("import", str(tmp_path / "made.jsonl"), "--id", "again").stdout.strip()
    with palaver.open(tmp_path / "chat.db") as store:
        owners = [store.head(name).owner for name in (made, fork, other, given, again)]
    assert ["max", "max", "eva", "max", "max"] == owners


def test_old_conversations_expire_into_an_archive_and_come_back(run: Run, filled: Path) -> None:
    would = answer(run("expire", "--older-than", "90d", "--dry-run", "--json"))
    assert (3, False, None) == (would["conversations"], would["done"], would["archive"])
    assert "3 conversations" in run("expire", "--older-than", "12w", "--dry-run").stdout
    archive = filled / "old.jsonl.gz"
    said = run("expire", "--older-than", "90d", "--owner", "anna", "--archive", str(archive))
    assert "2 conversations (2 messages)" in said.stdout
    done = answer(run("expire", "--older-than", "90d", "--archive", str(archive), "--json"))
    assert (1, True, 3) == (done["conversations"], done["done"], done["archive"]["conversations"])
    assert archive.stat().st_size == done["archive"]["bytes"]
    assert {"tea", "ale", "rum"} == {*run("import", str(archive)).stdout.split()}
    assert "--missing" in run("import", str(archive), status=1).stderr
    run("import", str(archive), "--id", "x", status=2)
    assert {"from": "archive", "conversations": []} == answer(
        run("import", str(archive), "--missing", "--json")
    )
    with palaver.open(filled / "chat.db") as store:
        assert {"tea", "rum", "ale", "water"} == {head.id for head in store}
        assert "jim" == store.head("rum").owner


def test_without_an_archive_a_person_is_asked(run: Run, filled: Path) -> None:
    refused = run("expire", "--older-than", "90d", given="n\n", status=1)
    assert "nothing was deleted" in refused.stderr
    assert "0 conversations" in run("expire", "--older-than", "1y", "--yes").stdout
    run("expire", "--older-than", "90d", "--tag", "tea", given="y\n")
    run("fork", "rum", "--id", "young")
    said = run("expire", "--older-than", "90d", "--yes")
    assert "1 stay, which younger forks read from" in said.stdout
    with palaver.open(filled / "chat.db") as store:
        assert {"water", "rum", "young"} == {head.id for head in store}


@pytest.mark.parametrize("age", ["90", "d", "-1d", "90m", "1.5d", ""])
def test_a_wrong_age_is_refused(run: Run, age: str) -> None:
    assert "is no age" in run("expire", "--older-than", age, status=2).stderr


def test_everything_of_an_owner_is_exported_and_erased_with_a_receipt(
    run: Run, filled: Path
) -> None:
    archive, receipt = str(filled / "anna.jsonl"), filled / "receipt.json"
    run("fork", "tea", "--id", "his", "--owner", "jim")
    assert {"owner": "anna", "conversations": 3, "file": archive} == answer(
        run("export", "--owner", "anna", archive, "--json")
    )
    assert "3 conversations" in run("export", "--owner", "anna", archive).stdout
    assert 3 == run("export", "--owner", "anna").stdout.count('"end"')
    run("erase", "--owner", "anna", given="n\n", status=1)
    said = run("erase", "--owner", "anna", "--receipt", str(receipt), given="y\n")
    assert "2 deleted, 1 emptied" in said.stdout
    assert "whole" in run("verify", "--receipt", str(receipt)).stdout
    with palaver.open(filled / "chat.db") as store:
        assert {"rum", "his", "tea"} == {head.id for head in store}
        assert "" == store.get("his")[0].text
    run("import", archive, "--missing")
    found = answer(run("verify", "--receipt", str(receipt), "--json", status=1))
    assert 4 == len(found["problems"])
    erased = answer(run("erase", "--owner", "anna", "--yes", "--json"))
    assert ["ale", "water"] == erased["deleted"]
    receipt.write_text(receipt.read_text("utf-8").replace("ale", "all"), "utf-8")
    assert "seal" in run("verify", "--receipt", str(receipt), status=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("erase", "tea"),
        ("erase", "tea", "0", "--owner", "anna"),
        ("erase", "tea", "0", "--receipt", "r.json"),
        ("export",),
        ("export", "tea", "file", "--owner", "anna"),
        ("export", "--owner", "anna", "--form", "document"),
        ("verify", "tea", "--receipt", "chat.db"),
    ],
)
def test_an_owner_goes_without_a_conversation(
    run: Run, filled: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(filled)
    run(*arguments, status=2)


def test_row_security_is_for_postgres(run: Run, filled: Path) -> None:
    del filled
    assert "no row security" in run("migrate", "--row-security", status=1).stderr
