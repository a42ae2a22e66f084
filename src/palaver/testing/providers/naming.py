"""The alphabets and lengths of names and ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from palaver.testing.providers.values import kind, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.rules import Rule
    from palaver.testing.providers.values import Check

__all__ = ["unique_names", "written"]


def written(rule: Rule, pattern: str, *, longest: int) -> Check:
    """Want a string of this pattern and of 1 to `longest` characters."""
    compiled = re.compile(pattern)

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not value:
            found.add(path, rule, "must not be empty")
        elif len(value) > longest:
            found.add(path, rule, f"{len(value)} characters are more than {longest}")
        elif not compiled.fullmatch(value):
            found.add(path, rule, f"does not match the pattern {pattern}")

    return run


def unique_names(found: Findings, named: Iterable[tuple[str, object]]) -> None:
    """Want no name twice among these tools."""
    seen: set[str] = set()
    for path, tool in named:
        name = word(tool, "name")
        if name is None:
            continue
        if name in seen:
            found.add(path, "duplicate-tool", f"another tool has this name: {name[:60]}")
        seen.add(name)
