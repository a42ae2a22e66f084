"""Several writers, followers and workers: stale changes, keys, leases, preconditions, threads."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import (
    AlreadyExists,
    Conflict,
    LeaseLost,
    LeaseTaken,
    PalaverError,
    Stale,
    UnknownConversation,
    ValidationError,
    VersionMismatch,
)
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.stores import Store
from palaver.testing.stores.suite import (
    Checks,
    dump_history,
    expect,
    ids_of,
    make_message,
    make_messages,
    raises,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history.view import View
    from palaver.stores import StoredHistory
    from palaver.testing.stores.suite import Trial

__all__ = ["CHANGES", "CHECKS", "WITHOUT_VERSION"]


CHECKS = Checks()

_PATIENCE = 60


def _two(trial: Trial, names: str) -> tuple[StoredHistory, StoredHistory]:
    """One conversation, open twice, as in two processes."""
    mine = trial.store.create(make_messages(names))
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
    mine.append(make_message("u2"))
    theirs.append(make_message("u3"))
    mine.extend(make_messages("u4 u5"))
    theirs.truncate(remove_first=1)  # of u1 u2 u3
    mine.append(make_message("u6"))
    expect("u2 u3 u4 u5 u6", ids_of(mine), "mine")
    expect("u2 u3 u4 u5 u6", ids_of(theirs.refresh()), "theirs")
    expect(dump_history(mine), dump_history(trial.reopen().get(mine.id)), "everything")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def a_stale_edit_is_merged(trial: Trial) -> None:
    """What the caller saw and meant, joined with what came in between."""
    mine, theirs = _two(trial, "u1 a2 u3 a4")
    theirs.append(make_message("u5"))
    mine.replace(1, make_message("a6"))
    expect("u1 a6 u3 a4 u5", ids_of(mine), "a replace after an append")
    expect("Before REPLACE at index 1", _last_reason(mine), "its batch")
    theirs.insert(0, make_messages("s7"))  # it saw neither
    expect("s7 u1 a6 u3 a4 u5", ids_of(theirs), "an insert")
    expect("Before INSERT at position 0", _last_reason(theirs), "its batch")
    mine.truncate(keep_last=3)  # of u1 a6 u3 a4 u5
    expect("s7 u3 a4 u5", ids_of(mine), "a truncate")
    theirs.filter(roles=["user"])  # of s7 u1 a6 u3 a4 u5
    expect("u3 u5", ids_of(theirs), "a filter")
    mine.clear()
    expect("", ids_of(mine), "a clear")
    theirs.insert(1, make_messages("u8"))
    expect("u8", ids_of(theirs), "an insert into what is gone")
    store = trial.reopen()
    expect(
        [6, "u8"], [store.get(mine.id).batch_index, ids_of(store.get(mine.id))], "what is stored"
    )
    expect(dump_history(theirs), dump_history(store.get(mine.id)), "everything")
    expect([], list(store.verify(mine.id)), "problems")


def _last_reason(history: StoredHistory) -> str:
    snapshot = history.batch_snapshot(history.batch_index - 1)
    return "" if snapshot is None else snapshot.description


@CHECKS
def a_stale_edit_of_the_same_message_is_a_conflict(trial: Trial) -> None:
    """It names both sides, nothing changes, and what was seen then can be edited."""
    mine, theirs = _two(trial, "u1 a2")
    mine.replace(0, make_message("u3"))
    stored = dump_history(mine)
    with raises(Conflict, "both replaced u1") as caught:
        theirs.replace(0, make_message("u4"))
    clashes: Any = getattr(caught[0], "clashes", ())
    sides = [(clash.what, {clash.ours, clash.theirs}) for clash in clashes]
    expect([("message u1", {"replaced by u3", "replaced by u4"})], sides, "the clashes")
    expect(stored, dump_history(trial.reopen().get(mine.id)), "what is stored")
    theirs = trial.store.get(mine.id)
    theirs.replace(0, make_message("u5"))
    expect("u5 a2", ids_of(theirs), "the second try")


@CHECKS
def going_back_on_what_was_not_seen_is_a_conflict(trial: Trial) -> None:
    """Undo, redo, rollback and restore are refused where others changed something meanwhile."""
    for what, back in _WAYS_BACK.items():
        mine, theirs = _two(trial, "u1 a2")
        for number in range(2):
            mine.insert(0, make_messages(f"u{number}x"))
        mine.undo()
        theirs.refresh()
        mine.append(make_message("u3"))
        stored = dump_history(mine)
        with raises(Conflict, f"a stale {what}"):
            back(theirs)
        found = trial.store.get(mine.id)
        expect(stored, dump_history(found), f"what is stored after a stale {what}")
        expect(ids_of(mine), ids_of(theirs), f"what is seen after a stale {what}")
        theirs.undo()
        expect(ids_of(mine.at(mine.version - 1)), ids_of(theirs), f"after {what}, seen and undone")


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
    fork.append(make_message("u4"))
    theirs.append(make_message("u5"))
    mine.merge(fork)
    expect("a2 u3 u5 u4", ids_of(theirs.refresh()), "a stale merge")
    mine.merge(fork)
    expect("a2 u3 u5 u4", ids_of(trial.reopen().get(mine.id)), "merged again")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def a_key_makes_doing_it_again_harmless(trial: Trial) -> None:
    """The same key, from the same handle, another or after reopening, changes nothing more."""
    mine, theirs = _two(trial, "u1")
    mine.append(make_message("u2"), key="k")
    mine.append(make_message("u2"), key="k")
    expect(("u1 u2", 1), (ids_of(mine), mine.version), "after the same handle did it again")
    theirs.append(make_message("u2"), key="k")
    theirs.extend(make_messages("u2"), key="k")
    expect(("u1 u2", 1), (ids_of(theirs), theirs.version), "after another did it again")
    mine.extend(make_messages("a3 u4"), key="k2")
    mine.truncate(keep_last=1)
    mine.append(make_message("u5"), key="k3")
    again = trial.reopen().get(mine.id)
    for key, names in (("k", "u2"), ("k2", "a3 u4"), ("k3", "u5")):
        again.extend(make_messages(names), key=key)
    expect(("u4 u5", 4), (ids_of(again), again.version), "after reopening")
    again.append(make_message("u6"))
    expect("u4 u5 u6", ids_of(trial.reopen().get(mine.id)), "what is stored")
    other = trial.store.create()
    other.append(make_message("u7"), key="k")
    expect("u7", ids_of(other), "the key in another conversation")
    expect([], list(trial.store.verify(mine.id)), "problems")


@CHECKS
def messages_and_records_are_one_change(trial: Trial) -> None:
    """What is stored with messages is there with them; a condition is asked of what is there."""
    history = trial.store.create([make_message("u1")])
    other = trial.store.get(history.id)
    history.extend([make_message("a2")], records=[("call", "x", b"1")])
    expect({"x": b"1"}, trial.store.backend.records(history.id, "call"), "records")
    seen: list[str] = []

    def refuse(view: View) -> None:
        seen.append(ids_of(view))
        if len(view) > 1:
            msg = "too late"
            raise LookupError(msg)

    with raises(LookupError, "a condition that no longer holds"):
        other.extend([make_message("a3")], records=[("call", "x", None)], unless=refuse)
    expect(["u1", "u1 a2"], seen, "what the condition was asked of")
    expect({"x": b"1"}, trial.reopen().backend.records(history.id, "call"), "records after it")
    expect("u1 a2", ids_of(trial.store.get(history.id)), "the messages")


@CHECKS
def a_follower_misses_nothing_and_sees_nothing_twice(trial: Trial) -> None:
    """One conversation or the whole store, from now or from where it was left.

    The changes of a conversation come in order; those of two may be on two machines.
    """
    store = trial.store
    feed = store.follow(seconds=0.05)  # from now on, though nobody has asked it yet
    start = store.backend.newest()
    mine, theirs = store.create(make_messages("u1")), store.create()
    alone = store.follow(mine.id, seconds=0.05)
    mine.append(make_message("u2"))
    theirs.extend(make_messages("u1 u2"))
    mine.truncate(keep_last=1)
    mine.undo()
    expected = [
        (mine.id, 0, "create", 1), (theirs.id, 0, "create", 0), (mine.id, 1, "append", 1),
        (theirs.id, 1, "append", 2), (mine.id, 2, "truncate", 0), (mine.id, 3, "undo", 0),
    ]  # fmt: skip
    reported = list(feed)
    found = [(c.conversation, c.version, c.kind, c.count) for c in reported]
    expect(sorted(expected), sorted(found), "the whole store")
    for name in (mine.id, theirs.id):
        versions = [c.version for c in reported if c.conversation == name]
        expect(sorted(versions), versions, "the order of one conversation")
    expect(sorted({c.cursor for c in reported}), [c.cursor for c in reported], "cursors that rise")
    expect([1, 2, 3], [change.version for change in alone], "one conversation")
    store = trial.reopen()
    for number, change in enumerate(reported):
        rest = list(store.follow(after=change.cursor, seconds=0))
        left = [(c.conversation, c.version, c.kind, c.count) for c in rest]
        expect(sorted(found[number + 1 :]), sorted(left), "what is left")
    expect([2, 3], [c.version for c in store.follow(mine.id, after=1, seconds=0)], "from version 2")
    expect(6, len(list(store.follow(after=start, seconds=0))), "from the cursor before")


@CHECKS
def a_follower_hears_of_what_happens_while_it_waits(trial: Trial) -> None:
    """Four threads write, three follow: each change is reported once, in order."""
    store, writers, each = trial.store, 4, 25
    histories = [store.create() for _ in range(writers)]
    shared = store.create()
    start = store.backend.newest()
    reported: dict[str, list[tuple[str, int]]] = {}
    whole = writers * each * 2

    def write(number: int) -> Callable[[], None]:
        def task() -> None:
            handle = store.get(shared.id)
            for count in range(each):
                histories[number].append(make_message(f"u{count}"))
                handle.append(make_message(f"u{number}x{count}"))

        return task

    def follow(
        name: str, store: Store, conversation: str | None, wanted: int
    ) -> Callable[[], None]:
        def task() -> None:
            after = start if conversation is None else 0
            seen = reported.setdefault(name, [])
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
        expect(expected, {*reported[name]}, name)
        for conversation in {conversation for conversation, _ in expected}:
            versions = [version for of, version in reported[name] if of == conversation]
            expect(sorted(versions), versions, f"{name}, in order")
    expect(
        [(shared.id, v) for v in range(1, writers * each + 1)], reported["one"], "one conversation"
    )


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
                own.append(make_message(f"u{number}x{count}"))

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
    shared = trial.store.create(make_messages("s0"))
    elsewhere = trial.another()

    def work(number: int) -> Callable[[], None]:
        def task() -> None:
            own = (elsewhere if number % 2 else trial.store).get(shared.id)
            for count in range(each):
                own.append(make_message(f"u{number}x{count}"))
                own.insert(0, [make_message(f"a{number}x{count}")])

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
    parent = trial.store.create(make_messages("u0"))
    fork = parent.fork(id=f"0 {new_id()}")

    def work(mine: StoredHistory, theirs: StoredHistory, letter: str) -> Callable[[], None]:
        def task() -> None:
            for count in range(10):
                mine.append(make_message(f"{letter}{count}"))
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
    histories = [store.create(make_messages("u0")) for _ in range(4)]
    refused: list[str] = []

    def good(number: int) -> Callable[[], None]:
        def task() -> None:
            for count in range(20):
                histories[number].append(make_message(f"u{number}x{count}"))

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
    expect([21] * 4, [len(trial.store.get(h.id)) for h in histories], "what was stored")
    expect([], [p for h in histories for p in trial.store.verify(h.id)], "problems")


@CHECKS
def a_lease_has_one_holder(trial: Trial) -> None:
    """Another is refused until it ends or is given back; the token rises with every holder."""
    store, other = trial.store, trial.another()
    name = store.create().id
    first = store.lease(name, "anna", seconds=100)
    found = first.conversation, first.holder, first.seconds
    expect((name, "anna", 100), found, "the lease")
    with raises(LeaseTaken, "another's try") as caught:
        other.lease(name, "bert", seconds=10)
    expect("anna", getattr(caught[0], "holder", None), "the holder is named (`describe_holder`)")
    known = getattr(caught[0], "until", None) is not None
    expect(True, known, "until when it has the lease (`describe_holder`)")  # noqa: FBT003 - the value
    renewed = store.lease(name, "anna", seconds=200)
    expect(first.token, renewed.token, "the token of a lease that was renewed")
    expect(True, renewed.expires > first.expires, "it lasts longer")  # noqa: FBT003 - the value
    store.lease(name, "anna", seconds=0)  # and so it has run out
    second = other.lease(name, "bert", seconds=100)
    expect(True, second.token > first.token, "the token rises")  # noqa: FBT003 - the value
    store.release(renewed)  # too late: it is no longer anna's
    with raises(LeaseTaken, "after a late release"):
        store.lease(name, "anna")
    other.release(second)
    third = trial.reopen().lease(name, "anna", seconds=0.01)
    expect(True, third.token > second.token, "the token rises again")  # noqa: FBT003 - the value
    time.sleep(0.02)
    fourth = trial.store.lease(name, "anna")
    expect(True, fourth.token > third.token, "after it ran out")  # noqa: FBT003 - the value


@CHECKS
def a_lease_goes_by_the_clock_of_the_store(trial: Trial) -> None:
    """Whatever time it is for whoever asks: nobody's wall clock ends a lease, nor prolongs it."""
    day = 86_400_000
    ahead = Store(trial.store.backend, clock=lambda: now_ms() + day)
    behind = Store(trial.another().backend, clock=lambda: now_ms() - day)
    name = trial.store.create().id
    for holder, asker in ((behind, ahead), (ahead, behind)):
        held = holder.lease(name, "anna", seconds=60)
        with raises(LeaseTaken, "a lease that is held"):
            asker.lease(name, "bert")
        holder.lease(name, "anna", seconds=0.01)
        time.sleep(0.02)
        taken = asker.lease(name, "bert")
        expect(True, taken.token > held.token, "the token rises")  # noqa: FBT003 - the value
        asker.release(taken)
    for seconds in (-1, float("nan"), float("inf")):
        with raises(ValidationError, f"a lease of {seconds} seconds"):
            trial.store.lease(name, "anna", seconds=seconds)


