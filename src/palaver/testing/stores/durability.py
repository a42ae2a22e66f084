"""A stored history does what one in memory does, also after reopening; erasing and pruning last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import NothingToUndo, PalaverError, UnknownConversation, ValidationError
from palaver.messages import ROLES, new_id, parse_message, to_dict
from palaver.stores.records import PRUNED
from palaver.testing.stores.suite import (
    Checks,
    HistoryPair,
    dump_history,
    expect,
    ids_of,
    make_message,
    make_messages,
    raises,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.history import BaseHistory, View
    from palaver.stores.prune import Pruned
    from palaver.testing.stores.suite import Trial

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


def _executed(operation: dict[str, Any]) -> Callable[[BaseHistory], object]:
    return lambda history: history.execute(operation)


@CHECKS
def the_seven_operations_do_what_they_do_in_memory(trial: Trial) -> None:
    """Every operation answers and leaves what a history in memory does."""
    pair = HistoryPair(trial.store, "s1 u2 a3 u4 a5 t6")
    for step in map(_executed, _OPERATIONS):
        pair.both(step)
        pair.compare()
    pair.reopen(trial.reopen())
    pair.compare()


@CHECKS
def operations_go_on_after_reopening(trial: Trial) -> None:
    """The same, with the store opened again before each of them."""
    pair = HistoryPair(trial.store, "s1 u2 a3 u4 a5 t6")
    for step in map(_executed, _OPERATIONS):
        pair.reopen(trial.reopen())
        pair.both(step)
    pair.compare()


@CHECKS
def what_is_refused_changes_nothing(trial: Trial) -> None:
    """An operation that breaks a rule is the same error as in memory, and leaves no trace."""
    pair = HistoryPair(trial.store, "s1 u2")
    for operation in _REFUSED:
        pair.both(_executed(operation))
        with raises(PalaverError, operation["operation"]):
            pair.stored.execute(operation)
    pair.both(lambda history: history.undo(), lambda history: history.redo())
    pair.both(lambda history: history.at(9), lambda history: history.mark("nobody", "pin"))
    pair.both(lambda history: history.append(make_message("u3")))
    pair.compare()
    expect((1, 3), (pair.stored.version, len(pair.reopen(trial.reopen()).log)), "what is there")


@CHECKS
def appends_and_extends_are_alike(trial: Trial) -> None:
    """One by one or together, at the log's end and where an edit has left it."""
    pair = HistoryPair(trial.store)
    pair.both(
        lambda history: history.append(make_message("u1")),
        lambda history: history.extend(make_messages("a2 u3 t4")),
        lambda history: history.extend([]),
        lambda history: history.append({"role": "user", "content": "x", "id": "j", "timestamp": 1}),
        lambda history: history.undo(),
        lambda history: history.append(make_message("u5")),
        lambda history: history.truncate(keep_first=2),
        lambda history: history.extend(make_messages("a6 u7")),
        lambda history: history.rollback(0),
        lambda history: history.append(make_message("a8")),
    )
    pair.compare()
    pair.reopen(trial.reopen())
    pair.compare()


@CHECKS
def every_way_back_lasts(trial: Trial) -> None:
    """Undo, redo, rollback and restore lead to the same places after reopening."""
    pair = HistoryPair(trial.store, "u1 a2 u3")
    pair.both(
        lambda history: history.insert(1, make_messages("s4")),
        lambda history: history.append(make_message("u5")),
        lambda history: history.replace(0, make_message("u6")),
        lambda history: history.truncate(keep_last=2),
        lambda history: history.append(make_message("a7")),
    )
    ways: list[Callable[[BaseHistory], object]] = [
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
        lambda history: history.append(make_message("u8")),
        lambda history: history.redo(),
        lambda history: history.restore(0),
        lambda history: history.restore(6),
    ]
    for way in ways:
        pair.reopen(trial.reopen())
        pair.both(way)
    pair.compare()
    for _ in range(30):
        pair.both(lambda history: history.undo())
    pair.reopen(trial.reopen())
    for _ in range(30):
        pair.both(lambda history: history.redo())
    pair.compare()


