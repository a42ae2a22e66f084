"""A random program over a whole store, and a picture of a store to compare.

Every step is chosen by the seed, its number and what the store holds, and by nothing else. So
a program that was cut off can go on in another process, and the same program on a store in memory
tells what every step must have led to.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Final

import palaver
from palaver.errors import Conflict, LeaseTaken, NothingToUndo, UnknownConversation
from palaver.messages import ROLES, Message, dump
from palaver.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import StoredHistory
    from palaver.stores.backend import Backend

__all__ = ["Expected", "Picture", "Program", "picture"]

Picture = tuple[str, ...]

_MOST: Final = 4
"""Conversations at a time, so that the changes meet."""


class Program:
    """A program and the place it has reached: `step` does one change, or finds it refused."""

    def __init__(self, seed: object) -> None:
        """Choose everything by a seed."""
        self.seed = seed
        self.number = 0
        self._open: dict[str, StoredHistory] = {}

    def now(self) -> int:
        """The time, which is the number of the step: doing a step again is the same again."""
        return self.number * 1_000

    def open(self, path: Path | str) -> Store:
        """A store by its address, at the program's time."""
        self._open.clear()
        return palaver.open(path, clock=self.now)

    def over(self, backend: Backend) -> Store:
        """A store over a backend, at the program's time."""
        self._open.clear()
        return Store(backend, clock=self.now)

    def step(self, store: Store, number: int) -> str:
        """Do a step and answer its name."""
        self.number = number
        choice = random.Random(f"{self.seed}/{number}")  # noqa: S311 - no secret
        step = _Step(self, store, number, choice)
        name = step.choose()
        try:
            _STEPS[name](step)
        except (Conflict, LeaseTaken, NothingToUndo):
            return f"{name} (refused)"
        return name

    def history(self, store: Store, name: str) -> StoredHistory:
        """A conversation, opened once."""
        if name not in self._open:
            self._open[name] = store.get(name)
        return self._open[name]

    def forget(self, name: str) -> None:
        """A conversation is gone."""
        self._open.pop(name, None)

    def look_again(self) -> None:
        """Read every conversation anew: a step was refused, and there all the same."""
        self._open.clear()


