"""The chat store: what it returns is what was added or edited, at the same indexes.

It stores and never repairs. The conversations of the store stay open, so that what was read of one
is not read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from llama_index.core.storage.chat_store.base import BaseChatStore
from msgspec.structs import replace
from pydantic import Field, PrivateAttr

from palaver.adapters.llama_index.convert import (
    Fields,
    answered_call,
    expand,
    from_llama_index,
    to_llama_index,
)
from palaver.errors import (
    AlreadyExists,
    Conflict,
    UnknownConversation,
    ValidationError,
)
from palaver.messages.ids import new_id
from palaver.messages.limits import check_name
from palaver.messages.parts import ToolCallPart, ToolPart
from palaver.stores import Store, open_store
from palaver.stores.open import database_path
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llama_index.core.base.llms.types import ChatMessage

    from palaver.history.view import View
    from palaver.messages.message import Message
    from palaver.stores import StoredHistory

__all__ = ["OpenConversation", "PalaverChatStore", "read_messages"]

_MAX_OPEN: Final = 256
"""So many conversations of a chat store stay open."""
_MAX_LOOKBACK: Final = 40
"""How many messages are searched for the call of a result that comes by itself."""


class OpenConversation(NamedTuple):
    """An open conversation, and what tells whether counts of its messages are still valid."""

    history: StoredHistory
    created: int
    erased: int


class PalaverChatStore(BaseChatStore):
    """The conversations of a store as a chat store: a key is the id of a conversation.

    Every call reads the conversation as it is now, with the changes of other processes and edits
    made with palaver. What is set or deleted only leaves the view: `history(key).undo()` restores
    it. One that was made with the path of a SQLite file can be pickled and dumped.

    >>> import palaver
    >>> from llama_index.core.llms import ChatMessage
    >>> store = palaver.open(":memory:")
    >>> chats = PalaverChatStore(store)
    >>> chats.add_message("tea-talk", ChatMessage("Which tea?"))
    >>> [message.content for message in chats.get_messages("tea-talk")]
    ['Which tea?']
    >>> [hit.message.text for hit in store.search("tea")]
    ['Which tea?']
    """

    path: str | None = Field(default=None, description="The SQLite file, if it opened that.")
    _store: Store = PrivateAttr()
    _lock: threading.RLock = PrivateAttr(default_factory=threading.RLock)
    _talks: OrderedDict[str, OpenConversation] = PrivateAttr(default_factory=OrderedDict)

    def __init__(
        self, store: Store | None = None, *, path: str | None = None, **_dumped: object
    ) -> None:
        """Use a store; or open the SQLite file at a path, as a dumped chat store does."""
        if store is None and path is None:
            detail = (
                "a chat store needs a store, such as palaver.open('chat.db'); one that was dumped "
                "is opened again only if it was made with path='chat.db'"
            )
            raise ValidationError(detail, path="$.store", rule="argument")
        if store is not None and path is not None:
            raise ValidationError("takes a store or a path", path="$.path", rule="argument")
        if store is None:
            if "://" in str(path):
                detail = "must be a file; give palaver.open(…) as the store for any other address"
                raise ValidationError(detail, path="$.path", rule="argument")
            path = database_path(str(path))
            store = open_store(Path(path))
        check_store(store)
        super().__init__(**cast("Fields", {"path": path}))
        self._store = store

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex dumps it."""
        return "PalaverChatStore"

    def history(self, key: str) -> StoredHistory:
        """Return the conversation itself, to query, edit and roll back; it is created if new."""
        return self.open_or_create(key).history

    def open(self, key: str) -> OpenConversation | None:
        """Return a conversation as it is now; None if it does not exist."""
        try:
            head = self._store.head(key)
        except UnknownConversation:
            return None
        with self._lock:
            talk = self._talks.pop(key, None)
            if talk is None or talk.created != head.created or talk.history.version > head.version:
                talk = OpenConversation(self._store.get(key), head.created, head.erased)
            elif talk.history.version != head.version or talk.erased != head.erased:
                talk = OpenConversation(talk.history.refresh(), head.created, head.erased)
            self._talks[key] = talk
            if len(self._talks) > _MAX_OPEN:
                self._talks.popitem(last=False)
            return talk

    def open_or_create(self, key: str) -> OpenConversation:
        """Return a conversation as it is now, or a new one."""
        talk = self.open(key)
        if talk is None:
            check_name(key, "$.key", "argument")
            with suppress(AlreadyExists):
                self._store.create(id=key)
            talk = self.open(key)
        assert talk is not None  # noqa: S101 - it was just made
        return talk

    # ── what LlamaIndex calls; the asynchronous ones do the same on a thread ────────────────────

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages in one change; those at the beginning that are the same stay."""
        history = self.open_or_create(key).history
        while True:
            view = history.view
            kept = _common_prefix(view, messages)
            new = read_messages(messages[kept:], history)
            try:
                if kept < len(view):
                    history.rewrite([range(kept), *new], reason="SET", expect=history.version)
                elif new:
                    history.extend(new, expect=history.version)
            except Conflict:
                history.refresh()
            else:
                return

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return all messages, as they are now."""
        talk = self.open(key)
        return [] if talk is None else expand(talk.history.view)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Add a message at the end, or before the one at an index."""
        known = self._talks.get(key)
        history = (known or self.open_or_create(key)).history
        new = read_messages([message], history)
        if idx is None:
            try:
                history.append(new[0])
            except UnknownConversation:  # deleted since
                self.open_or_create(key).history.append(new[0])
            return
        history = self.history(key)
        places = _places(history.view)
        at = max(len(places) + idx, 0) if idx < 0 else idx
        history.insert(places[at][0] if at < len(places) else len(history.view), new)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove all messages from the view and return them; None if there is no such key."""
        talk = self.open(key)
        if talk is None:
            return None
        gone = expand(talk.history.view)
        if len(talk.history.view):
            talk.history.clear(keep_system_message=False)
        return gone

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at an index from the view and return it; None if there is none."""
        while (talk := self.open(key)) is not None:
            view, version = talk.history.view, talk.history.version
            places = _places(view)
            if not -len(places) <= idx < len(places):
                return None
            index, nth = places[idx]
            message = view[index]
            left = _without_result(message, nth)
            with suppress(Conflict):  # then another one was first, and the index may be another's
                pieces: list[range | Message] = [range(index), *left, range(index + 1, len(view))]
                talk.history.rewrite(pieces, reason="DELETE", expect=version)
                return to_llama_index(message)[nth]
        return None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message from the view and return it; None if there is none."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Return the ids of all conversations that have messages, in the order of creation."""
        found = sorted((head.created, head.id) for head in self._store if head.size)
        return [name for _, name in found]