@CHECKS
def batches_marks_and_the_team_task_last(trial: Trial) -> None:
    """Snapshots, the mark map, stats, marks and the team task, at every version."""
    pair = HistoryPair(trial.store, "s1 u2 a3 u4")
    pair.both(
        lambda history: history.mark(1, "pin"),
        lambda history: history.mark("a3", "pin"),
        lambda history: history.mark(0, "todo"),
        lambda history: history.mark(0, "todo"),
        lambda history: history.set_team_task("make tea 茶"),
        lambda history: history.truncate(keep_last=2),
        lambda history: history.append(make_message("a5")),
        lambda history: history.mark(-1, "pin"),
        lambda history: history.unmark("s1", "todo"),
        lambda history: history.unmark("s1", "todo"),
        lambda history: history.set_team_task(None),
        lambda history: history.replace(0, make_message("t6")),
        lambda history: history.undo(),
        lambda history: history.unmark("u2", "\n"),
        lambda history: history.mark(99, "pin"),
        lambda history: history.rollback(0),
    )
    pair.compare()
    pair.reopen(trial.reopen())
    pair.compare()
    pair.both(
        lambda history: history.marks_of("u2"),
        lambda history: [m.id for m in history.query(mark="pin")],
        lambda history: history.redo(),
        lambda history: history.mark("a3", "other"),
    )
    pair.compare()


@CHECKS
def questions_are_answered_as_in_memory(trial: Trial) -> None:
    """By role, recent, range, time, mark and text, over the view and over the whole log."""
    pair = HistoryPair(trial.store, " ".join(f"{role}{n}" for n in range(12) for role in "usat"))
    pair.both(
        lambda history: history.truncate(keep_first=30),
        lambda history: history.insert(7, make_messages("u100 a101")),
        lambda history: history.mark(3, "pin"),
        lambda history: history.mark(20, "pin"),
        lambda history: history.extend(make_messages("u102 a103 t104")),
    )
    pair.reopen(trial.reopen())
    views: list[Callable[[BaseHistory], View]] = [
        lambda history: history.view,
        lambda history: history.log,
        lambda history: history.at(1),
    ]
    for view in views:
        for question in _QUESTIONS:
            pair.both(_asked(view, question))
    pair.compare()


def _asked(
    view: Callable[[BaseHistory], View], question: Callable[[View], object]
) -> Callable[[BaseHistory], object]:
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
def the_backend_answers_by_position(trial: Trial) -> None:
    """What the protocol promises of messages, counts, roles, ids, times, frames and stops."""
    history = trial.store.create(make_messages("s0 u1 a2 u3"))
    history.replace(1, make_message("u4", timestamp=9))
    history.append(make_message("t5", timestamp=1))
    fork = history.fork(at=0)
    fork.append(make_message("u6", timestamp=2))
    backend = trial.reopen().backend
    for name, names, user in ((history.id, "s0 u1 a2 u3 u4 t5", 3), (fork.id, "s0 u1 a2 u3 u6", 3)):
        length = len(names.split())
        ids = [message.id for message in backend.messages(name, 0, length)]
        expect(names.split(), ids, "messages")
        expect(ids[2:4], [m.id for m in backend.messages(name, 2, 4)], "some messages")
        expect([], backend.messages(name, 3, 3), "no messages")
        expect(backend.head(name).counts, backend.before(name, length), "counts at the end")
        expect([1, 3, 4], backend.select(name, "user", 0, user), "users")
        expect([3], backend.select(name, "user", 1, 2), "the second user")
        expect([2], backend.positions_of(name, "a2"), "positions of an id")
        expect([], backend.positions_of(name, "nobody"), "positions of no id")
    expect([], backend.positions_of(fork.id, "u4"), "what came after the fork")
    expect([4], backend.positions_of(fork.id, "u6"), "the fork's own")
    expect([1, 2, 5], backend.between_times(history.id, 1, 3), "between times")
    expect([3, 4], backend.between_times(history.id, 3, None), "since a time")
    expect([0, 1, 2, 4], backend.between_times(fork.id, None, 3), "until a time, in a fork")
    expect([1, None], [backend.replaced(history.id, p) for p in (4, 5)], "replaced")
    expect([4, 5, 6], [backend.stop(history.id, v) for v in range(3)], "stops")
    expect([0, 1], [f.version for f in backend.frames(history.id, -1, 2)], "frames")
    expect([1], [f.version for f in backend.frames(history.id, 0, 1)], "frames after one")
    expect(
        [(0, "create", 0, 4), (1, "replace", 4, 1), (2, "append", 5, 1)],
        [(j.version, j.kind, j.first, j.count) for j in backend.journal(history.id, -1, 9)],
        "the journal",
    )
    expect([1], [j.version for j in backend.journal(history.id, 0, 1)], "a page of the journal")


