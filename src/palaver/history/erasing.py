"""Erasing a message: its content leaves every version, fork and snapshot; a tombstone stays.

Only here are bytes destroyed. A summary that was made from an erased message goes with it, since it
may repeat what was said; it names its sources in its metadata under `SUMMARY_OF`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.log import Log, Segment

__all__ = ["ERASED", "SUMMARY_OF", "Receipt", "erase_everywhere", "tombstone"]

SUMMARY_OF: Final = "palaver.summaryOf"
"""The metadata key under which a summary lists the ids of the messages it was made from."""
ERASED: Final = "palaver.erased"
"""The metadata key of a tombstone: when its message was erased."""

_OUT_OF_REACH: Final = ("exports already written", "database backups and WAL archives")


class Receipt(Struct, frozen=True, rename="camel"):
    """What an erasure touched, and what it could not reach."""

    message_id: str
    erased_at: int
    messages: tuple[str, ...]
    summaries: tuple[str, ...]
    places: int
    versions: int
    out_of_reach: tuple[str, ...] = _OUT_OF_REACH
    records: tuple[tuple[str, str, str], ...] = ()
    """What a store had beside the log and took away: conversation, kind, name."""

    def to_dict(self) -> dict[str, Any]:
        """The receipt as JSON-ready data."""
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
    """Put a tombstone in each place of a message and of every summary made from it."""
    names = [message_id]
    places = 0
    for name in names:  # grows as summaries of summaries are found
        for segment in log.family.segments:
            places += _bury(segment, name, at)
        names += [found for found in _summaries_of(log, name) if found not in names]
    return Receipt(message_id, at, (message_id,), tuple(names[1:]), places, versions)


def tombstone(message: Message, at: int) -> Message:
    """What stays of an erased message: its id, role and time."""
    return Message(
        message.role, "", id=message.id, timestamp=message.timestamp, metadata={ERASED: at}
    )


def _bury(segment: Segment, message_id: str, at: int) -> int:
    positions = segment.positions_of(message_id)
    for position in positions:
        place = position - segment.start
        message = segment.messages[place]
        segment.messages[place] = tombstone(message, at)
    return len(positions)


def _summaries_of(log: Log, message_id: str) -> Iterator[str]:
    for segment in log.family.segments:
        for message in segment.messages:
            sources = message.metadata.get(SUMMARY_OF)
            if isinstance(sources, list) and message_id in sources:
                yield message.id
