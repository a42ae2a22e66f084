"""Bringing a fork home: a three-way merge by message identity.

Both sides are compared with what they last had in common. Deletions of either side count. What both
put in at the same place stands there one after the other, ours first; so the fork's appends come
after ours. Where one side replaced a message that the other replaced or removed, nobody can know
what is meant: that is a `Conflict`, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.errors import Clash, Conflict
from palaver.history import marks as marking
from palaver.history.diff import common_prefix
from palaver.history.persistent import PersistentMap
from palaver.history.rope import Rope, build, concat, ranges, split
from palaver.history.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.history.log import Log
    from palaver.messages import Message

__all__ = ["Joined", "Sides", "join"]


class Sides(Struct, frozen=True):
    """Three views. Positions below `shared` mean the same message on both sides.

    `known` says what positions of theirs are called here, for messages that a merge brought from
    one side to the other. The base is a view of theirs, or one of ours.
    """

    base: View
    ours: View
    theirs: View
    shared: int
    known: Mapping[int, int]
    base_is_ours: bool

    def local(self, position: int) -> int:
        """What a position of theirs is called here; negative where it has no place here yet."""
        if position < self.shared:
            return position
        return self.known.get(position, -1 - position)

    def local_of_base(self, position: int) -> int:
        """What a position of the base is called here."""
        return position if self.base_is_ours else self.local(position)

    def message(self, position: int) -> Message:
        """The message at a position, as it is called here."""
        if position < 0:
            return self.theirs.log[-1 - position]
        return self.ours.log[position]


class Joined(Struct, frozen=True):
    """What a merge comes to: so many messages stay as they are, then these positions.

    A negative position is a message of theirs that the log is still to get, in the order of `new`.
    """

    sides: Sides
    kept: int
    positions: tuple[int, ...]
    new: tuple[int, ...]
    team_task: str | None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of theirs that are new here."""
        return tuple(self.sides.theirs.log[position] for position in self.new)

    @property
    def place(self) -> int:
        """The index of the first message that is new here."""
        return self.kept + next(i for i, position in enumerate(self.positions) if position < 0)

    def names(self, first: int) -> dict[int, int]:
        """What the positions of theirs that are new are called here, from `first` on."""
        return {position: first + i for i, position in enumerate(self.new)}

    def origins(self, first: int) -> Iterator[tuple[int, int]]:
        """Which of the new messages, as they are called here, were put in the place of which."""
        names = self.names(first)
        origin_of = _their_origins(self.sides)
        for position in self.new:
            origin = origin_of(-1 - position)
            while origin is not None and origin < 0 and -1 - origin not in names:
                origin = origin_of(origin)
            if origin is not None:
                yield names[position], names[-1 - origin] if origin < 0 else origin

    def rope(self, whole: Rope, first: int, log: Log) -> Rope:
        """The merged selection."""
        names = self.names(first)
        places = (p if p >= 0 else names[-1 - p] for p in self.positions)
        return concat(split(whole, self.kept, log)[0], build(((p, p + 1) for p in places), log))

    def marks(self, first: int, log: Log) -> Mapping[str, Rope]:
        """Our marks, with what they marked and unmarked since the base."""
        names = self.names(first)
        merged = self.sides.ours.mark_ropes
        for change, name, position in self._mark_changes():
            here = position if position >= 0 else names.get(-1 - position)
            if here is not None:
                rope = change(merged.get(name), here, log)
                known = PersistentMap.of(merged)
                merged = known.remove(name) if rope is None else known.set(name, rope)
        return merged

    def _mark_changes(self) -> Iterator[tuple[Callable[[Rope, int, Log], Rope], str, int]]:
        sides = self.sides
        before, after = sides.base.mark_ropes, sides.theirs.mark_ropes
        for name in sorted({*before, *after}):
            here = sides.ours.mark_ropes.get(name)
            had = {*map(sides.local_of_base, _members(before.get(name)))}
            has = {*map(sides.local, _members(after.get(name)))}
            for position in sorted(has):
                # what is new here brings all its marks, those it had before too
                if position < 0 or (position not in had and not marking.has(here, position)):
                    yield marking.put, name, position
            for position in sorted(had - has):
                if marking.has(here, position):
                    yield marking.take, name, position

    def changes_anything(self) -> bool:
        """Tell whether the merge would make a difference."""
        ours = self.sides.ours
        return (
            list(self.positions) != _positions(ours, self.kept)
            or self.team_task != ours.team_task
            or any(position >= 0 for _, _, position in self._mark_changes())
        )


