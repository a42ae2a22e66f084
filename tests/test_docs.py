"""The examples in the docs run: Python blocks, and the commands with the output they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.markdown import FOREIGN, blocks, commands, matches
from tools import check_docs

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if path.parent != ROOT / check_docs.TRANSLATIONS
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [p for p in PAGES if named(p) not in FOREIGN], ids=named)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks run in order, in one namespace and one empty folder."""
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_translations_have_the_code_of_the_pages_that_are_run() -> None:
    """So they are not run a second time."""
    assert [] == [*check_docs.unequal_readmes(ROOT), *check_docs.unequal_translations(ROOT)]


def run_page(page: Path) -> None:
    """Run the blocks of a page, in order, in one namespace."""
    module = ModuleType(f"example of {page.name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        for block in blocks(page.read_text("utf-8")):
            if block.language == "python":
                at_its_line = "\n" * (block.line - 1) + block.code
                exec(compile(at_its_line, page, "exec"), module.__dict__)  # noqa: S102 - our own docs
            elif block.language == "console":
                run_console(block.code)
    finally:
        del sys.modules[module.__name__]


def run_console(code: str) -> None:
    """Run a block's commands and compare what they print with what the page shows."""
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    plain = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PATH": path}
    for command, shown in commands(code):
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={**os.environ, **plain},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if shown:
            assert matches(shown, done.stdout), f"$ {command}\n{done.stdout}"
        else:
            assert done.returncode == 0, f"$ {command}\n{done.stdout}"


def test_a_block_marked_so_is_not_run() -> None:
    text = "<!-- not run: needs a key -->\n```python\nraise\n```\n\n```python\npass\n```\n"
    assert ["pass\n"] == [block.code for block in blocks(text)]


def test_blocks_know_their_line() -> None:
    assert [3] == [block.line for block in blocks("# Title\n```python\npass\n```\n")]


def test_a_console_block_that_prints_something_else_fails() -> None:
    with pytest.raises(AssertionError, match="palaver --version"):
        run_console("$ palaver --version\nsomething else\n")


def test_every_variable_that_palaver_reads_is_on_one_page() -> None:
    page = (ROOT / "docs/howto/in-your-shell.md").read_text("utf-8")
    known = set(re.findall(r"^\| `(_?PALAVER_\w+)` \|", page, re.MULTILINE))
    code = (path.read_text("utf-8") for path in ROOT.glob("src/palaver/**/*.py"))
    assert known == {name for text in code for name in re.findall(r"\b_?PALAVER_[A-Z_]+", text)}
