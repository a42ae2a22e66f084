"""The check of the page's scripts: what it says where TypeScript can't be installed."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tools import check_scripts

if TYPE_CHECKING:
    from pathlib import Path


def test_without_typescript_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[Any]] = []

    def refuse(command: list[Any], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(check_scripts, "_wheel", lambda: tmp_path)
    assert 0 == check_scripts.main(["--into", str(tmp_path / "here")])
    said = capsys.readouterr().err
    assert "could not be installed" in said
    assert str(tmp_path / "here") in said
    assert 1 == len(ran)  # nothing was checked


def test_the_pinned_package_is_the_only_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Npm is given the version and the integrity, and no address."""
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1)
    )
    monkeypatch.setattr(check_scripts, "_wheel", lambda: tmp_path)
    check_scripts.main(["--into", str(tmp_path / "here")])
    locked = json.loads((tmp_path / "here" / "package-lock.json").read_text("utf-8"))
    package = locked["packages"]["node_modules/typescript"]
    assert {"version": check_scripts.VERSION, "integrity": check_scripts.INTEGRITY} == package


def test_what_is_installed_already_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[Any]] = []

    def check(command: list[Any], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", check)
    monkeypatch.setattr(check_scripts, "_wheel", lambda: tmp_path)
    package = tmp_path / "node_modules" / "typescript"
    package.mkdir(parents=True)
    package.joinpath("package.json").write_text(json.dumps({"version": check_scripts.VERSION}))
    assert 0 == check_scripts.main(["--into", str(tmp_path)])
    assert [str(package / "bin" / "tsc")] == [command[1] for command in ran]


def test_another_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(command: list[Any], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "npm error code EINTEGRITY")

    monkeypatch.setattr(subprocess, "run", other)
    monkeypatch.setattr(check_scripts, "_wheel", lambda: tmp_path)
    with pytest.raises(SystemExit, match="not the pinned package"):
        check_scripts.main(["--into", str(tmp_path / "here")])
