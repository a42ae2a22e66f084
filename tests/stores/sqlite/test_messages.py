"""Many messages are read at once, or one by one where that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw
import pytest

import palaver
from palaver.errors import StoreDamaged
from palaver.messages import dump, user
from palaver.stores.sqlite import SQLiteBackend, backend

if TYPE_CHECKING:
    from pathlib import Path


def test_pages_are_read_in_order_across_a_fork(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        parent = store.create(user(f"p{number}") for number in range(750))
        fork = parent.fork()
        fork.extend(user(f"f{number}") for number in range(550))
        parent.append(user("later"))
        expected = [f"p{number}" for number in range(750)] + [f"f{number}" for number in range(550)]
        assert expected == [message.text for message in store.get(fork.id)]


def test_messages_too_large_for_a_page_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [user("x" * size) for size in (10, 5_000, 10)]
    with palaver.open(tmp_path / "chat.db") as store:
        name = store.create(messages).id
        statements: list[str] = []
        assert isinstance(store.backend, SQLiteBackend)
        read = store.backend._read

        def watched(statement: str, *values: object) -> list[Any]:
            statements.append(statement)
            return read(statement, *values)

        monkeypatch.setattr(store.backend, "_read", watched)
        assert messages == list(store.get(name))
        assert "bodies" not in statements
        monkeypatch.setattr(backend, "_MAX_JOINED", 5_000)
        assert messages == list(store.get(name))
        assert "bodies" in statements


def test_a_body_that_holds_two_messages_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with palaver.open(path) as store:
        name = store.create([user("a"), user("b")]).id
    body = dump(user("c")).decode()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE messages SET body = ? WHERE seq = 1", (f"{body},{body}",))
    connection.close()
    with palaver.open(path) as store, pytest.raises(StoreDamaged, match="can't be read"):
        list(store.get(name))
