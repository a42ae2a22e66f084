"""Check what the docs say about each other and about the code.

Links between files resolve; the tables of `docs/design-map.md` and `SECURITY.md` name only tests
and code that exist, or a room of the house that is still to be built, and no row says "not yet";
the two READMEs have the same headings, the same code and the same links but those to translations,
and the Chinese pages have the headings and the code of the English ones they translate.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tools.house import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
MAP = "docs/design-map.md"
SECURITY = "SECURITY.md"
READMES = ("README.md", "README.zh-CN.md")
TRANSLATIONS = "docs/zh"

FENCE = re.compile(r"^(```+)(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
MARKED = re.compile(r"(<!-- not run: [^>]+ -->\s*\n)?(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^(#{1,6}) ", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w./-]+\.py)((?:::\w+)*)(?:\[[^\]`]*\])?`")
CODE = re.compile(r"`(palaver(?:\.\w+)*)(?:\(\))?`")
_NAMED = re.compile(rf"{TEST.pattern}|\bpalaver\b|{LINK.pattern}")
MUST_SAY = {
    "shown by": TEST,
    "where": _NAMED,
    "where it lives in palaver": _NAMED,
}
"""What the cells of some of the map's columns have to name: a test, or a place."""
ELSEWHERE = ("http:", "https:", "mailto:")


def main(arguments: list[str] | None = None) -> int:
    """Print every problem; answer the exit status."""
    parser = argparse.ArgumentParser(prog="check_docs", description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=ROOT, help="the project's folder")
    root: Path = parser.parse_args(arguments).root
    problems = [
        *broken_links(root),
        *wrong_map(root),
        *unequal_readmes(root),
        *unequal_translations(root),
    ]
    if (root / SECURITY).exists():
        problems += wrong_map(root, SECURITY)
    for problem in problems:
        print(problem)
    print(f"docs: {len(problems)} problems" if problems else "docs: links, map and READMEs agree")
    return 1 if problems else 0


def documents(root: Path) -> list[Path]:
    """Find the project's Markdown files, not those of hidden or foreign folders."""
    return sorted(
        path
        for path in root.rglob("*.md")
        if not any(
            step.startswith(".") or step in {"build", "dist", "node_modules"}
            for step in path.relative_to(root).parts
        )
    )


def broken_links(root: Path) -> Iterator[str]:
    """Find links to files, and to headings in files, that are not there."""
    for path in documents(root):
        text = FENCE.sub("", path.read_text("utf-8"))
        for target in LINK.findall(text):
            if target.startswith(ELSEWHERE):
                continue
            file, _, anchor = target.partition("#")
            goal = (path.parent / file).resolve() if file else path
            where = path.relative_to(root)
            if not goal.exists():
                yield f"{where}: no such file: {target}"
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
                yield f"{where}: no such heading: {target}"


@cache
def anchors(path: Path) -> frozenset[str]:
    """Name a file's headings as links do: lower case, dashes, no punctuation."""
    text = FENCE.sub("", path.read_text("utf-8"))
    titles = (line.lstrip("#").strip() for line in text.splitlines() if HEADING.match(line))
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def wrong_map(root: Path, document: str = MAP) -> Iterator[str]:
    """Find cells of a page's tables that name what does not exist, or nothing where they must."""
    path = root / document
    if not path.exists():
        yield f"{document}: missing"
        return
    for number, row in tables(path.read_text("utf-8")):
        for head, cell in row.items():
            if "not yet" in cell or ((wants := MUST_SAY.get(head)) and not wants.search(cell)):
                yield f'{document}:{number}: "{head}" is left open'
            for file, names in TEST.findall(cell):
                if not has_test(root / file, names):
                    yield f"{document}:{number}: no such test: {file}{names}"
            for name in CODE.findall(cell):
                if not is_coming(name) and not resolves(name):
                    yield f"{document}:{number}: no such name: {name}"


