"""Preconditions: a change that expects a version follows exactly that one, or is refused."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import (
    Stale,
    UnknownConversation,
    ValidationError,
    VersionMismatch,
)
from palaver.messages import new_id
from palaver.testing.stores.expecting import everything, expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.stores.preconditions import Expected
    from palaver.testing.stores.running import Trial

    Change = Callable[[Store, StoredHistory, Expected], object]

__all__ = ["CHANGES", "CHECKS", "WITHOUT_VERSION"]

CHECKS = Checks()

_AT_ONCE: Final = 6
_PATIENCE: Final = 60

CHANGES: Final[dict[str, Change]] = {
    "append": lambda _, history, expect: history.append(one("u9"), expect=expect),
    "extend": lambda _, history, expect: history.extend(said("u8 u9"), expect=expect),
    "execute": lambda _, history, expect: history.execute(
        {"operation": "TRUNCATE", "keepLast": 1}, expect=expect
    ),
    "rewrite": lambda _, history, expect: history.rewrite([range(1)], expect=expect),
    "replace_all": lambda _, history, expect: history.replace_all(
        [one("u9")], team_task=None, expect=expect
    ),
    "rollback": lambda _, history, expect: history.rollback(0, expect=expect),
    "undo": lambda _, history, expect: history.undo(expect=expect),
    "redo": lambda _, history, expect: history.redo(expect=expect),
    "restore": lambda _, history, expect: history.restore(0, expect=expect),
    "mark": lambda _, history, expect: history.mark(0, "new", expect=expect),
    "unmark": lambda _, history, expect: history.unmark("u1", "old", expect=expect),
    "set_team_task": lambda _, history, expect: history.set_team_task("tea", expect=expect),
    "merge": lambda store, history, expect: history.merge(
        store.get(f"{history.id} fork"), expect=expect
    ),
    "erase": lambda _, history, expect: history.erase("u1", expect=expect),
    "prune": lambda store, history, expect: store.prune(history.id, expect=expect),
    "delete": lambda store, history, expect: store.delete(history.id, expect=expect),
}
"""Every change of which only one can follow a version."""

WITHOUT_VERSION: Final[dict[str, Change]] = {
    "fork": lambda _, history, expect: history.fork(expect=expect),
    "describe": lambda store, history, expect: store.describe(
        history.id, title="new", expect=expect
    ),
}
"""Changes that make no version of the conversation: many can follow the same one."""


def _prepared(store: Store, what: str) -> StoredHistory:
    """A conversation in which every change has something to do."""
    history = store.create(said("u1 a2 u3"), id=new_id(), title="old")
    history.mark("u1", "old")
    history.truncate(keep_first=2)
    if what == "merge":
        history.fork(id=f"{history.id} fork").append(one("a7"))
    if what in {"prune", "redo"}:
        history.append(one("a8"))
        history.undo()
    return history


def _seen(store: Store, history: StoredHistory) -> tuple[dict[str, Any], str | None, list[str]]:
    found = store.get(history.id)
    return everything(found), found.title, store.keeper.family(history.id)


@CHECKS
def a_change_that_expects_another_version_is_refused(trial: Trial) -> None:
    """From a fresh view and from a stale one; the error has both versions, and nothing changes."""
    store, other = trial.store, trial.another()
    for what, change in (CHANGES | WITHOUT_VERSION).items():
        history = _prepared(store, what)
        stale, version = other.get(history.id), history.version
        history.set_team_task("something else")
        before = _seen(store, history)
        wrong: tuple[Expected, ...] = (version, version + 2, (), {version, 0})
        for expected in wrong:
            for view in (store.get(history.id), stale, other.get(history.id)):
                with raises(VersionMismatch, f"{what} after {expected}") as caught:
                    change(store, view, expected)
                expect(version + 1, getattr(caught[0], "version", None), f"{what}: the newest")
                expect(before, _seen(store, history), f"{what}: what is there")
        expect([], list(store.verify(history.id)), f"{what}: problems")


@CHECKS
def a_change_that_expects_the_newest_version_is_made(trial: Trial) -> None:
    """Also by a view that has not seen that version yet, and where any of several will do."""
    store, other = trial.store, trial.another()
    for what, change in (CHANGES | WITHOUT_VERSION).items():
        for several in (False, True):
            history = _prepared(store, what)
            stale, version = other.get(history.id), history.version
            if what not in {"redo", "prune"}:  # another change would leave nothing to do
                history.set_team_task("something else")
                version += 1
            before = _seen(store, history)
            change(other, stale, {version, version + 7} if several else version)
            try:
                after = _seen(store, history)
            except UnknownConversation:
                expect("delete", what, "what takes a conversation away")
                continue
            expect(False, before == after, f"{what}: whether nothing has changed")  # noqa: FBT003 - the value
            more = 0 if what in WITHOUT_VERSION else 1
            expect(version + more, after[0]["version"], f"{what}: the version")


@CHECKS
def of_many_changes_that_expect_one_version_one_is_made(trial: Trial) -> None:
    """At the same moment, each from a view of its own: all others are refused."""
    for what, change in CHANGES.items():
        history = _prepared(trial.store, what)
        version = history.version
        stores = [trial.store, trial.another()]
        views = [stores[number % 2].get(history.id) for number in range(_AT_ONCE)]
        made = _outcomes(
            [
                partial(change, stores[number % 2], view, version)
                for number, view in enumerate(views)
            ]
        )
        expect(1, made.count("made"), f"{what}: how many were made of {made}")
        if what == "delete":
            expect(False, history.id in trial.store, "whether it is there")  # noqa: FBT003 - the value
            continue
        expect(_AT_ONCE - 1, made.count("VersionMismatch"), f"{what}: refused, of {made}")
        expect(version + 1, trial.store.get(history.id).version, f"{what}: the version")
        expect([], list(trial.store.verify(history.id)), f"{what}: problems")


def _outcomes(work: list[Callable[[], object]]) -> list[str]:
    """What came of each, all begun at once."""
    start = threading.Barrier(len(work))
    found: list[str] = []

    def tried(task: Callable[[], object]) -> None:
        start.wait(_PATIENCE)
        try:
            task()
        except Exception as error:  # noqa: BLE001 - it is counted
            found.append(type(error).__name__)
        else:
            found.append("made")

    threads = [threading.Thread(target=tried, args=(task,), daemon=True) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    return found


@CHECKS
def a_known_key_is_answered_whatever_is_expected(trial: Trial) -> None:
    """A retry of a change that was made is no mismatch; another key is."""
    store, name = trial.store, new_id()
    history = store.create(said("u1"), id=name)
    history.append(one("u2"), key="append", expect=0)
    history.extend(said("u3 u4"), key="extend", expect={0, 1})
    history.execute({"operation": "CLEAR"}, key="clear", expect=2)
    history.fork(id=f"{name} fork", key="fork", expect=3)
    history.append(one("u5"))
    before = everything(history)
    for view in (history, trial.another().get(name)):
        expect("u2", view.append(one("u9"), key="append", expect=0).id, "what was appended")
        view.extend(said("u9"), key="extend", expect={0, 1})
        view.execute({"operation": "CLEAR"}, key="clear", expect=2)
        again = view.fork(id=f"{name} fork", key="fork", expect=3)
        expect((f"{name} fork", 3), (again.id, (again.origin or ("", -1))[1]), "what was forked")
        expect(before, everything(view), "what is there")
        with raises(VersionMismatch, "an append with a key of its own"):
            view.append(one("u9"), key="unknown", expect=0)
        with raises(VersionMismatch, "an operation with a key of its own"):
            view.execute({"operation": "CLEAR"}, key="unknown", expect=2)
        with raises(VersionMismatch, "a fork with a key of its own"):
            view.fork(id=f"{name} unknown", key="unknown", expect=3)


@CHECKS
def what_changes_nothing_is_checked_too(trial: Trial) -> None:
    """A change without an effect is refused where its version is not the newest."""
    history = trial.store.create(said("u1"))
    stale = trial.another().get(history.id)
    history.append(one("u2"))
    changes: list[Callable[[StoredHistory, int], object]] = [
        lambda view, version: view.extend([], expect=version),
        lambda view, version: view.set_team_task(None, expect=version),
        lambda view, version: view.unmark(0, "none", expect=version),
        lambda view, version: view.rollback(0, expect=version),
    ]
    for nothing in changes:
        nothing(history, 1)
        with raises(VersionMismatch, "nothing, after a version that is not the newest"):
            nothing(stale, 0)
    expect(1, trial.store.get(history.id).version, "the version")


@CHECKS
def a_backend_compares_the_version_in_the_same_step(trial: Trial) -> None:
    """`describe` and `delete` with an `after` that is not the newest are `Stale`."""
    store = trial.store
    history = store.create(said("u1"), title="old")
    history.append(one("u2"))
    keeper = store.keeper
    for after in (0, 2):
        with raises(Stale, "a title after another version"):
            keeper.describe(history.id, "new", (), after=after)
        with raises(Stale, "a deletion after another version"):
            keeper.delete(history.id, after=after)
    found = trial.reopen().get(history.id)
    expect(("old", "u1 u2"), (found.title, line(found)), "what is there")
    keeper = trial.store.keeper
    keeper.describe(history.id, "new", ("a",), after=1)
    expect(("new", ("a",)), (keeper.head(history.id).title, keeper.head(history.id).tags), "labels")
    keeper.delete(history.id, after=1)
    with raises(UnknownConversation, "a title of what is gone"):
        keeper.describe(history.id, "new", (), after=1)
    with raises(UnknownConversation, "a deletion of what is gone"):
        keeper.delete(history.id, after=1)


@CHECKS
def only_versions_can_be_expected(trial: Trial) -> None:
    """What is neither an integer nor a collection of integers is refused where it is given."""
    history = trial.store.create(said("u1"))
    wrong: Any
    for wrong in ("0", b"0", 0.0, True, ["0"], [None], object()):
        with raises(ValidationError, f"{wrong!r}"):
            history.append(one("u2"), expect=wrong)
        with raises(ValidationError, f"{wrong!r}"):
            trial.store.delete(history.id, expect=wrong)
    expect("u1", line(trial.store.get(history.id)), "what is there")
