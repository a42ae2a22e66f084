"""Models by name: `model("anthropic:claude-…")`, `model("local:smollm2")`.

The word before the colon names the provider, the rest names the model. A provider's module, and its
SDK, are imported when one of its models is first made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from palaver.errors import ModelError, ValidationError
from palaver.messages.limits import check_argument, check_callable, check_name, describe_argument
from palaver.models.base import ClosingModel, Generates, GeneratingModel, Model, ModelRequest
from palaver.models.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AnyModel",
    "ClosingModel",
    "Generates",
    "GeneratingModel",
    "Model",
    "ModelRequest",
    "RetryPolicy",
    "as_model",
    "check_model_name",
    "model",
    "register",
]

AnyModel: TypeAlias = Model | Generates | str
"""A model, any object with `generate(messages, tools)`, or a model's name."""


class _ProviderEntry(NamedTuple):
    """The module and the class of a provider's models, and the extra that installs its SDK."""

    module: str
    name: str
    extra: str


_PROVIDERS: Final = {
    "openai": _ProviderEntry("openai", "OpenAIChatModel", "openai"),
    "responses": _ProviderEntry("openai", "OpenAIResponsesModel", "openai"),
    "anthropic": _ProviderEntry("anthropic", "AnthropicModel", "anthropic"),
    "gemini": _ProviderEntry("gemini", "GeminiModel", "google"),
    "local": _ProviderEntry("local", "LocalModel", "local"),
}
_registered: Final[dict[str, Callable[..., Model]]] = {}


def model(name: str, **options: Any) -> ClosingModel:  # noqa: ANN401 - the model's own options
    """Make a model by its name.

    `openai:NAME` uses Chat Completions and `responses:NAME` the Responses API; with `base_url=`
    they reach any server that speaks them. `anthropic:NAME` and `gemini:NAME` use those providers.
    `local:NAME` is a model that `palaver model install` fetched, `local:/path/file.gguf` any other
    GGUF file. API keys are read from the provider's usual environment variable. `async with` closes
    the model's connections; so does `close`.

    `temperature`, `top_p`, `max_tokens`, `stop`, `effort` (how much it thinks: `low`, `high` …),
    `schema` and `extra` are options of every request that does not say otherwise. All but `local`
    take `api_key`, `base_url`, `default_headers`, `timeout` (seconds), `retries` (a number or a
    `RetryPolicy`), `window` (tokens) and `target`; `http_client`, with which the SDK sends its
    requests; and `client`, the SDK's own client, such as one for Azure, Bedrock or Vertex.

    Raises `ValidationError` for an unknown provider or a wrong value, `TypeError` for an unknown
    argument, and `ModelError` when the SDK is missing.

    >>> model("openai:gpt-5", base_url="http://127.0.0.1:11434/v1").ref.model_id
    'gpt-5'
    >>> model("openai:gpt-5", temperature="hot")
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.temperature: must be a number from 0 on, not 'hot' [option]
    >>> model("gpt-5")
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $: 'gpt-5' names no model; expected PROVIDER:MODEL, ... [model]
    """
    check_model_name(name)
    scheme, _, rest = name.partition(":")
    factory = _registered.get(scheme) or _load(_PROVIDERS[scheme])
    return cast("ClosingModel", factory(rest, **options))


def check_model_name(name: str) -> None:
    """Refuse what names no model of a known provider; nothing is loaded, and no key is needed.

    >>> check_model_name("openai:gpt-5")
    >>> check_model_name("gpt-5")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $: 'gpt-5' names no model; expected PROVIDER:MODEL, ... [model]
    """
    check_argument(name, str, "$", "a name such as openai:gpt-5")
    scheme, _, rest = name.partition(":")
    known = sorted({*_PROVIDERS, *_registered})
    if not rest or scheme not in known:
        detail = f"{name!r} names no model; expected PROVIDER:MODEL, as in openai:gpt-5; "
        detail += f"providers are {', '.join(known)}"
        raise ValidationError(detail, path="$", rule="model")


def as_model(value: AnyModel) -> Model:
    """Return what was given as a model: a name is looked up, a `generate` is wrapped.

    Raises `ValidationError` for anything else.

    >>> as_model("openai:gpt-5").ref.model_id
    'gpt-5'
    >>> as_model(5)
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.model: must be a model, such as model("openai:gpt-5"), ...
    """
    given: Any = value
    if isinstance(given, str):
        try:
            return model(given)
        except ValidationError as error:
            raise ValidationError(error.detail, path="$.model", rule=error.rule) from None
    if not isinstance(given, type):
        if callable(getattr(given, "stream", None)) and hasattr(given, "format"):
            return cast("Model", given)
        if callable(getattr(given, "generate", None)):
            return GeneratingModel(given)
    detail = 'must be a model, such as model("openai:gpt-5"), its name, or an object with '
    detail += f"generate(messages, tools), not {describe_argument(given)}"
    raise ValidationError(detail, path="$.model", rule="model")


def register(scheme: str, factory: Callable[..., Model]) -> None:
    """Register a factory for the models of a provider.

    `factory` is called with the part of the name after the colon, and with the options.

    >>> register("mine", lambda name, **options: model(f"openai:{name}", **options))
    >>> model("mine:gpt-5").format
    'openai-chat'
    """
    check_name(scheme, "$.scheme")
    check_callable(factory, "$.factory", "a function that returns a model")
    _registered[scheme] = factory


def _load(provider: _ProviderEntry) -> Callable[..., Model]:
    try:
        module = importlib.import_module(f"palaver.models.{provider.module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("palaver"):
            raise
        detail = f"this model needs more packages: pip install 'palaver[{provider.extra}]'"
        raise ModelError(detail) from error
    found: Callable[..., Model] = getattr(module, provider.name)
    return found
