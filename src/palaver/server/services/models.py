"""The models of a server by name: which are ready, what the others lack, and the default.

A model is created when it is first used, once for the whole server, and closed when the server
stops. A client may name the listed models and others of the same providers; it can never name a
file of this machine or another address.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anyio import to_thread
from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.limits import EMPTY
from palaver.models import catalog
from palaver.models import model as named_model
from palaver.models.base import LOCAL_PROVIDER, ModelRequest

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping

    from palaver.models.base import Model

__all__ = [
    "DEFAULT_MODEL",
    "ModelInfo",
    "ModelRegistry",
    "default_options",
    "load_default",
]

DEFAULT_MODEL: Final = "local:smollm2"
"""The model that needs no network and no key."""
_SMALL: Final[Mapping[str, Any]] = {"temperature": 0.2, "max_tokens": 120}
_SHORTEST: Final = ModelRequest(
    {"messages": [{"role": "user", "content": "Hi"}]}, options={"max_tokens": 1}
)
"""The shortest request: it is the first answer that takes long."""
_log: Final = logging.getLogger("palaver.server")


class _Provider(NamedTuple):
    """What a provider's models need, and which of them are listed."""

    package: str
    extra: str
    keys: tuple[str, ...]
    listed: tuple[str, ...]


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "anthropic": _Provider(
        "anthropic",
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
    ),
    "openai": _Provider("openai", "openai", ("OPENAI_API_KEY",), ("gpt-6-luna",)),
    "responses": _Provider("openai", "openai", ("OPENAI_API_KEY",), ("gpt-6-sol",)),
    "gemini": _Provider(
        "google.genai", "google", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("gemini-3.8-flash",)
    ),
}


class ModelInfo(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A model as a page shows it; `why` says what is missing if it is not ready."""

    name: str
    label: str
    ready: bool
    is_default: bool
    why: str | None = None


class ModelRegistry:
    """Models by name.

    >>> ModelRegistry().list()[0].name
    'local:smollm2'
    """

    def __init__(
        self, names: Iterable[str] = (), *, make: Callable[[str], Model] = named_model
    ) -> None:
        """Take the names of further models; the first of them is the default."""
        given = list(dict.fromkeys(names))
        self.default = given[0] if given else DEFAULT_MODEL
        self._given = frozenset(given)
        self._make = make
        self._created: dict[str, Model] = {}
        self._lock = threading.Lock()
        hosted = [f"{who}:{which}" for who, each in _PROVIDERS.items() for which in each.listed]
        self._names = list(dict.fromkeys((*given, DEFAULT_MODEL, *hosted)))

    def list(self) -> builtins.list[ModelInfo]:
        """Every known model, the default first."""
        local = [f"{LOCAL_PROVIDER}:{name}" for name in catalog.installed()]
        names = dict.fromkeys((*self._names, *local))
        return [self._describe(name) for name in names]

    def get(self, name: str | None = None) -> Model:
        """The model of a name, or the default; it is created when it is first used."""
        wanted = self.default if name is None else name
        self.check(wanted)
        with self._lock:
            if wanted not in self._created:
                self._created[wanted] = self._make(wanted)
            return self._created[wanted]

    async def close(self) -> None:
        """Close every model that was created."""
        with self._lock:
            created = [*self._created.values()]
            self._created.clear()
        for model in created:
            await model.close()

    def allow(self, names: Iterable[str]) -> None:
        """Allow further names, which the owner of the server has given."""
        self._given = self._given.union(names)

    def check(self, name: str, path: str = "$.model") -> None:
        """Refuse a name that is a file or belongs to no known provider."""
        scheme, _, rest = name.partition(":")
        is_local = scheme == LOCAL_PROVIDER and (
            rest in catalog.KNOWN or rest in catalog.installed()
        )
        if name in self._given or (rest and scheme in _PROVIDERS) or is_local:
            return
        detail = f"no model is called {name!r}; GET /api/info lists those there are"
        raise ValidationError(detail, path=path, rule="model")

    def _describe(self, name: str) -> ModelInfo:
        why = _missing(name)
        label = name.partition(":")[2] or name
        return ModelInfo(name, label, why is None, name == self.default, why)


async def load_default(models: ModelRegistry) -> None:
    """Load the default model before the first request, if it runs on this machine and is ready.

    A model that can't be loaded is only logged: a request to it gets the error. Models of other
    machines are not asked, because that would cost money.
    """
    default = next(info for info in models.list() if info.is_default)
    if not default.ready:
        return
    try:
        model = await to_thread.run_sync(models.get)
        if model.ref.provider_id == LOCAL_PROVIDER:
            await model.complete(_SHORTEST)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on without
        _log.warning("%s could not be loaded: %s", default.name, error)


def default_options(model: Model, *, forced: bool = False) -> Mapping[str, Any]:
    """The options of a model unless a request has others: a small model gets short, safe ones.

    If a call is `forced`, the temperature is 0, because the arguments have to be right.
    """
    if model.ref.provider_id != LOCAL_PROVIDER:
        return EMPTY
    return {**_SMALL, "temperature": 0} if forced else _SMALL


def _missing(name: str) -> str | None:
    """What a model lacks before it can be used; None if nothing is known to be missing."""
    scheme, _, rest = name.partition(":")
    if scheme == LOCAL_PROVIDER:
        if importlib.util.find_spec("xllamacpp") is None:
            return "pip install 'palaver[local]'"
        is_file = rest.endswith(".gguf")
        return None if is_file or rest in catalog.installed() else f"palaver model install {rest}"
    provider = _PROVIDERS.get(scheme)
    if provider is None:
        return None
    if not _is_installed(provider.package):
        return f"pip install 'palaver[{provider.extra}]'"
    if not any(os.environ.get(key) for key in provider.keys):
        return f"set {provider.keys[0]}"
    return None


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
