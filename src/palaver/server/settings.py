"""The settings of a server: its token, its hosts, its model, its tools and its limits."""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields

from palaver.errors import ValidationError

__all__ = ["LIMITS", "MEGABYTE", "Settings", "read_limit"]

MEGABYTE: Final = 1024 * 1024

LIMITS: Final = {
    "body": 1,
    "rate": 0.0,
    "guesses": 0.0,
    "requests": 0,
    "streams": 0,
    "steps": 0,
    "connections": 1,
    "peer_connections": 1,
    "peer_unfinished": 1,
    "body_rate": 1,
    "heartbeat": 0.001,
    "head_seconds": 0.001,
    "body_seconds": 0.001,
    "idle_seconds": 0.001,
    "write_seconds": 0.001,
}
"""The least value of each limit; an integer here means that the limit is an integer."""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a server.

    `allow_hosts` are the host names, beside those of this machine, under which it answers. `model`
    is the model that answers unless a request names another; `warm` loads it at the start if it
    runs on this machine. `toolset` are the tools that models may call beside those that come with
    the server (functions, tools, lists of them, MCP servers), `team` is the path of a team's file.
    `discover` lets clients list and import the transcripts of other programs on this machine; it is
    for a server that only this machine can reach.

    The rest are limits. `body` is the largest request body in bytes. `rate` is how many requests a
    second one peer (one network address) may make with the token, over some seconds; `guesses` is
    the same for requests with a wrong token or none; 0 sets no limit. `requests`, `streams` and
    `steps` limit what is processed at once. `connections` limits the open connections,
    `peer_connections` those of one peer that wait for a request or for the rest of one, and
    `peer_unfinished` those of one peer that have sent a part of a request and not shown the token;
    the connection that has waited longest is closed first. `head_seconds` limits the time for a
    request's head, `idle_seconds` the time between requests, `write_seconds` the time in which a
    client must take what is sent to it. A body must arrive within `body_seconds`, and one second
    more for each `body_rate` bytes that have arrived. The limits on connections and times hold
    under `palaver serve`.

    A value that is not allowed raises ValidationError.

    >>> Settings(token="secret").read_only
    False
    >>> Settings(token="secret", idle_seconds=0)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.idle_seconds: must be a number from 0.001 on, not 0 [limit]
    """

    token: str
    allow_hosts: tuple[str, ...] = ()
    read_only: bool = False
    body: int = 64 * MEGABYTE
    rate: float = 500
    guesses: float = 10
    requests: int = 200
    streams: int = 1_000
    steps: int = 64
    connections: int = 2_000
    peer_connections: int = 500
    peer_unfinished: int = 100
    head_seconds: float = 10
    body_seconds: float = 20
    body_rate: int = 16 * 1024
    idle_seconds: float = 30
    write_seconds: float = 30
    heartbeat: float = 15
    model: str | None = None
    warm: bool = False
    toolset: tuple[Any, ...] = ()
    team: str | None = None
    discover: bool = False

    def __post_init__(self) -> None:
        """Check every limit."""
        for name, least in LIMITS.items():
            value = getattr(self, name)
            kinds = (int,) if isinstance(least, int) else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not math.isfinite(value)
                or value < least
            ):
                number = "an integer" if isinstance(least, int) else "a number"
                detail = f"must be {number} from {least:g} on, not {value!r}"
                raise ValidationError(detail, path=f"$.{name}", rule="limit")


def read_limit(text: str) -> tuple[str, float]:
    """Read a limit in the form NAME=VALUE; raise ValidationError if there is no such limit.

    >>> read_limit("idle_seconds=2.5"), read_limit("requests=50")
    (('idle_seconds', 2.5), ('requests', 50))
    """
    name, _, value = text.partition("=")
    if name not in LIMITS:
        detail = f"{name!r} is no limit; the limits are {', '.join(LIMITS)}"
        raise ValidationError(detail, path=f"$.{name}", rule="limit")
    try:
        return name, int(value) if isinstance(LIMITS[name], int) else float(value)
    except ValueError:
        default = next(field.default for field in fields(Settings) if field.name == name)
        detail = f"must be NAME=NUMBER, such as {name}={default}, not {text!r}"
        raise ValidationError(detail, path=f"$.{name}", rule="limit") from None
