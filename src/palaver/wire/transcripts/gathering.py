"""Notes as a reader takes them: each thing once, and a flood of the same kind as one number.

A damaged file may have a million bad lines. The first of a kind are told one by one, the rest are
counted. Records that are no part of the conversation are counted by kind from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from palaver.wire.report import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Notes"]

_TOLD: Final = 100
"""Notes of one rule that are told one by one."""
_KINDS: Final = 200
"""Kinds of records that are counted apart."""


class Notes:
    """The notes of one reading, under way."""

    def __init__(self) -> None:
        self._told: list[Note] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._passed: dict[tuple[str, str], list[int | str]] = {}

    def lost(self, where: str, rule: str, detail: str, message_id: str | None = None) -> None:
        """Say what could not be kept."""
        self._tell("lost", where, rule, detail, message_id)

    def repaired(self, where: str, rule: str, detail: str, message_id: str | None = None) -> None:
        """Say what had to be changed to be kept."""
        self._tell("repaired", where, rule, detail, message_id)

    def passed_over(self, where: str, kind: str, why: str) -> None:
        """Count a record that is no part of the conversation.

        >>> notes = Notes()
        >>> for line in (3, 7):
        ...     notes.passed_over(f"line {line}", "progress", "tells how a tool got on")
        >>> print(*notes.all())
        line 3 and 1 more: progress: tells how a tool got on (transcript.record)
        """
        key = (kind[:80], why)
        if key not in self._passed and len(self._passed) >= _KINDS:
            key = ("other records", "of too many kinds to name")
        first = self._passed.setdefault(key, [where, 0])
        first[1] = int(first[1]) + 1

    def all(self) -> tuple[Note, ...]:
        """Every note, and what was only counted at the end."""
        return (*self._told, *self._further(), *self._records())

    def _tell(
        self,
        action: Literal["repaired", "lost"],
        where: str,
        rule: str,
        detail: str,
        message_id: str | None,
    ) -> None:
        key = (action, rule)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] <= _TOLD:
            self._told.append(Note(action, where, rule, detail, message_id))

    def _further(self) -> Iterator[Note]:
        for (action, rule), count in self._counts.items():
            if count > _TOLD:
                kept: Literal["repaired", "lost"] = "lost" if action == "lost" else "repaired"
                yield Note(kept, "further on", rule, f"{count - _TOLD:,} more of these")

    def _records(self) -> Iterator[Note]:
        for (kind, why), (where, count) in self._passed.items():
            more = f" and {int(count) - 1:,} more" if int(count) > 1 else ""
            yield Note("lost", f"{where}{more}", "transcript.record", f"{kind}: {why}")
