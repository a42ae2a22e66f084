"""A conversation in a store is a history like any other, and still is after it was opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.errors import PalaverError
from palaver.messages import ROLES, to_dict
from palaver.testing.stores.expecting import Twins, expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history import History, View
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()

_OPERATIONS: tuple[dict[str, Any], ...] = (
    {"operation": "APPEND", "messages": []},
    {"operation": "INSERT", "position": 1, "messages": [{"role": "user", "content": "in",
     "id": "i1", "timestamp": 1}]},
    {"operation": "INSERT", "position": 0, "messages": []},
    {"operation": "REPLACE", "index": 2, "message": {"role": "tool", "content": "new",
     "id": "r1", "timestamp": 2}},
    {"operation": "TRUNCATE", "keepLast": 5},
    {"operation": "APPEND", "messages": [{"role": "user", "content": "more", "id": "m1",
     "timestamp": 3}]},
    {"operation": "TRUNCATE", "role": "user", "removeFirst": 1, "others": "keep"},
    {"operation": "FILTER", "contentExcludes": ["a3"]},
    {"operation": "ROLLBACK", "targetBatchIndex": 2},
    {"operation": "CLEAR"},
    {"operation": "CLEAR", "keepSystemMessage": False},
    {"operation": "ROLLBACK", "targetBatchIndex": 0},
    {"operation": "FILTER", "roles": ["user", "assistant"]},
)  # fmt: skip

_REFUSED: tuple[dict[str, Any], ...] = (
    {"operation": "EXPLODE"},
    {"operation": "INSERT", "position": 99, "messages": []},
    {"operation": "INSERT", "position": -1, "messages": []},
    {"operation": "REPLACE", "index": 99, "message": {"role": "user", "content": "x"}},
    {"operation": "TRUNCATE"},
    {"operation": "FILTER", "contentContains": [""]},
    {"operation": "ROLLBACK", "targetBatchIndex": 99},
    {"operation": "APPEND", "messages": [{"role": "nobody", "content": "x"}]},
)


def _executed(operation: dict[str, Any]) -> Callable[[History], object]:
    return lambda history: history.execute(operation)


@CHECKS
def the_seven_operations_do_what_they_do_in_memory(trial: Trial) -> None:
    """Every operation answers and leaves what a history in memory does."""
    twins = Twins(trial.store, "s1 u2 a3 u4 a5 t6")
    for step in map(_executed, _OPERATIONS):
        twins.both(step)
        twins.compare()
    twins.reopen(trial.reopen())
    twins.compare()


@CHECKS
def operations_go_on_after_reopening(trial: Trial) -> None:
    """The same, with the store opened again before each of them."""
    twins = Twins(trial.store, "s1 u2 a3 u4 a5 t6")
    for step in map(_executed, _OPERATIONS):
        twins.reopen(trial.reopen())
        twins.both(step)
    twins.compare()


@CHECKS
def what_is_refused_changes_nothing(trial: Trial) -> None:
    """An operation that breaks a rule is the same error as in memory, and leaves no trace."""
    twins = Twins(trial.store, "s1 u2")
    for operation in _REFUSED:
        twins.both(_executed(operation))
        with raises(PalaverError, operation["operation"]):
            twins.kept.execute(operation)
    twins.both(lambda history: history.undo(), lambda history: history.redo())
    twins.both(lambda history: history.at(9), lambda history: history.mark("nobody", "pin"))
    twins.both(lambda history: history.append(one("u3")))
    twins.compare()
    expect((1, 3), (twins.kept.version, len(twins.reopen(trial.reopen()).log)), "what is there")


@CHECKS
def appends_and_extends_are_alike(trial: Trial) -> None:
    """One by one or together, at the log's end and where an edit has left it."""
    twins = Twins(trial.store)
    twins.both(
        lambda history: history.append(one("u1")),
        lambda history: history.extend(said("a2 u3 t4")),
        lambda history: history.extend([]),
        lambda history: history.append({"role": "user", "content": "x", "id": "j", "timestamp": 1}),
        lambda history: history.undo(),
        lambda history: history.append(one("u5")),
        lambda history: history.truncate(keep_first=2),
        lambda history: history.extend(said("a6 u7")),
        lambda history: history.rollback(0),
        lambda history: history.append(one("a8")),
    )
    twins.compare()
    twins.reopen(trial.reopen())
    twins.compare()


