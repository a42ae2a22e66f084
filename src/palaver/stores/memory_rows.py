"""A conversation as the store in memory has it: its rows, its journal, and its forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.stores.lineage import Lineage
from palaver.stores.rows import body_of

if TYPE_CHECKING:
    from palaver.messages import Message
    from palaver.stores.records import Head, Journaled, Lease

__all__ = ["Kept", "Row"]


class Row:
    """A message as it is kept: what was before it, and its bytes."""

    __slots__ = ("before", "body", "id", "replaces", "role", "time")

    def __init__(self, message: Message, before: int, replaces: int | None) -> None:
        """Keep a message's bytes, and how many were before it."""
        self.before = before
        self.body = body_of(message)
        self.id = message.id
        self.role = message.role
        self.time = message.timestamp
        self.replaces = replaces


class Kept:
    """One conversation."""

    def __init__(self, head: Head, parent: Kept | None) -> None:
        """Begin without rows, as a fork of another or not."""
        self.head = head
        above = None if parent is None else parent.lineage
        self.lineage: Lineage[str] = Lineage(head.id, above, head.base, head.origin)
        self.forks: dict[str, None] = {}
        self.rows: list[Row] = []
        self.journal: list[tuple[Journaled, int, bytes | None]] = []
        self.keys: dict[str, int] = {}
        self.lease: Lease | None = None
        self.records: dict[tuple[str, str], bytes] = {}

    def moment(self) -> tuple[Head, int, int, dict[str, int], dict[tuple[str, str], bytes]]:
        """All it takes to return to how it is now."""
        return self.head, len(self.rows), len(self.journal), dict(self.keys), dict(self.records)

    def return_to(
        self, moment: tuple[Head, int, int, dict[str, int], dict[tuple[str, str], bytes]]
    ) -> None:
        """Take back what came since."""
        self.head, rows, journal, self.keys, self.records = moment
        del self.rows[rows:]
        del self.journal[journal:]
