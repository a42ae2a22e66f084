"""LangChain's chat message history over a conversation in a store.

Its messages are valid for a model: every result follows its call, and every call has a result. An
edit may separate the two, and a crash may leave a call open; `repair_messages` repairs both.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio.to_thread
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from palaver.adapters.langchain.convert import from_langchain, to_langchain
from palaver.errors import AlreadyExists
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import pair_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from palaver.stores import Store, StoredHistory

__all__ = ["PalaverChatMessageHistory", "repair_messages"]


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
        found = [made for message in self.history.view for made in to_langchain(message)]
        return repair_messages(found, resuming=self._resuming)

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


def repair_messages(
    messages: Sequence[BaseMessage], *, resuming: bool = False
) -> list[BaseMessage]:
    """Drop results without a call, and give calls without a result one that says so.

    `resuming` leaves the calls of the last answer open, for callers that will run them.

    >>> repair_messages([ToolMessage("4", tool_call_id="c1")])
    []
    >>> call = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "c1"}])
    >>> [message.type for message in repair_messages([call])]
    ['ai', 'tool']
    >>> repair_messages([call], resuming=True) == [call]
    True
    """
    if _is_sound(messages, resuming=resuming):
        return list(messages)
    return pair_results(
        messages,
        calls=_open_calls,
        answers=_answered_call,
        missing=_interrupted_result,
        keep_open=resuming,
    )


def _is_sound(messages: Sequence[BaseMessage], *, resuming: bool) -> bool:
    """Tell whether nothing has to be repaired."""
    waiting: dict[str, str | None] = {}
    for message in messages:
        if not isinstance(message, ToolMessage):
            if waiting:
                return False
            waiting = _open_calls(message)
        elif message.tool_call_id not in waiting:
            return False
        else:
            del waiting[message.tool_call_id]
    return resuming or not waiting


def _open_calls(message: BaseMessage) -> dict[str, str | None]:
    """The calls of a message by id, with invalid ones, which are sent to the model as well."""
    if not isinstance(message, AIMessage):
        return {}
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return {call["id"]: call["name"] for call in calls if call["id"]}


def _answered_call(message: BaseMessage) -> str | None:
    return message.tool_call_id if isinstance(message, ToolMessage) else None


def _interrupted_result(message: BaseMessage, call: str) -> BaseMessage:
    name = _open_calls(message)[call]
    return ToolMessage(INTERRUPTED, tool_call_id=call, name=name, status="error")