@CHECKS
def every_way_back_lasts(trial: Trial) -> None:
    """Undo, redo, rollback and restore lead to the same places after reopening."""
    twins = Twins(trial.store, "u1 a2 u3")
    twins.both(
        lambda history: history.insert(1, said("s4")),
        lambda history: history.append(one("u5")),
        lambda history: history.replace(0, one("u6")),
        lambda history: history.truncate(keep_last=2),
        lambda history: history.append(one("a7")),
    )
    ways: list[Callable[[History], object]] = [
        lambda history: history.undo(),
        lambda history: history.undo(),
        lambda history: history.undo(),
        lambda history: history.redo(),
        lambda history: history.redo(),
        lambda history: history.rollback(1),
        lambda history: history.redo(),
        lambda history: history.restore(2),
        lambda history: history.undo(),
        lambda history: history.undo(),
        lambda history: history.append(one("u8")),
        lambda history: history.redo(),
        lambda history: history.restore(0),
        lambda history: history.restore(6),
    ]
    for way in ways:
        twins.reopen(trial.reopen())
        twins.both(way)
    twins.compare()
    for _ in range(30):
        twins.both(lambda history: history.undo())
    twins.reopen(trial.reopen())
    for _ in range(30):
        twins.both(lambda history: history.redo())
    twins.compare()


@CHECKS
def batches_marks_and_the_team_task_last(trial: Trial) -> None:
    """Snapshots, the mark map, stats, marks and the team task, at every version."""
    twins = Twins(trial.store, "s1 u2 a3 u4")
    twins.both(
        lambda history: history.mark(1, "pin"),
        lambda history: history.mark("a3", "pin"),
        lambda history: history.mark(0, "todo"),
        lambda history: history.mark(0, "todo"),
        lambda history: history.set_team_task("make tea 茶"),
        lambda history: history.truncate(keep_last=2),
        lambda history: history.append(one("a5")),
        lambda history: history.mark(-1, "pin"),
        lambda history: history.unmark("s1", "todo"),
        lambda history: history.unmark("s1", "todo"),
        lambda history: history.set_team_task(None),
        lambda history: history.replace(0, one("t6")),
        lambda history: history.undo(),
        lambda history: history.unmark("u2", "\n"),
        lambda history: history.mark(99, "pin"),
        lambda history: history.rollback(0),
    )
    twins.compare()
    twins.reopen(trial.reopen())
    twins.compare()
    twins.both(
        lambda history: history.marks_of("u2"),
        lambda history: [m.id for m in history.query(mark="pin")],
        lambda history: history.redo(),
        lambda history: history.mark("a3", "other"),
    )
    twins.compare()


@CHECKS
def questions_are_answered_as_in_memory(trial: Trial) -> None:
    """By role, recent, range, time, mark and text, over the view and over the whole log."""
    twins = Twins(trial.store, " ".join(f"{role}{n}" for n in range(12) for role in "usat"))
    twins.both(
        lambda history: history.truncate(keep_first=30),
        lambda history: history.insert(7, said("u100 a101")),
        lambda history: history.mark(3, "pin"),
        lambda history: history.mark(20, "pin"),
        lambda history: history.extend(said("u102 a103 t104")),
    )
    twins.reopen(trial.reopen())
    views: list[Callable[[History], View]] = [
        lambda history: history.view,
        lambda history: history.log,
        lambda history: history.at(1),
    ]
    for view in views:
        for question in _QUESTIONS:
            twins.both(_asked(view, question))
    twins.compare()


def _asked(
    view: Callable[[History], View], question: Callable[[View], object]
) -> Callable[[History], object]:
    return lambda history: question(view(history))


