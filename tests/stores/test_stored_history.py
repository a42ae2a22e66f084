"""Stored histories: appends in one statement, keys that make repeating harmless, fresh heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import Stale, UnknownConversation, VersionMismatch
from palaver.history import Append, Rollback, Truncate
from palaver.messages import assistant, dump, user
from palaver.stores.records import Change
from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.stored_log import StoredLog, StoredStops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from palaver import Store
    from palaver.messages import Message


def said(count: int) -> list[Message]:
    return [user(str(n)) if n % 2 else assistant(str(n)) for n in range(count)]


def statements(store: Store, act: Callable[[], object]) -> list[str]:
    """What the writing connection is told meanwhile."""
    backend = store.backend
    assert isinstance(backend, SQLiteBackend)
    found: list[str] = []

    def tell(_cursor: object, statement: str, _values: object) -> bool:
        found.append(statement.split("\n", 1)[0])
        return True

    backend._writer.exec_trace = tell
    try:
        act()
    finally:
        backend._writer.exec_trace = None
    return found


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
def test_a_few_messages_are_one_statement(tmp_path: Path, count: int) -> None:
    """And many are one transaction; either way it is one change, under one key."""
    with palaver.open(tmp_path / "chat.db") as store:
        history, other = store.create([user("first")]), store.create()
        made = statements(store, lambda: history.extend(said(count), key="k"))
        assert (2 if count <= 16 else count + 6) == len(made)  # a key is asked for, too
        other.extend(said(3))
        history.append(user("last"))
        history.extend(said(count), key="k")  # it was done before
        assert 2 == history.version
        again = store.get(history.id)
        words = ["first", *map(str, range(count)), "last"]
        assert words == [message.text for message in again]
        told = store.backend.journal(None, 0, 100)
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
                store.backend.commit(late)
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
            before = store.backend.head("talk")
            assert before == store.backend.head("talk")
            act()
            head = store.backend.head("talk")
            assert before != head
            with palaver.open(tmp_path / "chat.db") as fresh:
                assert fresh.backend.head("talk") == head
        assert ["z"] == [message.text for message in store.get("talk")]


def test_only_so_many_heads_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.stores.sqlite.backend._MAX_HEADS", 3)
    with palaver.open(tmp_path / "chat.db") as store:
        names = [store.create([user("a")]).id for _ in range(8)]
        backend = store.backend
        assert isinstance(backend, SQLiteBackend)
        assert [1] * 8 == [backend.head(name).length for name in names]
        assert 3 >= len(backend._heads)


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


EDITS: list[dict[str, Any]] = [
    {"operation": "INSERT", "position": 0, "messages": [{"role": "user", "content": "n"}]},
    {"operation": "INSERT", "position": 2, "messages": [{"role": "user", "content": "n"}] * 3},
    {"operation": "INSERT", "position": 4, "messages": [{"role": "user", "content": "n"}]},
    {"operation": "REPLACE", "index": 1, "message": {"role": "tool", "content": "n"}},
    {"operation": "REPLACE", "index": 3, "message": {"role": "user", "content": "n"}},
    {"operation": "TRUNCATE", "keepFirst": 2},
    {"operation": "TRUNCATE", "keepLast": 1},
    {"operation": "TRUNCATE", "keepLast": 1, "role": "user", "others": "keep"},
    {"operation": "FILTER", "roles": ["assistant"]},
    {"operation": "CLEAR", "keepSystemMessage": False},
]


@pytest.mark.parametrize("operation", EDITS, ids=str)
@pytest.mark.parametrize("edited", [False, True])
def test_an_edit_after_appends_comes_to_what_a_merge_comes_to(
    operation: dict[str, Any], *, edited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others only appended, an edit is planned on what was seen, and not merged."""
    found = []
    for _ in range(2):
        store = palaver.open(":memory:")
        mine = store.create(said(4))
        if edited:
            mine.rewrite([range(1, 3), range(1), range(3, 4)])
        store.get(mine.id).extend(said(3))
        mine.execute(operation)
        mine.append(user("last"))
        again = store.get(mine.id)
        assert [] == list(store.verify())
        mine.undo()
        mine.rollback(0)
        found.append(
            ([m.text for m in again], [m.text for m in mine], again.mark_map(), mine.mark_map())
        )
        monkeypatch.setattr("palaver.history.plan._rebase_on_appends", lambda *_: None)
    assert found[0] == found[1]


