"""Marks: names put on messages. A mark is itself a rope: the sorted positions that carry it.

So a mark costs what an edit costs, old versions keep theirs for nothing, and a stretch of marked
messages is one leaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.history.rope import MASK, Branch, Leaf, Rope, concat, ranges, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.rope import Counter

__all__ = ["has", "overlaps", "put", "take"]


def _first(rope: Leaf | Branch) -> int:
    while type(rope) is Branch:
        rope = rope.left
    assert type(rope) is Leaf  # noqa: S101 - there are only two kinds
    return rope.start


def _rank(rope: Rope, position: int) -> int:
    """How many marked positions there are before this one."""
    rank = 0
    while type(rope) is Branch:
        if position < _first(rope.right):
            rope = rope.left
        else:
            rank += rope.left.counts & MASK
            rope = rope.right
    if type(rope) is Leaf and position > rope.start:
        rank += min(position, rope.stop) - rope.start
    return rank


def has(rope: Rope, position: int) -> bool:
    """Tell whether a position is marked."""
    return _rank(rope, position + 1) > _rank(rope, position)


def put(rope: Rope, position: int, log: Counter) -> Rope:
    """Mark a position."""
    if has(rope, position):
        return rope
    left, right = split(rope, _rank(rope, position), log)
    leaf = Leaf(position, position + 1, log.before(position + 1) - log.before(position))
    return concat(concat(left, leaf), right)


def take(rope: Rope, position: int, log: Counter) -> Rope:
    """Take the mark off a position."""
    if not has(rope, position):
        return rope
    rank = _rank(rope, position)
    left, rest = split(rope, rank, log)
    return concat(left, split(rest, 1, log)[1])


def overlaps(rope: Rope, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The marked stretches between two positions, in the log's order."""
    for begin, end in _from(rope, start):
        if begin >= stop:
            return
        if end > start:
            yield max(begin, start), min(end, stop)


def _from(rope: Rope, position: int) -> Iterator[tuple[int, int]]:
    waiting: list[Leaf | Branch] = []
    while type(rope) is Branch:
        if position < _first(rope.right):
            waiting.append(rope.right)
            rope = rope.left
        else:
            rope = rope.right
    if rope is not None:
        yield from ranges(rope)
    while waiting:
        yield from ranges(waiting.pop())
