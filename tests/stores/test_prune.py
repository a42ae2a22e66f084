"""Pruning changes nothing that can still be reached, whatever was done before."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import NothingToUndo, PalaverError
from palaver.stores.records import PRUNED
from palaver.testing.stores.suite import dump_history
from tests.history.samples import one

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Change


def step(history: StoredHistory, draw: random.Random, name: str) -> None:
    """Some change, whatever it may be."""
    length = max(len(history), 1)
    changes: list[Callable[[], Any]] = [
        lambda: history.append(one(name)),
        lambda: history.append(one(name)),
        lambda: history.insert(draw.randrange(length), [one(name)]),
        lambda: history.replace(draw.randrange(length), one(name)),
        lambda: history.truncate(keep_last=draw.randrange(4)),
        lambda: history.mark(draw.randrange(length), draw.choice("xy")),
        history.undo,
        history.undo,
        history.redo,
        lambda: history.rollback(draw.randrange(history.batch_index + 1)),
        lambda: history.restore(draw.randrange(history.version + 1)),
    ]
    with suppress(PalaverError):
        draw.choice(changes)()


def reachable(history: StoredHistory) -> dict[str, Any]:
    """What can be come to without going back: the view, its batches, its marks."""
    state = history.state.to_dict()
    return {"state": state, "marks": dict(history.marks), "task": history.team_task}


@pytest.mark.parametrize("seed", range(12))
def test_pruning_changes_nothing_that_can_be_seen(store: Store, seed: int) -> None:
    draw = random.Random(f"prune/{seed}")  # noqa: S311 - no secret
    history = store.create([one("u0")])
    forks: list[StoredHistory] = []
    for number in range(40):
        step(history, draw, f"u{number}")
        if number in {12, 25}:
            forks.append(history.fork(at=draw.randrange(history.version + 1)))
        for fork in forks:
            step(fork, draw, f"a{number}")
    steps = draw.randrange(3)
    before = reachable(history), [dump_history(fork) for fork in forks]
    back: list[Message] = []
    pruned = store.prune(history.id, undo=steps)
    history.refresh()
    assert before == (reachable(history), [dump_history(store.get(fork.id)) for fork in forks])
    assert [] == list(store.verify())
    gone = [message for message in history.log if PRUNED in message.metadata]
    assert sorted(pruned.messages) == sorted(message.id for message in gone)
    for _ in range(steps):
        try:
            history.undo()
        except NothingToUndo:
            break
        back += [message for message in history if PRUNED in message.metadata]
    assert [] == back


def test_a_fork_made_meanwhile_keeps_its_messages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = store.create([one("u0")])
    history.append(one("u1"))
    history.undo()
    bury = store.backend.bury
    forks: list[StoredHistory] = []

    def late(note: Change, *rest: Any) -> None:  # noqa: ANN401 - handed on
        if not forks:
            forks.append(history.fork(at=1))
        bury(note, *rest)

    monkeypatch.setattr(store.backend, "bury", late)
    assert () == store.prune(history.id).messages
    assert ["says u0", "says u1"] == [message.text for message in forks[0]]


def test_somebody_who_writes_meanwhile_is_not_overrun(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = store.create([one("u0")])
    history.append(one("u1"))
    history.undo()
    bury = store.backend.bury
    told: list[str] = []

    def late(note: Change, *rest: Any) -> None:  # noqa: ANN401 - handed on
        if not told:
            history.redo()
        told.append(note.kind)
        bury(note, *rest)

    monkeypatch.setattr(store.backend, "bury", late)
    assert () == store.prune(history.id).messages
    assert "says u1" == store.get(history.id)[1].text
    assert ["prune"] == told


def test_pruned_text_is_in_none_of_the_files(path: Path) -> None:
    with palaver.open(path) as store:
        history = store.create([one("u0")])
        history.append(one("u1", "xyzzyplugh " * 100))
        history.undo()
        store.search("xyzzyplugh")
        store.prune(history.id)
        for file in path.parent.iterdir():
            assert b"xyzzyplugh" not in file.read_bytes(), file.name
