from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tools import audit

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = """{"dependencies": [
    {"name": "old", "version": "1.0", "vulns": [{"id": "CVE-7", "fix_versions": ["1.1"]}]},
    {"name": "rare", "skip_reason": "not found"}
]}"""


def instead_of_pip_audit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> audit.Report | str:
    """Run the audit with another program under its name."""
    (folder / "pip_audit.py").write_text(program, "utf-8")
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(folder))
    return audit.audit(folder / "constraints.txt")


def test_an_advisory_about_a_pinned_version_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = instead_of_pip_audit(tmp_path, monkeypatch, f"print({KNOWN!r}); exit(1)")
    assert ["old 1.0: CVE-7; fixed in 1.1"] == list(audit.advisories(report))
    assert "1 of 2 pins audited, 1 advisories; 1 unknown" in audit.summary("it", report)


def test_an_index_out_of_reach_is_reported_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = instead_of_pip_audit(tmp_path, monkeypatch, "exit('no route to the index')")
    assert [] == list(audit.advisories(report))
    assert "nobody could be asked: no route to the index" in audit.summary("it", report)


def test_the_list_of_licences_names_every_dependency_and_each_is_accepted() -> None:
    licences = dict(audit.installed_licences("palaver"))
    assert {"msgspec", "apsw", "anyio", "uuid-utils", "litestar", "psycopg"} <= set(licences)
    assert [] == list(audit.refused(licences))


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "unknown", ""])
def test_a_licence_that_nobody_accepted_is_refused(licence: str) -> None:
    (problem,) = audit.refused({"it": licence})
    assert problem.startswith("it: ")
    assert repr(licence) in problem
