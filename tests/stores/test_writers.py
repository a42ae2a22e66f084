"""Many writers: threads on one conversation and on eight, processes that append and edit."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import Conflict
from tests.history.checks import check_indexes
from tests.history.samples import line, one, talk
from tests.history.test_threads import run
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Change, Store, StoredHistory

THREADS = 8
WORD = "xylophone"


def appending(history: StoredHistory, number: int, count: int) -> Callable[[], None]:
    def task() -> None:
        for step in range(count):
            history.append(one(f"u{number}x{step}"))

    return task


@pytest.mark.parametrize("conversations", [1, THREADS])
def test_eight_threads_lose_nothing(store: Store, conversations: int) -> None:
    names = [store.create().id for _ in range(conversations)]
    handles = [store.get(names[number % conversations]) for number in range(THREADS)]
    with within(120):
        run(*(appending(handle, number, 25) for number, handle in enumerate(handles)))
    each = THREADS * 25 // conversations
    for name in names:
        found = store.get(name)
        assert (each, each) == (len(found), found.version)
        assert each == len({message.id for message in found})
        assert list(range(each + 1)) == [len(found.at(version)) for version in range(each + 1)]
    assert [] == list(store.verify())


def test_one_handle_serves_many_threads(store: Store) -> None:
    """Appends, edits, undos and reads through one handle: readers never see half a change."""
    history = store.create(talk("s0"))
    done = []

    def write(number: int) -> Callable[[], None]:
        def task() -> None:
            for step in range(15):
                history.extend([one(f"u{number}x{step}"), one(f"a{number}x{step}")])
                if step % 5 == 0:
                    history.filter()
            done.append(number)

        return task

    def read() -> None:
        while len(done) < 3:
            view = history.view
            messages = list(view)
            assert 1 == len(messages) % 2
            assert len(messages) == view.stats.total_messages
            assert [m for m in messages if m.role == "user"] == view.by_role("user")

    with within(120):
        run(*map(write, range(3)), read, read)
    assert 3 * 15 * 2 + 1 == len(history) == len(store.get(history.id))
    check_indexes(history)
    check_indexes(store.get(history.id))


WRITER = """
import sys, palaver
from palaver.errors import Conflict
from palaver.messages import Message
path, name, letter = sys.argv[1:]
conflicts = 0
with palaver.open(path) as store:
    history = store.get(name)
    for number in range(30):
        history.append(Message("user", "x", id=f"{letter}{number}"))
        if number % 3 == 0:
            history.insert(1, [Message("system", "y", id=f"{letter}i{number}")])
        if number % 5 == 0:
            try:
                history.replace(0, Message("user", "z", id=f"{letter}r{number}"))
            except Conflict:
                conflicts += 1
print(conflicts)
"""


def test_processes_that_append_and_edit_lose_nothing(path: Path) -> None:
    with palaver.open(path) as store:
        name = store.create(talk("u0")).id
        followed = store.follow(name, after=0, seconds=0.1)
        with within(120):
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", WRITER, str(path), name, letter],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for letter in "ab"
            ]
            answers = [process.communicate()[0] for process in processes]
        assert [0, 0] == [process.returncode for process in processes]
        conflicts = sum(map(int, answers))
        history = store.get(name)
        ids = [message.id for message in history]
        assert len(ids) == len({*ids})
        for letter in "ab":
            mine = [i for i in ids if i.startswith(letter) and i[1:].isdigit()]
            assert [f"{letter}{number}" for number in range(30)] == mine
            assert 10 == sum(i.startswith(f"{letter}i") for i in ids)
        assert 2 * (30 + 10) + 1 == len(history)
        assert 2 * (30 + 10 + 6) - conflicts == history.version
        assert list(range(1, history.version + 1)) == [change.version for change in followed]
        assert [] == list(store.verify())
        check_indexes(history)


def test_an_edit_that_others_overtake_again_and_again_takes_its_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few tries it is planned and committed in one transaction, so nobody overtakes it."""
    with palaver.open(path) as store, palaver.open(path) as there:
        mine = store.create(talk("u1 a2"))
        others = there.get(mine.id)
        commit = store.backend.commit

        def overtaken(change: Change) -> int:
            others.append(one(f"u{others.version + 10}"))
            return commit(change)

        monkeypatch.setattr(store.backend, "commit", overtaken)
        mine.insert(1, [one("a3")])
        mine.append(one("a4"))
        monkeypatch.undo()
        assert "u1 a3 a2 u10 u11 u12 u13 u15 u16 a4" == line(mine) == line(store.get(mine.id))
        assert 8 == mine.version
        mine.rollback(0)
        assert "u1 a2 u10 u11 u12" == line(mine) == line(store.get(mine.id))
        assert [] == list(store.verify())
        check_indexes(mine)


def test_a_conflict_leaves_the_handle_as_good_as_new(store: Store) -> None:
    mine = store.create(talk("u1 a2"))
    theirs = store.get(mine.id)
    mine.replace(0, one("u3"))
    with pytest.raises(Conflict):
        theirs.replace(0, one("u4"))
    assert "u3 a2" == line(theirs)
    theirs.replace(0, one("u5"))
    theirs.append(one("u6"))
    mine.append(one("u7"))
    assert "u5 a2 u6 u7" == line(mine) == line(store.get(mine.id))
    assert "u5 a2 u6" == line(theirs)


def test_erased_text_is_in_none_of_the_files(path: Path) -> None:
    with palaver.open(path) as store:
        history = store.create(talk("u99"))
        for number in range(50):
            history.append(one(f"u{number}", f"{WORD} {number} " * 20))
        history.fork().append(one("a1", f"{WORD} in a fork"))
        for kind in ("draft", "prompt"):
            store.backend.put(history.id, kind, "of u7", f"{WORD} 7 {WORD} 7 ".encode() * 500)
        assert 20 == len(store.search(WORD))
        for number in range(50):
            history.erase(f"u{number}")
        fork = store.get(next(n for n in store.backend.family(history.id) if n != history.id))
        fork.erase("a1")
        assert [] == store.search(WORD)
        for file in path.parent.iterdir():
            assert WORD.encode() not in file.read_bytes(), file.name
        assert [] == list(store.verify())
    for file in path.parent.iterdir():
        assert WORD.encode() not in file.read_bytes(), file.name


def test_deleted_text_is_in_none_of_the_files(path: Path) -> None:
    with palaver.open(path) as store:
        stays = store.create(talk("u1")).id
        history = store.create([one("u1", WORD * 100)], title=WORD)
        store.search(WORD)
        store.delete(history.id)
        assert [stays] == [head.id for head in store]
        for file in path.parent.iterdir():
            assert WORD.encode() not in file.read_bytes(), file.name


def test_a_follower_gets_past_any_number_of_deletions(path: Path) -> None:
    """What was deleted is not told, and does not stand in the way."""
    with palaver.open(path) as store:
        for _ in range(505):
            store.delete(store.create().id)
        name = store.create().id
        assert [name] == [change.conversation for change in store.follow(after=0, seconds=0)]
