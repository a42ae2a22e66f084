"""A cursor with a number for each node, and changes of several nodes in one order."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from palaver.stores.postgres.cluster import merge_in_order, pack_cursor, unpack_cursor

numbers = st.dictionaries(st.integers(0, 9), st.integers(1, 2**63 - 1))


@given(numbers)
def test_a_cursor_is_read_again(known: dict[int, int]) -> None:
    assert known == unpack_cursor(pack_cursor(known))


@given(numbers, st.integers(0, 9), st.integers(1, 100))
def test_a_cursor_rises_with_each_of_its_numbers(
    known: dict[int, int], node: int, more: int
) -> None:
    assert pack_cursor(known) < pack_cursor({**known, node: known.get(node, 0) + more})


def test_the_cursor_of_one_server_is_its_number() -> None:
    assert 4_711 == pack_cursor({0: 4_711})
    assert {} == unpack_cursor(0)


Row = tuple[str, int, str, int, int, int, None, int, int | None, int | None]


def row(name: str, version: int, number: int, before: tuple[int, int] | None, at: int = 0) -> Row:
    node, older = before or (None, None)
    return name, version, "append", at, version, 1, None, number, node, older


def test_a_change_comes_after_the_one_before_it_though_that_is_of_another_node() -> None:
    moved = {1: [row("a", 0, 50, None), row("a", 2, 60, (2, 7))], 2: [row("a", 1, 7, (1, 50))]}
    found = list(merge_in_order({}, moved, 10))
    assert [0, 1, 2] == [change[1] for change in found]
    assert [{1: 50}, {1: 50, 2: 7}, {1: 60, 2: 7}] == [unpack_cursor(c[-1]) for c in found]
    assert found[1:] == list(merge_in_order({1: 50}, {1: moved[1][1:], 2: moved[2]}, 10))
    assert found[:2] == list(merge_in_order({}, moved, 2))


def test_what_follows_a_change_that_may_not_be_reported_waits() -> None:
    """The other node still has an older transaction."""
    pages = {1: [row("b", 0, 3, None), row("a", 1, 4, (2, 9)), row("c", 0, 5, None)], 2: []}
    assert [("b", 0)] == [change[:2] for change in merge_in_order({}, pages, 10)]
    rest = merge_in_order({2: 9}, pages, 10)
    assert [("b", 0), ("a", 1), ("c", 0)] == [change[:2] for change in rest]


def test_the_earlier_change_comes_first_as_far_as_clocks_tell() -> None:
    pages = {1: [row("a", 0, 9, None, at=5)], 2: [row("b", 0, 1, None, at=4)]}
    assert ["b", "a"] == [change[0] for change in merge_in_order({}, pages, 10)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=40), st.integers(1, 7))
def test_page_by_page_nothing_is_missed_nothing_comes_twice(
    made: list[tuple[int, int]], limit: int
) -> None:
    """Talks whose shard moves at any moment: each change says by which node it was made."""
    clock = count(1)
    last: dict[int, tuple[int, int, int]] = {}
    pages: dict[int, list[Row]] = {1: [], 2: [], 3: []}
    for talk, node in made:
        version, *before = last.get(talk, (-1, None, None))
        number = next(clock) + 1_000 * (4 - node)
        known = (before[0], before[1]) if before[0] and before[1] else None
        pages[node].append(row(str(talk), version + 1, number, known))
        last[talk] = version + 1, node, number
    cursor, heard = 0, list[tuple[str, int]]()
    while True:
        after = unpack_cursor(cursor)
        left = {n: [r for r in rows if r[-3] > after.get(n, 0)] for n, rows in pages.items()}
        page = list(merge_in_order(after, {n: r[:limit] for n, r in left.items()}, limit))
        if not page:
            break
        heard += [(change[0], change[1]) for change in page]
        cursor = page[-1][-1]
    versions: dict[str, list[int]] = {}
    for name, version in heard:
        versions.setdefault(name, []).append(version)
    assert {str(t): list(range(v + 1)) for t, (v, _, _) in last.items()} == versions
