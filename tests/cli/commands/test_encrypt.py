from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver import Key, user
from palaver.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = (Key(bytes([number]) * 32) for number in (1, 2))
EXPORTED = "PALAVER_KEY"
IN_FILE = "PALAVER_KEY_FILE"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a conversation, in plain text."""
    path = tmp_path / "chat.db"
    with palaver.open(path) as store:
        store.create([user("tea or canary?")], id="talk", title="Canaries")
    return path


def run(path: Path, *arguments: str, **variables: str) -> Result:
    return CliRunner(env=variables).invoke(app, [*arguments, "--store", str(path)])


def test_a_store_is_encrypted_its_key_changed_and_back(path: Path) -> None:
    made = run(path, "encrypt", **{EXPORTED: OLD.text})
    assert f"encrypted with the key {OLD.id}: 3 rows rewritten\n" == made.stdout, made.output
    assert b"canary" not in path.read_bytes()
    keys = path.with_name("keys")
    keys.write_text(f"# new, old\n{NEW.text}\n\n{OLD.text}\n", "utf-8")
    changed = run(path, "encrypt", "--json", **{IN_FILE: str(keys)})
    assert {"encrypted": True, "key": NEW.id, "rows": 3} == json.loads(changed.stdout)
    assert "tea or canary?" in run(path, "show", "talk", **{IN_FILE: str(keys)}).stdout
    assert 0 == run(path, "verify", **{EXPORTED: NEW.text}).exit_code
    assert "plain text: 3 rows" in run(path, "encrypt", "--off", **{EXPORTED: NEW.text}).stdout
    assert "tea or canary?" in run(path, "show", "talk").stdout


def test_without_the_key_a_store_is_listed_and_said_to_be_encrypted(path: Path) -> None:
    run(path, "encrypt", **{EXPORTED: NEW.text})
    assert "(encrypted)" in run(path, "list").stdout
    assert "encrypted; search is off" in run(path, "doctor").stdout
    assert json.loads(run(path, "doctor", "--json").stdout)["encrypted"]
    shown = CliRunner().invoke(app, ["show", "talk", "--store", str(path)])
    assert 1 == shown.exit_code
    assert f"encrypted with the key {NEW.id}, and no key was given" in shown.stderr
    searched = run(path, "search", "tea", **{EXPORTED: NEW.text})
    assert (1, True) == (searched.exit_code, "search is off" in searched.stderr)


def test_a_copy_takes_the_same_keys(path: Path, tmp_path: Path) -> None:
    run(path, "encrypt", **{EXPORTED: NEW.text})
    target = tmp_path / "copy.db"
    copied = run(path, "copy", str(target), **{EXPORTED: NEW.text})
    assert 0 == copied.exit_code, copied.output
    assert b"canary" not in target.read_bytes()
    assert "tea or canary?" in run(target, "show", "talk", **{EXPORTED: NEW.text}).stdout


def test_a_new_key_is_printed() -> None:
    made = CliRunner().invoke(app, ["encrypt", "--new-key"])
    assert 16 == len(Key(made.stdout).id)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "give the key in PALAVER_KEY"),
        ({EXPORTED: "short"}, "has no key: it must be 32 bytes"),
        ({IN_FILE: "/there/is/none"}, "PALAVER_KEY_FILE can't be read"),
    ],
)
def test_a_missing_or_wrong_key_is_refused(
    path: Path, variables: dict[str, str], expected: str
) -> None:
    refused = run(path, "encrypt", **variables)
    assert (1, True) == (refused.exit_code, expected in refused.stderr)


def test_a_key_for_a_plain_store_is_refused_by_other_commands(path: Path) -> None:
    refused = run(path, "list", **{EXPORTED: NEW.text})
    assert (1, True) == (refused.exit_code, "has plain text in it" in refused.stderr)


def test_without_the_extra_the_command_says_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    refused = run(path, "encrypt", **{EXPORTED: NEW.text})
    assert (1, True) == (refused.exit_code, "palaver[encryption]" in refused.stderr)
