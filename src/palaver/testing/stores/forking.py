"""Forks share what they came from, merges bring them home, and an erasure reaches all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import Conflict, UnknownMessage, ValidationError
from palaver.history import ERASED, SUMMARY_OF, History
from palaver.messages import new_id
from palaver.stores import Store
from palaver.testing.stores.expecting import Clock, Twins, everything, expect, line, one, raises
from palaver.testing.stores.expecting import said as talk
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()


class _Family:
    """A parent and its forks, in memory and in a store, led through the same life."""

    def __init__(self, trial: Trial, names: str) -> None:
        self.trial = trial
        self.clock = Clock()
        self.salt = new_id()[-8:]
        self.plain = {"p": History(talk(names), id=self.name("p"), clock=self.clock)}
        self.kept: dict[str, History] = {"p": self.store.create(talk(names), id=self.name("p"))}

    def name(self, short: str) -> str:
        return f"{short} {self.salt}"

    @property
    def store(self) -> Store:
        return Store(self.trial.store.keeper, clock=self.clock)

    def fork(self, parent: str, child: str, at: int | None = None) -> None:
        for side in (self.plain, self.kept):
            side[child] = side[parent].fork(at=at, id=self.name(child))

    def merge(self, into: str, other: str) -> None:
        self.clock.now += 1
        results = [side[into].merge(side[other]) for side in (self.plain, self.kept)]
        expect(results[0].to_dict(), results[1].to_dict(), f"{other} merged into {into}")

    def do(self, which: str, operation: str, *values: object) -> None:
        self.clock.now += 1
        for side in (self.plain, self.kept):
            getattr(side[which], operation)(*values)

    def reopen(self) -> None:
        self.trial.reopen()
        self.kept = {short: self.store.get(self.name(short)) for short in self.kept}

    def compare(self) -> None:
        for short, plain in self.plain.items():
            found = everything(self.kept[short])
            for what, value in everything(plain).items():
                expect(value, found[what], f"{what} of {short}")
        for short in self.plain:
            expect([], list(self.trial.store.verify(self.name(short))), f"problems of {short}")


@CHECKS
def a_fork_goes_its_own_way(trial: Trial) -> None:
    """Neither side sees what the other does afterwards; both last."""
    family = _Family(trial, "s1 u2 a3")
    family.fork("p", "f")
    family.do("p", "append", one("u4"))
    family.do("f", "append", one("u5"))
    family.do("f", "replace", 1, one("u6"))
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
    family.do("p", "insert", 1, talk("u4"))
    family.do("p", "append", one("a5"))
    family.do("p", "clear")
    for version in range(4):
        family.fork("p", f"f{version}", version)
    family.do("p", "append", one("u6"))
    for version in range(4):
        family.do(f"f{version}", "append", one(f"t{version}"))
    family.reopen()
    family.compare()


@CHECKS
def forks_share_their_rows(trial: Trial) -> None:
    """A fork costs nothing: no message is written again."""
    parent = trial.store.create(talk("u1 a2 u3"))
    before = trial.store.keeper.newest()
    fork = parent.fork()
    told = trial.store.keeper.journal(None, before, 10)
    expect([("fork", 0)], [(change.kind, change.count) for change in told], "what was written")
    head = trial.store.keeper.head(fork.id)
    expect((parent.id, 3, 0, 3), (head.parent, head.base, head.origin, head.length), "its head")
    expect((parent.id, 0), trial.reopen().get(fork.id).origin, "its origin")
    expect({parent.id, fork.id}, {*trial.store.keeper.family(fork.id)}, "the family")
    expect({parent.id, fork.id}, {*trial.store.keeper.family(parent.id)}, "the family")


@CHECKS
def forks_of_forks_last(trial: Trial) -> None:
    """Generations of forks, each changed, each read through all its ancestors."""
    family = _Family(trial, "s1 u2")
    before = "p"
    for number in range(6):
        family.do(before, "append", one(f"u{number}x"))
        family.do(before, "insert", 1, talk(f"a{number}y"))
        family.fork(before, f"f{number}", None if number % 2 else family.plain[before].version - 1)
        before = f"f{number}"
        family.do(before, "append", one(f"t{number}z"))
        if number % 2:
            family.do(before, "mark", number, "pin")
            family.reopen()
    family.compare()
    family.reopen()
    family.compare()
    names = {family.name(short) for short in family.plain}
    expect(names, {*trial.store.keeper.family(family.name("f3"))}, "the family")


@CHECKS
def merges_go_both_ways(trial: Trial) -> None:
    """A fork comes home, and a parent's changes reach a fork, as in memory."""
    family = _Family(trial, "s1 u2 a3 u4")
    family.fork("p", "f")
    family.do("f", "replace", 1, one("u5"))
    family.do("f", "append", one("a6"))
    family.do("f", "mark", 0, "pin")
    family.do("f", "set_team_task", "tea")
    family.do("p", "append", one("u7"))
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
        family.do("f", "append", one(f"u{number}f"))
        family.do("p", "append", one(f"a{number}p"))
        family.merge("p", "f")
        family.reopen()
        family.merge("p", "f")
        family.do("f", "replace", -1 % len(family.plain["f"]), one(f"t{number}r"))
        family.merge("f", "p")
        family.reopen()
        family.merge("p", "f")
    family.compare()
    names = [message.id for message in family.kept["p"]]
    expect(len({*names}), len(names), "messages, each once")


