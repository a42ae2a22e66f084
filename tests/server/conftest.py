"""A store behind an application, and a client that has its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.server import Settings, make_app
from palaver.server.demo import seed
from tests.conversation.scripted import Scripted
from tests.server.client import ADDRESS, TOKEN, APIClient
from tests.server.scripted_server import ScriptedServer
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store

__all__ = ["postgres", "postgres_server"]  # fixtures, found here by pytest


@pytest.fixture(scope="module")
def store() -> Generator[Store]:
    """A store for the tests of a file: each begins conversations of its own."""
    with palaver.open(":memory:") as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(store: Store) -> Generator[APIClient]:
    """A client that has the token."""
    app = make_app(store, Settings(token=TOKEN, rate=0, steps=0))
    with APIClient(app, base_url=ADDRESS) as asker:
        asker.headers["authorization"] = f"Bearer {TOKEN}"
        yield asker


@pytest.fixture(scope="module")
def stage() -> Generator[ScriptedServer]:
    """A server with the examples in its store, and a model that is never asked."""
    with ScriptedServer(Scripted()) as found:
        assert seed(found.store)
        yield found
