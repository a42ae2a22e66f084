"""Conversations that this server has open: reading one again costs little, and counts are kept.

Each is known by its id and by when it was begun, so that one which was deleted and begun anew under
the same id is another one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from palaver.conversation import Conversation, Prices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from palaver.events import Event
    from palaver.history import View
    from palaver.stores import Store
    from palaver.stores.records import Head

__all__ = ["Talks"]

_MOST: Final = 64


class _Open:
    """A conversation, and the last that was seen of it."""

    __slots__ = ("conversation", "created", "erased", "view")

    def __init__(self, conversation: Conversation, head: Head) -> None:
        self.conversation = conversation
        self.created = head.created
        self.erased = head.erased
        self.view: View | None = None


class Talks:
    """Conversations by id; the ones used least recently are let go."""

    def __init__(self, store: Store, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Open conversations of a store; `tell` is told how far tools are."""
        self._store = store
        self._tell = tell
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._gate = threading.Lock()

    def get(self, name: str) -> Conversation:
        """A conversation as it is now; `UnknownConversation` where there is none."""
        head = self._store.keeper.head(name)
        with self._gate:
            known = self._open.pop(name, None)
            if known is None or known.created != head.created:
                known = _Open(self._opened(name), head)
            erased = known.erased != head.erased
            if erased:
                known.conversation.tally.forget()
                known.view, known.erased = None, head.erased
            self._open[name] = known
            if len(self._open) > _MOST:
                self._open.popitem(last=False)
        if erased or known.conversation.history.version != head.version:
            known.conversation.history.refresh()
        known.view = known.conversation.history.view
        return known.conversation

    def at_hand(self, name: str) -> View | None:
        """A conversation that was looked at and has not changed since; None otherwise.

        It waits for nobody: not for who writes to it, and not for who opens another one.
        """
        head, known = self._store.keeper.head(name), self._open.get(name)
        if known is None or (known.created, known.erased) != (head.created, head.erased):
            return None
        view = known.view
        return view if view is not None and view.version == head.version else None

    def _opened(self, name: str) -> Conversation:
        opened = Conversation(self._store, name, prices=Prices())
        opened.events.on("tool.running", self._heard)
        return opened

    def _heard(self, event: Event) -> None:
        """What a tool says while it runs is told at once; all else comes by the journal."""
        if "title" in event.data:
            self._tell("tool.progress", {"conversation": event.conversation, **event.data})
