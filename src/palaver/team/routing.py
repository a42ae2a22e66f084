"""Routing: who speaks next, read once from a message's markers and stored with it as data.

Only the speaker's own text counts; `palaver.context` excludes quotes and code. A name that is
unknown, or that the speaker may not call, is reported and gets no turn. If there were names and
none of them can be given a turn, the floor goes back to the human.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.context import find_markers, fold_name
from palaver.messages import Routing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.team.config import Member, Team

__all__ = ["PRIORITY", "Route", "TurnRequest", "describe_team", "read_route"]

PRIORITY: Final = 2
_PRIORITIES: Final = {"p1": 1, "p2": 2, "p3": 3}
_ALL: Final = "all"
_MAX_UNKNOWN: Final = 20
_MAX_NAME: Final = 100
"""At most this many unknown names are reported, each cut to this length."""


class TurnRequest(Struct, frozen=True):
    """A request for a member's turn, with its priority; 1 comes first."""

    member: str
    priority: int = PRIORITY


class Route(Struct, frozen=True, kw_only=True):
    """What a message says about who speaks next.

    `drop` are the members whose waiting turns are removed; None stands for all of them. `lost`
    says that there were names and none of them can be given a turn.
    """

    calls: tuple[TurnRequest, ...] = ()
    drop: tuple[str, ...] | None = ()
    unknown: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Tell whether members were called and none of them can be given a turn."""
        return not self.calls and bool(self.unknown or self.refused)

    def to_routing(self, *, overflow: Iterable[str] = ()) -> Routing | None:
        """The route as a message stores it; `overflow` are members the queue has no room for."""
        extra: dict[str, Any] = {
            "rawNextMarkers": list(self.raw),
            "next": [{"member": call.member, "priority": call.priority} for call in self.calls],
            "drop": "ALL" if self.drop is None else list(self.drop),
            "unknown": list(self.unknown),
            "refused": list(self.refused),
            "overflow": list(overflow),
        }
        said = {name: value for name, value in extra.items() if value}
        if not said:
            return None
        return Routing(tuple(call.member for call in self.calls), said)


def read_route(text: str, speaker: Member, team: Team) -> Route:
    """Read who speaks next from the text of a member.

    >>> from palaver.team.config import CommandMember, Human, Team
    >>> user, max_ = Human(id="user"), CommandMember(id="max", name="Max", argv=["cat"])
    >>> route = read_route("Go on. [NEXT: MAX!P1, bob]", user, Team(members=[user, max_]))
    >>> route.calls, route.unknown
    ((TurnRequest(member='max', priority=1),), ('bob',))
    """
    markers = find_markers(text)
    known = team.names()
    unknown: dict[str, None] = {}
    refused: dict[str, None] = {}
    calls: dict[str, int] = {}
    dropped: dict[str, None] = {}
    everybody = False
    for marker in markers:
        for name in _names(marker.body):
            if marker.kind == "drop":
                member = known.get(fold_name(name))
                if fold_name(name) == _ALL:
                    everybody = True
                elif member is None:
                    unknown[name] = None
                else:
                    dropped[member.id] = None
            elif marker.kind == "next":
                called, priority = _split_priority(name)
                member = known.get(fold_name(called))
                if member is None:
                    unknown[called] = None
                elif not team.may_call(speaker, member):
                    refused[member.id] = None
                else:
                    calls[member.id] = min(priority, calls.get(member.id, priority))
    return Route(
        calls=tuple(TurnRequest(name, priority) for name, priority in calls.items()),
        drop=None if everybody else tuple(dropped),
        unknown=_shorten(unknown),
        refused=tuple(refused),
        raw=tuple(text[m.start : m.stop] for m in markers if m.kind == "next"),
    )


def describe_team(member: Member, team: Team) -> str:
    """Tell a member who is in the team, and how to give somebody else the next turn.

    >>> from palaver.team.config import Human, ModelMember, Team
    >>> max_ = ModelMember(id="max", name="Max", model="local:smollm2")
    >>> print(describe_team(max_, Team(members=[Human(id="user"), max_])))
    You are Max. The others in your team: user (human).
    To hand over, end your answer with [NEXT: NAME], where NAME is user. Without that, those who ...
    """
    others = [other for other in team.members if other.id != member.id]
    names = [f"{one.shown} (human)" if one in team.humans else one.shown for one in others]
    lines = [f"You are {member.shown}. The others in your team: {', '.join(names)}."]
    may = [other.shown for other in others if team.may_call(member, other)]
    then = "those who wait speak next, then the human"
    if may:
        lines.append(
            "To hand over, end your answer with [NEXT: NAME], where NAME is "
            f"{' or '.join(may)}. Without that, {then}."
        )
    else:
        lines.append(f"You hand over to nobody: {then}.")
    return "\n".join(lines)


def _names(body: str) -> list[str]:
    return [name for part in body.split(",") if (name := part.strip())]


def _split_priority(name: str) -> tuple[str, int]:
    called, _, urgency = name.rpartition("!")
    priority = _PRIORITIES.get(urgency.strip().lower())
    return (name, PRIORITY) if priority is None or not called else (called.strip(), priority)


def _shorten(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name[:_MAX_NAME] for name in islice(names, _MAX_UNKNOWN)))
