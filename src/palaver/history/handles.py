"""Handles: `msg-1`, `msg-2`, … for the messages of a session, in the order they came.

A handle counts the log since the session began, so it needs no room anywhere: it is worked out from
the line of batches. A session begins with the conversation, with S2's `clear()`, and with an import
that takes the place of what was there. An id always comes before a handle of the same spelling.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.history.frame import IMPORT, SESSION, session_after

if TYPE_CHECKING:
    from palaver.history.frame import Frame

__all__ = ["IMPORT", "SESSION", "handle_of", "position_of", "session_start"]

_HANDLE: Final = re.compile(r"msg-([1-9][0-9]{0,15})")


def session_start(frame: Frame) -> int:
    """How long the log was when the session began."""
    return session_after(frame.line, frame.opened)


def position_of(handle: str, frame: Frame, length: int) -> int | None:
    """The log position that a handle stands for; None where there is none.

    >>> from palaver.history.frame import Frame
    >>> [position_of(handle, Frame(), 5) for handle in ("msg-2", "msg-9", "x")]
    [1, None, None]
    """
    found = _HANDLE.fullmatch(handle)
    if found is None:
        return None
    position = session_start(frame) + int(found[1]) - 1
    return position if position < length else None


def handle_of(position: int, frame: Frame) -> str | None:
    """The handle of a log position; None for what was said before the session began."""
    number = position - session_start(frame) + 1
    return f"msg-{number}" if number > 0 else None
