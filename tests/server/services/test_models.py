"""The models that a server knows: what is offered, what is refused, and that they are closed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import anyio
import pytest

from palaver.errors import ValidationError
from palaver.server.services import models as shelf
from palaver.server.services.models import DEFAULT_MODEL, ModelRegistry, default_options
from tests.conversation.scripted import Scripted

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.models.base import Model


class Closing(Scripted):
    """Says whether it was closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys, and no model installed."""
    for name in ("ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path))


def why(name: str, *given: str) -> str | None:
    (found,) = (offer for offer in ModelRegistry(given).list() if offer.name == name)
    assert found.ready == (found.why is None)
    return found.why


def test_each_model_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "palaver model install smollm2" == why(DEFAULT_MODEL)
    assert "set ANTHROPIC_API_KEY" == why("anthropic:claude-sonnet-5-5")
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    assert why("gemini:gemini-3.8-flash") is None
    monkeypatch.setattr(shelf, "_is_installed", lambda _: False)
    assert "pip install 'palaver[openai]'" == why("openai:gpt-6-luna")


def test_a_package_inside_one_that_is_missing_is_missing() -> None:
    assert not shelf._is_installed("no_such_package.inside")
    assert shelf._is_installed("msgspec")


def test_without_the_runner_of_local_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "pip install 'palaver[local]'" == why(DEFAULT_MODEL)


def test_installed_files_and_given_names_are_offered(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").touch()
    offers = {offer.name: offer for offer in ModelRegistry(["own:model", "local:/x.gguf"]).list()}
    assert ("own:model", True) == (next(iter(offers)), offers["own:model"].is_default)
    assert offers["local:mine"].ready
    assert offers["own:model"].ready
    assert offers["local:/x.gguf"].ready


@pytest.mark.parametrize(
    "name",
    ["gpt-6", "openai:", "local:", "local:/etc/x.gguf", "local:../x", "own:model", "file:x", ""],
)
def test_nobody_reaches_for_what_is_not_on_the_list(name: str) -> None:
    with pytest.raises(ValidationError, match="no model is called"):
        ModelRegistry().get(name)


def test_a_model_is_made_once_and_closed_at_the_end() -> None:
    made: list[Closing] = []

    def make(name: str) -> Model:
        made.append(Closing(name=name))
        return made[-1]

    models = ModelRegistry(["own:model"], make=make)
    models.allow(["own:other"])
    assert models.get() is models.get("own:model")
    models.get("own:other")
    models.get("openai:anything")
    anyio.run(models.close)
    assert [1, 1, 1] == [model.closed for model in made]


def test_a_small_model_is_kept_to_the_point() -> None:
    local = Scripted()
    assert {} == dict(default_options(local))
    local.ref = type(local.ref)("local", "smollm2")
    assert {"temperature", "max_tokens"} == set(default_options(local))
    assert (
        0
        == default_options(local, forced=True)["temperature"]
        < default_options(local)["temperature"]
    )
