"""Where a team stands: who waits, whose turn is under way, who has the floor. Pure values.

A state is kept beside the log in the same change as the message that led to it, so the two never
disagree, whenever the process ends. It names turns and members and repeats nothing that was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged
from palaver.messages import new_id
from palaver.messages.decoding import decode
from palaver.team.routing import PRIORITY

if TYPE_CHECKING:
    from palaver.stores.records import Record
    from palaver.team.routing import Route

__all__ = ["KIND", "State", "Turn", "Why", "read_state"]

Why: TypeAlias = Literal["drained", "called", "lost", "limit", "cancelled"]
"""Why a human has the floor: nobody is left to speak, the human was named, a member named only some
that can't come, agents took as many turns in a row as they may, or the turn was called off."""

KIND: Final = "team"
_NAME: Final = "state"


class Turn(Struct, frozen=True, omit_defaults=True):
    """A turn that somebody is owed; its id is the key of the message that it ends with.

    `process` marks the program that is at it, to find it again after a crash (`leftovers`).
    """

    id: str
    member: str
    priority: int = PRIORITY
    process: str | None = None


class State(Struct, frozen=True, omit_defaults=True):
    """Where a team stands.

    `queue` is in the order of the turns. `begun` is the turn under way: after a crash it says what
    was interrupted. `floor` is the human who is waited for, `human` the one who spoke last;
    `turns` counts the agents' turns since then.

    >>> from palaver.team.routing import Call, Route
    >>> state, over = State().called(Route(calls=(Call("max"), Call("sarah", 1))), room=50)
    >>> [turn.member for turn in state.queue], over
    (['sarah', 'max'], ())
    """

    queue: tuple[Turn, ...] = ()
    begun: Turn | None = None
    floor: str | None = None
    why: Why = "called"
    human: str | None = None
    turns: int = 0
    paused: bool = False

    def called(self, route: Route, room: int) -> tuple[State, tuple[str, ...]]:
        """Take away what the route drops, then add whom it calls, as far as there is room.

        Answers those whom there was no room for, too. Among turns of the same priority the first
        comes first.
        """
        drop = route.drop
        left = [turn for turn in self.queue if drop is not None and turn.member not in drop]
        free = max(0, room - len(left))
        new = [Turn(new_id(), call.member, call.priority) for call in route.calls[:free]]
        queue = tuple(sorted([*left, *new], key=lambda turn: turn.priority))
        return replace(self, queue=queue), tuple(call.member for call in route.calls[free:])

    def next(self) -> State:
        """The first of the queue begins."""
        return replace(self, begun=self.queue[0], queue=self.queue[1:])

    def started(self, process: str | None) -> State:
        """A program is at the turn under way."""
        begun = self.begun
        return replace(self, begun=None if begun is None else replace(begun, process=process))

    def answered(self) -> State:
        """The turn under way is over."""
        return replace(self, begun=None, turns=self.turns + 1)

    def heard(self, human: str) -> State:
        """A human has spoken: agents may take turns again."""
        return replace(self, floor=None, why="called", human=human, turns=0)

    def handed(self, human: str, why: Why) -> State:
        """A human has the floor."""
        return replace(self, floor=human, why=why, begun=None)

    def record(self) -> Record:
        """The record that keeps it."""
        return (KIND, _NAME, msgspec.json.encode(self))


def read_state(records: dict[str, bytes]) -> State:
    """The state as a store kept it; a conversation without one begins here."""
    kept = records.get(_NAME)
    if kept is None:
        return State()
    try:
        return decode(kept, State)
    except msgspec.DecodeError as error:
        msg = f"where the team stands can't be read: {error}"
        raise StoreDamaged(msg) from None
