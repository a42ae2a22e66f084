"""Places where the same conversations live side by side: in memory, and in every kind of store.

What is done to one is done to all, and nothing may tell them apart: answers, errors, messages,
batches, marks, versions. `outcome` and `seen` are what is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.errors import PalaverError
from palaver.history import BaseHistory, History, Result
from palaver.messages import to_dict
from palaver.stores import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Message

__all__ = ["StoredWorld", "World", "outcome", "seen"]


class World:
    """One place where conversations live, by name."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin with none."""
        self.clock = clock
        self.histories: dict[str, BaseHistory] = {}

    def begin(self, name: str, messages: list[Message]) -> None:
        """Begin a conversation."""
        self.histories[name] = History(messages, id=name, clock=self.clock)

    def reopen(self) -> None:
        """There is nothing to open."""

    def prove(self) -> None:
        """There is nothing to prove."""

    def close(self) -> None:
        """There is nothing to close."""


class StoredWorld(World):
    """The same, in a store."""

    def __init__(self, clock: Callable[[], int], open_store: Callable[[], Store]) -> None:
        """Take what opens the store."""
        super().__init__(clock)
        self.open_store = open_store
        self.opened = open_store()

    @property
    def store(self) -> Store:
        """The store, at the program's time."""
        return Store(self.opened.backend, clock=self.clock)

    def begin(self, name: str, messages: list[Message]) -> None:
        """Begin a conversation."""
        self.histories[name] = self.store.create(messages, id=name)

    def reopen(self) -> None:
        """Close the store, open it again and read the conversations anew."""
        self.opened.close()
        self.opened = self.open_store()
        self.histories = {name: self.store.get(name) for name in self.histories}

    def prove(self) -> None:
        """Find the store whole, and leave it empty: one on a server serves the next, too."""
        assert [] == list(self.opened.verify())
        for name in reversed(self.histories):  # forks were made after what they are forks of
            self.opened.delete(name)
        assert [] == list(self.opened.verify())

    def close(self) -> None:
        """Let go of the store."""
        self.opened.close()


def outcome(what: Callable[[], object]) -> object:
    """What something answers, or the error it raises."""
    try:
        found = what()
    except PalaverError as error:
        return error.to_dict()
    return found.to_dict() if isinstance(found, Result) else found


def seen(history: BaseHistory) -> dict[str, Any]:
    """What is there now."""
    return {
        "version": history.version,
        "state": history.state.to_dict(snapshots=False),
        "markMap": to_dict(history.mark_map()),
        "marks": dict(history.marks),
        "task": history.team_task,
        "stats": to_dict(history.stats),
        "log": len(history.log),
    }