@CHECKS
def a_worker_that_comes_late_is_refused(trial: Trial) -> None:
    """What is written under a lease that went to another leaves no trace."""
    store = trial.store
    history = store.create(make_messages("u1"))
    late = store.get(history.id).under(store.lease(history.id, "anna", seconds=0))
    late.append(make_message("a2"))
    lease = store.lease(history.id, "bert", seconds=1)
    history.refresh().under(lease).append(make_message("a3"))
    changes: list[Callable[[], object]] = [
        lambda: late.append(make_message("a4")),
        lambda: late.extend(make_messages("a4 a5")),
        lambda: late.replace(0, make_message("u6")),
        late.undo,
        late.clear,
        lambda: late.mark(0, "pin"),
    ]
    for change in changes:
        with raises(LeaseLost, "a late change"):
            change()
    expect("u1 a2 a3", ids_of(trial.reopen().get(history.id)), "what is stored")
    late = trial.store.get(history.id)
    late.under(None).append(make_message("u7"))
    expect("u1 a2 a3 u7", ids_of(trial.store.get(history.id)), "without a lease")
    with raises(LeaseLost, "a lease that nobody ever had"):
        trial.store.create().under(lease).append(make_message("u8"))


@CHECKS
def records_are_stored_together_and_under_a_lease(trial: Trial) -> None:
    """Several records, all or none; a worker that comes back late is refused."""
    store = trial.store
    name, backend = store.create().id, store.backend
    lease = store.lease(name, "one", seconds=0)
    backend.keep(name, [("call", "a", b"1"), ("call", "b", b"2")], token=lease.token)
    backend.keep(name, [("call", "a", None), ("draft", "c", b"3")])
    store.lease(name, "two", seconds=1)
    with raises(LeaseLost, "a late worker"):
        backend.keep(name, [("call", "b", b"late"), ("call", "d", b"late")], token=lease.token)
    backend = trial.reopen().backend
    expect({"b": b"2"}, backend.records(name, "call"), "calls")
    expect({"c": b"3"}, backend.records(name, "draft"), "drafts")
    with raises(UnknownConversation, "a conversation that is not there"):
        backend.keep(new_id(), [("call", "a", b"1")])


