"""Forks share their messages, merge both ways, and may form chains of any length."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from palaver.errors import Conflict, StoreError, UnknownMessage, ValidationError
from palaver.history import ERASED, SUMMARY_OF, BaseHistory, History
from palaver.messages import new_id
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend
from palaver.stores.transfer import export_conversation, import_conversation
from palaver.testing.stores.suite import (
    Checks,
    HistoryPair,
    ManualClock,
    dump_history,
    expect,
    ids_of,
    make_message,
    make_messages,
    raises,
)

if TYPE_CHECKING:
    from palaver.stores import StoredHistory
    from palaver.testing.stores.suite import Trial

__all__ = ["CHECKS"]


CHECKS = Checks()


class _Family:
    """A parent and its forks, in memory and in a store, led through the same life."""

    def __init__(self, trial: Trial, names: str) -> None:
        self.trial = trial
        self.clock = ManualClock()
        self.salt = new_id()[-8:]
        self.plain: dict[str, BaseHistory] = {
            "p": History(make_messages(names), id=self.name("p"), clock=self.clock)
        }
        self.stored: dict[str, StoredHistory] = {
            "p": self.store.create(make_messages(names), id=self.name("p"))
        }

    def name(self, short: str) -> str:
        return f"{short} {self.salt}"

    @property
    def store(self) -> Store:
        return Store(self.trial.store.backend, clock=self.clock)

    def fork(self, parent: str, child: str, at: int | None = None) -> None:
        name = self.name(child)
        self.plain[child] = self.plain[parent].fork(at=at, id=name)
        self.stored[child] = self.stored[parent].fork(at=at, id=name)

    def merge(self, into: str, other: str) -> None:
        self.clock.now += 1
        expected = self.plain[into].merge(self.plain[other]).to_dict()
        found = self.stored[into].merge(self.stored[other]).to_dict()
        expect(expected, found, f"{other} merged into {into}")

    def do(self, which: str, operation: str, *values: object) -> None:
        self.clock.now += 1
        for history in (self.plain[which], self.stored[which]):
            getattr(history, operation)(*values)

    def reopen(self) -> None:
        self.trial.reopen()
        self.stored = {short: self.store.get(self.name(short)) for short in self.stored}

    def compare(self) -> None:
        for short, plain in self.plain.items():
            found = dump_history(self.stored[short])
            for what, value in dump_history(plain).items():
                expect(value, found[what], f"{what} of {short}")
        for short in self.plain:
            expect([], list(self.trial.store.verify(self.name(short))), f"problems of {short}")


@CHECKS
def a_fork_goes_its_own_way(trial: Trial) -> None:
    """Neither side sees what the other does afterwards; both last."""
    family = _Family(trial, "s1 u2 a3")
    family.fork("p", "f")
    family.do("p", "append", make_message("u4"))
    family.do("f", "append", make_message("u5"))
    family.do("f", "replace", 1, make_message("u6"))
    family.do("p", "clear")
    family.compare()
    family.reopen()
    family.do("f", "undo")
    family.do("f", "mark", 0, "pin")
    family.do("p", "undo")
    family.compare()


@CHECKS
def a_fork_of_an_old_version_has_what_was_there(trial: Trial) -> None:
    """A fork may begin anywhere in the past, and shares what came before."""
    family = _Family(trial, "s1 u2 a3")
    family.do("p", "insert", 1, make_messages("u4"))
    family.do("p", "append", make_message("a5"))
    family.do("p", "clear")
    for version in range(4):
        family.fork("p", f"f{version}", version)
    family.do("p", "append", make_message("u6"))
    for version in range(4):
        family.do(f"f{version}", "append", make_message(f"t{version}"))
    family.reopen()
    family.compare()


@CHECKS
def forks_share_their_rows(trial: Trial) -> None:
    """A fork costs nothing: no message is written again."""
    parent = trial.store.create(make_messages("u1 a2 u3"))
    before = trial.store.backend.newest()
    fork = parent.fork()
    reported = trial.store.backend.journal(None, before, 10)
    expect([("fork", 0)], [(change.kind, change.count) for change in reported], "what was written")
    head = trial.store.backend.head(fork.id)
    expect((parent.id, 3, 0, 3), (head.parent, head.base, head.origin, head.length), "its head")
    expect((parent.id, 0), trial.reopen().get(fork.id).origin, "its origin")
    expect({parent.id, fork.id}, {*trial.store.backend.family(fork.id)}, "the family")
    expect({parent.id, fork.id}, {*trial.store.backend.family(parent.id)}, "the family")


@CHECKS
def forks_of_forks_last(trial: Trial) -> None:
    """Generations of forks, each changed, each read through all its ancestors."""
    family = _Family(trial, "s1 u2")
    before = "p"
    for number in range(6):
        family.do(before, "append", make_message(f"u{number}x"))
        family.do(before, "insert", 1, make_messages(f"a{number}y"))
        family.fork(before, f"f{number}", None if number % 2 else family.plain[before].version - 1)
        before = f"f{number}"
        family.do(before, "append", make_message(f"t{number}z"))
        if number % 2:
            family.do(before, "mark", number, "pin")
            family.reopen()
    family.compare()
    family.reopen()
    family.compare()
    names = {family.name(short) for short in family.plain}
    expect(names, {*trial.store.backend.family(family.name("f3"))}, "the family")


@CHECKS
def merges_go_both_ways(trial: Trial) -> None:
    """A fork comes home, and a parent's changes reach a fork, as in memory."""
    family = _Family(trial, "s1 u2 a3 u4")
    family.fork("p", "f")
    family.do("f", "replace", 1, make_message("u5"))
    family.do("f", "append", make_message("a6"))
    family.do("f", "mark", 0, "pin")
    family.do("f", "set_team_task", "tea")
    family.do("p", "append", make_message("u7"))
    family.merge("p", "f")
    family.merge("f", "p")
    family.merge("p", "f")
    family.compare()
    family.do("p", "undo")
    family.merge("p", "f")
    family.compare()


