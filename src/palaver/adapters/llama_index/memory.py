"""The memory: what a model is shown, the newest messages that fit a number of tokens.

Each call has its result there. Messages are counted once; a read counts what is new.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory.chat_memory_buffer import (
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_TOKEN_LIMIT_RATIO,
)
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseMemory
from llama_index.core.utils import get_tokenizer
from pydantic import Field, PrivateAttr

from palaver.adapters.llama_index.chat_store import (
    OpenConversation,
    PalaverChatStore,
    read_messages,
)
from palaver.adapters.llama_index.convert import (
    METADATA_KEY,
    RESULTS,
    expand,
    is_plain,
    repair_messages,
)
from palaver.errors import Conflict, UnknownMessage, ValidationError
from palaver.history.operations import Insert
from palaver.messages.limits import check_callable, unexpected_keyword
from palaver.stores import Store, open_store
from palaver.stores.backend import refuse_unknown
from palaver.tokens import RunningTotal, Weights
from palaver.wire.repair import begin_with_user, with_call_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llama_index.core.llms.llm import LLM

    from palaver.history.view import View
    from palaver.messages.message import Message
    from palaver.stores import StoredHistory

__all__ = ["PalaverMemory", "PalaverMemoryBlock"]

_WEIGHTS: Final = Weights(message=0, call=0, image=256, file=2_048)
"""What is not text counts what it counts in LlamaIndex's `Memory`."""


class PalaverMemory(BaseMemory):
    """The newest messages of a conversation that fit a number of tokens, for agents and engines.

    It takes what `ChatMemoryBuffer` takes and answers as that does, without reading or counting the
    rest: the first message is no answer and no result, and at least the last message is returned.
    Each message is counted by itself, once, with its tool calls. A result whose call is gone is
    left out, and a call without a result gets one that says so; `resuming` leaves the calls of the
    last answer open.

    Give each run a memory of its own: what one memory puts stays together. An answer follows the
    question that it belongs to, even if another run has put its question meanwhile.

    >>> import palaver
    >>> from llama_index.core.llms import ChatMessage
    >>> memory = PalaverMemory(palaver.open(":memory:"), "tea-talk", token_limit=4)
    >>> memory.put_messages([ChatMessage("Which tea?"), ChatMessage("Rum!", role="assistant")])
    >>> memory.put(ChatMessage("No, tea."))
    >>> [message.content for message in memory.get()], len(memory.get_all())
    (['No, tea.'], 3)
    """

    chat_store: PalaverChatStore
    chat_store_key: str = Field(default=DEFAULT_CHAT_STORE_KEY)
    token_limit: int = Field(default=DEFAULT_TOKEN_LIMIT)
    resuming: bool = Field(default=False)
    tokenizer_fn: Any = Field(default_factory=get_tokenizer, exclude=True)
    _lock: threading.RLock = PrivateAttr(default_factory=threading.RLock)
    _counted: tuple[tuple[int, int], RunningTotal] | None = PrivateAttr(default=None)
    _last: str | None = PrivateAttr(default=None)

    def __init__(
        self,
        store: Store | PalaverChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        *,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        **more: Any,  # noqa: ANN401 - the fields
    ) -> None:
        """Use a conversation of a store, which may be new.

        `token_limit` is counted by `tokenizer_fn`, LlamaIndex's own by default.
        """
        if type(token_limit) is not int or token_limit < 1:
            detail = f"must be a whole number from 1 on, not {token_limit!r}"
            raise ValidationError(detail, path="$.token_limit", rule="argument")
        chats = more.pop("chat_store", None) if store is None else store
        for name in more:
            if name not in self.__class__.model_fields and name != "class_name":  # as it was dumped
                raise unexpected_keyword("PalaverMemory", name, self.__class__.model_fields)
        if not isinstance(chats, PalaverChatStore | dict):
            chats = PalaverChatStore(cast("Store | None", chats))
        if more.get("tokenizer_fn", ...) is None:
            del more["tokenizer_fn"]
        check_callable(more.get("tokenizer_fn"), "$.tokenizer_fn", "a function of a text")
        more |= {"chat_store": chats, "chat_store_key": chat_store_key, "token_limit": token_limit}
        super().__init__(**more)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex dumps it."""
        return "PalaverMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # noqa: PLR0917 - as theirs
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: PalaverChatStore | Store | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], Sequence[object]] | None = None,
    ) -> PalaverMemory:
        """Make a memory as `ChatMemoryBuffer.from_defaults` does.

        With an `llm`, the limit is three quarters of its context window. Without a `chat_store`
        the conversation is in the memory of this process, and `chat_history` replaces what there
        is.
        """
        if token_limit is None:
            window = None if llm is None else llm.metadata.context_window
            token_limit = int(window * DEFAULT_TOKEN_LIMIT_RATIO) if window else DEFAULT_TOKEN_LIMIT
        memory = cls(
            open_store(":memory:") if chat_store is None else chat_store,
            chat_store_key,
            token_limit=token_limit,
            tokenizer_fn=tokenizer_fn,
        )
        if chat_history is not None:
            memory.set(chat_history)
        return memory

    @property
    def history(self) -> StoredHistory:
        """The conversation itself, to query, edit and roll back; it is created if new."""
        return self.chat_store.history(self.chat_store_key)

    # ── what LlamaIndex calls; the asynchronous ones do the same on a thread ────────────────────

    def get(
        self,
        input: str | None = None,  # noqa: A002, ARG002 - their name for it
        initial_token_count: int = 0,
        **_more: Any,  # noqa: ANN401 - as theirs
    ) -> list[ChatMessage]:
        """Return the newest messages that fit in what `initial_token_count` leaves of the limit."""
        if initial_token_count > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")  # whose text they promise
        talk = self.chat_store.open(self.chat_store_key)
        if talk is None:
            return []
        view = talk.history.view
        first = self._count(talk).first_fitting(view, self.token_limit - initial_token_count)
        found = _from_question(view, first)
        made = expand(with_call_ids(found, METADATA_KEY))
        if not all(map(_is_sound, found)):
            made = repair_messages(made, resuming=self.resuming)
        if first:  # the limit has cut it there, and at least the last message is shown
            return made
        return begin_with_user(made, role=lambda each: each.role.value, made=ChatMessage)

    def get_all(self) -> list[ChatMessage]:
        """Return all messages, as they are now."""
        return self.chat_store.get_messages(self.chat_store_key)

    def put(self, message: ChatMessage) -> None:
        """Add a message: an answer after the last message of this memory, others at the end."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages in one change, all of them or none."""
        if not messages:
            return
        with self._lock:
            history = self._open(messages[0]).history
            new = read_messages(messages, history)
            while True:
                try:
                    _add(history, new, self._last)
                except Conflict:
                    history.refresh()
                else:
                    break
            self._last = new[-1].id

    def _open(self, first: ChatMessage) -> OpenConversation:
        """Return the conversation to add to.

        An answer is not added where the conversation that its question was put in is gone: what was
        deleted stays so.
        """
        chats, key = self.chat_store, self.chat_store_key
        answers = getattr(first, "role", None) in (MessageRole.ASSISTANT, *RESULTS)
        if self._last is None or not answers:
            return chats.open_or_create(key)
        talk = chats.open(key)
        if talk is None or not talk.history.log.log.positions_of(self._last):
            refuse_unknown(key)
        return talk

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace all messages in one change; those at the beginning that are the same stay."""
        self.chat_store.set_messages(self.chat_store_key, messages)

    def reset(self) -> None:
        """Remove all messages from the view; `history.undo()` restores them."""
        self.chat_store.delete_messages(self.chat_store_key)

    def _count(self, talk: OpenConversation) -> RunningTotal:
        """The counts of a conversation's messages; they begin anew when one was erased."""
        with self._lock:
            state = talk.created, talk.erased
            if self._counted is None or self._counted[0] != state:
                count = self.tokenizer_fn
                self._counted = state, RunningTotal(lambda text: len(count(text)), _WEIGHTS)
            return self._counted[1]


