"""The difference between two views of one log, by message identity: the position in the log.

A difference is what one view has and the other has not.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from palaver.messages.codec import to_dict
from palaver.messages.message import message_rows, show_html, show_rich

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.view import View
    from palaver.messages import Message

__all__ = ["Diff", "DiffEntry", "common_prefix", "compare", "missing"]


class DiffEntry(NamedTuple):
    """A message and its index in the view that has it."""

    index: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride] - the word for it
    message: Message


class Diff(Struct, frozen=True):
    """The messages that were removed (with the index before) and added (with the index after)."""

    removed: tuple[DiffEntry, ...]
    added: tuple[DiffEntry, ...]

    def __bool__(self) -> bool:
        """Tell whether there is any difference."""
        return bool(self.removed or self.added)

    def __repr__(self) -> str:
        """Return the numbers, as text."""
        return f"<Diff: {len(self.removed):,} removed, {len(self.added):,} added>"

    def _repr_html_(self) -> str:
        """Return the difference as a notebook shows it."""
        return show_html(repr(self), self._rows())

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the difference as `rich` shows it."""
        return show_rich(repr(self), self._rows())

    def _rows(self) -> Iterator[tuple[str, str]]:
        for sign, entries in (("-", self.removed), ("+", self.added)):
            rows = message_rows([entry.message for entry in entries])
            yield from ((f"{sign} {who}", text) for who, text in rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON-ready data."""
        return {
            side: [{"index": entry.index, "message": to_dict(entry.message)} for entry in entries]
            for side, entries in (("removed", self.removed), ("added", self.added))
        }


def compare(before: View, after: View) -> Diff:
    """Return what changed from one view to another."""
    return Diff(tuple(_entries(before, after)), tuple(_entries(after, before)))


def _entries(view: View, other: View) -> Iterator[DiffEntry]:
    found = list(missing(view, other))
    read = view.log.read((start, stop) for _, start, stop in found)
    for (index, _, _), messages in zip(found, read, strict=True):
        for offset, message in enumerate(messages):
            yield DiffEntry(index + offset, message)


def missing(view: View, other: View) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of a view that another lacks: index in the view, start and stop."""
    there = sorted(other.ranges())
    starts = [start for start, _ in there]
    index = 0
    for start, stop in view.ranges():
        position = start
        while position < stop:
            place = bisect_right(starts, position) - 1
            if place >= 0 and position < there[place][1]:
                position = min(there[place][1], stop)
                continue
            end = min(starts[place + 1], stop) if place + 1 < len(starts) else stop
            yield index + position - start, position, end
            position = end
        index += stop - start


def common_prefix(one: View, other: View) -> int:
    """Return how many messages at the start of two views are the same."""
    mine, theirs = list(one.ranges()), list(other.ranges())
    length = here = there = 0
    while here < len(mine) and there < len(theirs):
        (start, stop), (begin, end) = mine[here], theirs[there]
        if start != begin:
            break
        step = min(stop - start, end - begin)
        length += step
        mine[here], theirs[there] = (start + step, stop), (begin + step, end)
        here += start + step == stop
        there += begin + step == end
    return length