@CHECKS
def merging_again_after_reopening_doubles_nothing(trial: Trial) -> None:
    """What a merge brought in is known after reopening, in both directions."""
    family = _Family(trial, "u1 a2")
    family.fork("p", "f")
    for number in range(4):
        family.do("f", "append", make_message(f"u{number}f"))
        family.do("p", "append", make_message(f"a{number}p"))
        family.merge("p", "f")
        family.reopen()
        family.merge("p", "f")
        family.do("f", "replace", -1 % len(family.plain["f"]), make_message(f"t{number}r"))
        family.merge("f", "p")
        family.reopen()
        family.merge("p", "f")
    family.compare()
    names = [message.id for message in family.stored["p"]]
    expect(len({*names}), len(names), "messages, each once")


@CHECKS
def a_merge_in_conflict_changes_nothing(trial: Trial) -> None:
    """Both sides are named, and both are as they were."""
    parent = trial.store.create(make_messages("u1 a2"))
    fork = parent.fork()
    parent.replace(0, make_message("u3"))
    fork.replace(0, make_message("u4"))
    before = dump_history(parent), dump_history(fork), trial.store.backend.newest()
    with raises(Conflict, "both replaced u1") as caught:
        parent.merge(fork)
    expect(
        [("message u1", "replaced by u3", "replaced by u4")],
        [tuple(clash) for clash in getattr(caught[0], "clashes", ())],
        "the clashes",
    )
    store = trial.reopen()
    after = (
        dump_history(store.get(parent.id)),
        dump_history(store.get(fork.id)),
        store.backend.newest(),
    )
    expect(before, after, "both sides")
    store.get(parent.id).append(make_message("u5"))
    expect([], list(store.verify(parent.id)), "problems")


@CHECKS
def strangers_do_not_merge(trial: Trial) -> None:
    """A history that is neither fork nor parent is refused."""
    with raises(ValidationError, "a merge of strangers"):
        trial.store.create().merge(trial.store.create())


