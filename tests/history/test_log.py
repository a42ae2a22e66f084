"""The log: positions never change, a fork reads on from its parent, roles are indexed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ValidationError
from palaver.history import RoleIndex
from palaver.history.frame import MASK, SHIFTS
from palaver.history.log import Log
from palaver.messages import ROLES, Message, Role
from tests.history.samples import line, one, talk

if TYPE_CHECKING:
    from collections.abc import Callable


roles = st.lists(st.sampled_from(ROLES), max_size=8)


def test_positions_are_given_in_order() -> None:
    log = Log()
    assert [0, 1, 2] == [log.extend([message]) for message in talk("u1 a2 u3")]
    assert 3 == log.extend(talk("a4 u5"))
    assert 5 == len(log)
    assert "u1 a2 u3 a4 u5" == line(log.between(0, 5))
    assert "a4" == log[3].id


def test_a_fork_shares_what_was_there_and_writes_its_own() -> None:
    log = Log()
    log.extend(talk("u1 a2 u3"))
    fork = log.fork(2)
    assert 2 == fork.extend([one("t9")])
    assert ("u1 a2 u3", "u1 a2 t9") == (line(log.between(0, 3)), line(fork.between(0, 3)))
    assert fork[0] is log[0]
    assert fork.segments[0] is log.own


@given(st.lists(st.tuples(roles, st.integers(0, 20)), min_size=1, max_size=5))
def test_a_fork_of_forks_counts_as_one_list_would(steps: list[tuple[list[Role], int]]) -> None:
    """Each step writes some messages and forks; the last fork knows every role's place."""
    log, said = Log(), list[Role]()
    for spoken, cut in steps:
        log.extend([Message(role, "") for role in spoken])
        said += spoken
        length = min(cut, len(said))
        log, said = log.fork(length), said[:length]
    log.extend([Message("user", ""), Message("tool", "")])
    said += ["user", "tool"]
    assert said == [message.role for message in log.between(0, len(log))]
    for start in range(len(said)):
        assert said[start] == log[start].role
        assert said[start : start + 3] == [
            m.role for m in log.between(start, min(start + 3, len(said)))
        ]
    for position in range(len(said) + 1):
        before = log.before(position)
        assert position == before & MASK
        for role in ROLES:
            assert said[:position].count(role) == log.rank(role, position)
            assert said[:position].count(role) == before >> SHIFTS[role] & MASK
    for role in ROLES:
        places = [position for position, name in enumerate(said) if name == role]
        for start in range(len(places) + 1):
            assert places[start : start + 2] == log.select(role, start, start + 2)
        assert places == log.select(role, 0, len(places))


def test_ids_are_found_in_every_segment_but_not_beyond_it() -> None:
    log = Log()
    log.extend(talk("u1 a2 u3"))
    fork = log.fork(2)
    fork.extend(talk("u3 u1"))
    assert [2] == log.positions_of("u3")
    assert [2] == fork.positions_of("u3")
    assert [0, 3] == fork.positions_of("u1")
    assert [] == fork.positions_of("nobody")


def test_what_was_replaced_is_remembered_across_forks() -> None:
    log = Log()
    log.extend(talk("u1 u2"))
    log.own.replaced[1] = 0
    fork = log.fork(2)
    fork.extend([one("u3")])
    fork.own.replaced[2] = 1
    assert (None, 0, 1) == tuple(map(fork.replaced, range(3)))


def test_a_list_of_positions_is_the_callers_own() -> None:
    log = Log()
    log.extend(talk("u1"))
    log.positions_of("u1").append(99)
    assert [0] == log.positions_of("u1")


def test_ids_are_indexed_once_however_many_ask() -> None:
    """Readers have no lock of the history, so the index has its own."""
    log = Log()
    log.extend([one(f"u{number}") for number in range(20_000)])
    start, wrong = threading.Barrier(8), list[object]()

    def ask() -> None:
        start.wait()
        wrong.extend(
            number for number in range(0, 20_000, 500) if log.positions_of(f"u{number}") != [number]
        )

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


def test_a_log_has_no_place_beyond_its_end() -> None:
    log = Log()
    log.extend(talk("u1"))
    with pytest.raises(IndexError):
        log[1]


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
