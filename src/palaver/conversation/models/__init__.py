"""Models by name: `model("anthropic:claude-…")`, `model("local:smollm2")`.

The word before the colon says who is asked, the rest which model. A provider's file, and with it
its SDK, is loaded when a model of its is first wanted.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.conversation.models.base import Ask, Model
from palaver.conversation.models.retrying import Retries
from palaver.errors import ModelError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ask", "Model", "Retries", "model", "register"]


class _Home(NamedTuple):
    """Where a model's class is, what it needs, and the extra that brings it."""

    module: str
    name: str
    extra: str


_HOMES: Final = {
    "openai": _Home("openai_chat", "OpenAIChat", "openai"),
    "responses": _Home("openai_responses", "OpenAIResponses", "openai"),
    "anthropic": _Home("anthropic", "Anthropic", "anthropic"),
    "gemini": _Home("gemini", "Gemini", "google"),
    "local": _Home("local", "Local", "local"),
}
_registered: Final[dict[str, Callable[..., Model]]] = {}


def model(name: str, **options: Any) -> Model:  # noqa: ANN401 - the model's own options
    """Make a model by its name.

    `openai:NAME` is Chat Completions, `responses:NAME` the Responses API, with `base_url=` any
    server that speaks them; `anthropic:NAME` and `gemini:NAME` are those providers';
    `local:NAME` is one that `palaver model install` fetched, `local:/path/file.gguf` any other.
    Keys come from the provider's usual environment variable. Options of all but `local`:
    `base_url`, `timeout` (seconds), `retries`, `window` (tokens), `target`.

    >>> model("openai:gpt-5", base_url="http://127.0.0.1:11434/v1").ref.model_id
    'gpt-5'
    >>> model("gpt-5")
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $: 'gpt-5' names no model; say who is asked, ... [model]
    """
    scheme, colon, rest = name.partition(":")
    known = sorted({*_HOMES, *_registered})
    if not colon or not rest or scheme not in known:
        detail = f"{name!r} names no model; say who is asked, then which: {', '.join(known)}"
        raise ValidationError(f"{detail}, as in openai:gpt-5", path="$", rule="model")
    factory = _registered.get(scheme) or _load(_HOMES[scheme])
    return factory(rest, **options)


def register(scheme: str, factory: Callable[..., Model]) -> None:
    """Give a word before the colon a factory: it gets the rest of the name, and the options.

    >>> register("mine", lambda name, **options: model(f"openai:{name}", **options))
    >>> model("mine:gpt-5").format
    'openai-chat'
    """
    _registered[scheme] = factory


def _load(home: _Home) -> Callable[..., Model]:
    try:
        module = importlib.import_module(f"palaver.conversation.models.{home.module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("palaver"):
            raise
        detail = f"this model needs more packages: pip install 'palaver[{home.extra}]'"
        raise ModelError(detail) from error
    found: Callable[..., Model] = getattr(module, home.name)
    return found
