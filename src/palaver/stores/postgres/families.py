"""Families of conversations in PostgreSQL: the root that all their rows begin with.

A family is a conversation and all that was forked from it. Its root, the id of the first one, says
on which shard its rows lie. Which root a conversation has never changes, so it is remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from palaver.errors import UnknownConversation
from palaver.stores.backend import refuse_unknown
from palaver.stores.forks import Lineages

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.postgres.connections import PostgresConnections

__all__ = ["Families"]

_T = TypeVar("_T")
_KNOWN: Final = 100_000  # families whose root is remembered


class Families:
    """The roots and the lineages of the conversations that were seen."""

    def __init__(self, connections: PostgresConnections) -> None:
        """Begin with none."""
        self._connections = connections
        self.roots: dict[str, str] = {}
        self.crowded: set[str] = set()
        """The conversations to which others have appended since this process did so last."""
        self.lineages: Lineages[str] = Lineages(
            lambda name: connections.fetch("line", {"root": self.root(name), "id": name})
        )

    def run(self, conversation: str, work: Callable[[str], _T]) -> _T:
        """Call work with the root of a conversation's family.

        One that is not known yet is taken for a root itself, since most are. Where work raises
        `UnknownConversation`, the name is looked up, and work is called again if that leads
        elsewhere.
        """
        root = self.roots.get(conversation, conversation)
        try:
            found = work(root)
        except UnknownConversation:
            self.forget(conversation)
            now = self.find(conversation)
            if now is None or now == root:
                raise
            return work(now)
        self.remember(conversation, root)
        return found

    def root(self, conversation: str) -> str:
        """Return the root of a conversation's family; `UnknownConversation` if there is none."""
        found = self.roots.get(conversation) or self.find(conversation)
        return refuse_unknown(conversation) if found is None else found

    def find(self, conversation: str) -> str | None:
        """Return the root of a conversation's family, None if there is none."""
        known = self.roots.get(conversation)
        if known is not None:
            return known
        rows = self._connections.fetch("root", (conversation,))
        return self.remember(conversation, rows[0][0]) if rows else None

    def remember(self, conversation: str, root: str) -> str:
        """Remember a root, and return it."""
        if len(self.roots) > _KNOWN:
            self.roots.clear()
        self.roots[conversation] = root
        return root

    def note_crowd(self, conversation: str, *, crowded: bool) -> None:
        """Note whether an append came behind those of others."""
        if not crowded:
            self.crowded.discard(conversation)
        elif len(self.crowded) < _KNOWN:
            self.crowded.add(conversation)

    def forget(self, conversation: str) -> None:
        """Forget a conversation that is not there."""
        self.roots.pop(conversation, None)
        self.crowded.discard(conversation)
        self.lineages.forget(conversation)