@CHECKS
def a_long_life_lasts(trial: Trial) -> None:
    """Hundreds of changes of all kinds, every version as it was, nothing wrong anywhere."""
    pair = HistoryPair(trial.store, "s0 u1")
    for number in range(40):
        place = number * 7 % (len(pair.plain) + 1)
        for history in (pair.plain, pair.stored):
            history.insert(place, make_messages(f"u{number}x a{number}y"))
            history.append(make_message(f"t{number}z"))
            if number % 5:
                history.replace(place, make_message(f"a{number}w"))
            else:
                history.undo()
    stored = pair.reopen(trial.reopen())
    expect(pair.plain.version, stored.version, "the version")
    expect(to_dict(pair.plain.mark_map()), to_dict(stored.mark_map()), "the mark map")
    for version in range(stored.version + 1):
        expect(ids_of(pair.plain.at(version)), ids_of(stored.at(version)), f"version {version}")
    expect([], list(trial.store.verify(stored.id)), "problems")


_SAID: Final = "The door code\nis four seven one one."


@CHECKS
def an_erasure_takes_the_records_that_give_it_away(trial: Trial) -> None:
    """Drafts, prompts and calls that repeat or name it go, in all relatives; others stay."""
    call = {"type": "tool_use", "tool_use": {"id": "call-7", "name": "open", "input": {"n": 1}}}
    parent = trial.store.create([make_message("u1", _SAID), make_message("u2")])
    parent.append(parse_message({"role": "assistant", "content": [call], "id": "a3"}))
    fork = parent.fork()
    stranger = trial.store.create([make_message("u1", _SAID)])
    backend = trial.store.backend
    repeats = json.dumps({"prompt": ["- u: " + _SAID.replace("\n", "\n  ")]})
    for history in (parent, fork, stranger):
        backend.put(history.id, "draft", "copied", _SAID.encode())
        backend.put(history.id, "draft", "other", b"The door is open, u12.")
        backend.put(history.id, "prompt", "p1", repeats.encode())
        backend.put(history.id, "prompt", "p2", b'{"messages": ["u1", "u2"]}')
        backend.put(history.id, "ledger", "call-7", b"\xff\x00")
        backend.put(history.id, "ledger", "call-8", b'{"after": "call-7"}')
    receipt = parent.erase("u1")
    gone = [("draft", "copied"), ("prompt", "p1"), ("prompt", "p2")]
    expect({(h.id, *which) for h in (parent, fork) for which in gone}, {*receipt.records},
           "the receipt")  # fmt: skip
    receipt = fork.erase("a3")
    calls = [("ledger", "call-7"), ("ledger", "call-8")]
    expect({(h.id, *which) for h in (parent, fork) for which in calls}, {*receipt.records},
           "the receipt for a call")  # fmt: skip
    for store in trial.now_and_later():
        for history in (parent, fork):
            expect(["draft"], store.backend.kinds(history.id), "kinds of records left")
            expect(["other"], list(store.backend.records(history.id, "draft")), "drafts left")
        expect(["draft", "ledger", "prompt"], store.backend.kinds(stranger.id), "the stranger's")
        expect([], list(store.verify(parent.id)), "problems")


@CHECKS
def a_handle_on_the_same_store_shows_nothing_erased(trial: Trial) -> None:
    """Whoever reads through the same open store sees it at once, forks and views too."""
    mine = trial.store.create(make_messages("u1 a2"))
    some = trial.store.get(mine.id), mine.fork(), trial.store.get(mine.id).view
    others = trial.store.get(mine.id), mine.fork(), trial.store.get(mine.id).view
    for seen in (*some, *others):
        expect(["says u1", "says a2"], [m.text for m in seen], "what they read")
    mine.erase(0)
    for seen in some:
        expect("", seen[0].text, "what they see")
    for seen in others:
        expect(["", "says a2"], [m.text for m in seen], "all that they see")


