from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given

from palaver.messages.foreign import difference, restored
from tests.messages.strategies import anything, objects
from tests.profiles import at_least


@at_least(300)
@given(objects, objects)
def test_taking_the_differences_back_gives_the_other_value(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    changed = restored(copy.deepcopy(ours), difference(ours, theirs))
    assert json.dumps(theirs, sort_keys=True) == json.dumps(changed, sort_keys=True)


@pytest.mark.parametrize(("ours", "theirs"), [({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True})])
def test_numbers_that_json_tells_apart_are_different(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert [{"path": ["a"], "now": ours["a"], "was": theirs["a"]}] == difference(ours, theirs)


def test_a_place_that_somebody_has_changed_since_is_left_alone() -> None:
    notes = difference({"a": 1, "b": {"c": 2}}, {"a": 9, "b": {"c": 8}, "d": 7})
    assert {"a": 5, "b": {"c": 8}, "d": 6} == restored({"a": 5, "b": {"c": 2}, "d": 6}, notes)
    assert {"a": 9, "b": 3, "d": 7} == restored({"a": 1, "b": 3}, notes)
    assert {"a": 9, "d": 7} == restored({"a": 1}, notes)


def test_a_field_that_only_we_have_is_taken_out() -> None:
    assert {} == restored({"a": 1}, difference({"a": 1}, {}))
    assert {"a": 2} == restored({"a": 2}, difference({"a": 1}, {}))
    assert {"b": 1} == restored({"b": 1}, [{"path": ["a"]}])


@at_least(200)
@given(anything)
def test_notes_that_are_none_are_passed_over(notes: Any) -> None:  # noqa: ANN401 - anything
    assert {"a": 1} == restored({"a": 1}, notes)
    assert {"a": 1} == restored({"a": 1}, [notes, {"path": notes, "now": 2}, {"path": [5]}])
