"""What an operation would do, worked out before anything is done."""

from __future__ import annotations

import pytest

from palaver.errors import ValidationError
from palaver.history import Clear, Filter, Insert, Replace, Truncate
from palaver.history.plan import carried_out, planned
from palaver.history.rope import ranges
from tests.history.samples import begin, one


def test_an_insert_puts_messages_in_at_a_place() -> None:
    plan = planned(begin("u1 a2").view, Insert(1, (one("u9"),)))
    assert ("INSERT", 1, 0) == (plan.reason, plan.place, plan.removed)
    assert "u9" == plan.messages[0].id


def test_a_replace_takes_one_out() -> None:
    plan = planned(begin("u1 a2").view, Replace(1, one("u9")))
    assert ("REPLACE", 1, 1) == (plan.reason, plan.place, plan.removed)


def test_a_truncate_is_a_window() -> None:
    assert (2, 4) == planned(begin("u1 a2 u3 a4").view, Truncate(keep_last=2)).window


def test_whatever_selects_by_role_or_text_is_stretches_of_the_log() -> None:
    view = begin("s1 u2 u3 a4 u5 s6").view
    assert ((0, 1), (5, 6)) == planned(view, Clear()).pieces
    assert () == planned(view, Clear(keep_system_message=False)).pieces
    assert ((1, 3), (4, 5)) == planned(view, Filter(roles=("user",))).pieces
    assert ((0, 3), (4, 6)) == planned(view, Filter(roles=("user", "system"))).pieces
    assert ((0, 6),) == planned(view, Filter()).pieces
    assert ((2, 3),) == planned(view, Filter(content_contains=("u3",))).pieces
    assert ((2, 3), (4, 5)) == planned(view, Truncate(role="user", keep_last=2)).pieces
    kept = planned(view, Truncate(role="user", keep_last=1, others="keep")).pieces
    assert ((0, 1), (3, 6)) == kept


def test_what_does_not_fit_is_refused() -> None:
    view, nothing = begin("u1 a2").view, begin().view
    with pytest.raises(
        ValidationError, match=r"\$\.position: must be 0 to 2 here, not 3 \[HI-03\]"
    ):
        planned(view, Insert(3, ()))
    with pytest.raises(ValidationError, match=r"\$\.index: must be 0 to 1 here, not 2 \[HI-04\]"):
        planned(view, Replace(2, one("u9")))
    with pytest.raises(ValidationError, match=r"\$\.index: there are no messages"):
        planned(nothing, Replace(0, one("u9")))


def test_planning_changes_nothing() -> None:
    history = begin("u1 a2 u3")
    view = history.view
    plan = planned(view, Truncate(range=None, keep_first=1))
    assert [(0, 1)] == list(ranges(carried_out(plan, view.rope, 3, view.log)))
    assert (3, 0) == (len(history), history.version)
