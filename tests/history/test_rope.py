"""Ropes: what they select is what a list would, and they stay balanced whatever is done."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from palaver.history.frame import (
    MASK,
    Branch,
    Leaf,
    build,
    concat,
    find,
    ranges,
    ranges_between,
    size,
    splice,
    split,
    split_last,
)
from palaver.history.log import Log
from palaver.messages import ROLES, Message
from tests.history.checks import check_rope
from tests.profiles import at_least

if TYPE_CHECKING:
    from palaver.history.frame import Rope

LENGTH = 64


def made_log(length: int = LENGTH) -> Log:
    choose = random.Random(7)  # noqa: S311 - not for secrets
    log = Log()
    log.extend([Message(choose.choice(ROLES), "", id=f"m{i}") for i in range(length)])
    return log


LOG = made_log()

stretches = st.lists(
    st.tuples(st.integers(0, LENGTH - 1), st.integers(0, 6)).map(
        lambda pair: (pair[0], min(sum(pair), LENGTH))
    ),
    max_size=12,
)


def positions(rope: Rope) -> list[int]:
    return [position for start, stop in ranges(rope) for position in range(start, stop)]


def spelled(pieces: list[tuple[int, int]]) -> list[int]:
    return [position for start, stop in pieces for position in range(start, stop)]


@at_least(200)
@given(stretches)
def test_a_rope_is_built_of_stretches(pieces: list[tuple[int, int]]) -> None:
    rope = build(pieces, LOG)
    check_rope(rope, LOG)
    assert spelled(pieces) == positions(rope)
    assert len(spelled(pieces)) == size(rope)


@at_least(200)
@given(stretches, stretches)
def test_ropes_are_joined(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    rope = concat(build(one, LOG), build(other, LOG))
    check_rope(rope, LOG)
    assert spelled(one) + spelled(other) == positions(rope)


@at_least(200)
@given(stretches, st.integers(0, 80))
def test_a_rope_is_split_anywhere(pieces: list[tuple[int, int]], at: int) -> None:
    left, right = split(build(pieces, LOG), at, LOG)
    check_rope(left, LOG)
    check_rope(right, LOG)
    whole = spelled(pieces)
    assert (whole[:at], whole[at:]) == (positions(left), positions(right))


@at_least(200)
@given(stretches, st.integers(0, 80), st.integers(0, 1), stretches)
def test_a_rope_is_spliced_anywhere(
    pieces: list[tuple[int, int]], at: int, removed: int, new: list[tuple[int, int]]
) -> None:
    whole = spelled(pieces)
    at = min(at, len(whole))
    rope = splice(build(pieces, LOG), at, removed, build(new, LOG), LOG)
    check_rope(rope, LOG)
    whole[at : at + removed] = spelled(new)
    assert whole == positions(rope)


@given(stretches, st.integers(0, 80), st.integers(0, 80))
def test_a_stretch_of_a_rope_is_read(pieces: list[tuple[int, int]], start: int, stop: int) -> None:
    rope = build(pieces, LOG)
    assert spelled(pieces)[start:stop] == spelled(list(ranges_between(rope, start, stop)))


@given(stretches)
def test_any_place_is_found(pieces: list[tuple[int, int]]) -> None:
    rope = build(pieces, LOG)
    assert spelled(pieces) == [find(rope, index) for index in range(size(rope))]


@given(stretches)
def test_the_last_leaf_comes_off(pieces: list[tuple[int, int]]) -> None:
    rope = build(pieces, LOG)
    rest, last = split_last(rope)
    check_rope(rest, LOG)
    assert positions(rope) == positions(rest) + positions(last)


def test_neighbours_that_continue_each_other_become_one_leaf() -> None:
    assert isinstance(build([(0, 3), (3, 9)], LOG), Leaf)
    assert isinstance(concat(build([(0, 3)], LOG), build([(3, 9)], LOG)), Leaf)
    assert isinstance(concat(build([(0, 3)], LOG), build([(4, 9)], LOG)), Branch)


def test_nothing_is_the_empty_rope() -> None:
    assert build([(5, 5)], LOG) is None
    assert concat(None, None) is None
    assert (None, None) == split(None, 3, LOG)
    assert (None, None) == split_last(None)
    assert splice(None, 0, 0, None, LOG) is None
    assert 0 == size(None)
    assert [] == list(ranges_between(None, 0, 9))


def test_ten_thousand_inserts_leave_a_low_tree() -> None:
    """An AVL tree of n leaves is at most 1.44 log2(n) high."""
    log = made_log(30_000)
    rope = build([(0, 10_000)], log)
    choose = random.Random(1)  # noqa: S311 - not for secrets
    for position in range(10_000, 20_000):
        rope = splice(
            rope, choose.randrange(size(rope) + 1), 0, build([(position, position + 1)], log), log
        )
    assert rope is not None
    assert 20_000 == rope.counts & MASK
    assert rope.height <= 21
    check_rope(rope, log)
