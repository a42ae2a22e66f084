"""For your own tests: a conformance suite for stores, provider servers, validators of requests.

Names are loaded when they are first used: validating a request imports no store.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.testing.prompt_cache import CacheUsage, PromptCache
    from palaver.testing.providers import Violation, check_request
    from palaver.testing.servers import ProviderServer
    from palaver.testing.stores import store_conformance

__all__ = [
    "CacheUsage",
    "PromptCache",
    "ProviderServer",
    "Violation",
    "check_request",
    "store_conformance",
]

_MODULES = {
    "CacheUsage": "palaver.testing.prompt_cache",
    "PromptCache": "palaver.testing.prompt_cache",
    "Violation": "palaver.testing.providers",
    "ProviderServer": "palaver.testing.servers",
    "check_request": "palaver.testing.providers",
    "store_conformance": "palaver.testing.stores",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        msg = f"module 'palaver.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
