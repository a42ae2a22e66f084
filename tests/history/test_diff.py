"""What differs between two views of one log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.history import History
from palaver.history.diff import common_prefix, compare, find_alternative
from palaver.history.frame import Frame, build
from palaver.history.view import View
from palaver.messages import assistant, to_dict, user
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


@given(selections, selections, st.integers(0, LENGTH))
def test_two_conversations_share_the_positions_before_they_parted(
    one_way: list[int], other: list[int], shared: int
) -> None:
    pairs = zip(one_way, other, strict=False)
    same = [a == b and a < shared for a, b in pairs]
    expected = same.index(False) if False in same else len(same)
    assert expected == common_prefix(view_of(one_way), view_of(other), shared)


def test_another_answer_to_the_same_question_is_an_alternative() -> None:
    history = History([user("Tea?"), assistant("Yes."), user("Milk?"), assistant("No.")])
    history.truncate(keep_first=1)
    history.append(assistant("Perhaps."))
    assert 1 == find_alternative(history.view, history.at(0))
    assert [0] == history.ends()
    history.restore(0)
    assert [2, 0] == history.ends()
    assert [2] == history.ends(1)
    assert 1 == find_alternative(history.view, history.at(2))
    assert find_alternative(history.view, history.at(0)) is None  # the same messages


def test_what_was_moved_cut_out_or_put_in_is_no_alternative() -> None:
    history = History([user("a"), user("b"), user("c")])
    history.rewrite([range(1), range(2, 3)])
    cut, put_in = history.view, history.at(0)
    assert find_alternative(cut, put_in) is None
    assert find_alternative(put_in, cut) is None
    history.replace(1, assistant("d"))
    assert find_alternative(history.view, cut) is None  # of another role: it answers nothing
    history.truncate(keep_first=1)
    assert find_alternative(history.view, cut) is None  # there is nothing in its place
