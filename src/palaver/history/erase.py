"""Erasing a message: its content leaves every version, fork and snapshot; a tombstone stays.

This is the only place where content is destroyed. A summary that was made from an erased message is
erased with it, since it may repeat the content; it lists its sources in its metadata under
`SUMMARY_OF`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from palaver.history.log import Log, Segment

__all__ = [
    "ERASED",
    "SUMMARY_OF",
    "Receipt",
    "Row",
    "erase_everywhere",
    "origins_of",
    "rows_of_others",
    "tombstone",
    "with_summaries",
]

SUMMARY_OF: Final = "palaver.summaryOf"
"""The metadata key under which a summary lists the ids of the messages it was made from."""
ERASED: Final = "palaver.erased"
"""The metadata key of a tombstone: when its message was erased."""

_OUT_OF_REACH: Final = ("exports already written", "database backups and WAL archives")


class Receipt(Struct, frozen=True, rename="camel"):
    """What an erasure removed, and what it could not reach."""

    message_id: str
    erased_at: int
    messages: tuple[str, ...]
    summaries: tuple[str, ...]
    places: int
    versions: int
    out_of_reach: tuple[str, ...] = _OUT_OF_REACH
    records: tuple[tuple[str, str, str], ...] = ()
    """The records that a store removed: conversation, kind, name."""

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON-ready data."""
        return {
            "messageId": self.message_id,
            "erasedAt": self.erased_at,
            "messages": list(self.messages),
            "summaries": list(self.summaries),
            "places": self.places,
            "versions": self.versions,
            "records": [
                {"conversation": conversation, "kind": kind, "name": name}
                for conversation, kind, name in self.records
            ],
            "outOfReach": list(self.out_of_reach),
        }


class Row(NamedTuple):
    """A message of a family where it is stored; `replaces` are the positions it was made from.

    Positions below `base` are those of the owner's ancestors.
    """

    owner: object
    base: int
    position: int
    message: Message
    replaces: frozenset[int]


def rows_of_others(rows: Sequence[Row], owner: object, position: int) -> list[Row]:
    """Return, of rows that have one id, those of other messages than the one at a position.

    A row is of the same message if it is a copy (a merge or an import made it), or a revision.
    """
    same = [row for row in rows if (row.owner, row.position) == (owner, position)]
    others = [row for row in rows if row not in same]
    for one in same:  # grows as copies and revisions are found
        found = [row for row in others if row.message == one.message or _revises(row, one)]
        others = [row for row in others if row not in found]
        same += found
    return others


def _revises(one: Row, other: Row) -> bool:
    """Tell whether one of two rows was made from the other."""
    return any(
        old.position in new.replaces and (old.owner == new.owner or old.position < new.base)
        for old, new in ((one, other), (other, one))
    )


def origins_of(position: int, replaced: Callable[[int], int | None]) -> frozenset[int]:
    """Return the positions that a message was made from: what it replaced, and what that did."""
    found: set[int] = set()
    origin = replaced(position)
    while origin is not None and origin not in found:
        found.add(origin)
        origin = replaced(origin)
    return frozenset(found)


def erase_everywhere(log: Log, position: int, *, at: int, versions: int) -> Receipt:
    """Replace a message, and every summary made from it, with tombstones in all segments.

    Other messages that have the same id stay.
    """
    segments = list(log.family.segments)
    message_id = log[position].id
    rows = [
        Row(segment, segment.start, place, segment.messages[place - segment.start],
            origins_of(place, segment.replaced.get))
        for segment in segments
        for place in segment.positions_of(message_id)
    ]  # fmt: skip
    others = rows_of_others(rows, log.segment_at(position), position) if len(rows) > 1 else []
    spared = {(id(row.owner), row.position) for row in others}
    names = with_summaries(message_id, (m for segment in segments for m in segment.messages))
    places = sum(
        _put_tombstones(segment, name, at, spared) for name in names for segment in segments
    )
    return Receipt(message_id, at, (message_id,), tuple(names[1:]), places, versions)


def with_summaries(message_id: str, messages: Iterable[Message]) -> list[str]:
    """Return a message's id, then the ids of its summaries, and of the summaries of those.

    >>> from palaver.messages import user
    >>> short = user("short", id="s", metadata={SUMMARY_OF: ["m"]})
    >>> with_summaries("m", [user("long", id="m"), short])
    ['m', 's']
    """
    made_from: dict[str, list[str]] = {}
    for message in messages:
        sources = message.metadata.get(SUMMARY_OF)
        if isinstance(sources, list):
            for source in sources:
                if isinstance(source, str):
                    made_from.setdefault(source, []).append(message.id)
    names = {message_id: None}
    waiting = [message_id]
    for name in waiting:  # grows as summaries of summaries are found
        new = [found for found in dict.fromkeys(made_from.get(name, ())) if found not in names]
        names.update(dict.fromkeys(new))
        waiting += new
    return waiting


def tombstone(message: Message, at: int) -> Message:
    """Return what stays of an erased message: its id, role and time."""
    return Message(
        message.role, "", id=message.id, timestamp=message.timestamp, metadata={ERASED: at}
    )


def _put_tombstones(
    segment: Segment, message_id: str, at: int, spared: Container[tuple[int, int]]
) -> int:
    positions = [
        position
        for position in segment.positions_of(message_id)
        if (id(segment), position) not in spared
    ]
    for position in positions:
        place = position - segment.start
        message = segment.messages[place]
        segment.messages[place] = tombstone(message, at)
    return len(positions)