@CHECKS
def a_deleted_conversation_takes_no_records(trial: Trial) -> None:
    """Whoever still has a conversation that another process deleted is told so."""
    store, other = trial.store, trial.another()
    gone, again = store.create().id, store.create().id
    for name in (gone, again):
        store.put_record(name, "call", "a", b"1")
        other.delete(name)
    other.create(id=again)
    with raises(UnknownConversation, "a record of a deleted conversation"):
        store.put_record(gone, "call", "b", b"2")
    with raises(UnknownConversation, "records of a deleted conversation"):
        store.put_records(gone, [("call", "c", b"3")])
    with raises(UnknownConversation, "the lease of a deleted conversation"):
        store.lease(gone, "one", seconds=1)
    store.put_record(again, "call", "d", b"4")
    expect({"d": b"4"}, other.records(again, "call"), "records of the new conversation")
    expect([], list(store.verify()), "problems")


@CHECKS
def a_key_brings_back_what_was_stored(trial: Trial) -> None:
    """An append that was made before returns the message of the first time."""
    mine = trial.store.create(make_messages("u1"))
    theirs = trial.another().get(mine.id)
    mine.append(make_message("u2", "first"), key="k")
    mine.append(make_message("u3"))
    mine.truncate(keep_last=1)
    for history in (mine, theirs, trial.store.get(mine.id)):
        stored = history.append(make_message("u4", "second"), key="k")
        expect(("u2", "first"), (stored.id, stored.text), "what is returned")
        expect("u3", ids_of(history), "what is there")
    expect("u5", mine.append(make_message("u5"), key="k2").id, "what is new")
    mine.erase("u5")
    expect("", theirs.append(make_message("u5"), key="k2").text, "what was erased since")


