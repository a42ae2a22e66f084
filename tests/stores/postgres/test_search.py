"""The search index of a PostgreSQL store: how it is fed, and what the server's limits are."""

from __future__ import annotations

import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import palaver
from palaver import user
from palaver.stores.postgres import search
from palaver.stores.text_index import MAX_TEXT, indexed_text
from tests.history.samples import one

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Message


def asked(address: str, statement: str) -> list[tuple[Any, ...]]:
    """What another connection to the database is told."""
    with psycopg.connect(address) as line:
        return line.execute(statement.encode()).fetchall()


def peak(work: Callable[[], object]) -> int:
    """The most bytes that something takes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_messages_are_read_by_their_size(postgres: str) -> None:
    """Neither feeding the index nor a search reads many large messages at once."""
    long, count = 500_000, 40
    with palaver.open(postgres) as store:
        store.create([user(f"tea n{number} " + "x" * long) for number in range(count)])
        assert peak(lambda: store.search("n0")) < 16 * long < count * long
        assert peak(lambda: store.search("tea", limit=2)) < 16 * long
        assert count == len(store.search("tea", limit=100))


def test_a_large_change_is_indexed_in_steps_that_last(postgres: str) -> None:
    """Whoever goes on, or goes on beside, indexes what is left, and each message once."""
    with palaver.open(postgres) as store:
        store.create([user(f"tea n{number}") for number in range(950)], id="a")
        for number in range(250):
            store.create([user(f"tea m{number}")])
        backend: Any = store.backend
        connections = backend._connections
        first = search._Indexer()
        assert connections.run(first.add_some)
        assert connections.run(first.add_some)
        half = asked(postgres, "SELECT count(*) FROM palaver.words")[0][0]
        assert 0 < half <= 400
        second = search._Indexer()
        assert connections.run(second.add_some)
        steps = 3
        while connections.run(first.add_some):
            steps += 1
        assert 6 <= steps <= 10
        assert [(1_200,)] == asked(postgres, "SELECT count(*) FROM palaver.words")
        assert not connections.run(second.add_some)
        assert 1_200 == len(store.search("tea", limit=2_000))
        assert 950 == len(store.search("tea", conversation="a", limit=2_000))


def test_two_feed_the_index_at_once(postgres: str) -> None:
    with palaver.open(postgres) as store, palaver.open(postgres) as another:
        store.create([user(f"tea n{number}") for number in range(1_000)])
        both = [threading.Thread(target=each.search, args=("tea",)) for each in (store, another)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert [(1_000,)] == asked(postgres, "SELECT count(*) FROM palaver.words")
        assert 1_000 == len(another.search("tea", limit=2_000))


def test_hits_that_are_none_do_not_hide_those_that_are(postgres: str) -> None:
    """The index knows words and not their order: the first pages may have nothing."""
    with palaver.open(postgres) as store:
        store.create([one("u1", "hot water")], id="old")
        store.create([user(f"water hot {number}") for number in range(1_500)], id="new")
        assert ["u1"] == [hit.message.id for hit in store.search('"hot water"')]
        assert [] == store.search('"hot water"', conversation="new")


@pytest.mark.parametrize(
    "text",
    [
        "".join(chr(0x20000 + number) for number in range(MAX_TEXT)),
        " ".join(
            "\U00010330" * 7 + chr(0x10330 + number % 20) + str(number) for number in range(9_000)
        ),
        "x" * 3_000_000,
        " ".join(f"word{number}" for number in range(200_000)),
    ],
    ids=["ideographs", "four bytes a letter", "a word", "words"],
)
def test_as_many_words_as_are_searched_fit_into_the_index(postgres: str, text: str) -> None:
    """The server takes 2,046 bytes of a word, and 1 MiB of a message's words."""
    with palaver.open(postgres) as store:
        history = store.create([one("u1", f"tea {text}"), user("tea")])
        assert 2 == len(store.search("tea"))
        history.erase("u1")
        assert 1 == len(store.search("tea"))
        assert [] == [*store.notes(), *store.verify()]


def test_a_message_that_takes_too_much_memory_is_skipped_and_can_be_erased(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(message: Message) -> str:
        if message.text == "rum":
            raise MemoryError
        return indexed_text(message)

    with palaver.open(postgres) as store:
        history = store.create([user("tea one"), one("u1", "rum"), user("tea two")], id="talk")
        with monkeypatch.context() as patch:
            patch.setattr(search, "indexed_text", out_of_memory)
            assert 2 == len(store.search("tea"))
        assert [] == store.search("rum")
        (note,) = store.notes()
        assert "talk: message 1: it is not searched: there was not enough memory" in note
        history.erase("u1")
        assert [] == [*store.notes(), *store.search("rum"), *store.verify()]


def test_a_message_that_can_not_be_read_is_skipped_and_noted(postgres: str) -> None:
    with palaver.open(postgres) as store:
        store.create([user("tea one"), user("rum"), user("tea two")], id="talk")
        with psycopg.connect(postgres) as line:
            line.execute("UPDATE palaver.messages SET body = substr(body, 2) WHERE seq = 1")
        assert 2 == len(store.search("tea"))
        assert ["talk: message 1: it is not searched: it can't be read"] == list(store.notes())
        assert [] != list(store.verify())
