"""Teams: who is in one, who waits, who spoke to whom."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from palaver.messages import Message
from palaver.server.bodies import Shape

__all__ = ["MemberSeen", "Roster", "Said", "Saying", "Spoke", "StateSeen", "TeamSeen", "TurnSeen"]


class MemberSeen(Shape, frozen=True):
    """A member; without a roster, whoever spoke."""

    id: str
    name: str
    kind: Literal["human", "model", "command", "ai"]
    model: str | UnsetType = UNSET
    window: int | UnsetType = UNSET
    visibility: str | UnsetType = UNSET


class TurnSeen(Shape, frozen=True):
    """A turn that somebody is owed."""

    id: str
    member: str
    priority: int


class StateSeen(Shape, frozen=True):
    """Where a team stands: whose turn is under way, which human has the floor, and why."""

    running: bool
    paused: bool
    turns: int
    begun: TurnSeen | None
    floor: str | None
    why: str
    human: str | None


class Spoke(Shape, frozen=True):
    """How often one spoke to another; `all` is everybody."""

    from_: str = field(name="from")
    to: str
    count: int


class TeamSeen(Shape, frozen=True):
    """A team at work; `roster` says whether the conversation has one."""

    version: int
    roster: bool
    name: str | None
    members: list[MemberSeen]
    queue: list[TurnSeen]
    state: StateSeen
    spoke: list[Spoke]
    task: str | None


class Roster(Shape, frozen=True):
    """A team, as the text of a team file (YAML or JSON) or as an object."""

    document: Annotated[str, Meta(min_length=1, max_length=1_000_000)] | dict[str, Any]


class Saying(Shape, frozen=True):
    """What a human says; `run` gives the team its turns at once."""

    text: Annotated[str, Meta(min_length=1)]
    as_: str | None = field(default=None, name="as")
    run: bool = False


class Said(Shape, frozen=True):
    """What was said, and the step that gives the turns, where there is one."""

    version: int
    message: Message
    step: str | None