@CHECKS
def a_merge_in_conflict_changes_nothing(trial: Trial) -> None:
    """Both sides are named, and both are as they were."""
    parent = trial.store.create(talk("u1 a2"))
    fork = parent.fork()
    parent.replace(0, one("u3"))
    fork.replace(0, one("u4"))
    before = everything(parent), everything(fork), trial.store.keeper.newest()
    with raises(Conflict, "both replaced u1") as caught:
        parent.merge(fork)
    expect(
        [("message u1", "replaced by u3", "replaced by u4")],
        [tuple(clash) for clash in getattr(caught[0], "clashes", ())],
        "the clashes",
    )
    store = trial.reopen()
    after = everything(store.get(parent.id)), everything(store.get(fork.id)), store.keeper.newest()
    expect(before, after, "both sides")
    store.get(parent.id).append(one("u5"))
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
    family.do("p", "replace", 1, one("u4", "a secret word"))
    family.fork("p", "f")
    family.fork("f", "g")
    family.do("g", "append", one("u5", "a secret too"))
    family.do("p", "undo")
    family.merge("f", "g")
    family.reopen()
    for secret in ("u4", "u5"):
        side = "f"
        receipts = [where[side].erase(secret).to_dict() for where in (family.plain, family.kept)]
        expect(receipts[0], receipts[1], f"the receipt for {secret}")
        family.clock.now += 1
    family.reopen()
    family.compare()
    for short, history in family.kept.items():
        for version in range(history.version + 1):
            texts = " ".join(message.text for message in history.at(version))
            expect(False, "secret" in texts, f"a secret in version {version} of {short}")  # noqa: FBT003 - the value
    (stone,) = [message for message in family.kept["f"].log if message.id == "u4"]
    expect(("user", ""), (stone.role, stone.text), "the tombstone")
    expect(True, ERASED in stone.metadata, "the tombstone's time")  # noqa: FBT003 - the value
    expect([], family.store.search("secret", conversation=family.name("f")), "hits")


@CHECKS
def summaries_go_with_what_they_were_made_from(trial: Trial) -> None:
    """A summary of an erased message is erased, and so is a summary of that, wherever it is."""
    store = trial.store
    parent = store.create(talk("u1 a2"))
    fork = parent.fork()
    fork.append(one("a3", "of u1", metadata={SUMMARY_OF: ["u1", "x"]}))
    parent.append(one("a4", "of a3", metadata={SUMMARY_OF: ["a3"]}))
    parent.append(one("a5", "of a2", metadata={SUMMARY_OF: ["a2"]}))
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
    mine = trial.store.create(talk("u1 a2"))
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
    twins = Twins(trial.store, "u1")
    with raises(UnknownMessage, "an unknown id"):
        twins.kept.erase("nobody")
    with raises(UnknownMessage, "an unknown place"):
        twins.kept.erase(7)
    twins.compare()
    expect("u1", line(trial.reopen().get(twins.kept.id)), "what is there")
