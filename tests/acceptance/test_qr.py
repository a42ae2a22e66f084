"""QR: what can be asked of a history, from outside, one requirement after the other."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import ValidationError
from palaver.history import BaseHistory, History, RoleIndex
from palaver.messages import ROLES, Message, to_dict, user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.messages import Role


def names(messages: Iterable[Message]) -> str:
    return "".join(message.id for message in messages)


def spoken(line: str = "asuatuau") -> BaseHistory:
    """One message for each letter, said by the role it begins; ids are the letters from a on."""
    roles: dict[str, Role] = {role[0]: role for role in ROLES}
    return History(
        [
            Message(roles[letter], f"message {number}", id="abcdefghij"[number], timestamp=number)
            for number, letter in enumerate(line)
        ]
    )


# QR-01


def test_qr_01_by_role_recent_range_and_count() -> None:
    history = spoken()
    assert "cfh" == names(history.by_role("user"))
    assert "fh" == names(history.recent(2, role="user"))
    assert "f" == names(history.range(1, 2, role="user"))
    assert 3 == history.count(role="user")
    assert "gh" == names(history.recent(2))
    assert "bcd" == names(history.range(1, 4))
    assert 8 == history.count()


def test_qr_01_by_several_roles_time_mark_and_all_together() -> None:
    history = spoken()
    history.mark("c", "pin")
    history.mark("d", "pin")
    assert "bcfh" == names(history.query(roles=["user", "system"]))
    assert "fh" == names(history.query(roles=["user", "system"], recent=2))
    assert "cde" == names(history.query(since=2, until=5))
    assert "cd" == names(history.query(mark="pin"))
    assert "c" == names(history.query(mark="pin", role="user"))
    assert "f" == names(
        history.query(role="user", since=1, until=7, text="message", range=(1, 9), recent=1)
    )


def test_qr_01_the_edges() -> None:
    history = spoken()
    assert "" == names(history.recent(0))
    assert "" == names(history.recent(0, role="user"))
    assert "abcdefgh" == names(history.recent(99))
    assert "cfh" == names(history.recent(99, role="user"))
    assert "gh" == names(history.range(6, 99))
    assert "" == names(history.range(50, 99))
    assert "" == names(history.range(2, 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda h: h.recent(-1),
        lambda h: h.recent(-1, role="user"),
        lambda h: h.range(-1, 2),
        lambda h: h.range(0, -1),
        lambda h: h.range(3, 2),
        lambda h: h.range(3, 2, role="user"),
        lambda h: h.by_role("robot"),
    ],
)
def test_qr_01_nonsense_is_an_error(ask: Callable[[BaseHistory], object]) -> None:
    with pytest.raises(ValidationError):
        ask(spoken())


def test_qr_01_over_the_view_or_over_the_whole_log() -> None:
    history = spoken()
    history.truncate(keep_last=2)
    assert ("h", "cfh") == (names(history.by_role("user")), names(history.log.by_role("user")))
    assert ("", "c") == (names(history.query(until=3, role="user")),
                         names(history.log.query(until=3, role="user")))  # fmt: skip
    assert "cf" == names(history.at(0).range(0, 2, role="user"))


# QR-02


def broken_up(length: int) -> BaseHistory:
    """A view in many ranges: every few messages stand out of the log's order."""
    choose = random.Random(1)  # noqa: S311 - not for secrets
    said = [Message(ROLES[number % 4], "x", id=f"m{number % 9}") for number in range(9 * 4)]
    history = History([choose.choice(said) for _ in range(length)])
    for _ in range(300):
        history.insert(choose.randrange(len(history)), [choose.choice(said)])
    return history


@pytest.mark.parametrize(
    "ask",
    [
        lambda h: h.recent(3, role="user"),
        lambda h: h.count(role="user"),
        lambda h: h.range(len(h) // 8, len(h) // 8 + 3, role="user"),
        lambda h: h.query(roles=["user", "tool"], recent=3),
    ],
    ids=["recent", "count", "range", "roles"],
)
def test_qr_02_a_role_is_found_as_fast_in_a_long_view(ask: Callable[[BaseHistory], object]) -> None:
    """A rough guard, where a scan would take a hundred times as long; the benchmark has figures."""

    def fastest(history: BaseHistory) -> float:
        best = float("inf")
        for _ in range(50):
            start = time.perf_counter()
            ask(history)
            best = min(best, time.perf_counter() - start)
        return best

    assert fastest(broken_up(100_000)) < 10 * fastest(broken_up(1_000))


def test_qr_02_and_as_rightly() -> None:
    history = broken_up(1_000)
    mine = [message for message in history if message.role == "user"]
    assert mine == history.by_role("user")
    assert mine[-3:] == history.recent(3, role="user")
    assert mine[100:120] == history.range(100, 120, role="user")
    assert len(mine) == history.count(role="user")


# QR-03


def test_qr_03_the_role_index_has_the_documents_operations() -> None:
    index = RoleIndex()
    said: list[Role] = ["user", "assistant", "user", "tool"]
    for position, role in enumerate(said):
        index.add(role, position)
    assert [0, 2] == index.by_role("user")
    assert [2] == index.recent("user", 1)
    assert [0] == index.range("user", 0, 1)
    clone = index.clone()
    clone.remove([0, 3])
    assert {"system": [], "user": [2], "assistant": [1], "tool": []} == clone.all()
    index.reset()
    assert [] == index.by_role("user")
    assert [2] == clone.by_role("user")


def test_qr_03_the_union_of_the_roles_is_the_view() -> None:
    history = broken_up(200)
    history.filter(roles=["user", "tool", "system"])
    history.truncate(role="user", keep_last=5, others="keep")
    found = history.mark_map()
    united = sorted(position for role in found.type_indices.values() for position in role)
    assert sorted(found.original_indices) == united


# QR-04


def test_qr_04_the_mark_map_agrees_with_the_view() -> None:
    history = spoken("sua")
    history.append(user("3"))
    history.insert(1, [user("4"), user("5")])
    history.append(user("6"))
    history.clear()
    history.rollback(1)
    history.filter(roles=["user"])
    assert {
        "originalIndices": [4, 5, 1, 3, 6],
        "typeIndices": {"system": [], "user": [4, 5, 1, 3, 6], "assistant": [], "tool": []},
        "batchBoundaries": [0, 4, 7],
        "boundaryToBatch": [0, 1, 2],
        "currentBatch": 2,
    } == to_dict(history.mark_map())


def test_qr_04_it_can_be_read_of_any_version() -> None:
    history = spoken("sua")
    history.clear()
    assert ([0, 1, 2], [0]) == (
        history.at(0).mark_map().original_indices,
        history.mark_map().original_indices,
    )


# QR-05


def test_qr_05_marks_survive_edits_rollback_and_forks() -> None:
    history = spoken("ua")
    history.mark("b", "pin")
    changes: list[Callable[[BaseHistory], Any]] = [
        lambda h: h.insert(0, [user("x")]),
        lambda h: h.replace(0, user("y")),
        lambda h: h.truncate(keep_last=1),
        lambda h: h.filter(roles=["user"]),
        lambda h: h.clear(),
        lambda h: h.rollback(2),
        lambda h: h.append(user("z")),
    ]
    for change in changes:
        change(history)
        assert ["pin"] == history.marks_of("b")
    assert "b" == names(history.query(mark="pin"))
    assert {"pin": ["b"]} == history.fork().marks == history.log.marks