_QUESTIONS: list[Callable[[View], object]] = [
    lambda view: [view.by_role(role) for role in ROLES],
    lambda view: [view.recent(3, role=role) for role in ROLES],
    lambda view: [view.range(2, 6, role=role) for role in ROLES],
    lambda view: [view.count(role=role) for role in ROLES],
    lambda view: view.query(since=5, until=20),
    lambda view: view.query(mark="pin", roles=["tool", "user"]),
    lambda view: view.query(text="says u1", recent=2),
    lambda view: view.query(roles=["user", "tool"], range=(1, 9)),
    lambda view: view[-3:],
]


@CHECKS
def the_keeper_answers_by_position(trial: Trial) -> None:
    """What the protocol promises of messages, counts, roles, ids, times, frames and stops."""
    history = trial.store.create(said("s0 u1 a2 u3"))
    history.replace(1, one("u4", timestamp=9))
    history.append(one("t5", timestamp=1))
    fork = history.fork(at=0)
    fork.append(one("u6", timestamp=2))
    keeper = trial.reopen().keeper
    for name, names, user in ((history.id, "s0 u1 a2 u3 u4 t5", 3), (fork.id, "s0 u1 a2 u3 u6", 3)):
        length = len(names.split())
        ids = [message.id for message in keeper.messages(name, 0, length)]
        expect(names.split(), ids, "messages")
        expect(ids[2:4], [m.id for m in keeper.messages(name, 2, 4)], "some messages")
        expect([], keeper.messages(name, 3, 3), "no messages")
        expect(keeper.head(name).counts, keeper.before(name, length), "counts at the end")
        expect([1, 3, 4], keeper.select(name, "user", 0, user), "users")
        expect([3], keeper.select(name, "user", 1, 2), "the second user")
        expect([2], keeper.positions_of(name, "a2"), "positions of an id")
        expect([], keeper.positions_of(name, "nobody"), "positions of no id")
    expect([], keeper.positions_of(fork.id, "u4"), "what came after the fork")
    expect([4], keeper.positions_of(fork.id, "u6"), "the fork's own")
    expect([1, 2, 5], keeper.between_times(history.id, 1, 3), "between times")
    expect([3, 4], keeper.between_times(history.id, 3, None), "since a time")
    expect([0, 1, 2, 4], keeper.between_times(fork.id, None, 3), "until a time, in a fork")
    expect([1, None], [keeper.replaced(history.id, p) for p in (4, 5)], "replaced")
    expect([4, 5, 6], [keeper.stop(history.id, v) for v in range(3)], "stops")
    expect([0, 1], [f.version for f in keeper.frames(history.id, -1, 2)], "frames")
    expect([1], [f.version for f in keeper.frames(history.id, 0, 1)], "frames after one")
    expect(
        [(0, "create", 0, 4), (1, "replace", 4, 1), (2, "append", 5, 1)],
        [(j.version, j.kind, j.first, j.count) for j in keeper.journal(history.id, -1, 9)],
        "the journal",
    )
    expect([1], [j.version for j in keeper.journal(history.id, 0, 1)], "a page of the journal")


@CHECKS
def a_long_life_lasts(trial: Trial) -> None:
    """Hundreds of changes of all kinds, every version as it was, nothing wrong anywhere."""
    twins = Twins(trial.store, "s0 u1")
    for number in range(40):
        place = number * 7 % (len(twins.plain) + 1)
        for history in (twins.plain, twins.kept):
            history.insert(place, said(f"u{number}x a{number}y"))
            history.append(one(f"t{number}z"))
            if number % 5:
                history.replace(place, one(f"a{number}w"))
            else:
                history.undo()
    kept = twins.reopen(trial.reopen())
    expect(twins.plain.version, kept.version, "the version")
    expect(to_dict(twins.plain.mark_map()), to_dict(kept.mark_map()), "the mark map")
    for version in range(kept.version + 1):
        expect(line(twins.plain.at(version)), line(kept.at(version)), f"version {version}")
    expect([], list(trial.store.verify(kept.id)), "problems")
