"""Which lines of a tree were said: the way back from the last one, and what belongs to it.

A line names its parent. A parent that is missing (the line was damaged, or the session was resumed)
is taken to be the line before, so that damage in the middle never cuts off what came earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Branches"]


class Branches:
    """Lines by their ids, each with its parent.

    >>> tree = Branches()
    >>> for line, parent in (("a", None), ("b", "a"), ("left", "a"), ("c", "b")):
    ...     tree.add(line, (parent,))
    >>> sorted(tree.way_to("c"))
    ['a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._last: str | None = None

    def __contains__(self, line: str) -> bool:
        """Tell whether a line of this id was there."""
        return line in self._parents

    def add(self, line: str, parents: Iterable[str | None], *, aside: bool = False) -> None:
        """Add a line under the first of these parents that is known, else under the line before.

        A line that stands `aside` is nobody's parent by default, and has none itself.
        """
        known = (parent for parent in parents if parent in self._parents)
        self._parents[line] = next(known, None if aside else self._last)
        if not aside:
            self._last = line

    def way_to(self, line: str | None) -> set[str]:
        """A line and everything it came from; parents stand before children, so it ends."""
        way: set[str] = set()
        while line is not None:
            way.add(line)
            line = self._parents.get(line)
        return way
