"""Many at once: stale writers, keys, threads, and those who only follow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from palaver.errors import (
    Conflict,
    PalaverError,
)
from palaver.messages import new_id
from palaver.testing.stores.expecting import (
    everything,
    expect,
    line,
    one,
    raises,
    said,
)
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history.view import View
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()

_PATIENCE = 60


def _two(trial: Trial, names: str) -> tuple[StoredHistory, StoredHistory]:
    """One conversation, open twice, as in two processes."""
    mine = trial.store.create(said(names))
    return mine, trial.another().get(mine.id)


def _at_once(*work: Callable[[], None]) -> None:
    """Run each in a thread of its own, all at once, and raise what any of them raises."""
    start = threading.Barrier(len(work))
    failures: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            start.wait(_PATIENCE)
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
        expect(False, thread.is_alive(), "a thread that hangs")  # noqa: FBT003 - the value
    for failure in failures:
        raise failure


@CHECKS
def a_stale_append_goes_after_what_came_in_between(trial: Trial) -> None:
    """Two who append see each other's messages in one order, and nothing is lost."""
    mine, theirs = _two(trial, "u1")
    mine.append(one("u2"))
    theirs.append(one("u3"))
    mine.extend(said("u4 u5"))
    theirs.truncate(remove_first=1)  # of u1 u2 u3
    mine.append(one("u6"))
    expect("u2 u3 u4 u5 u6", line(mine), "mine")
    expect("u2 u3 u4 u5 u6", line(theirs.refresh()), "theirs")
    expect(everything(mine), everything(trial.reopen().get(mine.id)), "everything")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def a_stale_edit_is_merged(trial: Trial) -> None:
    """What the caller saw and meant, joined with what came in between."""
    mine, theirs = _two(trial, "u1 a2 u3 a4")
    theirs.append(one("u5"))
    mine.replace(1, one("a6"))
    expect("u1 a6 u3 a4 u5", line(mine), "a replace after an append")
    expect("Before REPLACE at index 1", _last_reason(mine), "its batch")
    theirs.insert(0, said("s7"))  # it saw neither
    expect("s7 u1 a6 u3 a4 u5", line(theirs), "an insert")
    expect("Before INSERT at position 0", _last_reason(theirs), "its batch")
    mine.truncate(keep_last=3)  # of u1 a6 u3 a4 u5
    expect("s7 u3 a4 u5", line(mine), "a truncate")
    theirs.filter(roles=["user"])  # of s7 u1 a6 u3 a4 u5
    expect("u3 u5", line(theirs), "a filter")
    mine.clear()
    expect("", line(mine), "a clear")
    theirs.insert(1, said("u8"))
    expect("u8", line(theirs), "an insert into what is gone")
    store = trial.reopen()
    expect([6, "u8"], [store.get(mine.id).batch_index, line(store.get(mine.id))], "what is kept")
    expect(everything(theirs), everything(store.get(mine.id)), "everything")
    expect([], list(store.verify(mine.id)), "problems")


def _last_reason(history: StoredHistory) -> str:
    snapshot = history.batch_snapshot(history.batch_index - 1)
    return "" if snapshot is None else snapshot.description


@CHECKS
def a_stale_edit_of_the_same_message_is_a_conflict(trial: Trial) -> None:
    """It names both sides, nothing changes, and what was seen then can be edited."""
    mine, theirs = _two(trial, "u1 a2")
    mine.replace(0, one("u3"))
    kept = everything(mine)
    with raises(Conflict, "both replaced u1") as caught:
        theirs.replace(0, one("u4"))
    clashes: Any = getattr(caught[0], "clashes", ())
    sides = [(clash.what, {clash.ours, clash.theirs}) for clash in clashes]
    expect([("message u1", {"replaced by u3", "replaced by u4"})], sides, "the clashes")
    expect(kept, everything(trial.reopen().get(mine.id)), "what is kept")
    theirs = trial.store.get(mine.id)
    theirs.replace(0, one("u5"))
    expect("u5 a2", line(theirs), "the second try")


@CHECKS
def going_back_on_what_was_not_seen_is_a_conflict(trial: Trial) -> None:
    """Undo, redo, rollback and restore are refused where others changed something meanwhile."""
    for what, back in _WAYS_BACK.items():
        mine, theirs = _two(trial, "u1 a2")
        for number in range(2):
            mine.insert(0, said(f"u{number}x"))
        mine.undo()
        theirs.refresh()
        mine.append(one("u3"))
        kept = everything(mine)
        with raises(Conflict, f"a stale {what}"):
            back(theirs)
        found = trial.store.get(mine.id)
        expect(kept, everything(found), f"what is kept after a stale {what}")
        expect(line(mine), line(theirs), f"what is seen after a stale {what}")
        theirs.undo()
        expect(line(mine.at(mine.version - 1)), line(theirs), f"after {what}, seen and undone")


_WAYS_BACK: dict[str, Callable[[StoredHistory], object]] = {
    "undo": lambda history: history.undo(),
    "redo": lambda history: history.redo(),
    "rollback": lambda history: history.rollback(0),
    "restore": lambda history: history.restore(0),
}


