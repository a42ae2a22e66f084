from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from palaver.conversation.models import catalog
from tests.conversation.models.worlds import KEYS, WORLDS, World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys for every provider, and none of the machine's own settings."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")):
            monkeypatch.delenv(name)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


@pytest.fixture(params=WORLDS, ids=lambda world: world.format)
def world(request: pytest.FixtureRequest) -> World:
    found = request.param
    assert isinstance(found, World)
    return found


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model, in the user's cache; fetched once, by one process."""
    folder = catalog.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return catalog.install("smollm2")
