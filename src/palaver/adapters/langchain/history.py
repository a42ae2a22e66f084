"""A chat history of LangChain's that is a conversation in a store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio.to_thread
from langchain_core.chat_history import BaseChatMessageHistory

from palaver.adapters.langchain.pairing import mended
from palaver.adapters.langchain.reading import from_langchain
from palaver.adapters.langchain.writing import to_langchain
from palaver.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from palaver.stores import Store
    from palaver.stores.history import StoredHistory

__all__ = ["ChatHistory"]


class ChatHistory(BaseChatMessageHistory):
    """The messages of one conversation, for `RunnableWithMessageHistory` and your own chains.

    Every call looks at the conversation as it is now, whoever changed it: another process, or an
    edit that was made with palaver. What `clear` takes out, `history.undo()` brings back. A result
    whose call was edited away is left out, and a call that has no result is given one that says so:
    the model would refuse anything else. `resuming` leaves the calls of the last answer open, for a
    loop of your own that carries them out after a crash.

    >>> import palaver
    >>> from langchain_core.messages import AIMessage, HumanMessage
    >>> store = palaver.open(":memory:")
    >>> chat = ChatHistory(store, "tea-talk")
    >>> chat.add_messages([HumanMessage("Which tea?"), AIMessage("Darjeeling.")])
    >>> [message.content for message in chat.messages]
    ['Which tea?', 'Darjeeling.']
    >>> [hit.message.text for hit in store.search("darjeeling")]
    ['Darjeeling.']
    """

    def __init__(self, store: Store, conversation: str, *, resuming: bool = False) -> None:
        """Go on with a conversation of a store, or begin it."""
        self._resuming = resuming
        with suppress(AlreadyExists):
            store.create(id=conversation)
        self._history = store.get(conversation)

    @property
    def history(self) -> StoredHistory:
        """The conversation itself, to be queried, edited and rolled back."""
        return self._history.refresh()

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride] - theirs says a property will do
        """All messages, as they are now and as a model takes them."""
        found = [made for message in self.history.view for made in to_langchain(message)]
        return mended(found, resuming=self._resuming)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages at the end, all of them or none."""
        session = self._history.id
        self._history.extend([from_langchain(message, session=session) for message in messages])

    def clear(self) -> None:
        """Take all messages out of what is current; the log keeps them."""
        self.history.clear(keep_system_message=False)

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, as they are now."""
        return await anyio.to_thread.run_sync(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages at the end, all of them or none."""
        await anyio.to_thread.run_sync(self.add_messages, messages)

    async def aclear(self) -> None:
        """Take all messages out of what is current."""
        await anyio.to_thread.run_sync(self.clear)
