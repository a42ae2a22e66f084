"""Random programs for stores: conversations with every kind of change, and forks of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from palaver.errors import PalaverError
from palaver.messages import ROLES, Message

if TYPE_CHECKING:
    import random

    from palaver.stores import Store, StoredHistory

__all__ = ["live", "run"]


def _said(chance: random.Random) -> Message:
    role = chance.choice(ROLES)
    number = chance.randrange(1_000_000)
    return Message(role, f"message {number} of {role}", id=f"m{number}", timestamp=number)


def run(store: Store, chance: random.Random, steps: int) -> list[str]:
    """Live through some conversations, and answer their ids; one in five is a fork."""
    first = store.create([_said(chance)], id="c0", title="A talk", tags=["a", "b"])
    names = [first.id]
    for step in range(steps):
        name = chance.choice(names)
        history = store.get(name)
        if chance.random() < 0.1:
            at = chance.randrange(history.version + 1)
            names.append(history.fork(at=at, id=f"c{len(names)}").id)
        elif chance.random() < 0.05 and history.origin is not None:
            parent = store.get(history.origin[0])
            with suppress(PalaverError):  # a conflict, which changes nothing
                parent.merge(history)
        else:
            live(history, chance, key=f"k{step}")
    store.backend.put("c0", "draft", "a name", b"\x00\xff bytes")
    return names


def live(history: StoredHistory, chance: random.Random, *, key: str) -> None:
    """Make one change, whatever comes up; some are refused."""
    size = len(history)
    choice = chance.randrange(12)
    try:
        if choice < 4:
            history.extend([_said(chance) for _ in range(chance.randrange(1, 4))], key=key)
        elif choice == 4:
            history.insert(chance.randrange(size + 1), [_said(chance)])
        elif choice == 5:
            history.replace(chance.randrange(size + 1), _said(chance))
        elif choice == 6:
            history.truncate(keep_last=chance.randrange(size + 2))
        elif choice == 7:
            history.mark(chance.randrange(size + 1), chance.choice("xyz"))
        elif choice == 8:
            history.undo()
        elif choice == 9:
            history.redo()
        elif choice == 10:
            history.rollback(chance.randrange(history.batch_index + 1))
        else:
            history.set_team_task(f"task {chance.randrange(9)}")
    except PalaverError:
        pass  # nothing to undo, no such message: nothing changes
