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
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from small.shapes.inner import Corner, Strokes

__all__ = ["ORIGIN", "Colour", "Pen", "Shape", "draw", "trace"]
Dots: TypeAlias = "list[Dot]"


class Dot:
    """A dot."""


class Paper:
    """What it is drawn on."""

    _secret: Corner


ORIGIN = Paper()


class Pen:
    """Draws."""

    def __init__(self, width: int = 1) -> None: ...

    async def lift(self) -> Strokes:
        """Lift it."""


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


async def trace(shape: Shape) -> AsyncIterator[Dots]:
    """Trace a shape."""
    yield []


def draw(shape: Shape, colour: str = "red") -> str:
    """Draw a shape.

    >>> 1 + 1
    2
    """
    return f"{colour} {shape}"
'''


INNER = '''"""What a drawing is made of."""

from typing import NamedTuple, Union


class Corner:
    """Where two lines meet."""


class Line(NamedTuple):
    """A line."""

    ends: "tuple[End, End]"
    style: "unknown.Style"


class End:
    """Where a line ends."""


class Arc:
    """A part of a circle."""


Strokes = Union[Line, list[Union[Arc, int]]]
'''


@pytest.fixture(name="small")
def make_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package to describe, on the path for one test."""
    package = tmp_path / "small"
    (package / "shapes").mkdir(parents=True)
    (package / "_hidden").mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "shapes" / "__init__.py").write_text(SHAPES)
    (package / "shapes" / "inner.py").write_text(INNER)
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
def test_a_page_shows_what_has_to_be_awaited() -> None:
    """A coroutine function and an asynchronous generator."""
    page = reference.pages("small")["small.shapes.md"]
    assert "async lift(self) -> Strokes" in page
    assert "async trace(shape: Shape) -> AsyncIterator[Dots]" in page
    assert "async draw" not in page


@pytest.mark.usefixtures("small")
def test_every_type_that_a_user_can_hold_has_an_entry() -> None:
    """What is returned, what a field or a constant holds, and what those hold; nothing else."""
    page = reference.pages("small")["small.shapes.md"]
    for name, module in (
        ("Line", "small.shapes.inner"),
        ("End", "small.shapes.inner"),
        ("Arc", "small.shapes.inner"),
        ("Dot", "small.shapes"),
        ("Paper", "small.shapes"),
    ):
        assert f"## {name}\n\nImport it from `{module}`.\n" in page
    assert "## Corner" not in page
    assert 1 == page.count("## Shape\n")


def test_the_types_of_palaver_that_a_user_can_hold_have_entries() -> None:
    pages = reference.pages("palaver")
    for page, name in (
        ("messages", "StepStartPart"),
        ("conversation", "LedgerEntry"),
        ("conversation", "CallStarted"),
        ("stores", "Pruned"),
    ):
        assert f"\n## {name}\n" in pages[f"palaver.{page}.md"]
    assert "async run_until_answer(" in pages["palaver.conversation.md"]


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
