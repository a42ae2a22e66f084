"""The checkpoint saver: LangGraph's interface, over a store.

Every call is one read or one change of the store; the async methods do the same on a worker thread.
A call holds the lock of its thread, so that the calls LangGraph makes side by side run one after
the other; between processes the store decides which comes first. The functions at the end remove
checkpoints and copy threads.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio.to_thread
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from msgspec.structs import replace

from palaver.adapters.langgraph.put import (
    CheckpointInput,
    GraphTask,
    make_writes_record,
    put_checkpoint,
    put_first_checkpoint,
)
from palaver.adapters.langgraph.thread import (
    BLOBS,
    CHECKPOINTS,
    FOLDED,
    RECORD_KINDS,
    WRITES,
    CheckpointKey,
    MessagesRef,
    StoredCheckpoint,
    Thread,
    blob_name,
    checkpoint_name,
    conversation_id,
    inner_prefix,
    just_after,
    read_writes,
    split_name,
    write_name,
    writes_record,
)
from palaver.errors import AlreadyExists, Conflict, StoreError, UnknownConversation, ValidationError
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Collection,
        Generator,
        Iterator,
        Mapping,
        Sequence,
    )

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
        PendingWrite,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.stores import Store
    from palaver.stores.records import Record

__all__ = [
    "PalaverSaver",
    "copy_thread_records",
    "delta_history",
    "keep_newest_checkpoints",
    "remove_checkpoints",
    "remove_thread",
]


_T = TypeVar("_T")
_MAX_THREADS: Final = 64
_BATCH: Final = 32
_BITS: Final = 32
_MAX_DELETIONS: Final = 8
"""How many deletions by others one change outlasts."""


class PalaverSaver(BaseCheckpointSaver[int]):
    """Checkpoints in a palaver store.

    >>> import palaver
    >>> from langgraph.graph import START, MessagesState, StateGraph
    >>> builder = StateGraph(MessagesState)
    >>> _ = builder.add_node("answer", lambda state: {"messages": [("ai", "Darjeeling.")]})
    >>> _ = builder.add_edge(START, "answer")
    >>> store = palaver.open(":memory:")
    >>> graph = builder.compile(checkpointer=PalaverSaver(store))
    >>> thread = {"configurable": {"thread_id": "tea-talk"}}
    >>> _ = graph.invoke({"messages": [("user", "Which tea?")]}, thread)
    >>> [message.text for message in store.get("tea-talk")]
    ['Which tea?', 'Darjeeling.']

    The graph continues from what was edited with palaver:

    >>> _ = store.get("tea-talk").truncate(keep_last=1)
    >>> [message.content for message in graph.get_state(thread).values["messages"]]
    ['Darjeeling.']
    """

    def __init__(self, store: Store, *, serde: SerializerProtocol | None = None) -> None:
        """Take a store; `serde` serializes values that are not lists of messages."""
        check_store(store)
        if isinstance(serde, EncryptedSerializer):
            detail = "would leave the messages readable: a log is searched; encrypt the disk"
            raise ValidationError(detail, path="$.serde")
        super().__init__(serde=serde)
        self.store = store
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._lock = threading.Lock()
        self._tasks = tuple(threading.Lock() for _ in range(_MAX_THREADS))

    def _cached_thread(self, thread: object) -> Thread:
        """Return a thread from the cache; its lock is not held yet."""
        name = conversation_id(thread)
        with self._lock:
            found = self._threads.pop(name, None) or Thread(self.store, name)
            self._threads[name] = found
            while len(self._threads) > _MAX_THREADS:
                self._threads.popitem(last=False)
        return found

    @contextmanager
    def _thread(self, thread: object) -> Generator[Thread]:
        """Return a thread and hold its lock."""
        found = self._cached_thread(thread)
        with found.batcher.lock:
            yield found

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its values and writes: the one in the config, or the newest.

        A conversation that has messages and no checkpoint gets its first one here.
        """
        where = _configurable(config)
        wanted = get_checkpoint_id(config)
        namespace = where.get("checkpoint_ns", "")
        with self._thread(where["thread_id"]) as thread:
            try:
                found = thread.find(namespace, wanted or None)
                if found is None and not (namespace or wanted):
                    version = self.get_next_version(None, None)
                    found = put_first_checkpoint(thread, version, self.serde)
            except UnknownConversation:  # deleted by another process
                found = None
            if found is None:
                return None
            made = self._read(thread, where["thread_id"], found, newest=not wanted)
        return made._replace(config=config) if wanted and made is not None else made

    def _read(
        self,
        thread: Thread,
        name: Any,  # noqa: ANN401 - a thread's id
        found: StoredCheckpoint,
        *,
        newest: bool = False,
    ) -> CheckpointTuple | None:
        """Read a checkpoint that was found just now; None if others have deleted it since."""
        try:
            return self._tuple(thread, name, found, newest=newest)
        except (UnknownConversation, ValidationError):
            if thread.find(found.namespace, found.id) is not None:
                raise
            thread.forget()
            return None

    def _tuple(
        self,
        thread: Thread,
        name: Any,  # noqa: ANN401 - a thread's id
        found: StoredCheckpoint,
        *,
        newest: bool = False,
    ) -> CheckpointTuple:
        saved = found.saved
        if not newest:
            last = next(thread.newest(found.namespace, limit=1), None)
            if last is None:
                raise UnknownConversation
            newest = last.id == found.id
        body = saved.body(self.serde)
        body["channel_values"] = thread.values(
            found, body["channel_versions"], self.serde, newest=newest
        )
        thread.remember(found.namespace, found.id, saved)
        parent = saved.parent
        return CheckpointTuple(
            config=_config(name, found.namespace, found.id),
            checkpoint=cast("Checkpoint", body),
            metadata=saved.metadata_of(self.serde),
            parent_config=_config(name, found.namespace, parent) if parent else None,
            pending_writes=thread.pending(found, self.serde),
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - their name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, the newest first: of one namespace, of a thread, or of all threads."""
        where = {} if config is None else _configurable(config)
        earlier = None if before is None else get_checkpoint_id(before)
        wanted = filter or {}
        names = (where["thread_id"],) if "thread_id" in where else self._all_threads()
        one = where.get("checkpoint_id")
        matching = (
            (name, found)
            for name, found in self._found(names, where.get("checkpoint_ns"), earlier)
            if (one is None or found.id == one) and self._matches(found, wanted)
        )
        for name, found in islice(matching, limit):
            with self._thread(name) as thread:
                made = self._read(thread, name, found)
            if made is not None:
                yield made

    def _found(
        self, names: Sequence[Any], namespace: str | None, before: str | None
    ) -> Iterator[tuple[Any, StoredCheckpoint]]:
        # no lock is held here, since the caller may take long, or never finish
        if len(names) == 1 and namespace is not None:
            with suppress(UnknownConversation):
                for found in Thread(self.store, names[0]).newest(namespace, before=before):
                    yield names[0], found
            return
        every: list[tuple[Any, StoredCheckpoint]] = []
        for name in names:
            every += ((name, found) for found in Thread(self.store, name).all())
        every.sort(key=lambda one: one[1].id, reverse=True)
        for name, found in every:
            if namespace in (None, found.namespace) and (before is None or found.id < before):
                yield name, found

    def _matches(self, found: StoredCheckpoint, wanted: Mapping[str, Any]) -> bool:
        if not wanted:
            return True
        about: dict[str, Any] = {**found.saved.metadata_of(self.serde)}
        return all(value == about.get(key) for key, value in wanted.items())

    def _all_threads(self) -> tuple[str, ...]:
        return tuple(head.id for head in self.store if self._has_checkpoints(head.id))

    def _has_checkpoints(self, name: str) -> bool:
        try:
            return bool(self.store.records(name, CHECKPOINTS, last=1))
        except UnknownConversation:  # deleted just now
            return False

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the values and writes that delta channels consist of at a checkpoint."""
        where = _configurable(config)
        with self._thread(where["thread_id"]) as thread:
            found = thread.find(where.get("checkpoint_ns", ""), get_checkpoint_id(config) or None)
            if found is None:
                return {channel: {"writes": []} for channel in channels}
            return delta_history(thread, found, channels, self.serde)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: its new messages, and a record."""
        where = _configurable(config)
        namespace = where.get("checkpoint_ns", "")
        about = get_checkpoint_metadata(config, metadata)
        key = CheckpointKey(namespace, where.get("checkpoint_id"))
        given = CheckpointInput(checkpoint, about, new_versions)
        thread = self._cached_thread(where["thread_id"])
        with thread.batcher.put_in_progress():
            _change_thread(thread, lambda: put_checkpoint(thread, key, given, self.serde))
        return _config(where["thread_id"], namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, before the checkpoint that they lead to."""
        where = _configurable(config)
        key = CheckpointKey(where.get("checkpoint_ns", ""), where["checkpoint_id"])
        task = GraphTask(task_id, task_path)
        name = write_name(key.namespace, where["checkpoint_id"], task_id)
        thread = self._cached_thread(where["thread_id"])
        with self._tasks[hash((where["thread_id"], key, task_id)) % len(self._tasks)]:
            soon = thread.batcher.announce(name)
            try:
                record = _change_thread(
                    thread, lambda: make_writes_record(thread, key, task, writes, self.serde)
                )
                if not thread.batcher.wait_until_taken(name, soon=soon):
                    self._put_alone(thread, name, record)
            finally:
                thread.batcher.finish(name)

    def _put_alone(self, thread: Thread, name: str, record: bytes) -> None:
        """Store the writes of a task without a checkpoint."""

        def put() -> None:
            thread.begin()
            self.store.put_record(thread.home, WRITES, name, record)

        try:
            put()  # outside the lock, so that it can share a commit with other writes
        except UnknownConversation:
            _change_thread(thread, put)

    def get_next_version(self, current: Any, channel: None) -> int:  # noqa: ANN401 - whatever a thread began with
        """Return a higher version, which no other branch will come to by chance."""
        del channel
        count = 0 if current is None else int(str(current).partition(".")[0])
        rank = count >> _BITS or count
        return (rank + 1 << _BITS) | random.getrandbits(_BITS)

    # ── removing and copying ────────────────────────────────────────────────────────────────────

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its messages; what a copy of it shares stays for the copy."""
        with self._thread(thread_id) as thread:
            remove_thread(thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs; the conversation goes back to what is left."""
        runs = frozenset(run_ids)
        for name in self._all_threads() if runs else ():
            with self._thread(name) as thread:
                gone = [
                    found
                    for found in thread.all()
                    if dict(found.saved.metadata_of(self.serde)).get("run_id") in runs
                ]
                with suppress(UnknownConversation):  # deleted by another process
                    remove_checkpoints(thread, gone, self.serde)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or with `delete` nothing."""
        if strategy not in ("keep_latest", "delete"):
            detail = f"must be keep_latest or delete, not {strategy!r}"
            raise ValidationError(detail, path="$.strategy")
        for name in thread_ids:
            with self._thread(name) as thread:
                if strategy == "delete":
                    remove_thread(thread)
                else:
                    with suppress(UnknownConversation):  # deleted by another process
                        keep_newest_checkpoints(thread, self.serde)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to a new one, with all its checkpoints; messages are shared."""
        with self._thread(source_thread_id) as source:
            copy_thread_records(source, Thread(self.store, target_thread_id))

    # ── the same, asynchronously ────────────────────────────────────────────────────────────────

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await _in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - their name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`, some at a time."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while batch := await _in_thread(lambda: [*islice(found, _BATCH)]):
            for one in batch:
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return await _in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        await _in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await _in_thread(
            partial(self.get_delta_channel_history, config=config, channels=channels)
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await _in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await _in_thread(self.delete_for_runs, run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await _in_thread(partial(self.prune, thread_ids, strategy=strategy))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await _in_thread(self.copy_thread, source_thread_id, target_thread_id)


def _change_thread(thread: Thread, work: Callable[[], _T]) -> _T:
    """Change a thread; if another process has deleted it meanwhile, create it again."""
    with thread.batcher.lock:
        for _ in range(_MAX_DELETIONS):
            try:
                return work()
            except UnknownConversation:
                pass
            except (StoreError, ValidationError):
                # half of what was read may be of a conversation that was begun anew meanwhile
                if not thread.is_replaced():
                    raise
            thread.forget()
        return work()


async def _in_thread(work: Callable[..., _T], *values: Any) -> _T:  # noqa: ANN401 - what the work takes
    """Run a call on a worker thread, to its end."""
    return await anyio.to_thread.run_sync(work, *values)


def _configurable(config: RunnableConfig) -> dict[str, Any]:
    """Return the thread, namespace and checkpoint of a config."""
    return config.get("configurable", {})


def _config(thread: Any, namespace: str, checkpoint: str) -> RunnableConfig:  # noqa: ANN401 - a thread's id
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint,
        }
    }


_NO_LIMIT = 1_000_000


def remove_thread(thread: Thread) -> None:
    """Delete a thread: its conversations and their records.

    A conversation that another was forked from, such as by copying the thread, is emptied: the
    other one reads its messages.
    """
    for name in (*thread.store.named(inner_prefix(thread.home), limit=_NO_LIMIT), thread.home):
        try:
            thread.store.delete(name)
        except UnknownConversation:
            continue
        except StoreError:
            _empty(thread, name)
    thread.forget()


def _empty(thread: Thread, name: str) -> None:
    thread.store.get(name).clear(keep_system_message=False)
    thread.store.put_records(
        name,
        [(kind, each, None) for kind in RECORD_KINDS for each in thread.store.records(name, kind)],
    )


def keep_newest_checkpoints(thread: Thread, serde: SerializerProtocol) -> None:
    """Remove all checkpoints but the newest of each namespace."""
    newest = {found.namespace: found for found in thread.all()}  # by name: the newest comes last
    remove_checkpoints(
        thread, [found for found in thread.all() if newest[found.namespace].id != found.id], serde
    )


def remove_checkpoints(
    thread: Thread, gone: Sequence[StoredCheckpoint], serde: SerializerProtocol
) -> None:
    """Remove some checkpoints, and the values that only they have."""
    if not gone:
        return
    names = {checkpoint_name(found.namespace, found.id) for found in gone}
    left = [one for one in thread.all() if checkpoint_name(one.namespace, one.id) not in names]
    if not left:
        remove_thread(thread)
        return
    records: list[Record] = [(CHECKPOINTS, name, None) for name in names]
    blobs = {name for found in gone for name in _blob_names(found, serde)}
    for found in left:
        blobs.difference_update(_blob_names(found, serde))
        if checkpoint_name(found.namespace, found.saved.parent or "") in names:
            records += _fold(thread, found, serde)
    store, home = thread.store, thread.home
    records += ((BLOBS, name, None) for name in blobs)
    for kind in (WRITES, FOLDED):
        for name in store.records(home, kind):
            if checkpoint_name(*split_name(name)) in names:
                records.append((kind, name, None))
    store.put_records(home, records)
    thread.forget()
    _restore_newest(thread, left)


def _blob_names(found: StoredCheckpoint, serde: SerializerProtocol) -> Iterator[str]:
    versions: dict[str, Any] = found.saved.body(serde)["channel_versions"]
    for channel in found.saved.large:
        yield blob_name(found.namespace, channel, versions.get(channel))


def _restore_newest(thread: Thread, left: Sequence[StoredCheckpoint]) -> None:
    """Restore the newest checkpoint's messages if the last ones belonged to a removed one."""
    newest = {found.namespace: found for found in left}
    for found in newest.values():
        for ref in found.saved.messages.values():
            stored = thread.channel(ref.conversation)
            tip = stored.tip
            if ref.version < tip.version == stored.history.version:
                # another process may have stored one since, or does so now
                if any(one.id == tip.checkpoint for one in thread.all()):
                    continue
                with suppress(Conflict):
                    stored.restore(ref.version, found.id)


# ── delta channels ──────────────────────────────────────────────────────────────────────────────


def _fold(thread: Thread, found: StoredCheckpoint, serde: SerializerProtocol) -> list[Record]:
    """Fold what a checkpoint's delta channels need of its ancestors into a record."""
    about: dict[str, Any] = {**found.saved.metadata_of(serde)}
    channels = list(about.get("counters_since_delta_snapshot") or ())
    if not channels:
        return []
    kind, data = serde.dumps_typed(delta_history(thread, found, channels, serde))
    name = checkpoint_name(found.namespace, found.id)
    return [(FOLDED, name, kind.encode() + b"\n" + data)]


def delta_history(
    thread: Thread, target: StoredCheckpoint, channels: Collection[str], serde: SerializerProtocol
) -> dict[str, DeltaChannelHistory]:
    """Return the last value of each channel before a checkpoint, and the writes since."""
    writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    remaining = set(channels)
    found = target
    while remaining:
        parent = found.saved.parent
        above = None if parent is None else thread.find(found.namespace, parent)
        if above is None:
            folded = _unfold(thread, found, serde)
            for channel in remaining & folded.keys():
                writes[channel] += [tuple(one) for one in reversed(folded[channel]["writes"])]
                seeds |= {channel: folded[channel]["seed"]} if "seed" in folded[channel] else {}
            break
        for task, channel, value in reversed(thread.pending(above, serde, remaining)):
            writes[channel].append((task, channel, value))
        versions: dict[str, Any] = above.saved.body(serde)["channel_versions"]
        there = {channel: versions[channel] for channel in remaining & versions.keys()}
        values = thread.values(above, there, serde, newest=False)
        seeds |= values
        remaining -= values.keys()
        found = above
    histories: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        histories[channel] = {"writes": writes[channel][::-1]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories


def _unfold(thread: Thread, found: StoredCheckpoint, serde: SerializerProtocol) -> dict[str, Any]:
    """Read what was folded into a checkpoint when its ancestors were removed."""
    name = checkpoint_name(found.namespace, found.id)
    folded = thread.store.records(thread.home, FOLDED, since=name, until=just_after(name))
    kind, _, data = folded.get(name, b"").partition(b"\n")
    return dict(serde.loads_typed((kind.decode(), data))) if folded else {}


_FORK_KEY = "langgraph copy"


def copy_thread_records(source: Thread, target: Thread) -> None:
    """Copy a thread to one without checkpoints: fork its conversations, copy its records.

    A copy that was interrupted can be done again.
    """
    if target.all():
        msg = f"the thread {target.home!r} has checkpoints already"
        raise AlreadyExists(msg)
    found = source.all()
    if not found:
        return
    moved = {"": ""}
    for name in source.store.named(inner_prefix(source.home), limit=_NO_LIMIT):
        moved[name] = inner_prefix(target.home) + name.removeprefix(inner_prefix(source.home))
    heads: dict[str, int] = {}
    for name, new in moved.items():
        history = source.channel(name).history
        heads[name] = history.version
        history.fork(id=new or target.home, key=_FORK_KEY)
    newest = {one.namespace: one.id for one in found}
    records: list[Record] = []
    for one in found:
        last = newest[one.namespace] == one.id
        refs = {channel: _copy_ref(source, one, ref, moved, heads, newest=last)
                for channel, ref in one.saved.messages.items()}  # fmt: skip
        name = checkpoint_name(one.namespace, one.id)
        records.append((CHECKPOINTS, name, replace(one.saved, messages=refs).record()))
    records += _copy_writes(source)
    for kind in (BLOBS, FOLDED):
        records += ((kind, *item) for item in source.store.records(source.home, kind).items())
    target.store.put_records(target.home, records)
    target.forget()


def _copy_ref(
    source: Thread,
    one: StoredCheckpoint,
    ref: MessagesRef,
    moved: dict[str, str],
    heads: dict[str, int],
    *,
    newest: bool,
) -> MessagesRef:
    """The messages of a copied checkpoint: in the copy, if that begins with them."""
    if ref.conversation not in moved:
        return ref  # of what the source itself was copied from
    if source.version_of(one, ref, newest=newest) == heads[ref.conversation]:
        return MessagesRef(moved[ref.conversation], 0)
    return MessagesRef(ref.conversation or source.home, ref.version)


def _copy_writes(source: Thread) -> list[Record]:
    records: list[Record] = []
    for name, data in source.store.records(source.home, WRITES).items():
        path, writes = read_writes(data)
        moved = [replace(one, conversation=one.conversation or source.home) for one in writes]
        records.append((WRITES, name, writes_record(path, moved)))
    return records
