"""Conversations in memory and in a file: the nodes must behave the same over both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver import Store


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run in asyncio; anyio's own tests cover the other."""
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that needs no server."""
    where = ":memory:" if request.param == "memory" else str(tmp_path / "chat.db")
    with palaver.open(where) as opened:
        yield opened
