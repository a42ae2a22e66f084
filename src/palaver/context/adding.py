"""Messages as S2's `addMessage` takes them: text, a speaker, perhaps routing and more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.messages import Message, new_id
from palaver.stores.version1 import read_message

__all__ = ["as_message"]


def as_message(value: object, *, at: int) -> Message:
    """Read a message that is to be added; S2's own errors come first.

    >>> as_message({"content": "Hi", "speaker": {"roleId": "u1", "roleName": "User"}}, at=5).role
    'user'
    >>> as_message({"content": 123}, at=5)
    Traceback (most recent call last):
    TypeError: Message content must be a string
    """
    if isinstance(value, Message):
        if value.speaker is None:
            raise TypeError(_NO_SPEAKER)
        return value
    if not value and not isinstance(value, Mapping):
        raise TypeError(_NO_MESSAGE)
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if not isinstance(fields.get("content"), str):
        raise TypeError(_NO_TEXT)
    speaker = fields.get("speaker")
    if not speaker:
        raise TypeError(_NO_SPEAKER)
    name = speaker.get("roleId") if isinstance(speaker, Mapping) else None
    if not name:
        raise TypeError(_NO_ROLE_ID)
    whole = {"roleName": name, "type": "human", **speaker}
    return read_message({"id": new_id(), "timestamp": at, **fields, "speaker": whole}, at=at)


_NO_MESSAGE = "Message cannot be null or undefined"
_NO_TEXT = "Message content must be a string"
_NO_SPEAKER = "Message speaker is required"
_NO_ROLE_ID = "Message speaker.roleId is required"
