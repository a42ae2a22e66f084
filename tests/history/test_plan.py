"""What an operation would do, computed before anything is changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ValidationError
from palaver.history import Clear, Filter, Insert, Piece, Replace, Rewrite, Truncate
from palaver.history.frame import ranges
from palaver.history.plan import edit_rope, plan_selection
from tests.history.samples import begin, line, one, talk
from tests.profiles import at_least


def test_an_insert_puts_messages_in_at_a_place() -> None:
    plan = plan_selection(begin("u1 a2").view, Insert(1, (one("u9"),)))
    assert ("INSERT", 1, 0) == (plan.reason, plan.place, plan.removed)
    assert "u9" == plan.messages[0].id


def test_a_replace_takes_one_out() -> None:
    plan = plan_selection(begin("u1 a2").view, Replace(1, one("u9")))
    assert ("REPLACE", 1, 1) == (plan.reason, plan.place, plan.removed)


def test_a_truncate_is_a_window() -> None:
    assert (2, 4) == plan_selection(begin("u1 a2 u3 a4").view, Truncate(keep_last=2)).window


def test_whatever_selects_by_role_or_text_is_stretches_of_the_log() -> None:
    view = begin("s1 u2 u3 a4 u5 s6").view
    assert ((0, 1), (5, 6)) == plan_selection(view, Clear()).pieces
    assert () == plan_selection(view, Clear(keep_system_message=False)).pieces
    assert ((1, 3), (4, 5)) == plan_selection(view, Filter(roles=("user",))).pieces
    assert ((0, 3), (4, 6)) == plan_selection(view, Filter(roles=("user", "system"))).pieces
    assert ((0, 6),) == plan_selection(view, Filter()).pieces
    assert ((2, 3),) == plan_selection(view, Filter(content_contains=("u3",))).pieces
    assert ((2, 3), (4, 5)) == plan_selection(view, Truncate(role="user", keep_last=2)).pieces
    kept = plan_selection(view, Truncate(role="user", keep_last=1, others="keep")).pieces
    assert ((0, 1), (3, 6)) == kept


def test_what_does_not_fit_is_refused() -> None:
    view, nothing = begin("u1 a2").view, begin().view
    with pytest.raises(
        ValidationError, match=r"\$\.position: must be 0 to 2 here, not 3 \[insert-position\]"
    ):
        plan_selection(view, Insert(3, ()))
    with pytest.raises(
        ValidationError, match=r"\$\.index: must be 0 to 1 here, not 2 \[replace-index\]"
    ):
        plan_selection(view, Replace(2, one("u9")))
    with pytest.raises(ValidationError, match=r"\$\.index: there are no messages"):
        plan_selection(nothing, Replace(0, one("u9")))


def test_planning_changes_nothing() -> None:
    history = begin("u1 a2 u3")
    view = history.view
    plan = plan_selection(view, Truncate(range=None, keep_first=1))
    assert [(0, 1)] == list(ranges(edit_rope(plan, view.rope, 3, view.log)))
    assert (3, 0) == (len(history), history.version)


def test_a_rewrite_is_one_batch_and_can_be_undone() -> None:
    """CV-09: old stretches and new messages in any order, one version, one way back."""
    history = begin("s1 u2 a3 u4 a5")
    before = history.version
    history.rewrite([range(1), one("u9"), range(3, 5)], reason="COMPACT")

    assert line(history) == "s1 u9 u4 a5"
    assert history.version == before + 1
    snapshot = history.view.batch_snapshot(0)
    assert snapshot is not None
    assert snapshot.description == "Before COMPACT"
    history.undo()
    assert line(history) == "s1 u2 a3 u4 a5"


def test_a_message_may_stand_for_another() -> None:
    """What replaces a message is known to replace it, so that merges see it."""
    history = begin("u1 a2 u3")
    fork = history.fork()
    fork.rewrite([range(1), (1, one("a9")), range(2, 3)])
    history.merge(fork)

    assert line(history) == "u1 a9 u3"


def test_appends_go_on_after_a_rewrite() -> None:
    """The new messages may come last."""
    history = begin("u1 a2 u3")
    history.rewrite([range(2, 3), one("a8"), one("u9")])
    history.append(one("a10"))

    assert line(history) == "u3 a8 u9 a10"


def test_a_rewrite_may_select_from_the_whole_log() -> None:
    """What an earlier edit left out comes back, and is written once."""
    history = begin("u1 a2 u3 a4")
    history.truncate(keep_last=1)
    history.rewrite([range(2), one("u9"), (3, one("a8"))], of_log=True)

    assert line(history) == "u1 a2 u9 a8"
    assert line(history.log) == "u1 a2 u3 a4 u9 a8"
    assert history.log.log.replaced(5) == 3
    with pytest.raises(ValidationError, match="rewrite-pieces"):
        history.rewrite([range(7)], of_log=True)


@pytest.mark.parametrize(
    "pieces", [[range(4)], [range(0, 3, 2)], [range(2), range(1, 3)], [range(-1, 2)]], ids=str
)
def test_a_rewrite_that_does_not_fit_changes_nothing(pieces: list[Piece]) -> None:
    """Beyond the end, with steps, twice the same."""
    history = begin("u1 a2 u3")
    with pytest.raises(ValidationError, match="rewrite-pieces"):
        history.rewrite(pieces)

    assert line(history) == "u1 a2 u3"
    assert history.version == 0


def test_a_rewrite_has_a_price() -> None:
    """HI-14: before it runs."""
    history = begin("u1 a2 u3 a4")
    price = history.price(Rewrite((one("u9"), range(2, 4))), tokens=lambda _: 10)

    assert ["u1", "a2"] == [message.id for message in price.removed]
    assert (20, 10) == (price.tokens_freed, price.tokens_added)
    assert price.cache_tokens == 40


@at_least(100)
@given(data=st.data())
def test_a_rewrite_selects_what_it_says(data: st.DataObject) -> None:
    """Against a plain list, on views that are broken up already."""
    history = begin("u0 a1 u2 a3 u4 a5 u6 a7")
    for round_ in range(3):
        plain = list(history.view)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(plain)), max_size=4)))
        stretches = [range(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
        pieces: list[Piece] = []
        expected = []
        for number, stretch in enumerate(data.draw(st.permutations(stretches))):
            new = talk(f"u{round_}x{number}")[0]
            pieces += [stretch, new]
            expected += [*plain[stretch.start : stretch.stop], new]
        history.rewrite(pieces)
        assert expected == list(history.view)