@CHECKS
def stale_marks_tasks_and_merges_find_their_message(trial: Trial) -> None:
    """A mark goes to the message that was meant, wherever it stands by now."""
    mine, theirs = _two(trial, "u1 a2 u3")
    mine.truncate(remove_first=1)
    theirs.mark(1, "pin")
    expect({"pin": ["a2"]}, dict(mine.refresh().marks), "the marks")
    theirs.set_team_task("theirs")
    mine.set_team_task("mine")
    expect("mine", theirs.refresh().team_task, "the team task")
    fork = mine.fork()
    fork.append(one("u4"))
    theirs.append(one("u5"))
    mine.merge(fork)
    expect("a2 u3 u5 u4", line(theirs.refresh()), "a stale merge")
    mine.merge(fork)
    expect("a2 u3 u5 u4", line(trial.reopen().get(mine.id)), "merged again")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def a_key_makes_doing_it_again_harmless(trial: Trial) -> None:
    """The same key, from the same handle, another or after reopening, changes nothing more."""
    mine, theirs = _two(trial, "u1")
    mine.append(one("u2"), key="k")
    mine.append(one("u2"), key="k")
    expect(("u1 u2", 1), (line(mine), mine.version), "after the same handle did it again")
    theirs.append(one("u2"), key="k")
    theirs.extend(said("u2"), key="k")
    expect(("u1 u2", 1), (line(theirs), theirs.version), "after another did it again")
    mine.extend(said("a3 u4"), key="k2")
    mine.truncate(keep_last=1)
    mine.append(one("u5"), key="k3")
    again = trial.reopen().get(mine.id)
    for key, names in (("k", "u2"), ("k2", "a3 u4"), ("k3", "u5")):
        again.extend(said(names), key=key)
    expect(("u4 u5", 4), (line(again), again.version), "after reopening")
    again.append(one("u6"))
    expect("u4 u5 u6", line(trial.reopen().get(mine.id)), "what is kept")
    other = trial.store.create()
    other.append(one("u7"), key="k")
    expect("u7", line(other), "the key in another conversation")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def messages_and_records_are_one_change(trial: Trial) -> None:
    """What is kept with messages is there with them; a condition is asked of what is there."""
    history = trial.store.create([one("u1")])
    other = trial.store.get(history.id)
    history.extend([one("a2")], records=[("call", "x", b"1")])
    expect({"x": b"1"}, trial.store.keeper.records(history.id, "call"), "records")
    seen: list[str] = []

    def refuse(view: View) -> None:
        seen.append(line(view))
        if len(view) > 1:
            msg = "too late"
            raise LookupError(msg)

    with raises(LookupError, "a condition that no longer holds"):
        other.extend([one("a3")], records=[("call", "x", None)], unless=refuse)
    expect(["u1", "u1 a2"], seen, "what the condition was asked of")
    expect({"x": b"1"}, trial.reopen().keeper.records(history.id, "call"), "records after it")
    expect("u1 a2", line(trial.store.get(history.id)), "the messages")


@CHECKS
def a_follower_misses_nothing_and_sees_nothing_twice(trial: Trial) -> None:
    """One conversation or the whole store, from now or from where it was left."""
    store = trial.store
    feed = store.follow(seconds=0.05)  # from now on, though nobody has asked it yet
    start = store.keeper.newest()
    mine, theirs = store.create(said("u1")), store.create()
    alone = store.follow(mine.id, seconds=0.05)
    mine.append(one("u2"))
    theirs.extend(said("u1 u2"))
    mine.truncate(keep_last=1)
    mine.undo()
    expected = [
        (mine.id, 0, "create", 1), (theirs.id, 0, "create", 0), (mine.id, 1, "append", 1),
        (theirs.id, 1, "append", 2), (mine.id, 2, "truncate", 0), (mine.id, 3, "undo", 0),
    ]  # fmt: skip
    told = list(feed)
    expect(
        expected, [(c.conversation, c.version, c.kind, c.count) for c in told], "the whole store"
    )
    expect(sorted({c.cursor for c in told}), [c.cursor for c in told], "cursors that rise")
    expect([1, 2, 3], [change.version for change in alone], "one conversation")
    store = trial.reopen()
    for number, change in enumerate(told):
        rest = list(store.follow(after=change.cursor, seconds=0))
        expect(expected[number + 1 :], [(c.conversation, c.version, c.kind, c.count) for c in rest],
               "what is left")  # fmt: skip
    expect([2, 3], [c.version for c in store.follow(mine.id, after=1, seconds=0)], "from version 2")
    expect(6, len(list(store.follow(after=start, seconds=0))), "from the cursor before")


