"""A chain of forks of any length is read, changed, merged, erased and checked like a short one."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from palaver.errors import StoreError
from palaver.messages import new_id
from palaver.stores import Store
from palaver.stores.memory import MemoryKeeper
from palaver.stores.snapshots import export_conversation, import_conversation
from palaver.testing.stores.expecting import expect, line, one, raises
from palaver.testing.stores.expecting import said as talk
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from palaver.history import History
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()
_LONG: Final = 1_050
"""More forks than Python allows calls within calls."""


@CHECKS
def a_chain_of_a_thousand_forks_is_read(trial: Trial) -> None:
    """Most forks of it add nothing; some add a message, mark one or replace one."""
    salt = new_id()[-8:]
    history: History = trial.store.create(talk("s1 u2 a3 u4 a5"), id=f"0 {salt}")
    names = ["s1", "u2", "a3", "u4", "a5"]
    for number in range(1, _LONG + 1):
        history = history.fork(id=f"{number} {salt}")
        if number % 50 == 0:
            history.append(one(f"u{number}n"))
            names.append(f"u{number}n")
        if number % 350 == 0:
            history.mark(1 + number // 350, "pin")
            history.replace(1, one(f"u{number}r"))
            names[1] = f"u{number}r"
    first, last, before = f"0 {salt}", f"{_LONG} {salt}", f"{_LONG - 1} {salt}"
    for store in trial.now_and_later():
        history = store.get(last)
        expect(" ".join(names), line(history), "the view")
        expect(names[-3:], [message.id for message in history.view[-3:]], "the end of it")
        expect(["a3", "a5"], [m.id for m in history.query(role="assistant")], "one role")
        expect(6, history.view.index_of(history.view.find("u100n")), "the place of a message")
        expect(3, len(history.query(mark="pin")), "the marks")
        expect(3, history.batch_index, "the batch")
        expect((before, 0), history.origin, "its origin")
        expect(_LONG, store.keeper.generation(last), "the generation")
        expect(_LONG + 1, len(store.keeper.family(last)), "the family")
        expect([last], [head.id for head in store.keeper.forks(before)], "the forks")
        expect([], list(store.verify(last)), "problems")
    _lives_on(trial.store, first, before, last)


def _lives_on(store: Store, first: str, before: str, last: str) -> None:
    """What can be done with the ends of a chain."""
    history = store.get(last)
    history.append(one("u9z"))
    store.get(before).merge(history)
    expect("u9z", store.get(before)[-1].id, "what was merged")
    file = BytesIO()
    export_conversation(store, last, file)
    file.seek(0)
    copied = import_conversation(Store(MemoryKeeper()), file)
    expect(line(history), line(copied), "what was exported")
    expect(1, store.get(last).erase("a3").places, "the rows that an erasure changed")
    for name in (first, before, last):
        expect("", store.get(name)[2].text, f"what is left in {name}")
    with raises(StoreError, "deleting what others were forked from"):
        store.delete(first)
    store.delete(last)
    expect([], store.keeper.forks(before), "the forks of its parent")


@CHECKS
def every_fork_of_a_chain_may_change_something(trial: Trial) -> None:
    """Selections, batches and marks of all ancestors are found, however far up they were made."""
    history: History = trial.store.create(talk("s1 u2 a3"))
    names = ["s1", "u2", "a3"]
    for number in range(60):
        history = history.fork(at=history.version)
        history.insert(1 + number % len(history), talk(f"a{number}i"))
        names.insert(1 + number % len(names), f"a{number}i")
        if number % 9 == 0:
            history.append(one(f"u{number}x"))
            history.undo()
    for store in trial.now_and_later():
        found = store.get(history.id)
        expect(" ".join(names), line(found), "the view")
        expect(60, found.batch_index, "the batch")
        found.rollback(20)
        expect(3 + 20, len(found), "what was there before")
        found.undo()
        expect([], list(store.verify(history.id)), "problems")


@CHECKS
def frames_of_ancestors_end_where_the_line_left_them(trial: Trial) -> None:
    """A store answers those that are wanted, and none that came after the fork."""
    store = trial.store
    first = store.create(talk("u1 a2 u3"))
    first.replace(0, one("u4"))
    fork = first.fork(at=1)
    first.replace(1, one("a5"))
    fork.mark(0, "pin")
    last = fork.fork()
    fork.clear()
    keeper = store.keeper
    wanted = [(0, -1, 9), (1, 0, 9), (2, -1, 9), (7, -1, 9), (-1, -1, 9)]
    found = keeper.ancestor_frames(last.id, wanted)
    expect([(0, 0), (0, 1), (1, 1)], sorted(frame[:2] for frame in found), "the frames")
    (data,) = [frame[2] for frame in found if frame[:2] == (0, 1)]
    expect(keeper.frames(first.id, 0, 1)[0].data, data, "the bytes of one")
    expect([], keeper.ancestor_frames(first.id, [(0, -1, 9)]), "those of the first ancestor")
    expect([0, 1, 2], [keeper.generation(h.id) for h in (first, fork, last)], "the generations")
