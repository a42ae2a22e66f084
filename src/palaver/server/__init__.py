"""palaver over HTTP: a REST API with live events, and the inspector page that stands on it.

`make_app` puts a store behind an ASGI application; `palaver serve` runs it. Everything that a
request asks for is done by the library: a route reads what was asked, calls it, and shapes the
answer.
"""

from __future__ import annotations

from palaver.server.app import make_app
from palaver.server.service import Service
from palaver.server.settings import Settings

__all__ = ["Service", "Settings", "make_app"]
