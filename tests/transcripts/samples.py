"""The transcripts that the tests read: files, and databases made of scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from palaver import History

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages.message import Message
    from palaver.wire.notes import ParsedConversation

__all__ = ["DATA", "database", "sample", "sound", "spoken"]

DATA = Path(__file__).resolve().parent / "data"


def sample(name: str) -> bytes:
    """The bytes of a file."""
    return (DATA / name).read_bytes()


def database(path: Path, *scripts: str) -> Path:
    """A database made of scripts, at this path."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    connection.pragma("journal_mode", "memory")
    for script in scripts:
        connection.execute(sample(script).decode())
    connection.close()
    return path


def spoken(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Role and text of each message; of a result, what came of the call."""
    return [(message.role, message.text or _outcome(message)) for message in messages]


def _outcome(message: Message) -> str:
    state = getattr(message.parts[0], "state", None) if message.parts else None
    return str(getattr(state, "output", None) or getattr(state, "error", ""))


def sound(conversations: Iterable[ParsedConversation]) -> list[ParsedConversation]:
    """The readings, after a history has taken each one: ids are unique, and so are a part's."""
    taken = list(conversations)
    for parsed in taken:
        assert len(parsed.messages) == len(History(parsed.messages))
        ids = [part.id for message in parsed.messages for part in message.parts if part.id]
        assert len(set(ids)) == len(ids)
    return taken
