"""Models by name, and what is said of a name that is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from palaver import models
from palaver.errors import ModelError, ValidationError
from palaver.models import ModelRequest, model
from palaver.models.base import merge_fields
from palaver.wire import ToolSpec
from tests.models.providers import PROVIDERS, Provider

if TYPE_CHECKING:
    from palaver.models import Model


def test_a_name_says_who_is_asked_and_which_model(provider: Provider) -> None:
    asked = model(provider.name, window=1_000)
    assert (provider.format, provider.id) == (asked.format, asked.ref.provider_id)
    assert (1_000, asked.ref) == (asked.window, asked.target.model)
    assert asked.ref.model_id == provider.name.partition(":")[2]
    assert asked.ref.model_id in repr(asked)


def test_a_models_name_may_have_colons_of_its_own() -> None:
    assert "llama3:8b" == model("openai:llama3:8b").ref.model_id


@pytest.mark.parametrize("name", ["gpt-5", "openai:", ":gpt-5", "nobody:gpt-5", ""])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="names no model; expected PROVIDER:MODEL"):
        model(name)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("openai:x", "openai", "openai"),
        ("anthropic:x", "anthropic", "anthropic"),
        ("gemini:x", "google.genai", "google"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_command(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = models._PROVIDERS[name.partition(":")[0]].module
    monkeypatch.delitem(sys.modules, f"palaver.models.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    if package == "google.genai":
        monkeypatch.delattr("google.genai", raising=False)
    with pytest.raises(ModelError, match=rf"pip install 'palaver\[{extra}\]'"):
        model(name)


def test_a_mistake_inside_palaver_is_not_taken_for_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = models._PROVIDERS["openai"]._replace(module="nowhere")
    monkeypatch.setitem(models._PROVIDERS, "openai", home)
    with pytest.raises(ModuleNotFoundError, match="palaver"):
        model("openai:x")


def test_anybody_can_register_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_registered", {})
    made: list[tuple[str, dict[str, object]]] = []

    def factory(name: str, **options: object) -> Model:
        made.append((name, options))
        return model("openai:x")

    models.register("mine", factory)
    assert "openai-chat" == model("mine:a:b", size=3).format
    assert [("a:b", {"size": 3})] == made


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        (ModelRequest({}, options={"temprature": 1}), "$.options.temprature"),
        (ModelRequest({}, options={"tool_choice": "weather"}), "$.options.tool_choice"),
        (ModelRequest({}, options={"tool_choice": "required"}), "$.options.tool_choice"),
        (ModelRequest({}, (ToolSpec("a"),), options={"tool_choice": "b"}), "$.options.tool_choice"),
    ],
)
def test_options_that_make_no_sense_are_refused(ask: ModelRequest, path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ask.check()
    assert path == caught.value.path


def test_options_that_make_sense_are_taken() -> None:
    ask = ModelRequest(
        {}, (ToolSpec("a"),), options={"tool_choice": "a", "stop": None, "extra": {"x": 1}}
    )
    assert {"tool_choice": "a"} == ask.check().settings
    assert {"x": 1} == ask.extra
    assert {} == ModelRequest({}).check().settings


def test_laying_one_object_over_another_changes_neither() -> None:
    under, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert {"a": {"b": 1, "c": 2}} == merge_fields(under, over)
    assert ({"a": {"b": 1}}, {"a": {"c": 2}}) == (under, over)


def test_worlds_are_all_formats() -> None:
    assert 4 == len({provider.format for provider in PROVIDERS})
