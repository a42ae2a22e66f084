"""The SDK's `Session`: a conversation in a store, read from its end and written in single changes.

The SDK appends what a turn brought, reads what came before, and takes its last items back when it
tries again. Each is one visit to the store from a worker thread. Everything it takes away is only
out of the view: `history.undo()` brings it back.
"""

from __future__ import annotations

import logging
import sys
import threading
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from agents.memory.session_settings import (
    SessionSettings,
    coerce_session_settings,
    resolve_session_limit,
)

from palaver.adapters.openai_agents.items import items_of, messages_of
from palaver.adapters.openai_agents.pairing import last_of, mended
from palaver.adapters.openai_agents.visiting import read, seen_through
from palaver.errors import Conflict, UnknownConversation
from palaver.messages.gate import is_object
from palaver.messages.ids import uuid_for
from palaver.messages.parts import ToolCallPart
from palaver.stores.history import StoredHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents import TResponseInputItem

    from palaver.adapters.openai_agents.items import Item
    from palaver.history.view import View
    from palaver.messages.message import Message
    from palaver.stores.store import Store

__all__ = ["Session"]

_log = logging.getLogger("palaver.adapters.openai_agents")
_HELD: Final = 20_000
"""So many messages are held as items; then it begins anew."""
_BACK: Final = 200
"""So far back a call is looked for whose output comes in a later batch."""


class _Written(NamedTuple):
    """A message's items as text, without the brackets, and how many there are."""

    message: Message
    text: bytes
    size: int

    def items(self) -> list[Item]:
        """The items, fresh ones every time."""
        return _decoded(self.text)


def _decoded(text: bytes) -> list[Item]:
    return cast("list[Item]", msgspec.json.decode(b"[%b]" % text))


