"""A whole conversation as the changes it is made of: what copies and exports are written from.

Nothing here knows one store from another. A fork is read as it is, so that it can be copied beside
its parent, or `alone`: with the messages that it has from its ancestors, and with frames that point
to nobody else, so that it can live without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import StoreDamaged
from palaver.history.rope import size
from palaver.stores.ancestry import open_book
from palaver.stores.frames import FrameBook
from palaver.stores.records import Change
from palaver.stores.rows import one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.frame import Frame
    from palaver.messages import Message
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head, Journaled

__all__ = ["changes_of", "records_of"]

_PAGE = 500
_MANY = 5_000

Records = list[tuple[str, str, bytes]]


def records_of(keeper: Keeper, conversation: str) -> Records:
    """Everything kept beside the log: kind, name, value."""
    return [
        (kind, name, value)
        for kind in keeper.kinds(conversation)
        for name, value in keeper.records(conversation, kind).items()
    ]


def changes_of(
    keeper: Keeper, head: Head, *, after: int = -1, alone: bool = False
) -> Iterator[Change]:
    """The changes of a conversation after a version, each as it was made."""
    walk = _Walk(keeper, head, alone=alone and head.parent is not None)
    version = after
    walk.skip_to(after)
    while version < head.version:
        page = [c for c in keeper.journal(head.id, version, _PAGE) if c.version <= head.version]
        expected = range(version + 1, version + 1 + len(page))
        if not page or [c.version for c in page] != list(expected):
            msg = f"{head.id}: version {version + 1} is missing from the journal"
            raise StoreDamaged(msg)
        yield from walk.changes(page)
        version = page[-1].version


class _Walk:
    """One walk over a journal, with the frames read so far."""

    def __init__(self, keeper: Keeper, head: Head, *, alone: bool) -> None:
        self._keeper = keeper
        self._head = head
        self._book = open_book(keeper, head)
        self._alone = FrameBook() if alone else None
        self._frame: Frame | None = None

    def skip_to(self, version: int) -> None:
        """Read the frames up to a version, which others point to."""
        for kept in self._keeper.frames(self._head.id, -1, version):
            self._frame = self._book.decode(kept.data, kept.version)

    def changes(self, page: list[Journaled]) -> Iterator[Change]:
        keeper, name = self._keeper, self._head.id
        first, last = page[0].version, page[-1].version
        frames = {f.version: f.data for f in keeper.frames(name, first - 1, last)}
        keys = keeper.keys(name, first - 1, last)
        counts = keeper.before(name, page[0].first)
        read = _Reading(keeper, self._head)
        for told in page:
            data = frames.get(told.version)
            stop = told.first + told.count
            if data is not None:
                self._frame = self._book.decode(data, told.version)
                stop = keeper.stop(name, told.version)
            if self._frame is None:
                msg = f"{name}: version {told.version} has no frame"
                raise StoreDamaged(msg)
            start, messages, before = told.first, read.between(told.first, told.count), counts
            counts += sum(map(one, messages))
            if self._alone is not None:
                if told.version == 0:
                    start, before = 0, 0
                    messages = (*read.between(0, self._head.base), *messages)
                if data is not None:
                    data = self._alone.encode(self._frame, told.version)
                    self._alone.keep(self._frame, told.version)
            yield Change(
                conversation=name,
                after=told.version - 1,
                kind="create" if self._alone is not None and told.version == 0 else told.kind,
                at=told.at,
                stop=stop,
                size=size(self._frame.root) + stop - self._frame.start,
                first=start,
                counts=before,
                messages=messages,
                frame=data,
                replaces=self._replaces(start, len(messages)) if data is not None else {},
                key=keys.get(told.version),
                data=told.data,
            )

    def _replaces(self, first: int, count: int) -> dict[int, int]:
        found = (
            (place, self._keeper.replaced(self._head.id, first + place)) for place in range(count)
        )
        return {place: position for place, position in found if position is not None}


class _Reading:
    """Messages of a log one stretch after the other, asked for by many at once."""

    def __init__(self, keeper: Keeper, head: Head) -> None:
        self._keeper = keeper
        self._name, self._length = head.id, head.length
        self._start = 0
        self._ahead: list[Message] = []

    def between(self, first: int, count: int) -> tuple[Message, ...]:
        place = first - self._start
        if place < 0 or place + count > len(self._ahead):
            stop = max(first + count, min(first + _MANY, self._length))
            self._ahead = self._keeper.messages(self._name, first, stop)
            if len(self._ahead) != stop - first:  # a gap would shift all that follow
                msg = f"{self._name}: of the messages {first} to {stop - 1} some are missing"
                raise StoreDamaged(msg)
            self._start, place = first, 0
        return tuple(self._ahead[place : place + count])