def join(sides: Sides) -> Joined:
    """Work out a merge, or raise the `Conflict` that stands in its way."""
    kept = min(
        common_prefix(sides.base, sides.ours),
        common_prefix(sides.base, sides.theirs),
        _leading(sides.base, sides.shared),
    )
    base = [sides.local_of_base(position) for position in _positions(sides.base, kept)]
    mine = _positions(sides.ours, kept)
    ours = _Side(mine, base, sides.ours.log.replaced)
    theirs = _Side(map(sides.local, _positions(sides.theirs, kept)), base, _their_origins(sides))
    clashes = [*_clashes(sides, base, ours, theirs), *_task_clash(sides)]
    if clashes:
        raise Conflict(tuple(clashes))
    there = set(mine)
    positions: list[int] = []
    for place in range(-1, len(base)):
        if place in ours.slots and place in theirs.slots:
            one, other = ours.slots[place], theirs.slots[place]
            positions.append(other if one == base[place] else one)
        positions += ours.gaps.get(place, ())
        positions += (p for p in theirs.gaps.get(place, ()) if p not in there)
    new = tuple(-1 - position for position in positions if position < 0)
    task = sides.ours.team_task
    if sides.theirs.team_task != sides.base.team_task:
        task = sides.theirs.team_task
    return Joined(sides, kept, tuple(positions), new, task)


class _Side:
    """One side against the base: what stands in each base message's place, and in each gap."""

    def __init__(
        self,
        positions: Iterable[int],
        base: list[int],
        origin_of: Callable[[int], int | None],
    ) -> None:
        places = {position: place for place, position in enumerate(base)}
        here = list(positions)
        present = set(here)
        self.slots: dict[int, int] = {}
        self.gaps: dict[int, list[int]] = {}
        anchor = -1
        gap: list[int] = []
        for position in here:
            origin: int | None = position
            while origin is not None and origin not in places:
                origin = origin_of(origin)
                if origin in present:  # what is still there was not replaced, whatever came of it
                    origin = None
            if origin is None or places[origin] in self.slots:
                gap.append(position)
            else:
                self.gaps[anchor] = gap
                anchor, gap = places[origin], []
                self.slots[anchor] = position
        # what comes after everything that is left of the base was appended, and stays at the end
        self.gaps.setdefault(len(base) - 1, []).extend(gap)


def _their_origins(sides: Sides) -> Callable[[int], int | None]:
    log = sides.theirs.log
    there = {here: position for position, here in sides.known.items()}

    def origin_of(position: int) -> int | None:
        theirs = -1 - position if position < 0 else there.get(position, position)
        origin = log.replaced(theirs)
        return None if origin is None else sides.local(origin)

    return origin_of


def _positions(view: View, start: int) -> list[int]:
    return [
        position
        for begin, end in view.ranges_between(start, len(view))
        for position in range(begin, end)
    ]


def _members(rope: Rope) -> set[int]:
    return {position for start, stop in ranges(rope) for position in range(start, stop)}


def _leading(view: View, shared: int) -> int:
    """How many messages a view begins with that both sides know by the same position."""
    length = 0
    for start, stop in view.ranges():
        if stop > shared:
            return length + max(shared - start, 0)
        length += stop - start
    return length


def _clashes(sides: Sides, base: list[int], ours: _Side, theirs: _Side) -> Iterator[Clash]:
    for place, position in enumerate(base):
        one, other = ours.slots.get(place), theirs.slots.get(place)
        if position in (one, other) or one == other:
            continue
        name = sides.message(position).id
        yield Clash(f"message {name}", _fate(one, sides), _fate(other, sides))


def _fate(position: int | None, sides: Sides) -> str:
    return "removed" if position is None else f"replaced by {sides.message(position).id}"


def _task_clash(sides: Sides) -> Iterator[Clash]:
    tasks = (sides.base.team_task, sides.ours.team_task, sides.theirs.team_task)
    if len(set(tasks)) == len(tasks):
        yield Clash("team task", f"set to {tasks[1]!r}", f"set to {tasks[2]!r}")
