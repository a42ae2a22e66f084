"""What differs between two views of one log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.history.diff import common_prefix, compare
from palaver.history.frame import Frame, build
from palaver.history.view import View
from palaver.messages import to_dict
from tests.history.samples import begin, line, one
from tests.history.test_rope import LENGTH, LOG

selections = st.lists(st.integers(0, LENGTH - 1), unique=True, max_size=30)


def view_of(positions: list[int]) -> View:
    return View(LOG, Frame(root=build([(p, p + 1) for p in positions], LOG)), 0, 0)


@given(selections, selections)
def test_a_difference_is_what_one_has_and_the_other_has_not(old: list[int], new: list[int]) -> None:
    diff = compare(view_of(old), view_of(new))
    assert [(i, f"m{p}") for i, p in enumerate(old) if p not in new] == [
        (index, message.id) for index, message in diff.removed
    ]
    assert [(i, f"m{p}") for i, p in enumerate(new) if p not in old] == [
        (index, message.id) for index, message in diff.added
    ]


@given(selections, selections, selections)
def test_views_begin_alike(start: list[int], one_way: list[int], other_way: list[int]) -> None:
    first = [*start, *(p for p in one_way if p not in start)]
    second = [*start, *(p for p in other_way if p not in start)]
    alike = 0
    while alike < min(len(first), len(second)) and first[alike] == second[alike]:
        alike += 1
    assert alike == common_prefix(view_of(first), view_of(second))


def test_a_history_compares_its_versions() -> None:
    history = begin("u1 a2")
    history.append(one("u3"))
    history.replace(0, one("u9"))
    assert not history.diff(1, 1)
    last = history.diff()
    assert ("u1", "u9") == (
        line(e.message for e in last.removed),
        line(e.message for e in last.added),
    )
    whole = history.diff(0)
    assert [(0, "u9"), (2, "u3")] == [(index, message.id) for index, message in whole.added]
    back = history.diff(2, 0)
    assert {
        "removed": [
            {"index": 0, "message": to_dict(history[0])},
            {"index": 2, "message": to_dict(history[2])},
        ],
        "added": [{"index": 0, "message": to_dict(history.at(0)[0])}],
    } == back.to_dict()


def test_before_the_first_change_there_is_no_difference() -> None:
    assert not begin("u1").diff()
