"""The search index of a SQLite file: how it is fed, what it costs, and how it handles damage."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import palaver
from palaver import user
from palaver.errors import StoreDamaged
from palaver.stores.sqlite import search
from palaver.stores.text_index import indexed_text
from tests.history.samples import one, talk
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.messages import Message
    from palaver.stores import Store


def asked(path: Path, statement: str) -> Any:  # noqa: ANN401 - what SQLite has
    """What another connection to the file is told."""
    file = apsw.Connection(str(path))
    file.set_busy_timeout(10_000)
    try:
        return file.execute(statement).get
    finally:
        file.close()


def entries(path: Path, word: str) -> int:
    """How many entries of the index have a word."""
    file = apsw.Connection(str(path))
    file.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, words, row)")
    found: int | None = file.execute("SELECT doc FROM terms WHERE term = ?", (word,)).get
    file.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    file.close()
    return found or 0


def backlog(store: Store, count: int, text: str = "tea") -> None:
    """Messages that the index does not have yet."""
    store.create([user(f"{text} n{number}") for number in range(count)], id="backlog")


def peak(work: Callable[[], object]) -> int:
    """The most bytes that something takes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_long_word_takes_little_more_memory_than_itself(path: Path) -> None:
    long = 2_000_000
    with palaver.open(path) as store:
        store.create([user("tea"), user("A" * long), user("tea again")])
        found: list[object] = []
        assert peak(lambda: found.extend(store.search("tea"))) < 6 * long
        assert 2 == len(found)
        assert 1 == len(store.search("A" * 1_000))


def test_messages_are_read_by_their_size(path: Path) -> None:
    """Neither feeding the index nor a search reads many large messages at once."""
    long, count = 400_000, 40
    with palaver.open(path) as store:
        history = store.create(id="large")
        for number in range(count):
            history.append(user(f"tea n{number} " + "x" * long))
        assert peak(lambda: store.search("n0")) < 12 * long < count * long
        assert peak(lambda: store.search("tea", limit=2)) < 12 * long
        assert count == len(store.search("tea", limit=100))


def test_a_search_in_one_conversation_costs_what_one_in_all_does(path: Path) -> None:
    with palaver.open(path) as store:
        backlog(store, 4_000)
        store.create([user("tea")], id="small").fork(id="fork").append(user("tea"))
        assert 20 == len(store.search("tea"))

        def seconds(conversation: str | None) -> float:
            spent = []
            for _ in range(5):
                began = time.thread_time()
                assert store.search("tea", conversation=conversation)
                spent.append(time.thread_time() - began)
            return min(spent)

        everywhere = seconds(None)
        assert seconds("backlog") < 10 * everywhere
        assert seconds("small") < 3 * everywhere
        assert 2 == len(store.search("tea", conversation="fork"))


def test_a_fork_of_many_forks_is_searched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the index is told the conversations, or the hits are sorted out afterwards."""
    with palaver.open(path) as store:
        history = store.create([user("tea 0")], id="0")
        for number in range(1, 12):
            history = history.fork(id=str(number))
            history.append(user(f"tea {number}"))
        store.get("5").append(user("tea, later"))
        for most in (100, 3):
            monkeypatch.setattr(search, "_MAX_RANGES", most)
            hits = store.search("tea", conversation="11")
            assert list(range(12)) == sorted(hit.position for hit in hits)
            assert {"11"} == {hit.conversation for hit in hits}


@pytest.mark.parametrize("where", ["the same store", "another"])
def test_others_write_while_the_index_is_fed(path: Path, where: str) -> None:
    """Between one small transaction and the next."""
    with palaver.open(path) as store, palaver.open(path) as another, within(60):
        backlog(store, 4_000)
        seen: set[int] = set()
        over = threading.Event()

        def write() -> None:
            history = (another if where == "another" else store).create()
            while not over.is_set():
                history.append(user("x"))
                seen.add(asked(path, "SELECT indexed FROM indexing"))
                time.sleep(0.001)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert 20 == len(store.search("tea"))
        finally:
            over.set()
            writer.join()
        assert 3 < len({indexed for indexed in seen if 0 < indexed < 4_000})


def test_two_feed_the_index_no_message_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though both have read the same messages before either could add them."""
    prepare, add = search._prepare, search._add
    both_are_ready = threading.Barrier(2)
    added: list[int] = []

    def prepared(*values: Any) -> Any:  # noqa: ANN401 - passed on
        found = prepare(*values)
        if values[1] == 0:
            both_are_ready.wait(30)
        return found

    def counted(connection: Any, indexed: int, new: Any) -> bool:  # noqa: ANN401 - passed on
        done = add(connection, indexed, new)
        added.append(len(new) if done else 0)
        return done

    monkeypatch.setattr(search, "_prepare", prepared)
    monkeypatch.setattr(search, "_add", counted)
    with palaver.open(path) as store, palaver.open(path) as beside:
        backlog(store, 2_000)
        both = [threading.Thread(target=opened.search, args=("tea",)) for opened in (store, beside)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert 2_000 == asked(path, "SELECT indexed FROM indexing")
        assert 2_000 == sum(added)
        assert 0 in added
        assert 2_000 == entries(path, "tea")
        assert 20 == len(store.search("tea"))


SEARCH = """
import sys, palaver
with palaver.open(sys.argv[1]) as store:
    store.search("tea")
"""


def test_what_was_indexed_stays_when_the_process_is_killed(path: Path) -> None:
    with palaver.open(path) as store:
        backlog(store, 3_000)
    reached = [0]
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SEARCH, str(path)])
        with within(60):
            while asked(path, "SELECT indexed FROM indexing") < reached[-1] + 100:
                time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        reached.append(asked(path, "SELECT indexed FROM indexing"))
    assert sorted({*reached}) == reached
    with palaver.open(path) as store:
        assert 3_000 == len(store.search("tea", limit=10_000))
        assert [] == list(store.verify())
    assert 3_000 == entries(path, "tea")


