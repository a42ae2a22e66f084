"""Erasing a message: its content leaves every version, fork and snapshot; a tombstone stays.

This is the only place where content is destroyed. A summary that was made from an erased message is
erased with it, since it may repeat the content; it lists its sources in its metadata under
`SUMMARY_OF`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.history.log import Log, Segment

__all__ = ["ERASED", "SUMMARY_OF", "Receipt", "erase_everywhere", "tombstone", "with_summaries"]

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


def erase_everywhere(log: Log, message_id: str, *, at: int, versions: int) -> Receipt:
    """Replace a message, and every summary made from it, with tombstones in all segments."""
    segments = list(log.family.segments)
    names = with_summaries(message_id, (m for segment in segments for m in segment.messages))
    places = sum(_put_tombstones(segment, name, at) for name in names for segment in segments)
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


def _put_tombstones(segment: Segment, message_id: str, at: int) -> int:
    positions = segment.positions_of(message_id)
    for position in positions:
        place = position - segment.start
        message = segment.messages[place]
        segment.messages[place] = tombstone(message, at)
    return len(positions)
