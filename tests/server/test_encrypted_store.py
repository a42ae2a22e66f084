"""A server over an encrypted store: all is as ever, and a search says why it finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver import Key, user
from palaver.stores.text_index import SEARCH_IS_OFF

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store
    from tests.server.client import APIClient

KEY = Key(bytes(range(32)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[Store]:
    """An encrypted store."""
    with palaver.open(tmp_path_factory.mktemp("encrypted") / "chat.db", key=KEY) as opened:
        yield opened


def test_messages_are_read_and_a_search_is_refused(ask: APIClient, store: Store) -> None:
    name = store.create([user("tea?")], title="Tea").id
    found = ask.good("GET", f"conversations/{name}/messages")
    assert ["tea?"] == [item["message"]["content"] for item in found["items"]]
    assert "Tea" == ask.good("GET", f"conversations/{name}")["title"]
    refused = ask.get("/api/search", params={"q": "tea"})
    assert (409, SEARCH_IS_OFF) == (refused.status_code, refused.json()["detail"])
