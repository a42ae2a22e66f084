"""How a server is set up: who may come in, and how much of everything."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

__all__ = ["MEGABYTE", "Settings"]

MEGABYTE: Final = 1024 * 1024


class Settings(Struct, frozen=True, kw_only=True):
    """What a server is told when it starts.

    `allow_hosts` are the names, beside those of this machine, under which it may be asked. `rate`
    is how many requests a second one client may make, over some seconds; 0 sets no limit. `model`
    is the model that answers unless a request names another; `warm` loads it at the start, where it
    runs on this machine. `toolset` are the tools that models may call beside those that come with
    the server (functions, tools, lists of them, MCP servers), `team` is the path of a team's file.

    >>> Settings(token="secret").read_only
    False
    """

    token: str
    allow_hosts: tuple[str, ...] = ()
    read_only: bool = False
    body: int = 64 * MEGABYTE
    rate: float = 500
    guesses: float = 10
    requests: int = 200
    streams: int = 1_000
    steps: int = 4
    heartbeat: float = 15
    model: str | None = None
    warm: bool = False
    toolset: tuple[Any, ...] = ()
    team: str | None = None