@CHECKS
def what_was_undone_is_pruned(trial: Trial) -> None:
    """Text that only abandoned versions have goes; place, id, role and versions stay."""
    word = "w" + new_id().replace("-", "")
    store = trial.store
    history = store.create(make_messages("u1 a2"))
    history.append(make_message("u3", f"{word} undone"))
    history.undo()
    history.append(make_message("u4", f"{word} stays"))
    theirs = trial.another().get(history.id)
    expect(f"{word} undone", theirs.at(1)[2].text, "before")
    expect(2, len(store.search(word)), "hits before")
    would = store.prune(history.id, dry_run=True)
    expect((("u3",), False), _summary(would), "a dry run")
    expect(f"{word} undone", store.get(history.id).at(1)[2].text, "after a dry run")
    pruned = store.prune(history.id)
    expect((("u3",), True), _summary(pruned), "what was pruned")
    expect(would.bytes, pruned.bytes, "how many bytes")
    for now in trial.now_and_later():
        history = now.get(history.id)
        expect("u1 a2 u4", ids_of(history), "what is there")
        stone = history.at(1)[2]
        expect(("u3", "user", ""), (stone.id, stone.role, stone.text), "what is left of it")
        expect(True, PRUNED in stone.metadata, "its mark")  # noqa: FBT003 - the value
        expect(["u4"], [hit.message.id for hit in now.search(word)], "hits")
        expect([], list(now.verify(history.id)), "problems")
        expect(((), False), _summary(now.prune(history.id)), "a second time")
        with raises(NothingToUndo, "an undo that leads nowhere"):
            history.undo()
    expect("", theirs.refresh().at(1)[2].text, "what others see")
    history.append(make_message("u5"))
    history.undo()
    expect("u1 a2 u4", ids_of(history), "after an undo of what came since")


def _summary(pruned: Pruned) -> tuple[tuple[str, ...], bool]:
    return pruned.messages, pruned.done


@CHECKS
def what_anything_leads_to_is_not_pruned(trial: Trial) -> None:
    """The view, its batches, its marks, and the steps asked for."""
    store = trial.store
    history = store.create(make_messages("u1 a2"))
    history.append(make_message("u4"))
    history.mark("u4", "pin")
    history.truncate(keep_first=1)
    seen = dump_history(history)
    expect((), store.prune(history.id).messages, "what nothing leads to")
    expect(seen, dump_history(history), "what there is")
    history.rollback(0)
    history.append(make_message("u5"))
    history.replace(0, make_message("u6"))
    history.undo()
    expect(("u6",), store.prune(history.id, dry_run=True).messages, "without a step")
    expect((), store.prune(history.id, undo=1).messages, "with a step")
    history.refresh().redo()
    expect("u6 a2 u4 u5", ids_of(history), "what was redone")
    history.undo()
    history.append(make_message("u7"))
    expect(("u6",), store.prune(history.id, undo=2).messages, "what redo lost")
    history.refresh().undo()
    history.undo()
    expect("u1 a2 u4", ids_of(history), "two steps back")
    expect([], list(trial.reopen().verify(history.id)), "problems")


@CHECKS
def what_is_marked_is_not_pruned(trial: Trial) -> None:
    """A mark leads to its message, even where nothing else does."""
    history = trial.store.create(make_messages("u1"))
    history.clear(keep_system_message=False)
    history.extend(make_messages("u2 u3"))
    history.mark("u3", "pin")
    history.rollback(0)
    expect(("u2",), trial.store.prune(history.id).messages, "what has no mark")
    again = trial.reopen().get(history.id)
    expect(["", "says u3"], [m.text for m in list(again.log)[1:]], "what is left")


@CHECKS
def what_a_fork_shares_is_not_pruned(trial: Trial) -> None:
    """A fork keeps its whole log; and what it has from its parent is not its own to prune."""
    store = trial.store
    parent = store.create(make_messages("u1"))
    parent.append(make_message("u2"))
    fork = parent.fork()
    parent.undo()
    parent.append(make_message("u3"))
    parent.undo()
    seen = dump_history(fork)
    expect(("u3",), store.prune(parent.id).messages, "what the fork does not have")
    expect(seen, dump_history(store.get(fork.id)), "the fork")
    fork.append(make_message("u4"))
    fork.undo()
    fork.clear(keep_system_message=False)
    deeper = fork.fork(at=1)
    expect((), store.prune(fork.id).messages, "what a deeper fork has")
    expect("u1 u2 u4", ids_of(deeper), "the deeper fork")
    store.delete(deeper.id)
    expect(("u4",), store.prune(fork.id).messages, "its own")
    store.delete(fork.id)
    expect(("u2",), store.prune(parent.id).messages, "what no fork has any more")
    expect("u1", ids_of(trial.reopen().get(parent.id)), "the parent")
    expect([], list(trial.store.verify(parent.id)), "problems")


@CHECKS
def only_what_makes_sense_is_pruned(trial: Trial) -> None:
    """An unknown conversation or a negative number of steps is an error."""
    with raises(UnknownConversation, "an unknown conversation"):
        trial.store.prune(new_id())
    with raises(ValidationError, "a negative number"):
        trial.store.prune(trial.store.create().id, undo=-1)
