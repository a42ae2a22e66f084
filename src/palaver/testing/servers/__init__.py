"""Provider servers for tests: the real protocols over HTTP on this machine, with scripted answers.

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
    ReportedUsage,
    Scripted,
    Silence,
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
    "ReportedUsage",
    "Scripted",
    "Silence",
]
