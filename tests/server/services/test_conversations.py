"""Conversations that a server has open: at hand while nobody changes them, and never in the way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.messages import user
from palaver.server import Settings, make_app
from palaver.server.live import Live
from palaver.server.services.conversations import OpenConversations
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from palaver.stores import Store, StoredHistory


@pytest.fixture
def both(tmp_path: Path) -> Generator[tuple[Store, Store]]:
    """One store, opened twice."""
    path = tmp_path / "chat.db"
    with palaver.open(path) as here, palaver.open(path) as there:
        yield here, there


@pytest.fixture
def talks(both: tuple[Store, Store]) -> OpenConversations:
    return OpenConversations(both[0], Live(both[0]))


def append(history: StoredHistory) -> None:
    history.append(user("more"))


def edit(history: StoredHistory) -> None:
    history.truncate(keep_last=1)


def erase(history: StoredHistory) -> None:
    history.erase(0)


@pytest.mark.parametrize("change", [append, edit, erase])
def test_a_conversation_is_cached_until_somebody_changes_it(
    both: tuple[Store, Store], talks: OpenConversations, change: Callable[[StoredHistory], None]
) -> None:
    name = both[0].create([user("one"), user("two")]).id
    assert talks.cached_view(name) is None  # nobody has looked yet
    seen = talks.get(name).history.view
    assert talks.cached_view(name) == seen
    change(both[1].get(name))
    assert talks.cached_view(name) is None
    assert talks.get(name).history.view == talks.cached_view(name)
    assert [message.text for message in both[1].get(name)] == [
        message.text for message in talks.cached_view(name) or ()
    ]


def test_one_that_was_begun_anew_is_another(
    both: tuple[Store, Store], talks: OpenConversations
) -> None:
    both[0].create([user("old")], id="tea")
    talks.get("tea")
    both[1].delete("tea")
    both[1].create([user("new")], id="tea")
    assert talks.cached_view("tea") is None
    assert ["new"] == [message.text for message in talks.get("tea").history]


def test_who_reads_waits_for_nobody_who_writes() -> None:
    """A change of a large conversation takes its time; what was there before is shown meanwhile."""
    with palaver.open(":memory:") as store:
        app = make_app(store, Settings(token=TOKEN, rate=0, steps=0))
        store.create([user("one")], id="tea")
        with APIClient(app, base_url=ADDRESS) as ask:
            ask.headers["authorization"] = f"Bearer {TOKEN}"
            history = app.service.conversations.get("tea").history
            found: list[Any] = []

            def look() -> None:
                found.append(ask.texts("tea"))
                found.append(ask.good("GET", "conversations/tea")["preview"])

            reader = threading.Thread(target=look)
            with history._lock:
                reader.start()
                reader.join(30)
                assert [["one"], "one"] == found
            reader.join()
