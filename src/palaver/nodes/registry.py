"""A registry of open conversations by id, for engines whose state is plain data.

An engine passes an id to its nodes, and the registry opens the conversation. The first time a
conversation is opened here, what a crash has left behind is recovered; after that, everybody in
this process shares it, so that running work is never mistaken for something a crash left behind.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from anyio import to_thread

from palaver.conversation import Conversation, Toolbox
from palaver.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.conversation import Recovered, Tool
    from palaver.stores import Store

__all__ = ["ConversationRegistry"]

_WAIT: Final = 90.0
"""Longer than the lease of a worker that was killed."""
_MAX_IDLE: Final = 64
"""How many of the last used conversations stay open although nobody uses them."""


class _Recovery:
    """Whether a conversation was recovered yet, and a lock for those who open it meanwhile."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.is_done = False


class ConversationRegistry:
    """Opens the conversations of a store, with the same model, tools and limits for all.

    >>> import anyio, palaver
    >>> registry = ConversationRegistry(palaver.open(":memory:"))
    >>> conversation = anyio.run(registry.open, "trip-1")
    >>> conversation.id, anyio.run(registry.open, "trip-1") is conversation
    ('trip-1', True)
    """

    def __init__(
        self,
        store: Store,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        wait: float = _WAIT,
        on_open: Callable[[Conversation], None] | None = None,
        **settings: Any,  # noqa: ANN401 - those of Conversation
    ) -> None:
        """Take the arguments of every `Conversation`: `tools` and `settings`.

        A conversation that another process works on is waited for, `wait` seconds at most.
        `on_open` is called with each conversation when it is opened, to subscribe to its events.
        """
        self.store = store
        self.found: dict[str, list[Recovered]] = {}
        self._tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self._wait = wait
        self._on_open = on_open
        self._settings = settings
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[str, Conversation] = WeakValueDictionary()
        self._recoveries: WeakKeyDictionary[Conversation, _Recovery] = WeakKeyDictionary()
        self._last_used: OrderedDict[str, Conversation] = OrderedDict()

    async def open(self, conversation: str) -> Conversation:
        """Open the conversation of an id; it is created if it does not exist.

        What was recovered after a crash is in `found`, by the conversation's id.
        """
        opened, recovery = await to_thread.run_sync(self._get, conversation)
        async with recovery.lock:
            if not recovery.is_done:
                found = await opened.recover(wait=self._wait)
                if found:
                    self.found[conversation] = found
                recovery.is_done = True
        return opened

    async def branch(self, conversation: str, version: int, *, id: str | None = None) -> str:  # noqa: A002 - the word for it
        """Fork a conversation at a version, and return the id of the new conversation."""
        opened = await self.open(conversation)

        def fork() -> str:
            return opened.history.refresh().fork(at=version, id=id).id

        return await to_thread.run_sync(fork)

    def _get(self, name: str) -> tuple[Conversation, _Recovery]:
        """Return a conversation that is open already, or open it."""
        with self._lock:
            opened = self._open.get(name)
            if opened is None:
                opened = self._open[name] = self._make(name)
                self._recoveries[opened] = _Recovery()
            self._last_used[name] = opened
            self._last_used.move_to_end(name)
            while len(self._last_used) > _MAX_IDLE:
                self._last_used.popitem(last=False)
            return opened, self._recoveries[opened]

    def _make(self, name: str) -> Conversation:
        if name not in self.store:
            with suppress(AlreadyExists):  # another process may have created it meanwhile
                self.store.create(id=name)
        opened = Conversation(self.store, name, tools=self._tools, **self._settings)
        if self._on_open is not None:
            self._on_open(opened)
        return opened
