"""One thread: its conversation, the records beside it, and what this process remembers of both.

A checkpoint's list of messages is a version of a conversation. The newest checkpoint of a namespace
shows the conversation as it is now, so that an edit made with palaver is what the graph sees next;
an older one shows its version. A put that only adds to what the graph had read goes after whatever
was edited meanwhile; any other put makes the selection what the graph says it is.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.checkpoint.base import writes_sort_key

from palaver.adapters.langgraph.naming import (
    BLOBS,
    CHECKPOINTS,
    WRITES,
    after,
    blob_name,
    checkpoint_name,
    conversation_of,
    inner,
    point,
    split_name,
    write_name,
)
from palaver.adapters.langgraph.saved import Saved, read_writes
from palaver.adapters.langgraph.shelf import Shelf
from palaver.adapters.langgraph.traffic import Traffic
from palaver.errors import AlreadyExists, UnknownConversation

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import PendingWrite
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.saved import Ref, Typed, Write
    from palaver.adapters.langgraph.shelf import Face
    from palaver.stores import Store

__all__ = ["Found", "Handed", "Thread", "Waiting"]

_REMEMBERED: Final = 8
_PAGE: Final = 64


class Found(NamedTuple):
    """A checkpoint that was found: where, and as it is kept."""

    namespace: str
    id: str
    saved: Saved


class Handed(NamedTuple):
    """What the graph was given, or gave, as a channel's messages: the version, and the objects.

    They are `apart` where the conversation was edited while the graph ran: it still has the others.
    """

    version: int
    messages: list[BaseMessage]
    apart: bool = False


class Waiting(NamedTuple):
    """What a task wrote whose messages are not in the log yet, and the messages of each write."""

    path: str
    writes: list[Write]
    messages: dict[int, list[Face]]


class Thread:
    """A thread of a store. Whoever uses it holds the lock of its traffic."""

    def __init__(self, store: Store, thread: object) -> None:
        """Take the thread's id; nothing is read or written yet."""
        self.store = store
        self.keeper = store.keeper
        self.home = conversation_of(thread)
        self.traffic = Traffic()
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()
        self._saved: OrderedDict[str, Saved] = OrderedDict()
        self._handed: OrderedDict[tuple[str, str], Handed] = OrderedDict()
        self.waiting: dict[str, Waiting] = {}
        self._begun = False

    @property
    def exists(self) -> bool:
        """Tell whether there is a conversation of its id."""
        return self.home in self.store

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    def find(self, namespace: str, checkpoint: str | None) -> Found | None:
        """A checkpoint, or the newest of a namespace."""
        try:
            if checkpoint is None:
                return next(self.newest(namespace, limit=1), None)
            name = checkpoint_name(namespace, checkpoint)
            found = self.keeper.records(self.home, CHECKPOINTS, since=name, until=point(name))
        except UnknownConversation:
            return None
        return Found(namespace, checkpoint, Saved.read(found[name])) if found else None

    def newest(
        self, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> Iterator[Found]:
        """The checkpoints of a namespace, the newest first, page by page."""
        beginning = checkpoint_name(namespace)
        until = after(beginning) if before is None else checkpoint_name(namespace, before)
        while True:
            page = self.keeper.records(
                self.home,
                CHECKPOINTS,
                since=beginning,
                until=max(until, beginning),
                last=_PAGE if limit is None else min(limit, _PAGE),
            )
            for name, data in reversed(page.items()):
                yield Found(*split_name(name), Saved.read(data))
            if limit is not None or len(page) < _PAGE:
                return
            until = next(iter(page))

    def all(self) -> list[Found]:
        """Every checkpoint of every namespace, by name."""
        try:
            found = self.keeper.records(self.home, CHECKPOINTS)
        except UnknownConversation:
            return []
        return [Found(*split_name(name), Saved.read(data)) for name, data in found.items()]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def owns(self, conversation: str) -> bool:
        """Tell whether a conversation is the thread's; a copied thread reads another's too."""
        return not conversation or conversation.startswith(inner(self.home))

    def version_of(self, found: Found, ref: Ref, *, newest: bool) -> int:
        """The version of a conversation that a checkpoint shows."""
        shelf = self.shelf(ref.conversation)
        now = shelf.history.version
        if newest and now > ref.version and self.owns(ref.conversation):
            # what came after a saver's last change was made with palaver: the graph shall see it
            tip = shelf.tip
            if ref.version >= tip.version or tip.checkpoint == found.id:
                return now
        return ref.version

    def shelf(self, conversation: str, *, look: bool = True) -> Shelf:
        """A conversation of the thread's, as it is now; the thread's own has no name."""
        name = conversation or self.home
        shelf = self._shelves.get(name)
        if shelf is None or (look and not shelf.look()):
            shelf = Shelf(self.store, name)
        self._put_up(shelf)
        return shelf

    def _put_up(self, shelf: Shelf) -> None:
        """Remember a conversation; every run of a subgraph may have one of its own."""
        self._shelves[shelf.name] = shelf
        self._shelves.move_to_end(shelf.name)
        while len(self._shelves) > _REMEMBERED:
            self._shelves.popitem(last=False)

    def put_away(self) -> None:
        """Let go of conversations that others have deleted and made anew."""
        for name, shelf in tuple(self._shelves.items()):
            if not shelf.lives():
                del self._shelves[name]

    def values(
        self, found: Found, versions: dict[str, Any], serde: SerializerProtocol, *, newest: bool
    ) -> dict[str, Any]:
        """The channels' values at a checkpoint."""
        values: dict[str, Any] = {}
        for channel, version in versions.items():
            if channel in found.saved.messages:
                values[channel] = self._messages(found, channel, serde, newest=newest)
            elif channel in found.saved.small:
                values[channel] = serde.loads_typed(found.saved.small[channel])
            elif channel in found.saved.large:
                blob = self._blob(found.namespace, channel, version)
                if blob is not None:
                    values[channel] = serde.loads_typed(blob)
        return values

    def _blob(self, namespace: str, channel: str, version: object) -> Typed | None:
        name = blob_name(namespace, channel, version)
        found = self.keeper.records(self.home, BLOBS, since=name, until=point(name))
        if not found:
            return None
        kind, _, data = found[name].partition(b"\n")
        return kind.decode(), data

    def _messages(
        self, found: Found, channel: str, serde: SerializerProtocol, *, newest: bool
    ) -> list[BaseMessage]:
        ref = found.saved.messages[channel]
        version = self.version_of(found, ref, newest=newest)
        messages = self.shelf(ref.conversation, look=False).read(version, serde)
        self.hand(found.namespace, found.id, channel, Handed(version, messages[:]))
        return messages

    def pending(
        self, found: Found, serde: SerializerProtocol, channels: Container[str] | None = None
    ) -> list[PendingWrite]:
        """What tasks wrote after a checkpoint, in the order in which it is applied."""
        return [
            (task, write.channel, self._written(write, serde))
            for _, task, write in self._ordered_writes(found)
            if channels is None or write.channel in channels
        ]

    def _ordered_writes(self, found: Found) -> list[tuple[str, str, Write]]:
        """Path, task and write, in LangGraph's order."""
        beginning = write_name(found.namespace, found.id)
        kept = self.keeper.records(self.home, WRITES, since=beginning, until=after(beginning))
        writes: list[tuple[str, str, Write]] = []
        for name, data in kept.items():
            path, of_task = read_writes(data)
            task = split_name(name.removeprefix(beginning) + "/")[0]
            writes += (
                (path if write.path is None else write.path, task, write) for write in of_task
            )
        writes.sort(key=lambda one: writes_sort_key(one[0], one[1], one[2].index))
        return writes

    def _written(self, write: Write, serde: SerializerProtocol) -> Any:  # noqa: ANN401 - anything
        if write.value is not None:
            return serde.loads_typed(write.value)
        messages = self.shelf(write.conversation).at(write.positions, serde)
        return messages[0] if write.alone else messages

    # ── what is remembered ──────────────────────────────────────────────────────────────────────

    def hand(self, namespace: str, checkpoint: str, channel: str, handed: Handed) -> None:
        """Note what the graph has as a channel's messages at a checkpoint."""
        self._handed[checkpoint_name(namespace, checkpoint), channel] = handed
        while len(self._handed) > _REMEMBERED:
            self._handed.popitem(last=False)

    def handed(self, namespace: str, checkpoint: str | None, channel: str) -> Handed | None:
        """What the graph had as a channel's messages at a checkpoint, where that is known."""
        return self._handed.get((checkpoint_name(namespace, checkpoint or ""), channel))

    def remember(self, namespace: str, checkpoint: str, saved: Saved) -> None:
        """Note a checkpoint: the next one is likely to begin from it."""
        self._saved[checkpoint_name(namespace, checkpoint)] = saved
        while len(self._saved) > _REMEMBERED:
            self._saved.popitem(last=False)

    def saved(self, namespace: str, checkpoint: str) -> Saved | None:
        """A checkpoint as it is kept, from memory or from the store."""
        saved = self._saved.get(checkpoint_name(namespace, checkpoint))
        if saved is None:
            found = self.find(namespace, checkpoint)
            saved = None if found is None else found.saved
        return saved

    def forget(self) -> None:
        """Forget everything: the store may have something else meanwhile."""
        self._begun = False
        self._shelves.clear()
        self._saved.clear()
        self._handed.clear()
        self.waiting.clear()

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Make the thread's conversation, if need be."""
        if not self._begun:
            with suppress(AlreadyExists):
                if not self.exists:
                    self.store.create(id=self.home)
            self._begun = True

    def shelf_for(self, conversation: str, messages: list[BaseMessage]) -> Shelf:
        """A conversation of the thread's as it was last seen, made if need be.

        Where it begins with the messages of the thread's own, as a subgraph's does that was given
        them, it is a fork of that: they are shared.
        """
        name = conversation or self.home
        if name not in self._shelves and name not in self.store:
            home = self.shelf("")
            with suppress(AlreadyExists):
                if home.begins(messages):
                    self._put_up(home.fork(self.store, name))
                else:
                    self.store.create(id=name)
        return self.shelf(name, look=False)