class _Step:
    """One step: what there is, and what was drawn."""

    def __init__(self, program: Program, store: Store, number: int, draw: random.Random) -> None:
        self.program = program
        self.store = store
        self.number = number
        self.draw = draw
        self.heads = sorted(store, key=lambda head: head.id)

    def choose(self) -> str:
        """The name of a step that can be done."""
        weights = dict(_WEIGHTS)
        if not self.heads:
            return "create"
        if len(self.heads) >= _MOST:
            weights["create"] = weights["fork"] = 0
        if len(self.heads) == 1 or not self._childless():
            weights["delete"] = 0
        if not any(head.parent for head in self.heads):
            weights["merge"] = 0
        (name,) = self.draw.choices([*weights], [*weights.values()])
        return name

    def _childless(self) -> list[str]:
        parents = {head.parent for head in self.heads}
        return [head.id for head in self.heads if head.id not in parents]

    def one(self) -> StoredHistory:
        """Some conversation."""
        return self.program.history(self.store, self.draw.choice(self.heads).id)

    def place(self, history: StoredHistory) -> int | None:
        """Some place in a conversation, if it has one."""
        return self.draw.randrange(len(history)) if len(history) else None

    def messages(self, most: int = 1) -> list[Message]:
        """Some new messages."""
        return [
            Message(
                self.draw.choice(ROLES),
                f"tea {self.number} " + "leaf " * self.draw.choice([0, 3, 30, 1_500]),
                id=f"m{self.number}-{index}",
                timestamp=self.number,
            )
            for index in range(self.draw.randint(1, most))
        ]

    # ── the steps ───────────────────────────────────────────────────────────────────────────────

    def create(self) -> None:
        self.store.create(self.messages(3), id=f"c{self.number}", title="A talk", tags=["new"])

    def append(self) -> None:
        key = f"k{self.number}" if self.draw.random() < 0.25 else None
        self.one().append(self.messages()[0], key=key)

    def extend(self) -> None:
        self.one().extend(self.messages(4))

    def insert(self) -> None:
        history = self.one()
        history.insert(self.draw.randint(0, len(history)), self.messages(2))

    def replace(self) -> None:
        history = self.one()
        if (place := self.place(history)) is not None:
            history.replace(place, self.messages()[0])

    def truncate(self) -> None:
        history = self.one()
        if self.draw.random() < 0.5:
            history.truncate(keep_last=self.draw.randint(3, 12))
        else:
            history.truncate(remove_last=1, role=self.draw.choice(ROLES), others="keep")

    def clear(self) -> None:
        self.one().clear()

    def filter(self) -> None:
        self.one().filter(content_excludes=[f"tea {self.draw.randint(0, self.number)} "])

    def rewrite(self) -> None:
        history = self.one()
        middle = self.draw.randint(0, len(history))
        history.rewrite([range(middle, len(history)), *self.messages(2), range(middle // 2)])

    def rollback(self) -> None:
        history = self.one()
        history.rollback(self.draw.randint(0, history.state.current_batch_index))

    def undo(self) -> None:
        self.one().undo()

    def redo(self) -> None:
        self.one().redo()

    def restore(self) -> None:
        history = self.one()
        history.restore(self.draw.randint(0, history.version))

    def mark(self) -> None:
        history = self.one()
        if (place := self.place(history)) is not None:
            history.mark(place, self.draw.choice(["pin", "star"]))

    def unmark(self) -> None:
        history = self.one()
        if (place := self.place(history)) is not None:
            history.unmark(place, self.draw.choice(["pin", "star"]))

    def team_task(self) -> None:
        self.one().set_team_task(self.draw.choice([None, f"task {self.number}"]))

    def fork(self) -> None:
        history = self.one()
        history.fork(at=self.draw.randint(0, history.version), id=f"c{self.number}")

    def merge(self) -> None:
        fork = self.draw.choice([head for head in self.heads if head.parent])
        parent = self.program.history(self.store, str(fork.parent))
        child = self.program.history(self.store, fork.id)
        if self.draw.random() < 0.5:
            parent, child = child, parent
        parent.merge(child)

    def erase(self) -> None:
        history = self.one()
        if (place := self.place(history)) is not None:
            history.erase(place)
            self.refresh()

    def prune(self) -> None:
        self.store.prune(self.one().id, undo=self.draw.choice([0, 1, 3]))
        self.refresh()

    def refresh(self) -> None:
        """Whoever shared a message that is gone reads again."""
        for head in self.heads:
            self.program.history(self.store, head.id).refresh()

    def search(self) -> None:
        self.store.search("tea")

    def describe(self) -> None:
        title = f"Talk {self.number}"
        self.store.describe(self.one().id, title=title, tags=[f"tag{self.number}"])

    def delete(self) -> None:
        name = self.draw.choice(self._childless())
        self.store.delete(name)
        self.program.forget(name)

    def lease(self) -> None:
        holder = self.draw.choice(["one", "two"])
        self.store.lease(self.one().id, holder, seconds=0)  # doing it again is the same again

    def put(self) -> None:
        value = self.draw.choice([None, f"draft {self.number}".encode()])
        self.store.backend.put(self.one().id, "draft", self.draw.choice("ab"), value)


_WEIGHTS: Final = {
    "append": 24, "extend": 8, "insert": 8, "replace": 8, "truncate": 4, "clear": 1, "filter": 3,
    "rewrite": 3, "rollback": 4, "undo": 6, "redo": 5, "restore": 4, "mark": 4, "unmark": 3,
    "team_task": 4, "create": 4, "fork": 5, "merge": 5, "erase": 4, "prune": 3, "search": 3,
    "describe": 3, "delete": 3, "lease": 2, "put": 4,
}  # fmt: skip
_STEPS: Final[dict[str, Callable[[_Step], None]]] = {
    name: getattr(_Step, name) for name in _WEIGHTS
}


def picture(store: Store) -> Picture:
    """All that can be seen of a store, one text for each conversation."""
    return tuple(_conversation(store, name) for name in sorted(head.id for head in store))


def _conversation(store: Store, name: str) -> str:
    history = store.get(name)
    head = store.backend.head(name)
    seen = {
        "id": name,
        "head": [head.version, head.stop, head.length, head.size, head.created, head.updated],
        "from": [head.parent, head.base, head.origin],
        "called": [head.title, head.tags],
        "journal": [
            [change.version, change.kind, change.at, change.first, change.count]
            for change in store.backend.journal(name, -1, 1_000_000)
        ],
        "log": [dump(message).decode() for message in history.log],
        "view": [message.id for message in history],
        "marks": {mark: list(places) for mark, places in history.marks.items()},
        "task": history.team_task,
        "batches": history.state.current_batch_index,
        "drafts": {
            draft: value.decode() for draft, value in store.backend.records(name, "draft").items()
        },
    }
    return json.dumps(seen, sort_keys=True)


class Expected:
    """What a store must look like after each step of a program: the same, run in memory."""

    def __init__(self, seed: object) -> None:
        """Begin before the first step."""
        self._program = Program(seed)
        self._store = self._program.open(":memory:")
        self._pictures: list[Picture] = [()]
        self.names: list[str] = []

    def after(self, steps: int) -> Picture:
        """The picture after so many steps."""
        while len(self._pictures) <= steps:
            self.names.append(self._program.step(self._store, len(self.names)))
            self._pictures.append(picture(self._store))
        return self._pictures[steps]

    def which(self, seen: Picture, upto: int) -> list[int]:
        """After which steps, up to a number of them, a store looked like this."""
        self.after(upto)
        return [steps for steps in range(upto + 1) if self._pictures[steps] == seen]


def deleted_already(error: Exception, step: str) -> bool:
    """Tell whether doing a deletion again found it done."""
    return step.startswith("delete") and isinstance(error, UnknownConversation)
