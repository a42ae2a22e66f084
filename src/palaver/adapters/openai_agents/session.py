"""The session: each access of the SDK is one access to the store.

The SDK appends the items of a turn, reads the items before it, and removes its last items when it
tries again. Each is one access to the store from a worker thread: a write runs to its end even if
the task is cancelled, a read is abandoned. What is removed only leaves the view, and
`history.undo()` restores it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from agents.memory import session_settings as sdk

from palaver.adapters._worker_threads import patience_with, run_cancellable, run_to_end
from palaver.adapters.openai_agents.convert import from_items, read_stored, stored_name, to_items
from palaver.errors import AlreadyExists, Conflict, UnknownConversation
from palaver.messages.ids import uuid_for
from palaver.messages.limits import check_name, is_object
from palaver.messages.parts import ToolCallPart
from palaver.stores import StoredHistory
from palaver.stores.store import check_store
from palaver.stores.stored_log import StoredLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents import TResponseInputItem
    from agents.memory.session import _CompactionSnapshot
    from agents.memory.session_settings import SessionSettings

    from palaver.adapters.openai_agents.convert import Item
    from palaver.history.view import View
    from palaver.messages.message import Message
    from palaver.stores.store import Store

__all__ = ["PalaverSession"]

_MAX_ENCODED: Final = 20_000
"""So many messages are encoded as items; when more are added, it begins anew."""
_PAGE: Final = 500
"""How many messages are read at once."""
_MAX_LOOKBACK: Final = 200
"""How many messages are searched for the call of an output that comes in a later batch."""
_PATIENCE: Final = 0.000_3
"""How long the loop waits for its worker thread, in seconds: a slower disk has the loop go on."""


class _EncodedItems(NamedTuple):
    """The items of a message as JSON text without the brackets, and their number."""

    message: Message
    text: bytes
    size: int

    def items(self) -> list[Item]:
        """Decode the items, as new objects every time."""
        return _decode(self.text)


def _decode(text: bytes) -> list[Item]:
    return cast("list[Item]", msgspec.json.decode(b"[%b]" % text))


class PalaverSession:
    """A conversation as a session of the OpenAI Agents SDK.

    The conversation is created with the first items. `session_settings` limits how many items a
    run is shown, as everywhere in the SDK. Where the conversation is edited, or a limit cuts it,
    give the run `repair_input`, so that the request is valid.

    >>> import asyncio, palaver
    >>> store = palaver.open(":memory:")
    >>> session = PalaverSession(store, "talk-1")
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
        """Take a store and the id of a conversation, which may be new; or a stored history."""
        if not isinstance(store, StoredHistory):
            check_store(store)
        self._store = None if isinstance(store, StoredHistory) else store
        self._history = store if isinstance(store, StoredHistory) else None
        if self._history is not None and session_id in (None, self._history.id):
            session_id = self._history.id
        elif self._history is not None or not session_id:
            given = "another id than its history's" if self._history is not None else "no id"
            raise ValueError(f"a session needs the id of its conversation: it was given {given}")
        check_name(session_id, "$.session_id", "argument")
        self.session_id = session_id
        self.session_settings = sdk.coerce_session_settings(
            session_settings or sdk.SessionSettings()
        )
        self._lock = threading.Lock()
        self._closed = False
        self._patience = patience_with(self._store, _PATIENCE, together=True)
        self._is_missing = False  # whether there was no conversation when it was last looked for
        self._caches = False  # before the first read, which is often the only one
        self._encoded: dict[str, _EncodedItems] = {}

    @property
    def history(self) -> StoredHistory:
        """The conversation, to read and to edit; it is created if it does not exist."""
        with self._lock:
            # it may get listeners, which run where the session writes, and may start threads there
            self._patience = patience_with(self._store, _PATIENCE)
            return self._open_or_create()

    # ── what the SDK calls ──────────────────────────────────────────────────────────────────────

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last items, or all, in order: as they were added, or as they were edited.

        `pop_item` removes the same items, one by one. What an edit or the limit has separated is
        returned as it is; `repair_input` makes a valid request of it.
        """
        wanted = sdk.resolve_session_limit(limit, self.session_settings)
        found, _ = await run_cancellable(lambda: self._get(wanted), self._patience)
        return cast("list[TResponseInputItem]", found)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, in one change."""
        if items or self._closed:  # which the worker reports
            await run_to_end(lambda: self._add(items), self._patience)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item from the view and return it, or None if there is none."""
        return cast("TResponseInputItem | None", await run_to_end(self._pop))

    async def clear_session(self) -> None:
        """Remove everything from the view, system messages too; `history.undo()` restores it."""
        await run_to_end(self._clear)

    def close(self) -> None:
        """Close the session: every later call raises `RuntimeError`, closing it again does nothing.

        A change that is under way is finished first. The store stays open: whoever opened it
        closes it.
        """
        with self._lock:
            self._closed = True
            self._encoded.clear()

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the last items, and a function that replaces the end of them in one change.

        The SDK's own sessions have this for its compaction; without it, a history that is shown in
        part is not compacted. A subclass that changes what is read or written has to have its own.
        """
        from agents.memory.session import _CompactionSnapshot  # noqa: PLC0415 - the SDK may drop it

        mine, base = type(self), PalaverSession
        if (mine.get_items, mine.add_items) != (base.get_items, base.add_items):
            return None
        found, version = await run_cancellable(lambda: self._get(limit + 1))
        items = cast("list[TResponseInputItem]", found[-limit:])
        count = len(items)

        async def replace_suffix(start: int, new: list[TResponseInputItem]) -> bool:
            work = partial(self._replace, count - start, new, version, prune_prefix)
            return await run_to_end(work)

        return _CompactionSnapshot(items, len(found) <= limit, replace_suffix)

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _open(self) -> StoredHistory | None:
        """Return the conversation as it is now, or None if it does not exist yet."""
        self._check_open()
        if self._history is not None:
            self._history.refresh()
        elif self._store is not None:
            self._is_missing = True
            with contextlib.suppress(UnknownConversation):
                self._history = self._store.get(self.session_id)
                self._is_missing = False
        return self._history

    def _open_or_create(self) -> StoredHistory:
        while True:
            history = self._open() or self._create(())
            if history is not None:
                return history

    def _create(self, messages: Sequence[Message]) -> StoredHistory | None:
        """Create the conversation with its first messages; None if others have created it."""
        assert self._store is not None  # noqa: S101 - without a store there is a history
        self._is_missing = False
        with contextlib.suppress(AlreadyExists):
            self._history = self._store.create(messages, id=self.session_id)
            self._caches = True  # all that it has is what is added
        return self._history

    def _check_open(self) -> None:
        if self._closed:
            name = type(self).__name__
            raise RuntimeError(f"{name} is closed: make a new one of {self.session_id!r}")

    def _get(self, limit: int | None) -> tuple[list[Item], int]:
        """Return the last items, or all, and the version that they are of."""
        with self._lock:
            history = self._open()
            if history is None or limit == 0:
                return [], 0
            read, self._caches = self._last if self._caches else _read_stored, True
            return read(history.view, limit), history.version

    def _last(self, view: View, limit: int | None) -> list[Item]:
        """Return the last items of a view; a message gives none, one or several."""
        left = limit if limit is not None and limit > 0 else sys.maxsize
        first: list[Item] = []
        found: list[bytes] = []
        stop = len(view)
        while stop and left:
            start = max(stop - left, 0)
            for message in reversed(view[start:stop]):
                written = self._items_of(message)
                if written.size > left:
                    first, left = written.items()[-left:], 0
                    break
                if written.size:
                    found.append(written.text)
                    left -= written.size
                    if not left:
                        break
            stop = start
        return first + _decode(b",".join(reversed(found)))

    def _items_of(self, message: Message) -> _EncodedItems:
        encoded = self._encoded.get(message.id)
        if encoded is None or encoded.message is not message:
            encoded = self._encode(message, to_items(message))
        return encoded

    def _encode(self, message: Message, items: Sequence[Any]) -> _EncodedItems:
        """Cache the items of a message as text, since each caller gets objects of its own."""
        text = msgspec.json.encode(items)[1:-1]
        encoded = _EncodedItems(message, text, len(items))
        if len(self._encoded) < _MAX_ENCODED:  # what is read from the end fills it, and stays
            self._encoded[message.id] = encoded
        return encoded

    def _add(self, items: Sequence[Any]) -> None:
        with self._lock:
            self._check_open()
            history = self._history
            if history is None and not self._is_missing:
                history = self._open()
            tools = dict if history is None else partial(_earlier_tools, items, history)
            new = from_items(items, uuid_for(self.session_id), tools)
            messages = [message for message, _ in new]
            if history is None and self._create(messages) is None:
                history = self._open_or_create()
            if history is not None:
                history.extend(messages)
            if len(self._encoded) + len(new) > _MAX_ENCODED:
                self._encoded.clear()
            for message, theirs in new:
                self._encode(message, theirs)

    def _pop(self) -> Item | None:
        with self._lock:
            history = self._open()
            while history is not None and len(history.view):
                view = history.view
                last = len(view) - 1
                message = view[last]
                items = self._items_of(message).items()
                rest = [each for each, _ in from_items(items[:-1], uuid_for(history.id))]
                try:
                    _replace_last(history, last, rest)
                except Conflict:
                    continue  # another worker removed a part of the same answer
                if items and message in history.at(history.version - 1):
                    return items[-1]  # nobody else removed it meanwhile
                history.refresh()
            return None

    def _replace(
        self, count: int, new: Sequence[Any], version: int, is_expired: Callable[[Any], bool] | None
    ) -> bool:
        """Replace the last items, and drop the first messages of which all items are expired.

        It does nothing and returns False if the conversation has changed since this version.
        """
        with self._lock:
            history = self._open()
            if history is None or history.version != version or not count:
                return False
            view = history.view
            left, stop = count, len(view)
            while left > 0:
                stop -= 1
                left -= self._items_of(view[stop]).size
            rest = self._items_of(view[stop]).items()[:-left] if left else []
            start = 0
            if is_expired is not None:
                while start < stop and all(map(is_expired, self._items_of(view[start]).items())):
                    start += 1
            made = [each for each, _ in from_items([*rest, *new], uuid_for(history.id))]
            try:
                history.rewrite([range(start, stop), *made], expect=version)
            except Conflict:  # another process was first
                return False
            return True

    def _clear(self) -> None:
        with self._lock:
            history = self._open()
            if history is not None and len(history.view):
                history.clear(keep_system_message=False)


