"""Ids: UUIDs of version 7 for everything palaver makes, and a stable UUID for a foreign id.

A version 7 UUID starts with the time, so ids sort by when they were made. A foreign id
(`ses_01H…`) always becomes the same UUID, so values that shared it before still do.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import Final

import uuid_utils

__all__ = ["NIL_ID", "derive_id", "is_uuid", "new_id", "now_ms", "require_uuid", "uuid_for"]

NIL_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The session id of a message that does not belong to a session yet."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_FOREIGN = uuid_utils.uuid5(uuid_utils.UUID(NIL_ID), "palaver.foreign")


def new_id() -> str:
    """Return a new id, a UUID of version 7.

    >>> is_uuid(new_id())
    True
    """
    return str(uuid_utils.uuid7())


def now_ms() -> int:
    """Return the current time in whole milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=16_384)
def require_uuid(text: str) -> None:
    """Raise ValueError if a text is not a UUID.

    The result is cached: a conversation has one session id, and a message's parts share its id. An
    error is not cached, so a text that is long and wrong does not stay in memory.
    """
    if _UUID.fullmatch(text) is None:
        raise ValueError


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID, of any version.

    >>> is_uuid("ses_01J9"), is_uuid("0190163d-8694-739b-aea5-966c26f8ad91")
    (False, True)
    """
    try:
        require_uuid(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=16_384)
def uuid_for(foreign: str) -> str:
    """Return the UUID that stands for a foreign id; a UUID stands for itself.

    >>> uuid_for("ses_1") == uuid_for("ses_1") != uuid_for("ses_2")
    True
    """
    return foreign if is_uuid(foreign) else str(uuid_utils.uuid5(_FOREIGN, foreign))


def derive_id(base: str, purpose: str) -> str:
    """Return an id that is derived from another one, the same every time.

    >>> derive_id("a", "call") == derive_id("a", "call") != derive_id("a", "text")
    True
    """
    return str(uuid_utils.uuid5(_FOREIGN, f"{base}\n{purpose}"))