@CHECKS
def a_follower_hears_of_what_happens_while_it_waits(trial: Trial) -> None:
    """Four threads write, three follow: each change is told once, in order."""
    store, writers, each = trial.store, 4, 25
    histories = [store.create() for _ in range(writers)]
    shared = store.create()
    start = store.keeper.newest()
    told: dict[str, list[tuple[str, int]]] = {}
    whole = writers * each * 2

    def write(number: int) -> Callable[[], None]:
        def task() -> None:
            handle = store.get(shared.id)
            for count in range(each):
                histories[number].append(one(f"u{count}"))
                handle.append(one(f"u{number}x{count}"))

        return task

    def follow(
        name: str, store: Store, conversation: str | None, wanted: int
    ) -> Callable[[], None]:
        def task() -> None:
            after = start if conversation is None else 0
            seen = told.setdefault(name, [])
            for change in store.follow(conversation, after=after, seconds=_PATIENCE):
                seen.append((change.conversation, change.version))
                if len(seen) == wanted:
                    return

        return task

    _at_once(
        *map(write, range(writers)),
        follow("whole", store, None, whole),
        follow("elsewhere", trial.another(), None, whole),
        follow("one", store, shared.id, writers * each),
    )
    expected = {(h.id, v) for h in histories for v in range(1, each + 1)}
    expected |= {(shared.id, version) for version in range(1, writers * each + 1)}
    for name in ("whole", "elsewhere"):
        expect(expected, {*told[name]}, name)
        for conversation in {conversation for conversation, _ in expected}:
            versions = [version for of, version in told[name] if of == conversation]
            expect(sorted(versions), versions, f"{name}, in order")
    expect([(shared.id, v) for v in range(1, writers * each + 1)], told["one"], "one conversation")


@CHECKS
def threads_that_append_to_one_lose_nothing(trial: Trial) -> None:
    """Through one handle and through their own; what one thread says stands in its order."""
    threads, each = 8, 12
    shared = trial.store.create()
    elsewhere = trial.another()

    def work(number: int) -> Callable[[], None]:
        def task() -> None:
            own = [shared, trial.store.get(shared.id), elsewhere.get(shared.id)][number % 3]
            for count in range(each):
                own.append(one(f"u{number}x{count}"))

        return task

    _at_once(*map(work, range(threads)))
    found = trial.reopen().get(shared.id)
    expect((threads * each, threads * each), (len(found), found.version), "length and version")
    for number in range(threads):
        mine = [m.id for m in found if m.id.startswith(f"u{number}x")]
        expect([f"u{number}x{count}" for count in range(each)], mine, "the order of one thread")
    expect([], list(trial.store.verify(shared.id)), "problems")


@CHECKS
def threads_that_edit_one_lose_nothing(trial: Trial) -> None:
    """Inserts and appends from many sides: every message is there once, every batch counted."""
    threads, each = 4, 6
    shared = trial.store.create(said("s0"))
    elsewhere = trial.another()

    def work(number: int) -> Callable[[], None]:
        def task() -> None:
            own = (elsewhere if number % 2 else trial.store).get(shared.id)
            for count in range(each):
                own.append(one(f"u{number}x{count}"))
                own.insert(0, [one(f"a{number}x{count}")])

        return task

    _at_once(*map(work, range(threads)))
    found = trial.reopen().get(shared.id)
    names = [message.id for message in found]
    expect(threads * each * 2 + 1, len({*names}), "messages")
    expect(len({*names}), len(names), "messages, each once")
    expect((threads * each * 2, threads * each), (found.version, found.batch_index), "the numbers")
    expect([], list(trial.store.verify(shared.id)), "problems")


@CHECKS
def merges_in_both_directions_do_not_wait_for_ever(trial: Trial) -> None:
    """Two threads that merge each other's history come to an end."""
    parent = trial.store.create(said("u0"))
    fork = parent.fork(id=f"0 {new_id()}")

    def work(mine: StoredHistory, theirs: StoredHistory, letter: str) -> Callable[[], None]:
        def task() -> None:
            for count in range(10):
                mine.append(one(f"{letter}{count}"))
                mine.merge(theirs)

        return task

    _at_once(work(parent, fork, "u"), work(fork, parent, "a"))
    parent.merge(fork)
    fork.merge(parent)
    expect({m.id for m in parent}, {m.id for m in fork}, "what both have")
    expect((21, 21), (len(parent), len(fork)), "how many")


@CHECKS
def errors_in_one_thread_leave_the_others_alone(trial: Trial) -> None:
    """Changes that are refused share their commits with some that are not."""
    store = trial.store
    histories = [store.create(said("u0")) for _ in range(4)]
    refused: list[str] = []

    def good(number: int) -> Callable[[], None]:
        def task() -> None:
            for count in range(20):
                histories[number].append(one(f"u{number}x{count}"))

        return task

    def bad(number: int) -> Callable[[], None]:
        def task() -> None:
            for _ in range(20):
                try:
                    store.create(id=histories[number].id)
                except PalaverError as error:
                    refused.append(type(error).__name__)

        return task

    _at_once(*map(good, range(4)), *map(bad, range(4)))
    expect(["AlreadyExists"] * 80, refused, "what was refused")
    expect([21] * 4, [len(trial.store.get(h.id)) for h in histories], "what was kept")
    expect([], [p for h in histories for p in trial.store.verify(h.id)], "problems")
