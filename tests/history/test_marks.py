"""Marks are ropes of sorted positions, in a persistent map."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.history.frame import Leaf, Rope, ranges
from palaver.history.marks import PersistentMap, _Node, changes_between, has, overlaps, put, take
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


NAMES = st.text(max_size=3)
STEPS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.integers(300, 10**6))), max_size=60)


def nodes(found: PersistentMap[int]) -> set[int]:
    """Every node, by identity."""
    waiting: list[_Node | None] = [found._root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node is not None:
            seen.add(id(node))
            waiting += [node.left, node.right]
    return seen


@given(STEPS)
def test_a_map_is_what_a_dict_is_and_every_earlier_one_stays(
    steps: list[tuple[str, int | None]],
) -> None:
    plain: dict[str, int] = {}
    persistent: PersistentMap[int] = PersistentMap()
    past = [(dict(plain), persistent)]
    for name, value in steps:
        if value is None:
            plain.pop(name, None)
            persistent = persistent.remove(name)
        else:
            plain[name] = value
            persistent = persistent.set(name, value)
        past.append((dict(plain), persistent))
    for expected, found in past:
        assert expected == found
        assert sorted(expected) == list(found)
        assert len(expected) == len(found)
        assert all(name in found for name in expected)
        assert "not a name" not in found


@given(STEPS, STEPS)
def test_what_differs_makes_one_map_of_the_other(
    first: list[tuple[str, int | None]], second: list[tuple[str, int | None]]
) -> None:
    before = {name: value for name, value in first if value is not None}
    after = {name: value for name, value in second if value is not None}
    expected = changes_between(before, after)
    found = PersistentMap.of(after).changes_from(PersistentMap.of(before))
    assert expected == found
    changed = PersistentMap.of(before)
    for name, value in found.items():
        changed = changed.remove(name) if value is None else changed.set(name, value)
    assert after == changed


def test_the_shape_follows_from_the_names_alone() -> None:
    names = [f"name-{number}" for number in range(200)]
    one = PersistentMap.of(dict.fromkeys(names, 1))
    other = PersistentMap.of(dict.fromkeys(reversed(names), 1)).set("more", 1).remove("more")
    assert one._root == other._root


def test_a_change_makes_few_nodes_and_is_found_among_few() -> None:
    names = [f"name-{number}" for number in range(2_000)]
    before = PersistentMap.of(dict.fromkeys(names, 1))
    after = before.set("name-77", 2).remove("name-1500").set("new", 3)
    assert len(nodes(after) - nodes(before)) < 150
    assert {"name-77": 2, "name-1500": None, "new": 3} == after.changes_from(before)
    assert before is PersistentMap.of(before)
    assert before.remove("unknown")._root is before._root