@CHECKS
def an_erasure_reaches_every_version_and_relative(trial: Trial) -> None:
    """The text is gone from all versions, forks and merges; id and role stay; as in memory."""
    family = _Family(trial, "s1 u2 a3")
    family.do("p", "replace", 1, make_message("u4", "a secret word"))
    family.fork("p", "f")
    family.fork("f", "g")
    family.do("g", "append", make_message("u5", "a secret too"))
    family.do("p", "undo")
    family.merge("f", "g")
    family.reopen()
    for secret in ("u4", "u5"):
        expected = family.plain["f"].erase(secret).to_dict()
        found = family.stored["f"].erase(secret).to_dict()
        expect(expected, found, f"the receipt for {secret}")
        family.clock.now += 1
    family.reopen()
    family.compare()
    for short, history in family.stored.items():
        for version in range(history.version + 1):
            texts = " ".join(message.text for message in history.at(version))
            expect(False, "secret" in texts, f"a secret in version {version} of {short}")  # noqa: FBT003 - the value
    (stone,) = [message for message in family.stored["f"].log if message.id == "u4"]
    expect(("user", ""), (stone.role, stone.text), "the tombstone")
    expect(True, ERASED in stone.metadata, "the tombstone's time")  # noqa: FBT003 - the value
    expect([], family.store.search("secret", conversation=family.name("f")), "hits")


@CHECKS
def summaries_go_with_what_they_were_made_from(trial: Trial) -> None:
    """A summary of an erased message is erased, and so is a summary of that, wherever it is."""
    store = trial.store
    parent = store.create(make_messages("u1 a2"))
    fork = parent.fork()
    fork.append(make_message("a3", "of u1", metadata={SUMMARY_OF: ["u1", "x"]}))
    parent.append(make_message("a4", "of a3", metadata={SUMMARY_OF: ["a3"]}))
    parent.append(make_message("a5", "of a2", metadata={SUMMARY_OF: ["a2"]}))
    receipt = parent.erase("u1")
    expect((("u1",), {"a3", "a4"}, 3), (receipt.messages, {*receipt.summaries}, receipt.places),
           "the receipt")  # fmt: skip
    store = trial.reopen()
    expect(["", "says a2", "", "of a2"], [m.text for m in store.get(parent.id)], "the parent")
    expect(["", "says a2", ""], [m.text for m in store.get(fork.id)], "the fork")
    expect([], list(store.verify(parent.id)), "problems")


@CHECKS
def who_has_it_open_sees_an_erasure(trial: Trial) -> None:
    """After a refresh nothing of it is left in memory either."""
    mine = trial.store.create(make_messages("u1 a2"))
    fork = mine.fork()
    theirs = trial.another().get(mine.id)
    expect(["says u1", "says a2"], [m.text for m in theirs], "what they read")
    expect("says u1", fork[0].text, "what the fork read")
    mine.erase(0)
    expect("", mine[0].text, "what I see")
    theirs.refresh()
    fork.refresh()
    expect(("", ""), (theirs[0].text, fork[0].text), "what they see")


@CHECKS
def only_what_is_there_can_be_erased(trial: Trial) -> None:
    """An unknown message is an error, and nothing changes."""
    pair = HistoryPair(trial.store, "u1")
    with raises(UnknownMessage, "an unknown id"):
        pair.stored.erase("nobody")
    with raises(UnknownMessage, "an unknown place"):
        pair.stored.erase(7)
    pair.compare()
    expect("u1", ids_of(trial.reopen().get(pair.stored.id)), "what is there")


_LONG: Final = 1_050
"""More forks than Python allows calls within calls."""


