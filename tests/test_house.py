"""The house rules: who may import whom, what `import palaver` costs, what `__all__` promises."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.house import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parent.parent / "src"
FILES = sorted(SOURCE.rglob("*.py"))
FOREIGN = sorted(
    [*SOURCE.glob("palaver/adapters/**/*.py"), SOURCE / "palaver" / "nodes" / "langgraph.py"]
)
"""What needs another framework: it is imported beside that, by `make compat`."""

HEAVY = {
    "agents",
    "anthropic",
    "anyio",
    "asyncio",
    "claude_agent_sdk",
    "click",
    "google.genai",
    "langchain_core",
    "langgraph",
    "litestar",
    "mcp",
    "openai",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "rich",
    "splintr",
    "uvicorn",
    "xllamacpp",
}
"""What `import palaver` must not load."""


def named(path: Path) -> str:
    """Spell a file as a reader would, for the names of the tests."""
    return str(path.relative_to(SOURCE))


def module_of(path: Path) -> str:
    """Spell a file as a dotted module name."""
    steps = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def room(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    steps = module.split(".")
    return steps[1] if len(steps) > 1 and steps[1] != "__main__" else "palaver"


def imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every import of palaver in a file, wherever it stands: its line and the module it names."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*base, origin] if origin else base)
            rooms = [a.name for a in node.names if a.name in ORDER] if origin == "palaver" else []
            others = len(rooms) < len(node.names)
            found = [f"palaver.{name}" for name in rooms] + ([origin] if others else [])
        else:
            continue
        yield from (
            (node.lineno, name) for name in found if name == "palaver" or name[:8] == "palaver."
        )


def upward(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """The imports of a file that break the order, each with its line."""
    allowed = ORDER[: ORDER.index(room(module)) + 1]
    return [
        f"line {line}: {module} may not import {name}"
        for line, name in imports(ast.parse(source), module, is_package=is_package)
        if room(name) not in allowed
    ]


def test_imports_point_upwards_in_the_list() -> None:
    wrong = {
        named(path): found
        for path in FILES
        if (
            found := upward(
                path.read_text("utf-8"), module_of(path), is_package=path.name == "__init__.py"
            )
        )
    }
    assert {} == wrong


@pytest.mark.parametrize(
    "source",
    [
        "import palaver.history",
        "from palaver.history import History",
        "from palaver import history",
        "from palaver import Message",
        "from ..history import History",
        "from .. import history",
        "def late():\n    from palaver.cli import main",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from palaver.history import H",
    ],
)
def test_the_import_rule_sees_every_way_to_import(source: str) -> None:
    assert len(upward(source, "palaver.messages.parts")) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import json",
        "from palaver import errors",
        "from palaver.errors import PalaverError",
        "from .ids import new_id",
        "from . import ids",
        "from ..errors import PalaverError",
    ],
)
def test_the_import_rule_lets_through_what_is_earlier(source: str) -> None:
    assert [] == upward(source, "palaver.messages.parts")


def test_a_package_may_import_from_its_own_inside() -> None:
    assert [] == upward("from .parts import Part", "palaver.messages", is_package=True)
    assert [] == upward("from .messages import Message", "palaver", is_package=True)
    assert upward("from .cli import main", "palaver", is_package=True)


def test_import_palaver_stays_light() -> None:
    """No asyncio, provider SDK, web framework or command line; checked in a fresh interpreter."""
    code = "import sys, palaver; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "palaver" in loaded
    assert set() == loaded & HEAVY


def test_every_promised_name_is_there() -> None:
    for path in FILES:
        if path not in FOREIGN:
            check_names(path)


def check_names(path: Path) -> None:
    """What a module promises is there, each name once."""
    module = importlib.import_module(module_of(path))
    promised: list[str] = list(getattr(module, "__all__", []))
    assert [] == [name for name in promised if not hasattr(module, name)], module.__name__
    assert len(promised) == len(set(promised)), module.__name__


def test_no_file_is_too_long_to_be_read() -> None:
    long = [named(path) for path in FILES if len(path.read_text("utf-8").splitlines()) > 900]
    assert [] == long
