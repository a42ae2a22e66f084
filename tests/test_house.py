"""The rules of the source tree: import order, names, sizes, and what `import palaver` costs."""

from __future__ import annotations

import ast
import functools
import importlib
import re
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
    "agent_framework",
    "agents",
    "anthropic",
    "anyio",
    "asyncio",
    "claude_agent_sdk",
    "click",
    "google.adk",
    "google.genai",
    "jsonschema_rs",
    "langchain_core",
    "langgraph",
    "latex2mathml",
    "litestar",
    "llama_index",
    "markdown_it",
    "mcp",
    "openai",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "rich",
    "splintr",
    "strands",
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
    if module == "palaver.__main__":  # it starts the command
        return "cli"
    return steps[1] if len(steps) > 1 else "palaver"


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


@functools.cache
def parse(source: str) -> ast.Module:
    """Parse a file, once for all tests."""
    return ast.parse(source)


def upward(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """The imports of a file that break the order, each with its line."""
    allowed = ORDER[: ORDER.index(room(module)) + 1]
    return [
        f"line {line}: {module} may not import {name}"
        for line, name in imports(parse(source), module, is_package=is_package)
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


# ── names and sizes ─────────────────────────────────────────────────────────────────────────────

AVOIDED = {
    "adding", "bury", "burying", "carry", "carried", "carrying", "checking", "choosing", "cleaning",
    "crew", "desk", "editing", "face", "floor", "folding", "gathering", "hosting", "house",
    "keeper", "keeping", "kept", "leftovers", "manners", "mended", "mending", "pen", "planting",
    "proving", "putting", "reading", "roommaking", "scene", "shelf", "sight", "sights", "stamps",
    "stretch", "talks", "told", "tongue", "toolroom", "visiting", "whole", "wholes", "words",
    "workshop", "writing",
}  # fmt: skip
"""Metaphors and generic activities: a module or class named so does not say what it holds."""

MOST_FILES = 289
MOST_WITH_ONE_IMPORTER = 59


def syntax_trees() -> dict[str, ast.Module]:
    """Every module of palaver, parsed."""
    return {module_of(path): parse(path.read_text("utf-8")) for path in FILES}


def classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes at the top level of a module."""
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def parts_of(name: str) -> set[str]:
    """The words of a name, in lower case.

    >>> sorted(parts_of("StoredHistory") | parts_of("_text_index"))
    ['history', 'index', 'stored', 'text']
    """
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def test_the_house_stays_small_enough_to_be_known() -> None:
    assert len(FILES) <= MOST_FILES


def test_few_modules_serve_a_single_other() -> None:
    """A module that one other imports usually belongs in that module."""
    trees = syntax_trees()
    importers: dict[str, set[str]] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found = inner if inner in trees else node.module
                    if found != module:
                        importers.setdefault(found, set()).add(module)
    packages = {module_of(path) for path in FILES if path.name == "__init__.py"}
    alone = [name for name, users in importers.items() if len(users) == 1 and name not in packages]
    assert len(set(alone) & trees.keys()) <= MOST_WITH_ONE_IMPORTER, sorted(alone)


def test_names_are_words_of_the_field() -> None:
    trees = syntax_trees()
    found = [module for module in trees if parts_of(module.rpartition(".")[2]) & AVOIDED]
    found += [
        f"{module}.{node.name}"
        for module, tree in trees.items()
        for node in classes(tree)
        if parts_of(node.name) & AVOIDED
    ]
    assert [] == found


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module, tree in syntax_trees().items():
        for node in classes(tree):
            if not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {} == {name: found for name, found in homes.items() if len(found) > 1}


def test_no_class_is_split_over_a_chain() -> None:
    """A class with one subclass that has one subclass is one class in three files."""
    subclasses: dict[str, list[str]] = {}
    for tree in syntax_trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    inner = base.value if isinstance(base, ast.Subscript) else base
                    name = inner.attr if isinstance(inner, ast.Attribute) else ast.unparse(inner)
                    subclasses.setdefault(name, []).append(node.name)
    chains = [
        (base, only[0], subclasses[only[0]][0])
        for base, only in subclasses.items()
        if len(only) == 1 and len(subclasses.get(only[0], ())) == 1 and not is_foreign(base)
    ]
    assert [] == chains


def is_foreign(name: str) -> bool:
    """Tell whether a class is not of palaver: its subclasses are no split."""
    return not any(node.name == name for tree in syntax_trees().values() for node in classes(tree))


def test_only_stores_touch_a_backend() -> None:
    """Everything else goes through `Store` and `StoredHistory`."""
    inside = ("palaver.stores", "palaver.testing.stores")
    found = []
    for path in FILES:
        module = module_of(path)
        if module.startswith(inside):
            continue
        for node in ast.walk(parse(path.read_text("utf-8"))):
            if not isinstance(node, (ast.Attribute, ast.ImportFrom)):
                continue
            touched = isinstance(node, ast.Attribute) and node.attr in {"backend", "_backend"}
            imported = isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                ("palaver.stores.sqlite", "palaver.stores.postgres", "palaver.stores.memory")
            )
            if touched or imported:
                found.append(f"{named(path)}:{node.lineno}")
    assert [] == found


@pytest.mark.no_cover
def test_what_is_not_measured_runs_without_a_tracer() -> None:
    """In a worker of `make test` too: a property costs twice as much with one."""
    assert "coverage" not in type(sys.gettrace()).__module__
