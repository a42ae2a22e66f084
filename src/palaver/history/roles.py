"""Where each role speaks: sorted positions, one array for each role.

Positions only ever grow, so the arrays stay sorted by themselves, and "how many user messages are
there before position p" is one binary search. The union of the arrays is everything that was added.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from palaver.errors import ValidationError
from palaver.messages import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages import Role

__all__ = ["RoleIndex"]


class RoleIndex:
    """Positions by role.

    >>> index = RoleIndex()
    >>> for position, role in enumerate(["user", "assistant", "user"]):
    ...     index.add(role, position)
    >>> index.by_role("user"), index.recent("user", 1), index.range("user", 0, 1)
    ([0, 2], [2], [0])
    """

    __slots__ = ("positions",)

    def __init__(self) -> None:
        """Begin empty."""
        self.positions: dict[Role, array[int]] = {role: array("Q") for role in ROLES}

    def add(self, role: Role, position: int) -> None:
        """Note that a role speaks at a position; positions come in order."""
        known = self._of(role)
        if known and known[-1] >= position:
            detail = f"positions come in order: {position} after {known[-1]}"
            raise ValidationError(detail, path="$.position", rule="QR-03")
        known.append(position)

    def by_role(self, role: Role) -> list[int]:
        """All positions of a role."""
        return self._of(role).tolist()

    def recent(self, role: Role, n: int) -> list[int]:
        """The last n positions of a role."""
        if n < 0:
            raise ValidationError(f"must not be negative: {n}", path="$.n", rule="QR-01")
        known = self._of(role)
        return known[max(len(known) - n, 0) :].tolist()

    def range(self, role: Role, start: int, end: int) -> list[int]:
        """The positions of a role from its start-th to before its end-th."""
        if start < 0 or end < start:
            detail = f"must be 0 ≤ start ≤ end, not {start} and {end}"
            raise ValidationError(detail, path="$.range", rule="QR-01")
        return self._of(role)[start:end].tolist()

    def all(self) -> dict[Role, list[int]]:
        """The positions of every role."""
        return {role: known.tolist() for role, known in self.positions.items()}

    def clone(self) -> RoleIndex:
        """A copy that goes its own way."""
        copy = RoleIndex()
        copy.positions = {role: known[:] for role, known in self.positions.items()}
        return copy

    def reset(self) -> None:
        """Forget everything."""
        for known in self.positions.values():
            del known[:]

    def remove(self, positions: Iterable[int]) -> None:
        """Forget some positions."""
        gone = frozenset(positions)
        for role, known in self.positions.items():
            self.positions[role] = array("Q", (p for p in known if p not in gone))

    def rank(self, role: Role, position: int) -> int:
        """How many times a role speaks before a position."""
        return bisect_left(self.positions[role], position)

    def _of(self, role: Role) -> array[int]:
        try:
            return self.positions[role]
        except (KeyError, TypeError):
            detail = f"must be system, user, assistant or tool, not {role!r}"
            raise ValidationError(detail, path="$.role", rule="role") from None
