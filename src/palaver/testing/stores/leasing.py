"""Leases: one holder at a time, by the store's own clock; whoever comes back late is refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from palaver.errors import LeaseLost, LeaseTaken, UnknownConversation, ValidationError
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.stores import Store
from palaver.testing.stores.expecting import expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()


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
    holder, *_, left, _ = str(caught[0]).split()
    expect("anna", holder, "the holder is named")
    expect(True, 0 < float(left) <= first.seconds, "how long it lasts")  # noqa: FBT003 - the value
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
    ahead = Store(trial.store.keeper, clock=lambda: now_ms() + day)
    behind = Store(trial.another().keeper, clock=lambda: now_ms() - day)
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
    history = store.create(said("u1"))
    late = store.get(history.id).under(store.lease(history.id, "anna", seconds=0))
    late.append(one("a2"))
    lease = store.lease(history.id, "bert", seconds=1)
    history.refresh().under(lease).append(one("a3"))
    changes: list[Callable[[], object]] = [
        lambda: late.append(one("a4")),
        lambda: late.extend(said("a4 a5")),
        lambda: late.replace(0, one("u6")),
        late.undo,
        late.clear,
        lambda: late.mark(0, "pin"),
    ]
    for change in changes:
        with raises(LeaseLost, "a late change"):
            change()
    expect("u1 a2 a3", line(trial.reopen().get(history.id)), "what is kept")
    late = trial.store.get(history.id)
    late.under(None).append(one("u7"))
    expect("u1 a2 a3 u7", line(trial.store.get(history.id)), "without a lease")
    with raises(LeaseLost, "a lease that nobody ever had"):
        trial.store.create().under(lease).append(one("u8"))


@CHECKS
def records_are_kept_together_and_under_a_lease(trial: Trial) -> None:
    """Several records, all or none; a worker that comes back late is refused."""
    store = trial.store
    name, keeper = store.create().id, store.keeper
    lease = store.lease(name, "one", seconds=0)
    keeper.keep(name, [("call", "a", b"1"), ("call", "b", b"2")], token=lease.token)
    keeper.keep(name, [("call", "a", None), ("draft", "c", b"3")])
    store.lease(name, "two", seconds=1)
    with raises(LeaseLost, "a late worker"):
        keeper.keep(name, [("call", "b", b"late"), ("call", "d", b"late")], token=lease.token)
    keeper = trial.reopen().keeper
    expect({"b": b"2"}, keeper.records(name, "call"), "calls")
    expect({"c": b"3"}, keeper.records(name, "draft"), "drafts")
    with raises(UnknownConversation, "a conversation that is not there"):
        keeper.keep(new_id(), [("call", "a", b"1")])