def _read_stored(view: View, limit: int | None) -> list[Item]:
    """Return the last items of a view from what is stored, without making messages of it."""
    left = limit if limit is not None and limit > 0 else sys.maxsize
    pages: list[list[Item]] = []
    stop = len(view)
    while stop and left > 0:
        start = max(stop - min(left, _PAGE), 0)
        log = view.log
        encoded = isinstance(log, StoredLog) and log.encoded(view.ranges_between(start, stop))
        found = read_stored(encoded) if encoded else None
        if found is None or len(found) != stop - start:  # unusual: messages are made and checked
            found = [to_items(message) for message in view[start:stop]]
        pages.append([*chain.from_iterable(found)])
        left -= len(pages[-1])
        stop = start
    items = [*chain.from_iterable(reversed(pages))]
    return items[-left:] if left < 0 else items


def _replace_last(history: StoredHistory, last: int, rest: list[Message]) -> None:
    """Replace the last message by what is left of it, in one edit."""
    if not rest:
        history.truncate(remove_last=1)
    elif len(rest) == 1:
        history.replace(last, rest[0])
    else:
        history.rewrite([range(last), *rest], reason="POP")


def _earlier_tools(items: Sequence[Any], history: StoredHistory) -> dict[str, str]:
    """Return the tools of earlier calls that these items have outputs of, by call id."""
    made, asked = set[str](), set[str]()
    for item in items:
        kind = item.get("type") if is_object(item) else None
        if kind == "function_call":
            made.add(stored_name(str(item.get("call_id"))))
        elif kind == "function_call_output":
            asked.add(stored_name(str(item.get("call_id"))))
    asked -= made
    if not asked:
        return {}
    return {
        part.call_id: part.tool
        for message in history.view.recent(_MAX_LOOKBACK, role="assistant")
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.call_id in asked
    }