def read_messages(messages: Iterable[ChatMessage], history: StoredHistory) -> list[Message]:
    """Convert chat messages that are added to a conversation; a result gets its tool's name."""
    tools: dict[str, str] = {}
    made: list[Message] = []
    for message in messages:
        call = answered_call(message) if hasattr(message, "role") else None  # refused below
        if call is not None and call not in tools:
            tools = _tools_of(history.view[-_MAX_LOOKBACK:]) | tools
        new = from_llama_index(message, session=history.id, tools=tools)
        tools |= _tools_of([new])
        made.append(new)
    return made


def _tools_of(messages: Iterable[Message]) -> dict[str, str]:
    return {
        part.call_id: part.tool
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }


def _common_prefix(view: View, messages: Sequence[ChatMessage]) -> int:
    """Return how many messages of a view are the first of some chat messages, one by one."""
    pairs = zip(view, messages, strict=False)
    return sum(1 for _ in takewhile(lambda pair: to_llama_index(pair[0]) == [pair[1]], pairs))


def _places(view: View) -> list[tuple[int, int]]:
    """Where each chat message is: the index of its message, and which one of that it is."""
    return [
        (index, nth)
        for index, message in enumerate(view)
        for nth in range(len(to_llama_index(message)))
    ]


def _without_result(message: Message, nth: int) -> list[Message]:
    """What is left of a message without one of its chat messages: its other results."""
    rest = [part for part in message.parts if isinstance(part, ToolPart)]
    del rest[nth : nth + 1]
    return [replace(message, content=tuple(rest), id=new_id())] if rest else []
