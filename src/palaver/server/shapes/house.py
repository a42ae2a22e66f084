"""What a server says of itself."""

from __future__ import annotations

from typing import Any, Literal

from palaver.server.bodies import Shape
from palaver.server.shelf import Offer

__all__ = ["Health", "Info", "Limits", "TeamInfo", "TokenGiven", "ToolInfo"]


class Health(Shape, frozen=True):
    """It is there."""

    status: Literal["ok"]
    version: str


class TokenGiven(Shape, frozen=True):
    """The token, in return for a cookie."""

    token: str


class ToolInfo(Shape, frozen=True):
    """A tool that models may call."""

    name: str
    description: str
    schema: dict[str, Any]


class TeamInfo(Shape, frozen=True):
    """A conversation that a team is at work in."""

    conversation: str
    title: str | None


class Limits(Shape, frozen=True):
    """How much at once: bytes in a body, steps at work."""

    body: int
    steps: int


class Info(Shape, frozen=True):
    """What this server has and can do; `cursor` is the id of the last event."""

    version: str
    store: Literal["sqlite", "postgres", "memory", "other"]
    read_only: bool
    models: list[Offer]
    tools: list[ToolInfo]
    formats: list[str]
    teams: list[TeamInfo]
    limits: Limits
    cursor: str
