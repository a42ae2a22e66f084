"""The models that a server knows by name: which are ready, which lack something, one default.

A model is made when it is first wanted, once for the whole server, and closed when the server
stops. A client names models of this list, or others of the same providers; it can never name a
file of this machine or another address.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from palaver.conversation.models import catalog
from palaver.conversation.models import model as named_model
from palaver.errors import ValidationError
from palaver.messages.gate import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.conversation.models.base import Model

__all__ = ["DEFAULT", "LOCAL", "Offer", "Shelf", "usual"]

DEFAULT: Final = "local:smollm2"
"""The model that needs no network and no key."""
LOCAL: Final = "local"
"""The provider of models on this machine."""
_SMALL: Final[Mapping[str, Any]] = {
    "temperature": 0.2,
    "max_tokens": 120,
}


class _Provider(NamedTuple):
    """What a provider's models need, and which of them are offered without being asked for."""

    package: str
    extra: str
    keys: tuple[str, ...]
    offered: tuple[str, ...]


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


class Offer(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A model as a page shows it; `why` says what is missing where it is not ready."""

    name: str
    label: str
    ready: bool
    is_default: bool
    why: str | None = None


class Shelf:
    """Models by name.

    >>> [offer.name for offer in Shelf().offers()][0]
    'local:smollm2'
    """

    def __init__(
        self, names: Iterable[str] = (), *, make: Callable[[str], Model] = named_model
    ) -> None:
        """Know these, the first of them as the default, and whatever else can be had here."""
        given = list(dict.fromkeys(names))
        self.default = given[0] if given else DEFAULT
        self._given = frozenset(given)
        self._make = make
        self._made: dict[str, Model] = {}
        self._gate = threading.Lock()
        hosted = [f"{who}:{which}" for who, each in _PROVIDERS.items() for which in each.offered]
        self._names = list(dict.fromkeys((*given, DEFAULT, *hosted)))

    def offers(self) -> list[Offer]:
        """Every model that is known, the default first."""
        local = [f"{LOCAL}:{name}" for name in catalog.installed()]
        names = dict.fromkeys((*self._names, *local))
        return [self._offer(name) for name in names]

    def get(self, name: str | None = None) -> Model:
        """The model of a name, or the default; made when it is first wanted."""
        wanted = self.default if name is None else name
        self.check(wanted)
        with self._gate:
            if wanted not in self._made:
                self._made[wanted] = self._make(wanted)
            return self._made[wanted]

    async def close(self) -> None:
        """Let go of every model that was made."""
        with self._gate:
            made = list(self._made.values())
            self._made.clear()
        for model in made:
            await model.close()

    def allow(self, names: Iterable[str]) -> None:
        """Know these too: whoever runs the server has named them."""
        self._given = self._given.union(names)

    def check(self, name: str, path: str = "$.model") -> None:
        """Refuse what would reach for a file, or for somebody nobody knows."""
        scheme, _, rest = name.partition(":")
        here = scheme == LOCAL and (rest in catalog.KNOWN or rest in catalog.installed())
        if name in self._given or (rest and scheme in _PROVIDERS) or here:
            return
        detail = f"no model is called {name!r}; GET /api/info lists those there are"
        raise ValidationError(detail, path=path, rule="model")

    def _offer(self, name: str) -> Offer:
        why = _missing(name)
        label = name.partition(":")[2] or name
        return Offer(name, label, why is None, name == self.default, why)


def usual(model: Model, *, forced: bool = False) -> Mapping[str, Any]:
    """The options of a model unless a request has others: a small one keeps to the point so.

    Where a call is `forced` it takes no chances: what it fills in has to be right.
    """
    if model.ref.provider_id != LOCAL:
        return EMPTY
    return {**_SMALL, "temperature": 0} if forced else _SMALL


def _missing(name: str) -> str | None:
    """What a model lacks before it can be asked; None where it lacks nothing that shows."""
    scheme, _, rest = name.partition(":")
    if scheme == LOCAL:
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
    except ModuleNotFoundError:  # the package around it is missing
        return False
