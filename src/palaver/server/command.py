"""What `palaver serve` needs of the server, in one place."""

from __future__ import annotations

from palaver.server.app import make_app
from palaver.server.security import LOOPBACK, read_token
from palaver.server.seed import sow
from palaver.server.serving import bound, serve
from palaver.server.settings import Settings, read_limit

__all__ = [
    "LOOPBACK",
    "Settings",
    "bound",
    "make_app",
    "read_limit",
    "read_token",
    "serve",
    "sow",
]
