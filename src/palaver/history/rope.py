"""A rope of ranges: an ordered selection of log positions as a balanced tree that never changes.

    positions 0…99, then 7 and 8 cut out, then 100 put in at the front:

            ·───────┐                every branch stores how many positions are below it,
        ┌───┴──┐    │                in all and by role, so any index is found on one path down
     [100,101) │    │
            [0,7)  [9,100)

An edit makes new branches along one path from the root to a leaf and shares all other nodes with
the rope before it. That is why every snapshot is free: it is the old root.

`None` is the empty rope. Trees are AVL trees: the heights of two siblings differ by one at most.
Counts are five numbers packed into one integer (all, then one for each role, 32 bits each), so that
counting a subtree is a single addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages import Role

__all__ = [
    "MASK",
    "SHIFTS",
    "Branch",
    "Counter",
    "Leaf",
    "Rope",
    "build",
    "concat",
    "find",
    "ranges",
    "ranges_between",
    "runs",
    "size",
    "splice",
    "split",
    "split_last",
]

MASK: Final = 0xFFFFFFFF
SHIFTS: Final[dict[Role, int]] = {"system": 32, "user": 64, "assistant": 96, "tool": 128}


class Leaf(Struct, frozen=True, gc=False):
    """The positions from start to before stop."""

    start: int
    stop: int
    counts: int
    height: ClassVar[int] = 0


class Branch(Struct, frozen=True, gc=False):
    """Two ropes, one after the other."""

    left: Leaf | Branch
    right: Leaf | Branch
    counts: int
    height: int


Node: TypeAlias = Leaf | Branch
Rope: TypeAlias = Leaf | Branch | None


def size(rope: Rope) -> int:
    """Return how many positions a rope has."""
    return 0 if rope is None else rope.counts & MASK


def _branch(left: Node, right: Node) -> Branch:
    one, other = left.height, right.height
    height = (one if one > other else other) + 1  # noqa: FURB136 - max() takes three times as long
    return Branch(left, right, left.counts + right.counts, height)


def concat(left: Rope, right: Rope) -> Rope:
    """Concatenate two ropes. Neighbours that continue each other become one leaf."""
    if left is None:
        return right
    if right is None:
        return left
    return _join(left, right)


def _join(left: Node, right: Node) -> Node:
    slope = left.height - right.height
    if slope > 1:
        assert type(left) is Branch  # noqa: S101 - taller than another, so no leaf
        return _balance(left.left, _join(left.right, right))
    if slope < -1:
        assert type(right) is Branch  # noqa: S101 - likewise
        return _balance(_join(left, right.left), right.right)
    if type(left) is Leaf and type(right) is Leaf and left.stop == right.start:
        return Leaf(left.start, right.stop, left.counts + right.counts)
    return _branch(left, right)


def _balance(left: Node, right: Node) -> Node:
    """Return a branch of two ropes whose heights differ by at most two, rotated into balance."""
    slope = left.height - right.height
    if slope > 1:
        assert type(left) is Branch  # noqa: S101 - taller than another
        if left.left.height >= left.right.height:
            return _branch(left.left, _branch(left.right, right))
        inner = left.right
        assert type(inner) is Branch  # noqa: S101 - taller than its sibling
        return _branch(_branch(left.left, inner.left), _branch(inner.right, right))
    if slope < -1:
        assert type(right) is Branch  # noqa: S101 - taller than another
        if right.right.height >= right.left.height:
            return _branch(_branch(left, right.left), right.right)
        inner = right.left
        assert type(inner) is Branch  # noqa: S101 - taller than its sibling
        return _branch(_branch(left, inner.left), _branch(inner.right, right.right))
    return _branch(left, right)


class Counter(Protocol):
    """Something that counts positions by role: a log."""

    def before(self, position: int, /) -> int:
        """Return how many positions there are before this one, in all and by role, packed."""
        ...


def _cut(leaf: Leaf, at: int, log: Counter) -> tuple[Rope, Rope]:
    """Cut a leaf in two before its at-th position."""
    middle = leaf.start + at
    if middle <= leaf.start:
        return None, leaf
    if middle >= leaf.stop:
        return leaf, None
    counts = log.before(middle) - log.before(leaf.start)
    return Leaf(leaf.start, middle, counts), Leaf(middle, leaf.stop, leaf.counts - counts)


def split(rope: Rope, at: int, log: Counter) -> tuple[Rope, Rope]:
    """Split a rope in two before its at-th position."""
    if rope is None:
        return None, None
    if type(rope) is Leaf:
        return _cut(rope, at, log)
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    before = rope.left.counts & MASK
    if at < before:
        left, right = split(rope.left, at, log)
        return left, concat(right, rope.right)
    if at > before:
        left, right = split(rope.right, at - before, log)
        return concat(rope.left, left), right
    return rope.left, rope.right


def splice(rope: Rope, at: int, removed: int, new: Rope, log: Counter) -> Rope:
    """Insert a rope before the at-th position, replacing `removed` positions (0 or 1).

    This is INSERT and REPLACE: one path down, and a new branch for each step back up.
    """
    if rope is None:
        return new
    if type(rope) is Leaf:
        left, rest = _cut(rope, at, log)
        if removed and rest is not None:
            assert type(rest) is Leaf  # noqa: S101 - a piece of a leaf
            rest = _cut(rest, removed, log)[1]
        return concat(concat(left, new), rest)
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    before = rope.left.counts & MASK
    if at < before:
        return concat(splice(rope.left, at, removed, new, log), rope.right)
    return concat(rope.left, splice(rope.right, at - before, removed, new, log))


def split_last(rope: Rope) -> tuple[Rope, Leaf | None]:
    """Return a rope without its last leaf, and that leaf."""
    if rope is None:
        return None, None
    if type(rope) is Leaf:
        return None, rope
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    rest, last = split_last(rope.right)
    return concat(rope.left, rest), last


def runs(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group positions into ranges, in their order."""
    start = stop = -1
    for position in positions:
        if position != stop:
            if start != stop:
                yield start, stop
            start = position
        stop = position + 1
    if start != stop:
        yield start, stop


