"""The skill for coding agents: it comes with the package, is short, and its examples run."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tests.test_docs import run_page

if TYPE_CHECKING:
    import pytest

SKILL = resources.files("palaver").joinpath(".agents", "skills", "palaver", "SKILL.md")


def test_the_skill_is_part_of_the_package() -> None:
    """Its front matter has the name of its folder, and says when to use it."""
    text = SKILL.read_text("utf-8")
    found = re.match(r"---\nname: palaver\ndescription: (.+)\n---\n", text)
    assert found is not None
    assert "Use when" in found[1]
    assert len(found[1]) <= 1024


def test_the_skill_is_short_enough_to_be_read_whole() -> None:
    assert len(SKILL.read_text("utf-8").splitlines()) <= 120


def test_the_examples_of_the_skill_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(Path(str(SKILL)))
