"""Who speaks next: read once from what a speaker wrote, and kept with the message as data.

Only the speaker's own words count; `palaver.context` knows which those are (no quotes, no code). A
name that nobody has, or that the speaker may not call, is reported and gets no turn. Where names
were given and none of them is good, the floor goes back to the human.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.context import find_markers, fold_name
from palaver.messages import Routing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.team.roster import Member, Team

__all__ = ["PRIORITY", "Call", "Route", "read_route"]

PRIORITY: Final = 2
_PRIORITIES: Final = {"p1": 1, "p2": 2, "p3": 3}
_ALL: Final = "all"
_MANY: Final = 20
_LONG: Final = 100
"""So many wrong names, and so much of each, are reported: a report has to be read."""


class Call(Struct, frozen=True):
    """A turn that is asked for: whose, and how urgently (1 comes first)."""

    member: str
    priority: int = PRIORITY


class Route(Struct, frozen=True, kw_only=True):
    """What a message says about who speaks next.

    `drop` are members whose waiting turns go, None stands for all of them. `lost` says that there
    were names and none of them can be given a turn.
    """

    calls: tuple[Call, ...] = ()
    drop: tuple[str, ...] | None = ()
    unknown: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Tell whether nobody who was called can come."""
        return not self.calls and bool(self.unknown or self.refused)

    def kept(self, *, over: Iterable[str] = ()) -> Routing | None:
        """The route as a message keeps it; `over` are those whom the queue has no room for."""
        extra: dict[str, Any] = {
            "rawNextMarkers": list(self.raw),
            "next": [{"member": call.member, "priority": call.priority} for call in self.calls],
            "drop": "ALL" if self.drop is None else list(self.drop),
            "unknown": list(self.unknown),
            "refused": list(self.refused),
            "overflow": list(over),
        }
        said = {name: value for name, value in extra.items() if value}
        if not said:
            return None
        return Routing(tuple(call.member for call in self.calls), said)


def read_route(text: str, speaker: Member, team: Team) -> Route:
    """Read who speaks next from what a member wrote.

    >>> from palaver.team.roster import Command, Human, Team
    >>> user, max_ = Human(id="user"), Command(id="max", name="Max", argv=["cat"])
    >>> route = read_route("Go on. [NEXT: MAX!P1, bob]", user, Team(members=[user, max_]))
    >>> route.calls, route.unknown
    ((Call(member='max', priority=1),), ('bob',))
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
                called, priority = _called(name)
                member = known.get(fold_name(called))
                if member is None:
                    unknown[called] = None
                elif not team.may_call(speaker, member):
                    refused[member.id] = None
                else:
                    calls[member.id] = min(priority, calls.get(member.id, priority))
    return Route(
        calls=tuple(Call(name, priority) for name, priority in calls.items()),
        drop=None if everybody else tuple(dropped),
        unknown=_few(unknown),
        refused=tuple(refused),
        raw=tuple(text[m.start : m.stop] for m in markers if m.kind == "next"),
    )


def _names(body: str) -> list[str]:
    return [name for part in body.split(",") if (name := part.strip())]


def _called(name: str) -> tuple[str, int]:
    called, _, urgency = name.rpartition("!")
    priority = _PRIORITIES.get(urgency.strip().lower())
    return (name, PRIORITY) if priority is None or not called else (called.strip(), priority)


def _few(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name[:_LONG] for name in islice(names, _MANY)))
