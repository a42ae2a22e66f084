"""Messages in palaver's own JSON: a list, one message, or a message on each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from palaver.errors import ValidationError
from palaver.messages import MAX_DOCUMENT, parse_message, parse_messages
from palaver.wire.report import Reading
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import load_value, open_source, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.messages.message import Message

__all__ = ["read"]

_LIST: Final = b"["


def read(source: bytes | Path) -> Iterator[Reading]:
    """Read messages; of lines, those that are none are noted, a list is all or nothing."""
    notes = Notes()
    with open_source(source) as stream:
        opening = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    messages: list[Message] = []
    if opening.startswith(_LIST):
        with open_source(source) as stream:
            value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
        messages = parse_messages(value)
    else:
        for record in records(source, notes):
            try:
                messages.append(parse_message(record.value))
            except ValidationError as error:
                notes.lost(record.where, "transcript.damaged", str(error))
    yield Reading(tuple(_once(messages, notes)), notes.all())


def _once(messages: list[Message], notes: Notes) -> Iterator[Message]:
    seen: set[str] = set()
    for message in messages:
        if message.id in seen:
            detail = "another message has its id"
            notes.lost(f"message {message.id}", "transcript.damaged", detail, message.id)
            continue
        seen.add(message.id)
        yield message
