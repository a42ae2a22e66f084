"""Three-way merge of two views by message identity.

Both sides are compared with what they last had in common. Deletions of either side count. Messages
that both inserted at the same index stand one after the other, ours first; so a fork's appends come
after ours. Where one side replaced a message that the other replaced or removed, the merge is a
`Conflict`, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.errors import Clash, Conflict
from palaver.history import marks as marking
from palaver.history.diff import common_prefix
from palaver.history.frame import Rope, build, concat, ranges, split
from palaver.history.marks import PersistentMap
from palaver.history.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.history.frame import Counter
    from palaver.messages import Message

__all__ = ["MergeInput", "MergeResult", "merge_views"]


class MergeInput(Struct, frozen=True):
    """Three views. Positions below `shared` are the same message on both sides.

    `known` maps positions of theirs to ours, for messages that an earlier merge brought from one
    side to the other. The base is a view of theirs, or one of ours.
    """

    base: View
    ours: View
    theirs: View
    shared: int
    known: Mapping[int, int]
    base_is_ours: bool

    def local(self, position: int) -> int:
        """Return our position of a message of theirs; negative if it is not in our log yet."""
        if position < self.shared:
            return position
        return self.known.get(position, -1 - position)

    def local_of_base(self, position: int) -> int:
        """Return our position of a message of the base."""
        return position if self.base_is_ours else self.local(position)

    def message(self, position: int) -> Message:
        """Return the message at one of our positions, or at a negative one of theirs."""
        if position < 0:
            return self.theirs.log[-1 - position]
        return self.ours.log[position]


class MergeResult(Struct, frozen=True):
    """A merged selection: the first `unchanged` messages of ours, then these positions.

    A negative position is a message of theirs that our log does not have yet; `new` lists their
    positions on their side, in order.
    """

    sides: MergeInput
    unchanged: int
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
        return self.unchanged + next(i for i, position in enumerate(self.positions) if position < 0)

    def positions_here(self, first: int) -> dict[int, int]:
        """Map their positions of the new messages to ours, which begin at `first`."""
        return {position: first + i for i, position in enumerate(self.new)}

    def origins(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield, for new messages that replace another, our positions of both."""
        ours_of = self.positions_here(first)
        origin_of = _their_origins(self.sides)
        for position in self.new:
            origin = origin_of(-1 - position)
            while origin is not None and origin < 0 and -1 - origin not in ours_of:
                origin = origin_of(origin)
            if origin is not None:
                yield ours_of[position], ours_of[-1 - origin] if origin < 0 else origin

    def rope(self, whole: Rope, first: int, log: Counter) -> Rope:
        """Return the merged selection; `whole` is ours."""
        ours_of = self.positions_here(first)
        places = (p if p >= 0 else ours_of[-1 - p] for p in self.positions)
        return concat(
            split(whole, self.unchanged, log)[0], build(((p, p + 1) for p in places), log)
        )

    def marks(self, first: int, log: Counter) -> Mapping[str, Rope]:
        """Return our marks, with what they marked and unmarked since the base."""
        ours_of = self.positions_here(first)
        merged = self.sides.ours.mark_ropes
        for change, name, position in self._mark_changes():
            here = position if position >= 0 else ours_of.get(-1 - position)
            if here is not None:
                rope = change(merged.get(name), here, log)
                known = PersistentMap.of(merged)
                merged = known.remove(name) if rope is None else known.set(name, rope)
        return merged

    def _mark_changes(self) -> Iterator[tuple[Callable[[Rope, int, Counter], Rope], str, int]]:
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
            list(self.positions) != _positions(ours, self.unchanged)
            or self.team_task != ours.team_task
            or any(position >= 0 for _, _, position in self._mark_changes())
        )


def merge_views(sides: MergeInput) -> MergeResult:
    """Merge two views, or raise `Conflict` with every message that both touched."""
    unchanged = min(
        common_prefix(sides.base, sides.ours),
        common_prefix(sides.base, sides.theirs),
        _leading(sides.base, sides.shared),
    )
    base = [sides.local_of_base(position) for position in _positions(sides.base, unchanged)]
    mine = _positions(sides.ours, unchanged)
    ours = _MergeSide(mine, base, sides.ours.log.replaced)
    theirs = _MergeSide(
        map(sides.local, _positions(sides.theirs, unchanged)), base, _their_origins(sides)
    )
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
    return MergeResult(sides, unchanged, tuple(positions), new, task)


class _MergeSide:
    """One side against the base: what replaces each base message, and what is in each gap."""

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
                if origin in present:  # a message that is still there was not replaced
                    origin = None
            if origin is None or places[origin] in self.slots:
                gap.append(position)
            else:
                self.gaps[anchor] = gap
                anchor, gap = places[origin], []
                self.slots[anchor] = position
        # what comes after everything that is left of the base was appended, and stays at the end
        self.gaps.setdefault(len(base) - 1, []).extend(gap)


def _their_origins(sides: MergeInput) -> Callable[[int], int | None]:
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
    """Return how many messages at the start of a view have the same position on both sides."""
    length = 0
    for start, stop in view.ranges():
        if stop > shared:
            return length + max(shared - start, 0)
        length += stop - start
    return length


def _clashes(
    sides: MergeInput, base: list[int], ours: _MergeSide, theirs: _MergeSide
) -> Iterator[Clash]:
    for place, position in enumerate(base):
        one, other = ours.slots.get(place), theirs.slots.get(place)
        if position in (one, other) or one == other:
            continue
        name = sides.message(position).id
        yield Clash(f"message {name}", _describe(one, sides), _describe(other, sides))


def _describe(position: int | None, sides: MergeInput) -> str:
    return "removed" if position is None else f"replaced by {sides.message(position).id}"


def _task_clash(sides: MergeInput) -> Iterator[Clash]:
    tasks = (sides.base.team_task, sides.ours.team_task, sides.theirs.team_task)
    if len(set(tasks)) == len(tasks):
        yield Clash("team task", f"set to {tasks[1]!r}", f"set to {tasks[2]!r}")