def tables(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row of a text's tables: its line, and its cells by the heads of their columns."""
    heads: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield number, dict(zip(heads, cells, strict=False))


def is_coming(name: str) -> bool:
    """Tell whether a name lies in a room of the house that is still to be built.

    >>> is_coming("palaver.messages.Message"), is_coming("palaver.nowhere")
    (False, False)
    """
    room = ".".join(name.split(".")[:2])
    if room.removeprefix("palaver.") not in ORDER:
        return False
    return not resolves(room) or importlib.import_module(room).__file__ is None  # no __init__ yet


def has_test(path: Path, names: str) -> bool:
    """Tell whether a file holds `::test_name` or `::TestClass::test_name`."""
    if not path.is_file():
        return False
    body: list[ast.stmt] = test_body(path)
    for name in names.removeprefix("::").split("::") if names else ():
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                body = []
                break
            if isinstance(node, ast.ClassDef) and node.name == name:
                body = node.body
                break
        else:
            return False
    return True


@cache
def test_body(path: Path) -> list[ast.stmt]:
    """Parse a test file, once."""
    return ast.parse(path.read_text("utf-8")).body


@cache
def resolves(name: str) -> bool:
    """Tell whether a dotted name leads to a module or to something in one.

    >>> resolves("pathlib.Path.exists"), resolves("pathlib.Path.vanish"), resolves("no_such.thing")
    (True, False, False)
    """
    steps = name.split(".")
    for length in range(len(steps), 0, -1):
        module = ".".join(steps[:length])
        try:
            thing: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        for step in steps[length:]:
            if not hasattr(thing, step):
                return False
            thing = getattr(thing, step)
        return True
    return False


def unequal_readmes(root: Path) -> Iterator[str]:
    """Find where the two READMEs part: a missing file, the headings, the code, the links."""
    paths = [root / name for name in READMES]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        yield from (f"{name}: missing" for name in missing)
        return
    first, second = (path.read_text("utf-8") for path in paths)
    if headings(first) != headings(second):
        yield f"{' and '.join(READMES)}: not the same headings, level by level"
    if code_blocks(first) != code_blocks(second):
        yield f"{' and '.join(READMES)}: not the same code blocks"
    odd = {*links(first)} ^ {english(target, root) for target in links(second)}
    if odd - {english(target, root) for target in links(second) if is_translation(target)}:
        yield f"{' and '.join(READMES)}: not the same links: {', '.join(sorted(odd))}"


def unequal_translations(root: Path) -> Iterator[str]:
    """Find where a Chinese page parts from its English one: headings, code, what is not run.

    Drawings (`text` blocks) may have words in them, which are translated.
    """
    for path in sorted((root / TRANSLATIONS).glob("*.md")):
        name = f"{TRANSLATIONS}/{path.name}"
        places = [root / "docs" / path.name, root / "docs" / "howto" / path.name]
        original = next((place for place in places if place.exists()), None)
        if original is None:
            yield f"{name}: no English page has this name"
            continue
        page, english = (file.read_text("utf-8") for file in (path, original))
        source = original.relative_to(root).as_posix()
        if headings(page) != headings(english):
            yield f"{name} and {source}: not the same headings, level by level"
        if runnable(page) != runnable(english):
            yield f"{name} and {source}: not the same code blocks"


def runnable(text: str) -> list[str]:
    """List a text's blocks of code with their marks, in order; not its drawings."""
    found = (f"{match[1] or ''}{match[2].strip()}" for match in MARKED.finditer(text))
    return [block for block in found if "```text" not in block]


def headings(text: str) -> list[int]:
    """List the levels of a text's headings, in order."""
    return [len(marks) for marks in HEADING.findall(FENCE.sub("", text))]


def links(text: str) -> set[str]:
    """List what a text links to, but for the READMEs, each of which leads to the other."""
    return {target for target in LINK.findall(FENCE.sub("", text)) if target not in READMES}


def is_translation(target: str) -> bool:
    """Tell whether a link leads to a Chinese page."""
    return target.startswith(f"{TRANSLATIONS}/")


def english(target: str, root: Path) -> str:
    """Return the page that a Chinese page translates; any other link as it is."""
    if not is_translation(target):
        return target
    name = target.removeprefix(f"{TRANSLATIONS}/")
    return f"docs/howto/{name}" if (root / "docs" / "howto" / name).exists() else f"docs/{name}"


def code_blocks(text: str) -> list[str]:
    """List a text's fenced blocks, in order."""
    return [match.group(0).strip() for match in FENCE.finditer(text)]


if __name__ == "__main__":
    sys.exit(main())