def _is_sound(message: Message) -> bool:
    """Tell whether a message needs no repair: it is nothing but a text that says something."""
    return is_plain(message)


def _add(history: StoredHistory, new: list[Message], last: str | None) -> None:
    """Add messages: an answer after the message `last`, if that is in the view."""
    view = history.view
    after = len(view)
    if last is not None and new[0].role in ("assistant", "tool"):
        if after and view[-1].id == last:
            history.extend(new, expect=history.version)
            return
        with suppress(UnknownMessage):
            index = view.index_of(view.find(last))
            after = after if index is None else index + 1
    if after == len(view):
        history.extend(new)
    else:
        history.execute(Insert(after, tuple(new)), expect=history.version)


def _from_question(view: View, first: int) -> list[Message]:
    """The messages from an index on, without answers and results at the beginning.

    If nothing is left, it is the last message, and with a result the call before it.
    """
    messages = view[first:]
    if first == 0:
        return messages
    for index, message in enumerate(messages):
        if message.role not in ("assistant", "tool"):
            return messages[index:]
    last = len(view) - 1
    while last > 0 and view[last].role == "tool":
        last -= 1
    return view[last:]


class PalaverMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):
    """A block of LlamaIndex's `Memory` that keeps what leaves its queue, and gives the newest.

    What `Memory` flushes is put into the conversation of a `PalaverMemory`; what fits the limit of
    that stands before the queue, as messages.

    >>> import palaver
    >>> from llama_index.core.memory import Memory
    >>> older = PalaverMemory(palaver.open(":memory:"), "tea-talk", token_limit=2_000)
    >>> memory = Memory.from_defaults("tea-talk", memory_blocks=[PalaverMemoryBlock(memory=older)])
    """

    name: str = Field(default="palaver")
    priority: int = Field(default=1)
    memory: PalaverMemory

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,  # noqa: ARG002 - as theirs
        **_more: Any,  # noqa: ANN401 - as theirs
    ) -> list[ChatMessage]:
        return await self.memory.aget()

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Put messages, without the id of the session, which a model would be sent."""
        plain = [message.model_copy() for message in messages]
        for message in plain:
            given = message.additional_kwargs
            message.additional_kwargs = {k: v for k, v in given.items() if k != "session_id"}
        await self.memory.aput_messages(plain)

    async def atruncate(
        self, content: list[ChatMessage], tokens_to_truncate: int
    ) -> list[ChatMessage] | None:
        """Return the newest of the messages, without the oldest that have so many tokens."""
        left = list(content)
        while left and (
            tokens_to_truncate > 0 or left[0].role in (MessageRole.ASSISTANT, *RESULTS)
        ):
            message = left.pop(0)
            tokens_to_truncate -= len(self.memory.tokenizer_fn(message.content or ""))
        return left or None
