"""A thread: its conversations, the records beside them, and what this process caches of both.

A checkpoint's list of messages is a version of a conversation. The newest checkpoint of a namespace
shows the conversation as it is now, so that the graph sees what was edited with palaver; an older
one shows its version. A put that only appends to what the graph had read comes after later edits;
any other put sets the selection to the graph's messages. `WriteBatcher` lets a checkpoint store the
writes of tasks along with it. At the end are the names and the encoding of the records.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote

import msgspec
from langgraph.checkpoint.base import writes_sort_key
from msgspec import Struct

from palaver.adapters.langgraph.message_channel import TIP, MessageChannel
from palaver.errors import AlreadyExists, StoreDamaged, UnknownConversation, ValidationError
from palaver.messages.ids import derive_id
from palaver.messages.limits import MAX_NAME, check_name

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterator, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointMetadata, PendingWrite
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.message_channel import MessageSnapshot
    from palaver.stores import Store
    from palaver.stores.records import Record

__all__ = [
    "BLOBS",
    "CHECKPOINTS",
    "FOLDED",
    "RECORD_KINDS",
    "SMALL",
    "WRITES",
    "CheckpointKey",
    "CheckpointRecord",
    "GivenMessages",
    "MessagesRef",
    "StoredCheckpoint",
    "TaskWrite",
    "Thread",
    "TypedBytes",
    "WaitingWrites",
    "WriteBatcher",
    "blob_name",
    "channel_conversation",
    "checkpoint_name",
    "conversation_id",
    "end_of_prefix",
    "inner_prefix",
    "is_small",
    "just_after",
    "read_writes",
    "split_name",
    "write_name",
    "writes_record",
]


_MAX_CACHED: Final = 8
_PAGE: Final = 64


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it is stored, with its namespace and id."""

    namespace: str
    id: str
    saved: CheckpointRecord


class GivenMessages(NamedTuple):
    """What the graph was given, or gave, as a channel's messages: the version, and the objects.

    They are `apart` where the conversation was edited while the graph ran: it still has the others.
    """

    version: int
    messages: list[BaseMessage]
    apart: bool = False


class WaitingWrites(NamedTuple):
    """The writes of a task whose messages are not in the log yet, and the messages of each."""

    path: str
    writes: list[TaskWrite]
    messages: dict[int, list[MessageSnapshot]]


