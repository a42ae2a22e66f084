from __future__ import annotations

import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from tools import check_dist

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = {
    "palaver/py.typed",
    "palaver/__init__.py",
    "palaver-1.dist-info/licenses/LICENSE",
    check_dist.SKILL,
}


def wheel(folder: Path, names: set[str]) -> Path:
    path = folder / "palaver-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    assert [] == list(check_dist.wrong_in_wheel(wheel(tmp_path, WHOLE)))


@pytest.mark.parametrize("name", sorted(WHOLE - {"palaver/__init__.py"}))
def test_a_wheel_without_types_skill_or_license_is_a_problem(tmp_path: Path, name: str) -> None:
    assert len(list(check_dist.wrong_in_wheel(wheel(tmp_path, WHOLE - {name})))) == 1


def test_a_wheel_with_tests_is_a_problem(tmp_path: Path) -> None:
    (problem,) = check_dist.wrong_in_wheel(wheel(tmp_path, WHOLE | {"tests/test_it.py"}))
    assert "tests/test_it.py" in problem


def test_an_sdist_must_be_whole_too(tmp_path: Path) -> None:
    source = tmp_path / "pyproject.toml"
    source.write_text("")
    sdist = tmp_path / "palaver-1.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(source, "palaver-1/pyproject.toml")
        archive.add(source, "palaver-1/.venv/lib/pyproject.toml")
    problems = list(check_dist.wrong_in_sdist(sdist))
    assert len(problems) == 4
    assert "does not belong" in problems[-1]


def test_a_program_that_fails_stops_the_check() -> None:
    with pytest.raises(SystemExit, match="oh no"):
        check_dist.run(sys.executable, "-c", "raise SystemExit('oh no')")
