"""The stores that palaver is tested on inside each framework.

Property tests run here under the same profiles as elsewhere: see `tests/conftest.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from tests.conftest import pytest_report_teststatus, pytest_terminal_summary, told
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.stores import Store

# hooks and fixtures, found here by pytest
__all__ = [
    "postgres",
    "postgres_server",
    "pytest_report_teststatus",
    "pytest_terminal_summary",
    "told",
]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives a process, and that two of them can be on."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres")
        return found
    return str(tmp_path / "chat.db")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One of each kind."""
    if request.param == "postgres":
        address: str = request.getfixturevalue("postgres")
    else:
        address = ":memory:" if request.param == "memory" else str(tmp_path / "chat.db")
    with palaver.open(address) as opened:
        yield opened


@pytest.fixture
def here() -> Iterator[Store]:
    """Where it does not matter which one."""
    with palaver.open(":memory:") as opened:
        yield opened
