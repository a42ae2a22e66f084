"""Every kind of store, to be tested alike.

A kind is a function from a folder of its own to what opens the store there, the same store every
time. Another kind is one more entry in `KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opener = Callable[[], Store]

__all__ = ["postgres", "postgres_server"]  # fixtures, for every test here


def memory(folder: Path) -> Opener:
    del folder
    backend = MemoryBackend()
    return lambda: Store(backend)


def sqlite(folder: Path) -> Opener:
    return lambda: palaver.open(folder / "chat.db")


KINDS: dict[str, Callable[[Path], Opener]] = {"memory": memory, "sqlite": sqlite}


@pytest.fixture(params=[*KINDS, "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """What opens a store, the same one every time."""
    if request.param == "postgres":
        address: str = request.getfixturevalue("postgres")
        return lambda: palaver.open(address)
    return KINDS[request.param](tmp_path)


@pytest.fixture
def store(open_store: Opener) -> Iterator[Store]:
    """A store, open."""
    with open_store() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite store may be made."""
    return tmp_path / "chat.db"
