"""Providers on this machine, for tests: the real protocols over HTTP, by a script.

>>> from palaver.testing.servers import Answer, ProviderServer, Refusal
>>> with ProviderServer("anthropic", [Refusal(529), Answer("Yes.", piece=2)]) as server:
...     server.url.startswith("http://127.0.0.1:")
True
"""

from __future__ import annotations

from palaver.testing.servers.script import (
    Answer,
    Call,
    Exchange,
    Garbage,
    HangUp,
    Refusal,
    Scripted,
    Silence,
    Usage,
)
from palaver.testing.servers.server import ProviderServer

__all__ = [
    "Answer",
    "Call",
    "Exchange",
    "Garbage",
    "HangUp",
    "ProviderServer",
    "Refusal",
    "Scripted",
    "Silence",
    "Usage",
]
