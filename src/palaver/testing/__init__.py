"""For tests of your own: what every store passes, judges of requests, providers on this machine.

Names are loaded when they are first used: to judge a request, no store is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.testing.providers import Problem, check_request
    from palaver.testing.servers import ProviderServer
    from palaver.testing.stores import store_conformance

__all__ = ["Problem", "ProviderServer", "check_request", "store_conformance"]

_HOMES = {
    "Problem": "palaver.testing.providers",
    "ProviderServer": "palaver.testing.servers",
    "check_request": "palaver.testing.providers",
    "store_conformance": "palaver.testing.stores",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it lives, once."""
    if name not in _HOMES:
        msg = f"module 'palaver.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
