"""How a conversation begins, so that beginning it twice is one beginning.

Whoever loses the answer does not know whether the conversation is there. With an id and a key of
its own it can ask again: the id finds the conversation, and the key tells that it is the same one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from palaver.errors import AlreadyExists, UnknownConversation, ValidationError
from palaver.stores.arguments import check_idempotency_key

if TYPE_CHECKING:
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Change, Head

__all__ = ["begin", "check_key", "id_of_key", "was_begun"]

_NAMESPACE: Final = UUID("b6a2a7f3-5c0e-5c6a-9d0b-7d1d7a1f2e11")


def id_of_key(key: str | None, parent: str | None) -> str | None:
    """Return an id that follows from a key, for who has none: asked again, it is the same.

    >>> id_of_key("42", None) == id_of_key("42", None) != id_of_key("42", "a parent")
    True
    >>> id_of_key(None, None) is None
    True
    """
    return None if key is None else str(uuid5(_NAMESPACE, json.dumps([parent, key])))


def check_key(name: str | None, key: str | None) -> None:
    """Refuse a key without an id: the second time could not find the first."""
    check_idempotency_key(key)
    if key is not None and name is None:
        raise ValidationError("needs an id beside it", path="$.key")


def begin(keeper: Keeper, head: Head, first: Change) -> None:
    """Begin a conversation, unless it was begun with the same key and from the same parent."""
    try:
        keeper.create(head, first)
    except AlreadyExists:
        if first.key is None or not was_begun(keeper, head.id, head.parent, first.key):
            raise


def was_begun(keeper: Keeper, name: str, parent: str | None, key: str) -> bool:
    """Tell whether a conversation is there that was begun from a parent with a key."""
    try:
        found = keeper.head(name)
    except UnknownConversation:
        return False
    return (found.parent, keeper.keys(name, -1, 0).get(0)) == (parent, key)
