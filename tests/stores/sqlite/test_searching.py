"""The search index of a damaged file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

import palaver
from palaver.errors import StoreDamaged
from tests.history.samples import talk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE indexing SET indexed = NULL",
        "UPDATE indexing SET indexed = 'seven'",
        "INSERT INTO indexing VALUES (2)",
        "DELETE FROM indexing",
    ],
)
def test_an_index_whose_end_can_not_be_read_is_damage(path: Path, damage: str) -> None:
    with palaver.open(path) as store:
        history = store.create(talk("u1 a2"))
        assert 1 == len(store.search("u1"))
    file = apsw.Connection(str(path))
    file.execute(
        "PRAGMA writable_schema = ON; "
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE indexing (indexed)' WHERE name = 'indexing'"
    )
    file.close()  # what a column may hold is the damaged file's to say
    file = apsw.Connection(str(path))
    file.execute(damage)
    file.close()
    with palaver.open(path) as store:
        with pytest.raises(StoreDamaged, match="search index"):
            store.search("u1")
        with pytest.raises(StoreDamaged, match="search index"):
            store.get(history.id).erase(0)
        assert 2 == len(store.get(history.id))