def build(pieces: Iterable[tuple[int, int]], log: Counter) -> Rope:
    """Build a rope of ranges, in their order; adjacent ranges become one leaf."""
    leaves: list[Node] = []
    start = stop = 0
    for begin, end in pieces:
        if begin == stop and start < stop:
            stop = end
            continue
        if start < stop:
            leaves.append(Leaf(start, stop, log.before(stop) - log.before(start)))
        start, stop = begin, end
    if start < stop:
        leaves.append(Leaf(start, stop, log.before(stop) - log.before(start)))
    return _balanced(leaves, 0, len(leaves)) if leaves else None


def _balanced(leaves: list[Node], start: int, stop: int) -> Node:
    if stop - start == 1:
        return leaves[start]
    middle = (start + stop) // 2
    return _branch(_balanced(leaves, start, middle), _balanced(leaves, middle, stop))


def find(rope: Rope, index: int) -> int:
    """Return the position at an index."""
    while type(rope) is Branch:
        before = rope.left.counts & MASK
        if index < before:
            rope = rope.left
        else:
            index -= before
            rope = rope.right
    assert type(rope) is Leaf  # noqa: S101 - the caller knows the size
    return rope.start + index


def ranges(rope: Rope) -> Iterator[tuple[int, int]]:
    """Yield all ranges in order."""
    waiting: list[Node] = [] if rope is None else [rope]
    while waiting:
        node = waiting.pop()
        if type(node) is Leaf:
            yield node.start, node.stop
        else:
            assert type(node) is Branch  # noqa: S101 - there are only two kinds
            waiting.append(node.right)
            waiting.append(node.left)


def ranges_between(rope: Rope, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the positions from the start-th to before the stop-th."""
    waiting: list[tuple[Node, int]] = [] if rope is None or start >= stop else [(rope, 0)]
    while waiting:
        node, offset = waiting.pop()
        if type(node) is Leaf:
            begin, end = max(start - offset, 0), min(stop - offset, node.stop - node.start)
            if begin < end:
                yield node.start + begin, node.start + end
            continue
        assert type(node) is Branch  # noqa: S101 - there are only two kinds
        middle = offset + (node.left.counts & MASK)
        if stop > middle:
            waiting.append((node.right, middle))
        if start < middle:
            waiting.append((node.left, offset))