def test_a_message_that_can_not_be_read_is_skipped_and_noted(path: Path) -> None:
    with palaver.open(path) as store:
        store.create([user("tea one"), user("rum"), user("tea two")], id="talk")
    file = apsw.Connection(str(path))
    file.execute("UPDATE messages SET body = substr(body, 2) WHERE seq = 1")
    file.close()
    with palaver.open(path) as store:
        assert 2 == len(store.search("tea"))
        store.get("talk").append(user("tea three"))
        assert 3 == len(store.search("tea", conversation="talk"))
        assert ["talk: message 1: it is not searched: it can't be read"] == list(store.notes())
        assert [] != list(store.verify())
        store.delete("talk")
        assert [] == [*store.notes(), *store.search("tea"), *store.verify()]
    assert 0 == entries(path, "tea")


def test_a_message_that_takes_too_much_memory_is_skipped_and_can_be_erased(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(message: Message) -> str:
        if message.text == "rum":
            raise MemoryError
        return indexed_text(message)

    with palaver.open(path) as store:
        history = store.create([user("tea one"), one("u1", "rum"), user("tea two")], id="talk")
        with monkeypatch.context() as patch:
            patch.setattr(search, "indexed_text", out_of_memory)
            assert 2 == len(store.search("tea"))
        assert [] == store.search("rum")
        (note,) = store.notes("talk")
        assert "talk: message 1: it is not searched: there was not enough memory" in note
        history.erase("u1")
        assert [] == [*store.notes(), *store.search("rum"), *store.verify()]
        assert 2 == len(store.search("tea"))
    assert 0 == entries(path, "rum")


@pytest.mark.parametrize("which", [0, 1], ids=["the first", "a later one"])
def test_what_is_erased_while_it_is_prepared_is_not_indexed(
    path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    prepare = search._prepare
    ids = ["u0", "u1"]
    with palaver.open(path) as store:
        history = store.create([one(name, f"secret{name} tea") for name in ids])

        def erase_meanwhile(*values: Any) -> Any:  # noqa: ANN401 - passed on
            found = prepare(*values)
            monkeypatch.setattr(search, "_prepare", prepare)
            history.erase(ids[which])
            return found

        monkeypatch.setattr(search, "_prepare", erase_meanwhile)
        assert 1 == len(store.search("tea"))
        assert [] == store.search(f"secret{ids[which]}")
        assert [] == list(store.verify())
    assert 0 == entries(path, f"secret{ids[which]}")
    assert 1 == entries(path, "tea")


def test_an_erasure_is_not_taken_for_damage_of_the_index(path: Path) -> None:
    """SQLite's own check, on a connection that has searched before, believes in the old index."""
    with palaver.open(path) as store:
        history = store.create([one("u1", "tea milk")])
        assert 1 == len(store.search("tea"))
        history.erase("u1")
        assert [] == list(store.verify())


def test_what_is_erased_leaves_no_bytes_in_the_index(path: Path) -> None:
    """Also where the index is fed before and after, and by others."""
    with palaver.open(path) as store, palaver.open(path) as another:
        history = store.create([one("u1", "umbrella tea"), one("u2", "zeppelin tea")])
        assert 2 == len(store.search("tea"))
        history.erase("u1")
        history.append(user("tea, more"))
        assert 2 == len(store.search("tea"))
        history.append(one("u3", "xylophone tea"))
        assert 3 == len(another.search("tea"))
        another.get(history.id).erase("u2")
        history.erase("u3")
        assert 1 == len(store.search("tea"))
    kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"umbrella" not in kept
    assert b"zeppelin" not in kept
    assert b"xylophone" not in kept
    assert 1 == entries(path, "tea")


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


def test_an_index_that_comes_no_further_is_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is never what is there: nobody waits for that for ever."""
    prepare = search._prepare
    monkeypatch.setattr(search, "_AWAY", 0.0)
    monkeypatch.setattr(
        search,
        "_prepare",
        lambda *values: [entry._replace(hash=-1) for entry in prepare(*values)],
    )
    with palaver.open(path) as store:
        store.create(talk("u1"))
        with pytest.raises(StoreDamaged, match="can't be brought further than message 0"):
            store.search("u1")
