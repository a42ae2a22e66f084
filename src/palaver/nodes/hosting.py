"""Conversations by their ids, for an engine whose state is plain data.

An engine hands its nodes an id; the host hands them the conversation. The first time a conversation
is taken up here, what a crash has left behind is settled; after that, whoever takes it up in this
process shares it. So nothing that is under way is ever mistaken for something left behind.
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

__all__ = ["Host"]

_WAIT: Final = 90.0
"""Longer than the lease of a worker that was killed lasts."""
_HELD: Final = 64


class _Seat:
    """Whether a conversation was taken up yet, and a gate for those who come at the same time."""

    def __init__(self) -> None:
        self.gate = anyio.Lock()
        self.is_taken_up = False


class Host:
    """Hands out the conversations of a store, with the same model, tools and limits for all.

    >>> import anyio, palaver
    >>> host = Host(palaver.open(":memory:"))
    >>> talk = anyio.run(host.take_up, "trip-1")
    >>> talk.id, anyio.run(host.take_up, "trip-1") is talk
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
        """Take what every conversation is opened with: `tools`, and what `Conversation` takes.

        A conversation that another process is at work on is waited for, so many seconds as `wait`
        says. `on_open` is shown each conversation when it is opened: to listen to its events.
        """
        self.store = store
        self.found: dict[str, list[Recovered]] = {}
        self._tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self._wait = wait
        self._on_open = on_open
        self._settings = settings
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[str, Conversation] = WeakValueDictionary()
        self._seats: WeakKeyDictionary[Conversation, _Seat] = WeakKeyDictionary()
        self._held: OrderedDict[str, Conversation] = OrderedDict()

    async def take_up(self, conversation: str) -> Conversation:
        """The conversation of an id, which is begun where there is none.

        What had to be settled after a crash is in `found`, by the conversation's id.
        """
        talk, seat = await to_thread.run_sync(self._seat, conversation)
        async with seat.gate:
            if not seat.is_taken_up:
                found = await talk.recover(wait=self._wait)
                if found:
                    self.found[conversation] = found
                seat.is_taken_up = True
        return talk

    async def branch(self, conversation: str, version: int, *, id: str | None = None) -> str:  # noqa: A002 - the word for it
        """The id of a new conversation that goes its own way from a version of another."""
        talk = await self.take_up(conversation)

        def fork() -> str:
            return talk.history.refresh().fork(at=version, id=id).id

        return await to_thread.run_sync(fork)

    def _seat(self, name: str) -> tuple[Conversation, _Seat]:
        """A conversation is open as long as anybody works with it; a few are kept for longer."""
        with self._lock:
            talk = self._open.get(name)
            if talk is None:
                talk = self._open[name] = self._opened(name)
                self._seats[talk] = _Seat()
            self._held[name] = talk
            self._held.move_to_end(name)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return talk, self._seats[talk]

    def _opened(self, name: str) -> Conversation:
        if name not in self.store:
            with suppress(AlreadyExists):  # another process may have been quicker
                self.store.create(id=name)
        opened = Conversation(self.store, name, tools=self._tools, **self._settings)
        if self._on_open is not None:
            self._on_open(opened)
        return opened
