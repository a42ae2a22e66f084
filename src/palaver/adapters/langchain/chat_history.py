"""LangChain's chat message history: the messages of a conversation in a store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio.to_thread
from langchain_core.chat_history import BaseChatMessageHistory

from palaver.adapters.langchain.convert import METADATA_KEY, from_langchain, to_langchain
from palaver.adapters.langchain.repair import put_user_first, repair
from palaver.errors import AlreadyExists
from palaver.messages.limits import check_name
from palaver.stores.store import check_store
from palaver.wire.repair import has_own_greeting, with_call_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from palaver.stores import Store, StoredHistory

__all__ = ["PalaverChatMessageHistory"]


class PalaverChatMessageHistory(BaseChatMessageHistory):
    """The messages of one conversation, for `RunnableWithMessageHistory` and your own chains.

    Every call reads the conversation as it is now, with the changes of other processes and edits
    made with palaver. `history.undo()` restores what `clear` removes. A result whose call was
    removed is left out, and a call without a result gets one that says so: a model would refuse
    anything else. `resuming` leaves the calls of the last answer open, for a loop of your own that
    runs them after a crash.

    >>> import palaver
    >>> from langchain_core.messages import AIMessage, HumanMessage
    >>> store = palaver.open(":memory:")
    >>> chat = PalaverChatMessageHistory(store, "tea-talk")
    >>> chat.add_messages([HumanMessage("Which tea?"), AIMessage("Darjeeling.")])
    >>> [message.content for message in chat.messages]
    ['Which tea?', 'Darjeeling.']
    >>> [hit.message.text for hit in store.search("darjeeling")]
    ['Darjeeling.']
    """

    def __init__(self, store: Store, conversation: str, *, resuming: bool = False) -> None:
        """Open a conversation of a store, or create it."""
        check_store(store)
        check_name(conversation, "$.conversation", "argument")
        self._resuming = resuming
        with suppress(AlreadyExists):
            store.create(id=conversation)
        self._history = store.get(conversation)

    @property
    def history(self) -> StoredHistory:
        """The conversation itself, to query, edit and roll back."""
        return self._history.refresh()

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride] - theirs says a property will do
        """All messages as they are now, valid for a model."""
        view = self.history.view
        given = with_call_ids(view, METADATA_KEY)
        found = [made for message in given for made in to_langchain(message)]
        valid = repair(found, resuming=self._resuming)
        return valid if has_own_greeting(view, METADATA_KEY) else put_user_first(valid)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages at the end, all of them or none."""
        session = self._history.id
        self._history.extend([from_langchain(message, session=session) for message in messages])

    def clear(self) -> None:
        """Remove all messages from the view; the log still has them."""
        self.history.clear(keep_system_message=False)

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, as they are now."""
        return await anyio.to_thread.run_sync(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages at the end, all of them or none."""
        await anyio.to_thread.run_sync(self.add_messages, messages)

    async def aclear(self) -> None:
        """Remove all messages from the view."""
        await anyio.to_thread.run_sync(self.clear)
