"""Statements by name and migrations by number."""

from __future__ import annotations

import pytest

from palaver.stores.backend import load_migrations, load_queries

PACKAGES = ("palaver.stores.sqlite", "palaver.stores.postgres")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_statement_has_a_name_and_is_one(package: str) -> None:
    queries = load_queries(package)
    assert {"head", "bodies", "journal"} <= queries.keys()
    for name, statement in queries.items():
        assert statement, name
        assert ";" not in statement, name  # a comment behind it would be a second one


@pytest.mark.parametrize("package", PACKAGES)
def test_migrations_are_numbered_from_one_without_gaps(package: str) -> None:
    migrations = load_migrations(package)
    assert list(range(1, len(migrations) + 1)) == [number for number, _ in migrations]
    assert all(statements.strip() for _, statements in migrations)
