"""An operation under a key is carried out once, whatever has come since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.history import Append, Rollback, Truncate
from palaver.messages import user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    where = ":memory:" if request.param == "memory" else str(tmp_path / "chat.db")
    with palaver.open(where) as opened:
        yield opened


def test_an_edit_of_a_key_is_made_once(store: Store) -> None:
    history = store.create([user(str(number)) for number in range(5)])
    cut = Truncate(remove_last=1)
    assert 4 == history.execute(cut, key="k").stats.total_messages
    assert 4 == history.execute(cut, key="k").stats.total_messages
    other = store.get(history.id)
    other.append(user("more"))
    assert 5 == other.execute(cut, key="k").stats.total_messages
    assert 5 == history.execute(cut, key="k").stats.total_messages, "it sees the others' too"
    assert 4 == history.execute(cut, key="other").stats.total_messages
    assert 3 == history.execute(cut).stats.total_messages


def test_so_is_one_that_comes_late(store: Store) -> None:
    """Another has changed the conversation, and the edit was kept before that."""
    late = store.create([user("a"), user("b")])
    other = store.get(late.id)
    other.execute(Truncate(remove_last=1), key="k")
    other.append(user("c"))
    late.execute(Truncate(remove_last=1), key="k")
    assert ["a", "c"] == [message.text for message in late]


def test_an_append_and_a_rollback_too(store: Store) -> None:
    history = store.create([user("a")])
    for _ in range(2):
        history.execute(Append((user("b"),)), key="k1")
    assert 2 == len(history)
    history.clear()
    for _ in range(2):
        history.execute(Rollback(0), key="k2")
    assert (2, 3) == (len(history), history.version)
    history.append(user("c"))
    history.clear()
    history.execute({"operation": "ROLLBACK", "targetBatchIndex": 0}, key="k2")
    assert 0 == len(history)