class Thread:
    """A thread of a store. The caller must hold the lock of its batcher."""

    def __init__(self, store: Store, thread: object) -> None:
        """Take the thread's id; nothing is read or written yet."""
        self.store = store
        self.home = conversation_id(thread)
        self.batcher = WriteBatcher()
        self._channels: OrderedDict[str, MessageChannel] = OrderedDict()
        self._saved: OrderedDict[str, CheckpointRecord] = OrderedDict()
        self._given: OrderedDict[tuple[str, str], GivenMessages] = OrderedDict()
        self.waiting: dict[str, WaitingWrites] = {}
        self._begun = False

    @property
    def exists(self) -> bool:
        """Tell whether there is a conversation of its id."""
        return self.home in self.store

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    def find(self, namespace: str, checkpoint: str | None) -> StoredCheckpoint | None:
        """Return a checkpoint, or the newest of a namespace."""
        try:
            if checkpoint is None:
                return next(self.newest(namespace, limit=1), None)
            name = checkpoint_name(namespace, checkpoint)
            found = self.store.records(self.home, CHECKPOINTS, since=name, until=just_after(name))
        except UnknownConversation:
            return None
        return (
            StoredCheckpoint(namespace, checkpoint, CheckpointRecord.read(found[name]))
            if found
            else None
        )

    def newest(
        self, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> Iterator[StoredCheckpoint]:
        """The checkpoints of a namespace, the newest first, page by page."""
        beginning = checkpoint_name(namespace)
        until = end_of_prefix(beginning) if before is None else checkpoint_name(namespace, before)
        while True:
            page = self.store.records(
                self.home,
                CHECKPOINTS,
                since=beginning,
                until=max(until, beginning),
                last=_PAGE if limit is None else min(limit, _PAGE),
            )
            for name, data in reversed(page.items()):
                yield StoredCheckpoint(*split_name(name), CheckpointRecord.read(data))
            if limit is not None or len(page) < _PAGE:
                return
            until = next(iter(page))

    def all(self) -> list[StoredCheckpoint]:
        """Every checkpoint of every namespace, by name."""
        try:
            found = self.store.records(self.home, CHECKPOINTS)
        except UnknownConversation:
            return []
        return [
            StoredCheckpoint(*split_name(name), CheckpointRecord.read(data))
            for name, data in found.items()
        ]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def owns(self, conversation: str) -> bool:
        """Tell whether a conversation is the thread's own; a copied thread reads others too."""
        return not conversation or conversation.startswith(inner_prefix(self.home))

    def version_of(self, found: StoredCheckpoint, ref: MessagesRef, *, newest: bool) -> int:
        """The version of a conversation that a checkpoint shows."""
        stored = self.channel(ref.conversation)
        now = stored.history.version
        if newest and now > ref.version and self.owns(ref.conversation):
            # changes after a saver's last one were made with palaver: the graph sees them
            tip = stored.tip
            if ref.version >= tip.version or tip.checkpoint == found.id:
                return now
        return ref.version

    def channel(self, conversation: str, *, refresh: bool = True) -> MessageChannel:
        """Return the channel of a conversation, refreshed; the thread's own has no name."""
        name = conversation or self.home
        stored = self._channels.get(name)
        if stored is None or (refresh and not stored.refresh()):
            stored = MessageChannel(self.store, name)
        self._add_channel(stored)
        return stored

    def _add_channel(self, stored: MessageChannel) -> None:
        """Cache a channel; every run of a subgraph may have one of its own."""
        self._channels[stored.name] = stored
        self._channels.move_to_end(stored.name)
        while len(self._channels) > _MAX_CACHED:
            self._channels.popitem(last=False)

    def check_replaced(self, *names: str) -> None:
        """Raise `UnknownConversation` if others have deleted a conversation and begun it anew."""
        for name in names or tuple(self._channels):
            if name in self._channels and not self._channels[name].is_current():
                msg = f"the conversation {name!r} is no longer the same"
                raise UnknownConversation(msg)

    def is_replaced(self) -> bool:
        """Tell whether others have deleted a conversation, or begun it anew."""
        try:
            self.check_replaced()
        except UnknownConversation:
            return True
        return False

    def put_records(self, records: Sequence[Record]) -> None:
        """Store records alone; `UnknownConversation` if others have begun the thread anew.

        Any conversation of the name takes them, so it is looked afterwards which one it was, and
        they are taken out again.
        """
        self.store.put_records(self.home, records)
        try:
            self.check_replaced(self.home)
        except UnknownConversation:
            with suppress(UnknownConversation):
                self.store.put_records(self.home, [(kind, name, None) for kind, name, _ in records])
            raise

    def values(
        self,
        found: StoredCheckpoint,
        versions: dict[str, Any],
        serde: SerializerProtocol,
        *,
        newest: bool,
    ) -> dict[str, Any]:
        """Return the values of channels at a checkpoint."""
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

    def _blob(self, namespace: str, channel: str, version: object) -> TypedBytes | None:
        name = blob_name(namespace, channel, version)
        found = self.store.records(self.home, BLOBS, since=name, until=just_after(name))
        if not found:
            return None
        kind, _, data = found[name].partition(b"\n")
        return kind.decode(), data

    def _messages(
        self, found: StoredCheckpoint, channel: str, serde: SerializerProtocol, *, newest: bool
    ) -> list[BaseMessage]:
        ref = found.saved.messages[channel]
        version = self.version_of(found, ref, newest=newest)
        stored = self.channel(ref.conversation, refresh=False)
        messages = stored.read(version, serde, paused=found.saved.is_paused)
        self.note_given(found.namespace, found.id, channel, GivenMessages(version, messages[:]))
        return messages

    def pending(
        self,
        found: StoredCheckpoint,
        serde: SerializerProtocol,
        channels: Container[str] | None = None,
    ) -> list[PendingWrite]:
        """Return the writes after a checkpoint, in the order in which they are applied."""
        return [
            (task, write.channel, self._write_value(write, serde))
            for _, task, write in self._ordered_writes(found)
            if channels is None or write.channel in channels
        ]

    def _ordered_writes(self, found: StoredCheckpoint) -> list[tuple[str, str, TaskWrite]]:
        """Path, task and write, in LangGraph's order."""
        beginning = write_name(found.namespace, found.id)
        stored_writes = self.store.records(
            self.home, WRITES, since=beginning, until=end_of_prefix(beginning)
        )
        writes: list[tuple[str, str, TaskWrite]] = []
        for name, data in stored_writes.items():
            path, of_task = read_writes(data)
            task = split_name(name.removeprefix(beginning) + "/")[0]
            writes += (
                (path if write.path is None else write.path, task, write) for write in of_task
            )
        writes.sort(key=lambda one: writes_sort_key(one[0], one[1], one[2].index))
        return writes

    def _write_value(self, write: TaskWrite, serde: SerializerProtocol) -> Any:  # noqa: ANN401 - anything
        if write.value is not None:
            return serde.loads_typed(write.value)
        messages = self.channel(write.conversation).at(write.positions, serde)
        return messages[0] if write.alone and messages else messages  # none if it was erased

    # ── the cache ───────────────────────────────────────────────────────────────────────────────

    def note_given(
        self, namespace: str, checkpoint: str, channel: str, given: GivenMessages
    ) -> None:
        """Note which messages the graph has in a channel at a checkpoint."""
        self._given[checkpoint_name(namespace, checkpoint), channel] = given
        while len(self._given) > _MAX_CACHED:
            self._given.popitem(last=False)

    def given(self, namespace: str, checkpoint: str | None, channel: str) -> GivenMessages | None:
        """Return the messages that the graph had in a channel at a checkpoint, if known."""
        return self._given.get((checkpoint_name(namespace, checkpoint or ""), channel))

    def remember(self, namespace: str, checkpoint: str, saved: CheckpointRecord) -> None:
        """Cache a checkpoint: the next one is likely to follow it."""
        self._saved[checkpoint_name(namespace, checkpoint)] = saved
        while len(self._saved) > _MAX_CACHED:
            self._saved.popitem(last=False)

    def saved(self, namespace: str, checkpoint: str) -> CheckpointRecord | None:
        """Return the record of a checkpoint, from the cache or from the store."""
        saved = self._saved.get(checkpoint_name(namespace, checkpoint))
        if saved is None:
            found = self.find(namespace, checkpoint)
            saved = None if found is None else found.saved
        return saved

    def forget(self) -> None:
        """Clear the cache."""
        self._begun = False
        self._channels.clear()
        self._saved.clear()
        self._given.clear()
        self.waiting.clear()

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Create the thread's conversation if it does not exist."""
        if not self._begun:
            with suppress(AlreadyExists):
                if not self.exists:
                    self.store.create(id=self.home)
            self._begun = True

    def channel_for(self, conversation: str, messages: list[BaseMessage]) -> MessageChannel:
        """Return the channel of a conversation as it was last read; create it if needed.

        A new conversation that begins with the messages of the thread's own, such as a subgraph's,
        is a fork of that, and shares them.
        """
        name = conversation or self.home
        if name not in self._channels and name not in self.store:
            home = self.channel("")
            with suppress(AlreadyExists):
                if home.begins(messages):
                    self._add_channel(home.fork(self.store, name))
                else:
                    self.store.create(id=name)
        return self.channel(name, refresh=False)


_WAIT_STEP: Final = 0.002
"""Seconds within which the next checkpoint comes if it was waiting for the one before."""
_MAX_WAIT: Final = 0.05
"""Seconds that writes wait at most for their checkpoint."""


class WriteBatcher:
    """Lets a checkpoint store the writes of tasks that run at the same time.

    LangGraph gives a checkpoint and the writes that lead to it in calls of their own, on several
    threads. One commit for all of them is cheaper than one for each.
    """

    def __init__(self) -> None:
        """Begin without calls."""
        self.lock = threading.Condition(threading.RLock())
        self.offered: dict[str, bytes] = {}
        """The records of writes, by name, that a checkpoint may store. Needs the lock."""
        self._in_flight: set[str] = set()  # announced or being written, so not decided yet
        self._put_threads: set[int] = set()  # the threads that store a checkpoint

    @contextmanager
    def put_in_progress(self) -> Generator[None]:
        """Note that a checkpoint is being stored; call it before taking the lock."""
        who = threading.get_ident()
        self._put_threads.add(who)
        try:
            yield
        finally:
            self._put_threads.discard(who)

    def announce(self, name: str) -> bool:
        """Note that writes are coming; tell whether to wait for a put. Call it without the lock.

        While one checkpoint is being stored, the next one is likely to follow at once.
        """
        self._in_flight.add(name)
        return bool(self._put_threads)

    def offer(self, name: str, record: bytes) -> None:
        """Offer writes to the next checkpoint. Needs the lock."""
        self.offered[name] = record
        self._in_flight.discard(name)
        self.lock.notify_all()

    def wait_until_taken(self, name: str, *, soon: bool) -> bool:
        """Wait for a checkpoint that stores the writes; False if the caller has to."""
        end = time.monotonic() + _MAX_WAIT
        with self.lock:
            while soon and name in self.offered and time.monotonic() < end:
                soon = self.lock.wait(_WAIT_STEP) or bool(self._put_threads)
            if name not in self.offered:
                return True
            del self.offered[name]
            self._in_flight.add(name)
            return False

    def finish(self, name: str) -> None:
        """Note that writes are stored, or have failed."""
        with self.lock:
            self._in_flight.discard(name)
            self.offered.pop(name, None)
            self.lock.notify_all()

    def await_writes(self, beginning: str) -> None:
        """Wait until no writes of a checkpoint are in flight, since the next put replaces them."""
        self.lock.wait_for(
            lambda: not any(name.startswith(beginning) for name in tuple(self._in_flight))
        )


CHECKPOINTS: Final = "langgraph"
"""A checkpoint: everything but its messages and its large values."""
BLOBS: Final = "langgraph-blobs"
"""A large value of a channel, by the channel's version: stored once for all checkpoints."""
WRITES: Final = "langgraph-writes"
"""The writes of a task before the next checkpoint."""
FOLDED: Final = "langgraph-folded"
"""What a delta channel needs of checkpoints that were removed."""
RECORD_KINDS: Final = (CHECKPOINTS, BLOBS, WRITES, FOLDED, TIP)


class CheckpointKey(NamedTuple):
    """A checkpoint by its namespace and id; none before the first."""

    namespace: str
    checkpoint: str | None


_UNQUOTED: Final = ":|,@ -_.~"
_AFTER_SLASH: Final = chr(ord("/") + 1)


@lru_cache(maxsize=4_096)
def _quote(text: str) -> str:
    return quote(text, _UNQUOTED)


def conversation_id(thread: object) -> str:
    """The conversation of a thread: of the same id, if that can be one.

    >>> conversation_id("talk-1"), conversation_id(7)
    ('talk-1', '7')
    """
    name = str(thread)
    try:
        check_name(name)
    except ValidationError:
        return derive_id(name.encode(errors="backslashreplace").decode(), "langgraph thread")
    return name


def channel_conversation(home: str, namespace: str, channel: str) -> str:
    """The conversation of a message channel that is not the thread's own.

    >>> channel_conversation("talk-1", "critic:4f", "messages")
    'talk-1#critic:4f/messages'
    """
    rest = f"{_quote(namespace)}/{_quote(channel)}"
    full_name = inner_prefix(home) + rest
    return (
        full_name
        if len(full_name) <= MAX_NAME
        else inner_prefix(home) + derive_id(rest, "langgraph channel")
    )


def inner_prefix(home: str) -> str:
    """The prefix of the ids of a thread's other conversations."""
    return f"{home}#"


def checkpoint_name(namespace: str, checkpoint: str = "") -> str:
    """A checkpoint's name; without an id, what the names of a namespace begin with.

    >>> checkpoint_name("", "1f0a"), checkpoint_name("critic/1", "1f0a")
    ('/1f0a', 'critic%2F1/1f0a')
    """
    return f"{_quote(namespace)}/{_quote(checkpoint)}"


def split_name(name: str) -> tuple[str, str]:
    """The namespace and the id of a checkpoint's name, or of a write's."""
    namespace, checkpoint, *_ = name.split("/")
    return unquote(namespace), unquote(checkpoint)


def write_name(namespace: str, checkpoint: str, task: str = "") -> str:
    """The name of what a task wrote; without a task, what all of a checkpoint's begin with."""
    return f"{checkpoint_name(namespace, checkpoint)}/{_quote(task)}"


def blob_name(namespace: str, channel: str, version: object) -> str:
    """The name of a channel's value at one of its versions."""
    return f"{_quote(namespace)}/{_quote(channel)}/{_quote(str(version))}"


def end_of_prefix(beginning: str) -> str:
    """The first name that no longer begins with a text that ends with a slash."""
    return beginning[:-1] + _AFTER_SLASH


def just_after(name: str) -> str:
    """The first name after this one, to read just this one."""
    return name + "\x01"


SMALL: Final = 64
"""The size up to which a value is stored in every checkpoint that has it, in bytes."""

_NEXT: Final = ("branch:to:", "__pregel_tasks")
"""What the names of LangGraph's channels begin with that are there while nodes are to run."""

TypedBytes: TypeAlias = tuple[str, bytes]
"""A serialized value: the kind of bytes, and the bytes."""


class MessagesRef(NamedTuple):
    """A version of a conversation; the thread's own has no name."""

    conversation: str
    version: int


class CheckpointRecord(Struct, frozen=True, array_like=True):
    """A checkpoint as it is stored."""

    parent: str | None
    checkpoint: TypedBytes
    metadata: TypedBytes
    messages: dict[str, MessagesRef]
    small: dict[str, TypedBytes]
    large: tuple[str, ...]
    """The channels whose values are in records of their own."""

    @property
    def is_paused(self) -> bool:
        """Whether nodes run next, before any input: LangGraph has channels that say which."""
        return any(name.startswith(_NEXT) for name in (*self.small, *self.large))

    def body(self, serde: SerializerProtocol) -> dict[str, Any]:
        """The checkpoint without its channels' values."""
        return cast("dict[str, Any]", serde.loads_typed(self.checkpoint))

    def metadata_of(self, serde: SerializerProtocol) -> CheckpointMetadata:
        """Deserialize the metadata."""
        return cast("CheckpointMetadata", serde.loads_typed(self.metadata))

    def record(self) -> bytes:
        """Encode the record."""
        return _encode(self)

    @classmethod
    def read(cls, data: bytes) -> CheckpointRecord:
        """Decode a record."""
        try:
            return _CHECKPOINT.decode(data)
        except msgspec.MsgspecError as error:
            msg = f"a checkpoint can't be read: {error}"
            raise StoreDamaged(msg) from None


class TaskWrite(Struct, frozen=True, array_like=True):
    """One write of a task: its channel, and the value or the positions of its messages."""

    index: int
    channel: str
    value: TypedBytes | None
    conversation: str = ""
    positions: tuple[int, ...] = ()
    alone: bool = False
    """Whether the value was a message, not a list of one."""
    path: str | None = None
    """The task's path, if it differs from the first write's."""


class _TaskWrites(Struct, array_like=True):
    path: str
    writes: list[TaskWrite]


_encode: Final = msgspec.msgpack.Encoder().encode
_CHECKPOINT: Final = msgspec.msgpack.Decoder(CheckpointRecord)
_TASK_WRITES: Final = msgspec.msgpack.Decoder(_TaskWrites)


def is_small(value: TypedBytes) -> bool:
    """Tell whether a value is stored in every checkpoint that has it."""
    return len(value[1]) <= SMALL


def writes_record(path: str, writes: list[TaskWrite]) -> bytes:
    """Encode the writes of a task."""
    return _encode(_TaskWrites(path, writes))


def read_writes(data: bytes) -> tuple[str, list[TaskWrite]]:
    """Decode a task's path and its writes."""
    try:
        written = _TASK_WRITES.decode(data)
    except msgspec.MsgspecError as error:
        msg = f"what a task wrote can't be read: {error}"
        raise StoreDamaged(msg) from None
    return written.path, written.writes
