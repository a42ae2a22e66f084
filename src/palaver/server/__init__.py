"""palaver over HTTP: a REST API with live events, and the inspector page on top of it.

`make_app` creates an ASGI application that serves a store; `serve` runs it, and `palaver serve` is
the command for both. Every request is answered by the library itself: a route reads the request,
calls the library, and shapes the response.
"""

from __future__ import annotations

from palaver.errors import needs_extra

with needs_extra("server"):
    from palaver.server.app import make_app
    from palaver.server.run import bind, serve
    from palaver.server.security import LOOPBACK, read_token
    from palaver.server.services import Service
    from palaver.server.settings import Settings, read_limit

__all__ = [
    "LOOPBACK",
    "Service",
    "Settings",
    "bind",
    "make_app",
    "read_limit",
    "read_token",
    "serve",
]
