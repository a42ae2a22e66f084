"""What a history answers with: state, stats, snapshots, the mark map; lazy until JSON is wanted.

Each of these holds on to a moment of the history, which can't change, and works out the rest when
somebody looks.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from palaver.history import view as views  # the module, not the class: it imports us first
from palaver.messages import Role
from palaver.messages.codec import to_dict

__all__ = ["BatchSnapshot", "MarkMap", "Result", "State", "Stats"]


class Stats(Struct, frozen=True, rename="camel"):
    """How many: the messages of the view, and the batches up to the open one."""

    total_messages: int
    current_batch_messages: int
    total_batches: int
    current_batch_index: int


class MarkMap(Struct, frozen=True, rename="camel"):
    """The view as log positions: in order, by role, and where each batch of the line opened."""

    original_indices: list[int]
    type_indices: dict[Role, list[int]]
    batch_boundaries: list[int]
    boundary_to_batch: list[int]
    current_batch: int


class BatchSnapshot(Struct, frozen=True):
    """A batch as it ended; `boundary` is the log's length when it opened."""

    batch_index: int
    timestamp: int
    messages: views.View
    description: str
    boundary: int = 0

    @property
    def message_count(self) -> int:
        """How many messages it had."""
        return len(self.messages)

    def to_dict(self, *, messages: bool = True) -> dict[str, Any]:
        """The snapshot as JSON-ready data; without its messages where those are not wanted."""
        return {
            "batchIndex": self.batch_index,
            "timestamp": self.timestamp,
            **({"messages": [to_dict(message) for message in self.messages]} if messages else {}),
            "messageCount": self.message_count,
            "description": self.description,
        }


class State(Struct, frozen=True):
    """A moment of a history: its messages and the snapshots of the batches before it."""

    messages: views.View

    @property
    def batch_snapshots(self) -> list[BatchSnapshot]:
        """The batches of the line that have ended, oldest first."""
        return self.messages.batch_snapshots()

    @property
    def current_batch_index(self) -> int:
        """The number of the batch that is open."""
        return self.messages.batch_index

    @property
    def total_message_count(self) -> int:
        """How many messages the view has."""
        return len(self.messages)

    def to_dict(self, *, snapshots: bool = True) -> dict[str, Any]:
        """The state as JSON-ready data; `snapshots=False` leaves the snapshots' messages out."""
        return {
            "messages": [to_dict(message) for message in self.messages],
            "batchSnapshots": [
                snapshot.to_dict(messages=snapshots) for snapshot in self.batch_snapshots
            ],
            "currentBatchIndex": self.current_batch_index,
            "totalMessageCount": self.total_message_count,
        }


class Result(Struct, frozen=True):
    """What an operation came to."""

    state: State
    affected_batch_index: int

    def __repr__(self) -> str:
        """Say the numbers; the messages are asked for by name."""
        count = self.state.total_message_count
        return f"<Result: {count} messages, batch {self.affected_batch_index}>"

    @property
    def stats(self) -> Stats:
        """The numbers after the operation."""
        return self.state.messages.stats

    def to_dict(self, *, snapshots: bool = True) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return {
            "state": self.state.to_dict(snapshots=snapshots),
            "stats": to_dict(self.stats),
            "affectedBatchIndex": self.affected_batch_index,
        }
