from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from palaver.models import catalog
from tests.conversation.conftest import anyio_backend, store
from tests.models.providers import KEYS, PROVIDERS, Provider

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["anyio_backend", "store"]  # fixtures, for every test here


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys for every provider, and none of the machine's own settings."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")):
            monkeypatch.delenv(name)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.format)
def provider(request: pytest.FixtureRequest) -> Provider:
    found = request.param
    assert isinstance(found, Provider)
    return found


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model, in the user's cache; fetched once, by one process."""
    folder = catalog.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return catalog.install("smollm2")
