"""The role index, with S1's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import ValidationError
from palaver.history import RoleIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Role


def filled() -> RoleIndex:
    index = RoleIndex()
    said: list[Role] = ["system", "user", "assistant", "user", "tool", "user"]
    for position, role in enumerate(said):
        index.add(role, position)
    return index


def test_positions_come_back_by_role() -> None:
    index = filled()
    assert [1, 3, 5] == index.by_role("user")
    assert [3, 5] == index.recent("user", 2)
    assert [1, 3, 5] == index.recent("user", 99)
    assert [] == index.recent("user", 0)
    assert [3] == index.range("user", 1, 2)
    assert [3, 5] == index.range("user", 1, 99)
    assert {"system": [0], "user": [1, 3, 5], "assistant": [2], "tool": [4]} == index.all()


def test_a_clone_goes_its_own_way() -> None:
    index = filled()
    clone = index.clone()
    clone.add("user", 9)
    index.reset()
    assert ([], [1, 3, 5, 9]) == (index.by_role("user"), clone.by_role("user"))


def test_positions_can_be_removed() -> None:
    index = filled()
    index.remove([3, 4, 77])
    assert {"system": [0], "user": [1, 5], "assistant": [2], "tool": []} == index.all()


def test_what_is_handed_out_is_the_callers_own() -> None:
    index = filled()
    index.by_role("user").clear()
    index.all()["user"].clear()
    assert [1, 3, 5] == index.by_role("user")


def test_how_many_came_before() -> None:
    assert [0, 0, 1, 1, 2, 2, 3] == [filled().rank("user", position) for position in range(7)]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda index: index.add("user", 3), "$.position"),
        (lambda index: index.add("robot", 9), "$.role"),
        (lambda index: index.by_role(["user"]), "$.role"),
        (lambda index: index.recent("user", -1), "$.n"),
        (lambda index: index.range("user", -1, 2), "$.range"),
        (lambda index: index.range("user", 2, 1), "$.range"),
    ],
)
def test_nonsense_is_refused(call: Callable[[Any], object], path: str) -> None:
    index = filled()
    before = index.all()
    with pytest.raises(ValidationError) as caught:
        call(index)
    assert path == caught.value.path
    assert before == index.all()
