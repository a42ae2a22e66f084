"""What a conversation is at one moment, as a value: the selection, the line of batches, the marks.

A frame holds still while messages are appended; only the end of its tail moves, and that is a plain
number kept beside it. Every other change makes a new frame, which shares its ropes with the old
one. Keeping all frames is how any version can be read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.history.rope import Rope
from palaver.messages.gate import EMPTY

__all__ = ["IMPORT", "SESSION", "Batch", "Frame", "Redo", "jump_of", "session_after"]

SESSION: Final = "SESSION"
"""Why a batch ended: a new session began."""
IMPORT: Final = "IMPORT"
"""Why a batch ended: a snapshot took the place of what was there."""


class Batch(Struct, frozen=True, gc=False):
    """A batch that has ended: its selection as it was at the end, and why it ended.

    Batches hang on one another from the newest to the oldest. `jump` leads further back, such that
    any batch is found in a few steps, however many there are.
    """

    index: int
    before: Batch | None
    jump: Batch | None
    root: Rope
    start: int
    stop: int
    opened: int
    ended: int
    reason: str
    place: int | None = None
    merged: Mapping[str, int] = EMPTY
    session: int = 0
    """How long the log was when the session of this batch began, as `session_after` says."""

    @property
    def description(self) -> str:
        """What ended it."""
        where = {"INSERT": " at position", "REPLACE": " at index"}.get(self.reason, "")
        return f"Before {self.reason}{where}" + (f" {self.place}" if where else "")


class Redo(Struct, frozen=True):
    """A version that `redo` would bring back, and the ones after it.

    The collector looks after these: a chain of them is let go of without deep recursion.
    """

    version: int
    after: Redo | None = None


class Frame(Struct, frozen=True, gc=False, kw_only=True):
    """A moment: `root`, then the log from `start` up to a stop that moves as messages come.

    `logged` is the log's length when the frame was made; `back` the version that undo returns to,
    `redo` what redo would bring back. `merged` says, for each fork or parent, up to which of its
    versions everything has been brought in.
    """

    root: Rope = None
    start: int = 0
    line: Batch | None = None
    opened: int = 0
    marks: Mapping[str, Rope] = EMPTY
    team_task: str | None = None
    merged: Mapping[str, int] = EMPTY
    logged: int = 0
    back: int | None = None
    redo: Redo | None = None

    @property
    def batch_index(self) -> int:
        """The number of the batch that is open."""
        return 0 if self.line is None else self.line.index + 1

    def batch(self, index: int) -> Batch | None:
        """The ended batch of a number, if it is on the line."""
        batch = self.line
        while batch is not None and batch.index > index:
            far = batch.jump
            batch = far if far is not None and far.index >= index else batch.before
        return batch if batch is not None and batch.index == index else None

    def ended(self, index: int) -> Batch:
        """The ended batch of a number; an error where there is none."""
        batch = self.batch(index)
        if batch is None:
            detail = f"must be a batch from 0 to {self.batch_index}, not {index}"
            raise ValidationError(detail, path="$.targetBatchIndex", rule="HI-10")
        return batch


def session_after(batch: Batch | None, opened: int) -> int:
    """How long the log was when the session began that goes on after a batch.

    `opened` is the log's length when the batch after it opened.
    """
    if batch is None:
        return 0
    return opened if batch.reason in {SESSION, IMPORT} else batch.session


def jump_of(before: Batch | None) -> Batch | None:
    """Where the jump of the batch after this one leads: the way of skew binary numbers."""
    if before is None or before.jump is None or before.jump.jump is None:
        return before
    if before.index - before.jump.index == before.jump.index - before.jump.jump.index:
        return before.jump.jump
    return before
