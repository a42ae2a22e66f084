"""Marks are ropes of sorted positions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.history.marks import has, overlaps, put, take
from palaver.history.rope import Leaf, Rope, ranges
from tests.history.checks import check_rope
from tests.history.test_rope import LENGTH, LOG
from tests.profiles import at_least

places = st.integers(0, LENGTH - 1)


@at_least(200)
@given(st.lists(st.tuples(places, st.booleans()), max_size=60), places, places)
def test_a_mark_is_a_sorted_set(changes: list[tuple[int, bool]], start: int, stop: int) -> None:
    rope: Rope = None
    marked: set[int] = set()
    for position, on in changes:
        rope = (put if on else take)(rope, position, LOG)
        (marked.add if on else marked.discard)(position)
    check_rope(rope, LOG)
    assert sorted(marked) == [p for begin, end in ranges(rope) for p in range(begin, end)]
    assert marked == {position for position in range(LENGTH) if has(rope, position)}
    assert [p for p in sorted(marked) if start <= p < stop] == [
        p for begin, end in overlaps(rope, start, stop) for p in range(begin, end)
    ]


def test_marking_twice_is_marking_once() -> None:
    rope = put(None, 3, LOG)
    assert put(rope, 3, LOG) is rope
    assert take(rope, 4, LOG) is rope
    assert take(rope, 3, LOG) is None


def test_a_marked_stretch_is_one_leaf() -> None:
    rope: Rope = None
    for position in (4, 6, 5):
        rope = put(rope, position, LOG)
    assert isinstance(rope, Leaf)
    assert (4, 7) == (rope.start, rope.stop)
