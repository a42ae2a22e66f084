from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from tools import reference

if TYPE_CHECKING:
    from pathlib import Path

INIT = '''"""A small package.

More about it.
"""

from typing import TYPE_CHECKING

from small import shapes
from small.shapes import Shape, draw

__all__ = ["LIMIT", "Shape", "__version__", "draw", "rest", "shapes"]
__version__ = "1"

if TYPE_CHECKING:
    LIMIT: int = 3
    """How many fit."""
else:
    LIMIT = 3


def rest(*, why: object = object()) -> None:
    """Do nothing."""
'''

SHAPES = '''"""Shapes."""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Colour", "Pen", "Shape", "draw"]


class Pen:
    """Draws."""

    def __init__(self, width: int = 1) -> None: ...


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """A shape."""

    side_count: int
    name: str | None = None

    @property
    def closed(self) -> bool:
        """Whether it has an inside."""
        return self.side_count > 2

    def turned(self, degrees: float, /, *more: int) -> Shape:
        """Turn it."""
        return self


def draw(shape: Shape, colour: str = "red") -> str:
    """Draw a shape.

    >>> 1 + 1
    2
    """
    return f"{colour} {shape}"
'''


@pytest.fixture(name="small")
def make_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package to describe, on the path for one test."""
    package = tmp_path / "small"
    (package / "shapes").mkdir(parents=True)
    (package / "_hidden").mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "shapes" / "__init__.py").write_text(SHAPES)
    (package / "_hidden" / "__init__.py").write_text('__all__ = ["secret"]\nsecret = 1\n')
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.split(".")[0] == "small"]:
        monkeypatch.delitem(sys.modules, name)
    return package


@pytest.mark.usefixtures("small")
def test_every_public_package_has_a_page() -> None:
    assert ["README.md", "small.md", "small.shapes.md"] == sorted(reference.pages("small"))


@pytest.mark.usefixtures("small")
def test_a_page_shows_signatures_fields_and_docstrings() -> None:
    page = reference.pages("small")["small.shapes.md"]
    assert "draw(shape: Shape, colour: str = 'red') -> str" in page
    assert "turned(degrees: float, /, *more: int) -> Shape" not in page
    assert "turned(self, degrees: float, /, *more: int) -> Shape" in page
    assert "| `side_count` | `int` | `sideCount` | required |" in page
    assert "| `name` | `str \\| None` | `name` | `None` |" in page
    assert "```pycon\n>>> 1 + 1\n2\n```" in page
    assert "- `RED` = `'red'`" in page
    assert "class Pen\n\nPen(width: int = 1)" in page
    assert "Whether it has an inside." in page


@pytest.mark.usefixtures("small")
def test_a_name_from_deeper_down_is_linked_and_a_constant_is_quoted() -> None:
    page = reference.pages("small")["small.md"]
    assert "- [`Shape`](small.shapes.md#shape): A shape." in page
    assert "- [`shapes`](small.shapes.md): Shapes." in page
    assert "__version__" not in page
    assert "LIMIT: int = 3" in page
    assert "How many fit." in page
    assert "rest(*, why: object = <object object>) -> None" in page


@pytest.mark.usefixtures("small")
def test_drift_is_found_and_writing_again_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = tmp_path / "pages"
    options = ["--package", "small", "--into", str(pages)]
    assert reference.main([*options, "--check"]) == 1
    assert reference.main(options) == 0
    assert reference.main([*options, "--check"]) == 0
    (pages / "small.md").write_text("old\n")
    (pages / "small.gone.md").write_text("gone\n")
    capsys.readouterr()
    assert reference.main([*options, "--check"]) == 1
    printed = capsys.readouterr().out
    assert "-old" in printed
    assert "-gone" in printed
    assert "make reference" in printed
    assert reference.main(options) == 0
    assert not (pages / "small.gone.md").exists()
    assert reference.main([*options, "--check"]) == 0
