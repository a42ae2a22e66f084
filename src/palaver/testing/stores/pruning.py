"""Pruning takes what nothing leads to, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import NothingToUndo, UnknownConversation, ValidationError
from palaver.messages import new_id
from palaver.stores.rows import PRUNED
from palaver.testing.stores.expecting import everything, expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from palaver.stores.pruning import Pruned
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()


@CHECKS
def what_was_undone_is_pruned(trial: Trial) -> None:
    """Text that only abandoned versions have goes; place, id, role and versions stay."""
    word = "w" + new_id().replace("-", "")
    store = trial.store
    history = store.create(said("u1 a2"))
    history.append(one("u3", f"{word} undone"))
    history.undo()
    history.append(one("u4", f"{word} stays"))
    theirs = trial.another().get(history.id)
    expect(f"{word} undone", theirs.at(1)[2].text, "before")
    expect(2, len(store.search(word)), "hits before")
    would = store.prune(history.id, dry_run=True)
    expect((("u3",), False), _told(would), "a dry run")
    expect(f"{word} undone", store.get(history.id).at(1)[2].text, "after a dry run")
    pruned = store.prune(history.id)
    expect((("u3",), True), _told(pruned), "what was pruned")
    expect(would.bytes, pruned.bytes, "how many bytes")
    for now in trial.now_and_later():
        history = now.get(history.id)
        expect("u1 a2 u4", line(history), "what is there")
        stone = history.at(1)[2]
        expect(("u3", "user", ""), (stone.id, stone.role, stone.text), "what is left of it")
        expect(True, PRUNED in stone.metadata, "its mark")  # noqa: FBT003 - the value
        expect(["u4"], [hit.message.id for hit in now.search(word)], "hits")
        expect([], list(now.verify(history.id)), "problems")
        expect(((), False), _told(now.prune(history.id)), "a second time")
        with raises(NothingToUndo, "an undo that leads nowhere"):
            history.undo()
    expect("", theirs.refresh().at(1)[2].text, "what others see")
    history.append(one("u5"))
    history.undo()
    expect("u1 a2 u4", line(history), "after an undo of what came since")


def _told(pruned: Pruned) -> tuple[tuple[str, ...], bool]:
    return pruned.messages, pruned.done


@CHECKS
def what_anything_leads_to_is_not_pruned(trial: Trial) -> None:
    """The view, its batches, its marks, and the steps asked for."""
    store = trial.store
    history = store.create(said("u1 a2"))
    history.append(one("u4"))
    history.mark("u4", "pin")
    history.truncate(keep_first=1)
    seen = everything(history)
    expect((), store.prune(history.id).messages, "what nothing leads to")
    expect(seen, everything(history), "what there is")
    history.rollback(0)
    history.append(one("u5"))
    history.replace(0, one("u6"))
    history.undo()
    expect(("u6",), store.prune(history.id, dry_run=True).messages, "without a step")
    expect((), store.prune(history.id, undo=1).messages, "with a step")
    history.refresh().redo()
    expect("u6 a2 u4 u5", line(history), "what was redone")
    history.undo()
    history.append(one("u7"))
    expect(("u6",), store.prune(history.id, undo=2).messages, "what redo lost")
    history.refresh().undo()
    history.undo()
    expect("u1 a2 u4", line(history), "two steps back")
    expect([], list(trial.reopen().verify(history.id)), "problems")


@CHECKS
def what_is_marked_is_not_pruned(trial: Trial) -> None:
    """A mark leads to its message, even where nothing else does."""
    history = trial.store.create(said("u1"))
    history.clear(keep_system_message=False)
    history.extend(said("u2 u3"))
    history.mark("u3", "pin")
    history.rollback(0)
    expect(("u2",), trial.store.prune(history.id).messages, "what has no mark")
    again = trial.reopen().get(history.id)
    expect(["", "says u3"], [m.text for m in list(again.log)[1:]], "what is left")


@CHECKS
def what_a_fork_shares_is_not_pruned(trial: Trial) -> None:
    """A fork keeps its whole log; and what it has from its parent is not its own to prune."""
    store = trial.store
    parent = store.create(said("u1"))
    parent.append(one("u2"))
    fork = parent.fork()
    parent.undo()
    parent.append(one("u3"))
    parent.undo()
    seen = everything(fork)
    expect(("u3",), store.prune(parent.id).messages, "what the fork does not have")
    expect(seen, everything(store.get(fork.id)), "the fork")
    fork.append(one("u4"))
    fork.undo()
    fork.clear(keep_system_message=False)
    deeper = fork.fork(at=1)
    expect((), store.prune(fork.id).messages, "what a deeper fork has")
    expect("u1 u2 u4", line(deeper), "the deeper fork")
    store.delete(deeper.id)
    expect(("u4",), store.prune(fork.id).messages, "its own")
    store.delete(fork.id)
    expect(("u2",), store.prune(parent.id).messages, "what no fork has any more")
    expect("u1", line(trial.reopen().get(parent.id)), "the parent")
    expect([], list(trial.store.verify(parent.id)), "problems")


@CHECKS
def only_what_makes_sense_is_pruned(trial: Trial) -> None:
    """An unknown conversation or a negative number of steps is an error."""
    with raises(UnknownConversation, "an unknown conversation"):
        trial.store.prune(new_id())
    with raises(ValidationError, "a negative number"):
        trial.store.prune(trial.store.create().id, undo=-1)
