"""The difference between two views of one log, by message identity: the position in the log.

A difference is what one view has and the other has not. Where two views begin alike and go on with
different messages, these are alternatives: two answers to the same question, or two wordings of it.
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

__all__ = ["Diff", "DiffEntry", "common_prefix", "compare", "find_alternative", "missing"]


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


def missing(view: View, other: View, shared: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of a view that another lacks: index in the view, start and stop.

    The views of two conversations of a family share the positions below `shared` only.
    """
    there = sorted(other.ranges())
    if shared is not None:
        there = [(start, min(stop, shared)) for start, stop in there if start < shared]
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


def common_prefix(one: View, other: View, shared: int | None = None) -> int:
    """Return how many messages at the start of two views are the same.

    The views of two conversations of a family share the positions below `shared` only.
    """
    mine, theirs = iter(one.ranges()), iter(other.ranges())
    here, there = next(mine, None), next(theirs, None)
    length = 0
    while here is not None and there is not None:
        (start, stop), (begin, end) = here, there
        step = min(stop - start, end - begin)
        if shared is not None:
            step = min(step, shared - start)
        if start != begin or step <= 0:
            break
        length += step
        start += step
        here = (start, stop) if start < stop else next(mine, None)
        there = (start, end) if start < end else next(theirs, None)
    return length


def find_alternative(view: View, other: View, shared: int | None = None) -> int | None:
    """Return the index at which another view has an alternative to a message of this one.

    Up to there both are the same. There both have a message of one role that the other view lacks;
    a message that was only moved, put in or cut out is no alternative. `shared` is as in
    `common_prefix`.

    >>> from palaver.history import History
    >>> from palaver.messages import assistant, user
    >>> history = History([user("Tea?"), assistant("Yes.")])
    >>> _ = history.truncate(keep_first=1), history.append(assistant("No."))
    >>> find_alternative(history.view, history.at(0))
    1
    """
    index = common_prefix(view, other, shared)
    if index >= min(len(view), len(other)):
        return None
    mine, theirs = view.position(index), other.position(index)
    if _has(other, mine, shared) or _has(view, theirs, shared):
        return None
    return index if view.log[mine].role == other.log[theirs].role else None


def _has(view: View, position: int, shared: int | None) -> bool:
    return (shared is None or position < shared) and view.index_of(position) is not None
