"""Doing it again after a lost answer: what was kept the first time is what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import AlreadyExists, ValidationError
from palaver.messages import new_id
from palaver.testing.stores.expecting import expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()


@CHECKS
def a_key_brings_back_what_was_kept(trial: Trial) -> None:
    """An append that was made before returns the message of the first time."""
    mine = trial.store.create(said("u1"))
    theirs = trial.another().get(mine.id)
    mine.append(one("u2", "first"), key="k")
    mine.append(one("u3"))
    mine.truncate(keep_last=1)
    for history in (mine, theirs, trial.store.get(mine.id)):
        kept = history.append(one("u4", "second"), key="k")
        expect(("u2", "first"), (kept.id, kept.text), "what is returned")
        expect("u3", line(history), "what is there")
    expect("u5", mine.append(one("u5"), key="k2").id, "what is new")
    mine.erase("u5")
    expect("", theirs.append(one("u5"), key="k2").text, "what was erased since")


@CHECKS
def beginning_twice_with_a_key_is_one_beginning(trial: Trial) -> None:
    """After a lost answer, `create` and `fork` with the same id and key return what there is."""
    store, name = trial.store, new_id()
    first = store.create(said("u1"), id=name, title="Tea", key="k")
    first.append(one("u2"))
    again = store.create(said("u1"), id=name, title="Tea", key="k")
    expect(("u1 u2", 1), (line(again), again.version), "what was begun")
    fork = first.fork(at=0, id=f"{name} f", key="k")
    fork.append(one("u3"))
    store = trial.reopen()
    expect("u1 u3", line(store.get(name).fork(at=0, id=f"{name} f", key="k")), "what was forked")
    taken: list[Callable[[], object]] = [
        lambda: store.create(id=name),
        lambda: store.create(id=name, key="another"),
        lambda: store.create(id=f"{name} f", key="k"),
        lambda: store.get(name).fork(id=f"{name} f"),
        lambda: store.get(fork.id).fork(id=name, key="k"),
    ]
    for attempt in taken:
        with raises(AlreadyExists, "an id that is taken"):
            attempt()
    with raises(ValidationError, "a key without an id"):
        store.create(key="k")
    with raises(ValidationError, "a key without an id, for a fork"):
        store.get(name).fork(key="k")
    expect([], list(store.verify(name)), "problems")
