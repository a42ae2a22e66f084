"""The tool that counts the source files which a call crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import palaver
from palaver.messages import user
from tools import walk

if TYPE_CHECKING:
    import pytest


def test_every_file_is_counted_once() -> None:
    history, message = palaver.History(), user("one")
    history.append(message)
    found = walk.walk(lambda: [history.append(message) for _ in range(3)])
    assert "history/history.py" in found.files
    assert len(found.files) == len(set(found.files)) <= found.switches


def test_nothing_is_recorded_outside_of_a_walk() -> None:
    assert walk.Walk([], 0) == walk.walk(lambda: None)


def test_every_walk_has_a_limit_and_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == walk.main([])
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in walk.LIMITS)


def test_a_walk_beyond_its_limit_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(walk.LIMITS, "append", 1)
    assert 1 == walk.main([])
    assert "append crosses more than 1 files" in capsys.readouterr().err


def test_the_page_has_the_table() -> None:
    page = walk.PAGE.read_text("utf-8")
    assert all(f"| {name} |" in page for name in walk.LIMITS)