@CHECKS
def beginning_twice_with_a_key_is_one_beginning(trial: Trial) -> None:
    """After a lost answer, `create` and `fork` with the same id and key return what there is."""
    store, name = trial.store, new_id()
    first = store.create(make_messages("u1"), id=name, title="Tea", key="k")
    first.append(make_message("u2"))
    again = store.create(make_messages("u1"), id=name, title="Tea", key="k")
    expect(("u1 u2", 1), (ids_of(again), again.version), "what was begun")
    fork = first.fork(at=0, id=f"{name} f", key="k")
    fork.append(make_message("u3"))
    store = trial.reopen()
    expect("u1 u3", ids_of(store.get(name).fork(at=0, id=f"{name} f", key="k")), "what was forked")
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


if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history import Expected
    from palaver.stores import StoredHistory
    from palaver.testing.stores.suite import Trial

    Change = Callable[[Store, StoredHistory, Expected], object]


_AT_ONCE: Final = 6

CHANGES: Final[dict[str, Change]] = {
    "append": lambda _, history, expect: history.append(make_message("u9"), expect=expect),
    "extend": lambda _, history, expect: history.extend(make_messages("u8 u9"), expect=expect),
    "execute": lambda _, history, expect: history.execute(
        {"operation": "TRUNCATE", "keepLast": 1}, expect=expect
    ),
    "rewrite": lambda _, history, expect: history.rewrite([range(1)], expect=expect),
    "replace_all": lambda _, history, expect: history.replace_all(
        [make_message("u9")], team_task=None, expect=expect
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
    "set_owner": lambda store, history, expect: store.set_owner(history.id, "new", expect=expect),
}
"""Changes that make no version of the conversation: many can follow the same one."""


def _prepared(store: Store, what: str) -> StoredHistory:
    """A conversation in which every change has something to do."""
    history = store.create(make_messages("u1 a2 u3"), id=new_id(), title="old")
    history.mark("u1", "old")
    history.truncate(keep_first=2)
    if what == "merge":
        history.fork(id=f"{history.id} fork").append(make_message("a7"))
    if what in {"prune", "redo"}:
        history.append(make_message("a8"))
        history.undo()
    return history


def _seen(store: Store, history: StoredHistory) -> tuple[Any, ...]:
    found = store.get(history.id)
    return dump_history(found), found.title, found.owner, store.backend.family(history.id)


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
    history = store.create(make_messages("u1"), id=name)
    history.append(make_message("u2"), key="append", expect=0)
    history.extend(make_messages("u3 u4"), key="extend", expect={0, 1})
    history.execute({"operation": "CLEAR"}, key="clear", expect=2)
    history.fork(id=f"{name} fork", key="fork", expect=3)
    history.append(make_message("u5"))
    before = dump_history(history)
    for view in (history, trial.another().get(name)):
        expect(
            "u2", view.append(make_message("u9"), key="append", expect=0).id, "what was appended"
        )
        view.extend(make_messages("u9"), key="extend", expect={0, 1})
        view.execute({"operation": "CLEAR"}, key="clear", expect=2)
        again = view.fork(id=f"{name} fork", key="fork", expect=3)
        expect((f"{name} fork", 3), (again.id, (again.origin or ("", -1))[1]), "what was forked")
        expect(before, dump_history(view), "what is there")
        with raises(VersionMismatch, "an append with a key of its own"):
            view.append(make_message("u9"), key="unknown", expect=0)
        with raises(VersionMismatch, "an operation with a key of its own"):
            view.execute({"operation": "CLEAR"}, key="unknown", expect=2)
        with raises(VersionMismatch, "a fork with a key of its own"):
            view.fork(id=f"{name} unknown", key="unknown", expect=3)


@CHECKS
def what_changes_nothing_is_checked_too(trial: Trial) -> None:
    """A change without an effect is refused where its version is not the newest."""
    history = trial.store.create(make_messages("u1"))
    stale = trial.another().get(history.id)
    history.append(make_message("u2"))
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
    history = store.create(make_messages("u1"), title="old")
    history.append(make_message("u2"))
    backend = store.backend
    for after in (0, 2):
        with raises(Stale, "a title after another version"):
            backend.describe(history.id, "new", (), after=after)
        with raises(Stale, "a deletion after another version"):
            backend.delete(history.id, after=after)
    found = trial.reopen().get(history.id)
    expect(("old", "u1 u2"), (found.title, ids_of(found)), "what is there")
    backend = trial.store.backend
    backend.describe(history.id, "new", ("a",), after=1)
    expect(
        ("new", ("a",)), (backend.head(history.id).title, backend.head(history.id).tags), "labels"
    )
    backend.delete(history.id, after=1)
    with raises(UnknownConversation, "a title of what is gone"):
        backend.describe(history.id, "new", (), after=1)
    with raises(UnknownConversation, "a deletion of what is gone"):
        backend.delete(history.id, after=1)


@CHECKS
def only_versions_can_be_expected(trial: Trial) -> None:
    """What is neither an integer nor a collection of integers is refused where it is given."""
    history = trial.store.create(make_messages("u1"))
    wrong: Any
    for wrong in ("0", b"0", 0.0, True, ["0"], [None], object()):
        with raises(ValidationError, f"{wrong!r}"):
            history.append(make_message("u2"), expect=wrong)
        with raises(ValidationError, f"{wrong!r}"):
            trial.store.delete(history.id, expect=wrong)
    expect("u1", ids_of(trial.store.get(history.id)), "what is there")