@CHECKS
def a_chain_of_a_thousand_forks_is_read(trial: Trial) -> None:
    """Most forks of it add nothing; some add a message, mark one or replace one."""
    salt = new_id()[-8:]
    history = trial.store.create(make_messages("s1 u2 a3 u4 a5"), id=f"0 {salt}")
    names = ["s1", "u2", "a3", "u4", "a5"]
    for number in range(1, _LONG + 1):
        history = history.fork(id=f"{number} {salt}")
        if number % 50 == 0:
            history.append(make_message(f"u{number}n"))
            names.append(f"u{number}n")
        if number % 350 == 0:
            history.mark(1 + number // 350, "pin")
            history.replace(1, make_message(f"u{number}r"))
            names[1] = f"u{number}r"
    first, last, before = f"0 {salt}", f"{_LONG} {salt}", f"{_LONG - 1} {salt}"
    for store in trial.now_and_later():
        history = store.get(last)
        expect(" ".join(names), ids_of(history), "the view")
        expect(names[-3:], [message.id for message in history.view[-3:]], "the end of it")
        expect(["a3", "a5"], [m.id for m in history.query(role="assistant")], "one role")
        expect(6, history.view.index_of(history.view.find("u100n")), "the place of a message")
        expect(3, len(history.query(mark="pin")), "the marks")
        expect(3, history.batch_index, "the batch")
        expect((before, 0), history.origin, "its origin")
        expect(_LONG, store.backend.generation(last), "the generation")
        expect(_LONG + 1, len(store.backend.family(last)), "the family")
        expect([last], [head.id for head in store.backend.forks(before)], "the forks")
        expect([], list(store.verify(last)), "problems")
    _lives_on(trial.store, first, before, last)


def _lives_on(store: Store, first: str, before: str, last: str) -> None:
    """What can be done with the ends of a chain."""
    history = store.get(last)
    history.append(make_message("u9z"))
    store.get(before).merge(history)
    expect("u9z", store.get(before)[-1].id, "what was merged")
    file = BytesIO()
    export_conversation(store, last, file)
    file.seek(0)
    copied = import_conversation(Store(MemoryBackend()), file)
    expect(ids_of(history), ids_of(copied), "what was exported")
    expect(1, store.get(last).erase("a3").places, "the rows that an erasure changed")
    for name in (first, before, last):
        expect("", store.get(name)[2].text, f"what is left in {name}")
    with raises(StoreError, "deleting what others were forked from"):
        store.delete(first)
    store.delete(last)
    expect([], store.backend.forks(before), "the forks of its parent")


@CHECKS
def every_fork_of_a_chain_may_change_something(trial: Trial) -> None:
    """Selections, batches and marks of all ancestors are found, however far up they were made."""
    history = trial.store.create(make_messages("s1 u2 a3"))
    names = ["s1", "u2", "a3"]
    for number in range(60):
        history = history.fork(at=history.version)
        history.insert(1 + number % len(history), make_messages(f"a{number}i"))
        names.insert(1 + number % len(names), f"a{number}i")
        if number % 9 == 0:
            history.append(make_message(f"u{number}x"))
            history.undo()
    for store in trial.now_and_later():
        found = store.get(history.id)
        expect(" ".join(names), ids_of(found), "the view")
        expect(60, found.batch_index, "the batch")
        found.rollback(20)
        expect(3 + 20, len(found), "what was there before")
        found.undo()
        expect([], list(store.verify(history.id)), "problems")


@CHECKS
def frames_of_ancestors_end_where_the_line_left_them(trial: Trial) -> None:
    """A store answers those that are wanted, and none that came after the fork."""
    store = trial.store
    first = store.create(make_messages("u1 a2 u3"))
    first.replace(0, make_message("u4"))
    fork = first.fork(at=1)
    first.replace(1, make_message("a5"))
    fork.mark(0, "pin")
    last = fork.fork()
    fork.clear()
    backend = store.backend
    wanted = [(0, -1, 9), (1, 0, 9), (2, -1, 9), (7, -1, 9), (-1, -1, 9)]
    found = backend.ancestor_frames(last.id, wanted)
    expect([(0, 0), (0, 1), (1, 1)], sorted(frame[:2] for frame in found), "the frames")
    (data,) = [frame[2] for frame in found if frame[:2] == (0, 1)]
    expect(backend.frames(first.id, 0, 1)[0].data, data, "the bytes of one")
    expect([], backend.ancestor_frames(first.id, [(0, -1, 9)]), "those of the first ancestor")
    expect([0, 1, 2], [backend.generation(h.id) for h in (first, fork, last)], "the generations")