class Session:
    """A conversation as a session of the OpenAI Agents SDK.

    The conversation is begun with the first items. `session_settings` limits how many items a run
    is shown, as everywhere in the SDK.

    >>> import asyncio, palaver
    >>> store = palaver.open(":memory:")
    >>> session = Session(store, "talk-1")
    >>> asyncio.run(session.add_items([{"role": "user", "content": "Tea?"}]))
    >>> asyncio.run(session.get_items())
    [{'role': 'user', 'content': 'Tea?'}]
    >>> store.get("talk-1")[0].text
    'Tea?'
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        store: Store | StoredHistory,
        session_id: str | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Take a store and the id of a conversation in it, new or not; or a history."""
        self._store = None if isinstance(store, StoredHistory) else store
        self._found = store if isinstance(store, StoredHistory) else None
        if self._found is not None and session_id in (None, self._found.id):
            session_id = self._found.id
        elif self._found is not None or not session_id:
            given = "another id than its history's" if self._found is not None else "no id"
            raise ValueError(f"a session needs the id of its conversation: it was given {given}")
        self.session_id = session_id
        self.session_settings = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._gate = threading.Lock()
        self._written: dict[str, _Written] = {}

    @property
    def history(self) -> StoredHistory:
        """The conversation, to look at and to edit; it is begun where there is none yet."""
        with self._gate:
            return self._open() or self._begin()

    # ── what the SDK calls ──────────────────────────────────────────────────────────────────────

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The last items, or all, in order: as they were added, or as they were edited since.

        They are always such as a provider takes: what an edit or the limit has parted from its
        other half is put right.
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        found = await read(lambda: self._get(wanted))
        return cast("list[TResponseInputItem]", found)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, in one change."""
        if items:
            await seen_through(lambda: self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item out of the view and return it; None where there is none."""
        return cast("TResponseInputItem | None", await seen_through(self._pop))

    async def clear_session(self) -> None:
        """Take everything out of the view, system messages too; the log keeps it, for `undo`."""
        await seen_through(self._clear)

    # ── one visit to the store each ─────────────────────────────────────────────────────────────

    def _open(self) -> StoredHistory | None:
        if self._found is None and self._store is not None:
            try:
                self._found = self._store.get(self.session_id)
            except UnknownConversation:
                return None
        elif self._found is not None:
            self._found.refresh()
        return self._found

    def _begin(self) -> StoredHistory:
        assert self._store is not None  # noqa: S101 - without a store there is a history
        key = f"openai-agents {self.session_id}"  # whoever else begins it at the same time
        self._found = self._store.create(id=self.session_id, key=key)
        return self._found

    def _get(self, limit: int | None) -> list[Item]:
        with self._gate:
            history = self._open()
            if history is None or limit == 0:
                return []
            return self._last(history.view, limit)

    def _last(self, view: View, limit: int | None) -> list[Item]:
        """The last items of a view, put right; a message gives none, one or several."""
        left = limit if limit is not None and limit > 0 else sys.maxsize
        first: list[Item] = []
        found: list[bytes] = []
        counts: list[int] = []
        stop = len(view)
        while stop and left:
            start = max(stop - left, 0)
            for message in reversed(view[start:stop]):
                written = self._items(message)
                if written.size > left:
                    first, left = last_of(written.items(), left), 0
                    break
                if written.size:
                    found.append(written.text)
                    counts.append(written.size)
                    left -= written.size
                    if not left:
                        break
            stop = start
        begins = {*accumulate(reversed(counts), initial=len(first))}
        items = first + _decoded(b",".join(reversed(found)))
        valid = mended(items, begins)
        if valid is not items:
            _log.info("%s: %d items became %d valid ones", self.session_id, len(items), len(valid))
        return valid

    def _items(self, message: Message) -> _Written:
        held = self._written.get(message.id)
        if held is None or held.message is not message:
            held = self._hold(message, items_of(message))
        return held

    def _hold(self, message: Message, items: Sequence[Any]) -> _Written:
        """Remember a message's items, as text: what is handed out is fresh every time."""
        if len(self._written) >= _HELD:
            self._written.clear()
        text = msgspec.json.encode(items)[1:-1]
        held = self._written[message.id] = _Written(message, text, len(items))
        return held

    def _add(self, items: Sequence[Any]) -> None:
        with self._gate:
            history = self._found or self._open() or self._begin()
            new = messages_of(items, uuid_for(history.id), _tools(items, history))
            if len(new) == 1:
                history.append(new[0][0])
            else:
                history.extend([message for message, _ in new])
            for message, theirs in new:
                self._hold(message, theirs)

    def _pop(self) -> Item | None:
        with self._gate:
            history = self._open()
            while history is not None and len(history.view):
                view = history.view
                last = len(view) - 1
                message = view[last]
                items = self._items(message).items()
                kept = [each for each, _ in messages_of(items[:-1], uuid_for(history.id))]
                try:
                    _put_last(history, last, kept)
                except Conflict:
                    continue  # another worker took something of the same answer
                if items and message in history.at(history.version - 1):
                    return items[-1]  # nobody else took it meanwhile
                history.refresh()
            return None

    def _clear(self) -> None:
        with self._gate:
            history = self._open()
            if history is not None and len(history.view):
                history.clear(keep_system_message=False)


def _put_last(history: StoredHistory, last: int, kept: list[Message]) -> None:
    """Put what is left of the last message in its place, in one edit."""
    if not kept:
        history.truncate(remove_last=1)
    elif len(kept) == 1:
        history.replace(last, kept[0])
    else:
        history.rewrite([range(last), *kept], reason="POP")


def _tools(items: Sequence[Any], history: StoredHistory) -> dict[str, str]:
    """The tools of calls that were made before these items, which answer them."""
    made, asked = set[str](), set[str]()
    for item in filter(is_object, items):
        if item.get("type") == "function_call":
            made.add(str(item.get("call_id")))
        elif item.get("type") == "function_call_output":
            asked.add(str(item.get("call_id")))
    asked -= made
    if not asked:
        return {}
    return {
        part.call_id: part.tool
        for message in history.view.recent(_BACK, role="assistant")
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.call_id in asked
    }
