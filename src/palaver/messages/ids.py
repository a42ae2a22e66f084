"""Ids: UUIDs of version 7 for everything palaver makes, and a stable UUID for a foreign id.

Version 7 begins with the time, so ids sort by when they were made. A foreign id (`ses_01H…`)
always becomes the same UUID, so what belonged together before still does.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import Final

import uuid_utils

__all__ = ["NIL_ID", "demand_uuid", "derived_id", "is_uuid", "new_id", "now_ms", "uuid_for"]

NIL_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The session of a message that belongs to none yet."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_FOREIGN = uuid_utils.uuid5(uuid_utils.UUID(NIL_ID), "palaver.foreign")


def new_id() -> str:
    """A new id: UUID version 7.

    >>> is_uuid(new_id())
    True
    """
    return str(uuid_utils.uuid7())


def now_ms() -> int:
    """The time, in whole milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=16_384)
def demand_uuid(text: str) -> None:
    """Raise ValueError for a text that is no UUID.

    Cached: a conversation has one session id, and a message's parts share its id. What is raised
    is not cached, so a text that is long and wrong is not kept.
    """
    if _UUID.fullmatch(text) is None:
        raise ValueError


def is_uuid(text: str) -> bool:
    """Tell whether a text is a UUID, of any version.

    >>> is_uuid("ses_01J9"), is_uuid("0190163d-8694-739b-aea5-966c26f8ad91")
    (False, True)
    """
    try:
        demand_uuid(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=16_384)
def uuid_for(foreign: str) -> str:
    """The UUID that stands for an id from elsewhere: a UUID stands for itself.

    >>> uuid_for("ses_1") == uuid_for("ses_1") != uuid_for("ses_2")
    True
    """
    return foreign if is_uuid(foreign) else str(uuid_utils.uuid5(_FOREIGN, foreign))


def derived_id(base: str, purpose: str) -> str:
    """An id that follows from another one, the same every time.

    >>> derived_id("a", "call") == derived_id("a", "call") != derived_id("a", "text")
    True
    """
    return str(uuid_utils.uuid5(_FOREIGN, f"{base}\n{purpose}"))
