"""Statements and migrations kept in `.sql` files.

    -- name: head
    SELECT … ;

A statement is known by its name; a migration is a file whose name begins with its number.
"""

from __future__ import annotations

import re
from importlib import resources

__all__ = ["load_migrations", "load_queries"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_END = re.compile(r";$", re.MULTILINE)


def load_queries(package: str) -> dict[str, str]:
    """The named statements of a package's `queries.sql`."""
    text = resources.files(package).joinpath("queries.sql").read_text("utf-8")
    _, *pieces = _NAME.split(text)
    return {
        name: _END.split(statement, maxsplit=1)[0].strip()  # a comment behind it would be run, too
        for name, statement in zip(pieces[::2], pieces[1::2], strict=True)
    }


def load_migrations(package: str) -> list[tuple[int, str]]:
    """The migrations of a package, in the order of their numbers."""
    folder = resources.files(package).joinpath("migrations")
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)
