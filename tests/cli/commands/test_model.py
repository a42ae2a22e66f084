from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from palaver.cli.app import app
from palaver.models import catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path))
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def test_known_models_are_listed_with_their_state(folder: Path) -> None:
    (folder / "mine.gguf").write_bytes(b"GGUF")
    done = CliRunner().invoke(app, ["model", "list", "--json"])
    rows = {row["name"]: row for row in json.loads(done.stdout)["models"]}
    assert {"mine": True, "smollm2": False} == {n: row["installed"] for n, row in rows.items()}
    assert (4, None) == (rows["mine"]["bytes"], rows["mine"]["about"])
    shown = CliRunner().invoke(app, ["model", "list"]).stdout.splitlines()
    assert "local:mine  installed" in shown[0]
    assert "local:smollm2  not installed" in shown[1]


def test_installing_says_where_the_file_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder / "smollm2.gguf"

    def install(name: str, progress: Callable[[int, int | None], None] | None) -> Path:
        assert ("smollm2", None) == (name, progress)  # nobody watches
        place.write_bytes(b"GGUF")
        return place

    monkeypatch.setattr(catalog, "install", install)
    done = CliRunner().invoke(app, ["model", "install", "smollm2", "--json"])
    assert {"name": "smollm2", "path": str(place), "bytes": 4} == json.loads(done.stdout)
    done = CliRunner().invoke(app, ["model", "install", "smollm2"])
    assert f"local:smollm2  {place}\n" == done.stdout


def test_a_model_that_is_not_known_is_refused(folder: Path) -> None:
    assert folder.is_dir()
    done = CliRunner().invoke(app, ["model", "install", "gpt-99"])
    assert 1 == done.exit_code
    assert "known are smollm2" in done.output
