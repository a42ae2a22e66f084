"""Appends: one statement for a few messages, whoever else writes; and heads that are never old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import Stale
from palaver.messages import assistant, user
from palaver.stores.records import Change
from palaver.stores.sqlite import SQLiteKeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.messages import Message
    from palaver.stores.store import Store


def said(count: int) -> list[Message]:
    return [user(str(n)) if n % 2 else assistant(str(n)) for n in range(count)]


def statements(store: Store, act: Callable[[], object]) -> list[str]:
    """What the writing connection is told meanwhile."""
    keeper = store.keeper
    assert isinstance(keeper, SQLiteKeeper)
    found: list[str] = []

    def tell(_cursor: object, statement: str, _values: object) -> bool:
        found.append(statement.split("\n", 1)[0])
        return True

    keeper._writer.exec_trace = tell
    try:
        act()
    finally:
        keeper._writer.exec_trace = None
    return found


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
def test_a_few_messages_are_one_statement(tmp_path: Path, count: int) -> None:
    """And many are one transaction; either way it is one change, under one key."""
    with palaver.open(tmp_path / "chat.db") as store:
        history, other = store.create([user("first")]), store.create()
        made = statements(store, lambda: history.extend(said(count), key="k"))
        assert (2 if count <= 16 else count + 5) == len(made)  # a key is asked for, too
        other.extend(said(3))
        history.append(user("last"))
        history.extend(said(count), key="k")  # it was done before
        assert 2 == history.version
        again = store.get(history.id)
        words = ["first", *map(str, range(count)), "last"]
        assert words == [message.text for message in again]
        told = store.keeper.journal(None, 0, 100)
        assert [1, 0, count, 3, 1] == [change.count for change in told]
        assert [] == list(store.verify())


def test_who_comes_too_late_goes_behind(tmp_path: Path) -> None:
    """Also where the other has written in another process, several at once, or edited."""
    with palaver.open(tmp_path / "chat.db") as store, palaver.open(tmp_path / "chat.db") as there:
        ours = store.create([user("a")])
        theirs = there.get(ours.id)
        theirs.extend([user("b"), user("c")])
        ours.extend([user("d"), user("e")])
        assert "abcde" == "".join(message.text for message in ours)
        theirs.refresh().truncate(keep_last=1)
        ours.extend([user("f"), user("g")])
        assert "efg" == "".join(message.text for message in ours)
        assert [] == list(store.verify())


def test_a_change_that_is_too_late_leaves_nothing(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.create([user("a")])
        for after in (0, 1):
            late = Change(history.id, after, "append", 1, 3, 3, 1, 0, (user("x"), user("y")))
            history.append(user("b"))
            with pytest.raises(Stale):
                store.keeper.commit(late)
        assert "abb" == "".join(message.text for message in store.get(history.id))
        assert [] == list(store.verify())


def test_a_head_is_never_old(tmp_path: Path) -> None:
    """Whatever another process did: wrote, edited, renamed, erased, or began it anew."""
    with palaver.open(tmp_path / "chat.db") as store, palaver.open(tmp_path / "chat.db") as there:
        store.create([user("a")], id="talk")
        theirs = there.get("talk")

        def anew() -> None:
            there.delete("talk")
            there.create([user("z")], id="talk")

        acts: list[Callable[[], Any]] = [
            lambda: theirs.append(user("b")),
            lambda: theirs.extend([user("c"), user("d")]),
            lambda: theirs.truncate(keep_last=2),
            lambda: there.describe("talk", title="Tea", tags=["hot"]),
            lambda: theirs.erase(0),
            anew,
        ]
        for act in acts:
            before = store.keeper.head("talk")
            assert before == store.keeper.head("talk")
            act()
            head = store.keeper.head("talk")
            assert before != head
            with palaver.open(tmp_path / "chat.db") as fresh:
                assert fresh.keeper.head("talk") == head
        assert ["z"] == [message.text for message in store.get("talk")]


def test_only_so_many_heads_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.stores.sqlite.keeper._HELD", 3)
    with palaver.open(tmp_path / "chat.db") as store:
        names = [store.create([user("a")]).id for _ in range(8)]
        keeper = store.keeper
        assert isinstance(keeper, SQLiteKeeper)
        assert [1] * 8 == [keeper.head(name).length for name in names]
        assert 3 >= len(keeper._heads)
