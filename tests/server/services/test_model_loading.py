"""Warming the model: behind everything else, only where it costs nothing, and never fatal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import Unavailable
from palaver.messages import ModelRef
from palaver.models.local import LocalModel
from palaver.server import Settings, make_app
from palaver.server.services.models import ModelRegistry, load_default
from tests.conversation.scripted import Scripted, saying
from tests.patience import within
from tests.server.client import ADDRESS, TOKEN, APIClient
from tests.server.scripted_server import ScriptedServer, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from palaver.models.base import ModelRequest

pytestmark = pytest.mark.anyio


class Asked(Scripted):
    """A model that counts who asks it, as one of this machine or of another."""

    def __init__(self, provider: str, answer: Mapping[str, Any] | Exception) -> None:
        super().__init__()
        self.ref = ModelRef(provider, "small")
        self.answer = answer

    async def complete(self, ask: ModelRequest) -> Mapping[str, Any]:
        self.asked.append(ask)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def shelf_of(model: Asked) -> ModelRegistry:
    return ModelRegistry(["own:small"], make=lambda _: model)


async def test_a_model_of_this_machine_is_asked_for_one_word() -> None:
    model = Asked("local", {})
    await load_default(shelf_of(model))
    assert [1] == [ask.options["max_tokens"] for ask in model.asked]


async def test_nobody_pays_for_it() -> None:
    model = Asked("openai", {})
    await load_default(shelf_of(model))
    assert [] == model.asked


@pytest.mark.parametrize("failure", [Unavailable("it is ill"), OSError("it is ill")])
async def test_what_goes_wrong_is_a_line_in_the_log(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "palaver.server"):
        await load_default(shelf_of(Asked("local", failure)))
    assert "own:small could not be loaded: it is ill" in caplog.text


async def test_a_model_that_lacks_something_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PALAVER_CACHE", str(tmp_path))
    await load_default(ModelRegistry(make=lambda _: pytest.fail("nobody wants it")))
    assert "" == caplog.text


@pytest.mark.parametrize(("settings", "times"), [({"warm": True}, 1), ({}, 0)])
def test_a_server_warms_when_it_is_told_to(settings: dict[str, Any], times: int) -> None:
    model = Asked("local", {})
    model._answers.append(saying("Yes."))
    with ScriptedServer(model, **settings) as stage:
        wait_for(lambda: len(model.asked) == times)
        stage.step(stage.ask.begun(), "Tea?")
        assert times + 1 == len(model.asked)


def test_a_server_that_may_not_change_anything_has_no_use_for_a_model() -> None:
    model = Asked("local", {})
    with ScriptedServer(model, warm=True, read_only=True) as stage:
        stage.ask.good("GET", "info")
    assert [] == model.asked


def test_a_server_stops_while_its_model_loads() -> None:
    """Its process listens to nobody until it is loaded: it is not waited for."""
    with palaver.open(":memory:") as store:
        app = make_app(store, Settings(token=TOKEN, rate=0, warm=True))
        with within(60), APIClient(app, base_url=ADDRESS):
            shelf = app.service.models
            model = wait_for(lambda: shelf._created.get(shelf.default))
            wait_for(lambda: model._engine._loading or model._engine._running)
        assert isinstance(model, LocalModel)
        assert model._engine._running is None