def test_a_merge_that_was_made_while_a_history_was_opened_does_not_count() -> None:
    """Which messages came from where is read after the head, and may be newer than it."""
    store = palaver.open(":memory:")
    parent = store.create(said(2), id="parent")
    fork = parent.fork(id="fork")
    fork.extend(said(3))
    late, expecting = store.get("parent"), store.get("parent")
    parent.merge(fork)
    for history in (late, expecting):
        history._read_merged_positions()
    with pytest.raises(VersionMismatch):
        expecting.merge(fork, expect=0)
    late.merge(fork)
    assert ["0", "1", "0", "1", "2"] == [message.text for message in store.get("parent")]
    assert 1 == late.version == store.get("parent").version
    assert [] == list(store.verify())


@pytest.mark.parametrize("place", ["append", "catch_up"])
@pytest.mark.parametrize("holder", [StoredStops, StoredLog])
def test_a_history_whose_change_was_interrupted_goes_on(
    store: Store, holder: type, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed just before Ctrl-C is read again with the next change."""
    place = "extend" if holder is StoredLog and place == "append" else place
    mine = store.create([user("one")], id="talk")
    if place == "catch_up":
        store.get("talk").append(user("of another"))
    with monkeypatch.context() as patch:
        patch.setattr(holder, place, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            mine.append(user("two"))
    mine.append(user("three"))
    mine.truncate(remove_first=1)
    assert [message.text for message in store.get("talk")] == [message.text for message in mine]
    before = "of another" if place == "catch_up" else "two"  # which waited for a look at that
    assert [before, "three"] == [message.text for message in mine]
    assert [] == list(store.verify())


def test_what_was_committed_before_an_interrupt_stays_in_the_view(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes when the version is known, and where its view ends is not."""
    mine = store.create([user("one")], id="talk")
    append = StoredStops.append

    def interrupted(stops: StoredStops, stop: int) -> None:
        append(stops, stop)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoredStops, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine.append(user("two"))
    mine.append(user("three"))
    assert ["one", "two", "three"] == [message.text for message in mine]
    assert ["one", "two", "three"] == [message.text for message in store.get("talk")]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_fork_has_what_is_said_of_its_parent_by_now_and_is_what_a_reader_finds(
    open_store: Callable[[], Store],
) -> None:
    with open_store() as store:
        history = store.create([user("Tea?")], id="talk", title="Tea", tags=["hot"], owner="ann")
        history.append(assistant("Which?"))
        store.describe("talk", title="Rum", tags=["cold", "strong"])
        store.set_owner("talk", "jim")
        made = history.fork(id="fork")
        read = store.get("fork")
        for fork in (made, read):
            assert ("Rum", ("cold", "strong"), "jim") == (fork.title, fork.tags, fork.owner)
            assert ["Tea?", "Which?"] == [message.text for message in fork]
        assert read.version == made.version == 0
        assert store.head("fork") == made._head
        made.append(user("Go on."))
        made.undo()
        assert ["Tea?", "Which?"] == [message.text for message in store.get("fork")]
        store.delete("fork")
        store.delete("talk")
        with pytest.raises(UnknownConversation):
            history.fork(id="orphan")
        assert "orphan" not in store


def test_a_fork_is_two_rows(tmp_path: Path) -> None:
    """The transaction asks for the parent's newest labels; the journal counts by itself."""
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.create(said(3))
        made = statements(store, history.fork)
        assert ["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"] == [
            statement.split(" ", 1)[0] for statement in made
        ]
        history.append(user("after it"))
        cursors = [entry.cursor for entry in store.backend.journal(None, 0, 9)]
        assert ([4, 5, 6], 6) == (cursors, store.backend.newest())
        assert [] == list(store.verify())


def test_a_conversation_that_is_made_again_is_another(tmp_path: Path) -> None:
    """Its head is not that of the one which was deleted, in a process that knew it."""
    with palaver.open(tmp_path / "chat.db") as here, palaver.open(tmp_path / "chat.db") as there:
        here.create(said(3), id="talk")
        assert 3 == here.head("talk").length
        there.delete("talk")
        with pytest.raises(UnknownConversation):
            here.head("talk")
        there.create(said(2), id="talk")
        assert 2 == here.head("talk").length
        assert ["0", "1"] == [message.text for message in here.get("talk")]


def test_the_log_has_what_is_stored(open_store: Callable[[], Store], tmp_path: Path) -> None:
    """As SQLite has it, decrypted where it has to be; other stores have no such text."""
    with open_store() as store:
        history = store.create(said(7), id="talk")
        fork = history.fork()
        fork.append(user("mine"))
        fork.replace(2, assistant("edited"))
        for each in (history, fork):
            encoded = each._log.encoded(each.view.ranges())
            if store.kind == "sqlite":
                assert dump(each.messages).decode() == encoded
            else:
                assert encoded is None
    with palaver.open(tmp_path / "sealed.db", key=palaver.Key.generate()) as sealed:
        history = sealed.create(said(2))
        assert dump(history.messages).decode() == history._log.encoded([(0, 2)])
