"""The checkpoint saver: LangGraph's interface, over a store.

Every call is one look at the store, or one change of it; the asynchronous ones do the same on a
worker thread, one hop for a call. A call holds the lock of its thread, so the calls that LangGraph
makes side by side come one after the other; between processes the store decides who comes first.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from contextlib import contextmanager
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

from palaver.adapters.langgraph.copying import copy
from palaver.adapters.langgraph.naming import (
    CHECKPOINTS,
    WRITES,
    Where,
    conversation_of,
    write_name,
)
from palaver.adapters.langgraph.putting import Given, put
from palaver.adapters.langgraph.removing import delta_history, keep_newest, remove, remove_all
from palaver.adapters.langgraph.tasks import Task, writes_of
from palaver.adapters.langgraph.thread import Found, Thread
from palaver.errors import UnknownConversation, ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.stores import Store

__all__ = ["Saver"]

_T = TypeVar("_T")
_THREADS: Final = 64
_BATCH: Final = 32
_BITS: Final = 32


class Saver(BaseCheckpointSaver[int]):
    """Checkpoints in a palaver store.

    >>> import palaver
    >>> from langgraph.graph import START, MessagesState, StateGraph
    >>> builder = StateGraph(MessagesState)
    >>> _ = builder.add_node("answer", lambda state: {"messages": [("ai", "Darjeeling.")]})
    >>> _ = builder.add_edge(START, "answer")
    >>> store = palaver.open(":memory:")
    >>> graph = builder.compile(checkpointer=Saver(store))
    >>> thread = {"configurable": {"thread_id": "tea-talk"}}
    >>> _ = graph.invoke({"messages": [("user", "Which tea?")]}, thread)
    >>> [message.text for message in store.get("tea-talk")]
    ['Which tea?', 'Darjeeling.']

    What was edited with palaver is what the graph goes on from:

    >>> _ = store.get("tea-talk").truncate(keep_last=1)
    >>> [message.content for message in graph.get_state(thread).values["messages"]]
    ['Darjeeling.']
    """

    def __init__(self, store: Store, *, serde: SerializerProtocol | None = None) -> None:
        """Take a store; `serde` turns what is no list of messages into bytes."""
        if isinstance(serde, EncryptedSerializer):
            detail = "would leave the messages readable: a log is searched; encrypt the disk"
            raise ValidationError(detail, path="$.serde")
        super().__init__(serde=serde)
        self.store = store
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._gate = threading.Lock()
        self._tasks = tuple(threading.Lock() for _ in range(_THREADS))

    def _known(self, thread: object) -> Thread:
        """A thread; its lock is not held yet."""
        name = conversation_of(thread)
        with self._gate:
            found = self._threads.pop(name, None) or Thread(self.store, name)
            self._threads[name] = found
            while len(self._threads) > _THREADS:
                self._threads.popitem(last=False)
        return found

    @contextmanager
    def _thread(self, thread: object) -> Generator[Thread]:
        """A thread, for this caller alone in this process."""
        found = self._known(thread)
        with found.traffic.lock:
            yield found

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint with its values and writes: the one the config names, or the newest."""
        where = _where(config)
        wanted = get_checkpoint_id(config)
        with self._thread(where["thread_id"]) as thread:
            try:
                found = thread.find(where.get("checkpoint_ns", ""), wanted or None)
                if found is None:
                    return None
                made = self._tuple(thread, where["thread_id"], found, newest=not wanted)
            except UnknownConversation:  # deleted by another process
                thread.forget()
                return None
        return made._replace(config=config) if wanted else made

    def _tuple(
        self,
        thread: Thread,
        name: Any,  # noqa: ANN401 - a thread's id
        found: Found,
        *,
        newest: bool = False,
    ) -> CheckpointTuple:
        saved = found.saved
        if not newest:
            last = next(thread.newest(found.namespace, limit=1), found)
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
            metadata=saved.about(self.serde),
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
        """Checkpoints, the newest first: of a thread, of all its namespaces or one, or of all."""
        where = {} if config is None else _where(config)
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
                made = self._tuple(thread, name, found)
            yield made

    def _found(
        self, names: Sequence[Any], namespace: str | None, before: str | None
    ) -> Iterator[tuple[Any, Found]]:
        # whoever iterates may take long, or never come back: no lock is held here
        if len(names) == 1 and namespace is not None:
            thread = Thread(self.store, names[0])
            if thread.exists:
                for found in thread.newest(namespace, before=before):
                    yield names[0], found
            return
        every: list[tuple[Any, Found]] = []
        for name in names:
            every += ((name, found) for found in Thread(self.store, name).all())
        every.sort(key=lambda one: one[1].id, reverse=True)
        for name, found in every:
            if namespace in (None, found.namespace) and (before is None or found.id < before):
                yield name, found

    def _matches(self, found: Found, wanted: Mapping[str, Any]) -> bool:
        if not wanted:
            return True
        about: dict[str, Any] = {**found.saved.about(self.serde)}
        return all(value == about.get(key) for key, value in wanted.items())

    def _all_threads(self) -> tuple[str, ...]:
        records = self.store.keeper.records
        return tuple(head.id for head in self.store if records(head.id, CHECKPOINTS, last=1))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What LangGraph's delta channels are made of at a checkpoint."""
        where = _where(config)
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
        """Keep a checkpoint: what is new in its messages, and a record."""
        where = _where(config)
        namespace = where.get("checkpoint_ns", "")
        about = get_checkpoint_metadata(config, metadata)
        place = Where(namespace, where.get("checkpoint_id"))
        given = Given(checkpoint, about, new_versions)
        thread = self._known(where["thread_id"])
        with thread.traffic.putting():
            _change(thread, lambda: put(thread, place, given, self.serde))
        return _config(where["thread_id"], namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a task wrote, before the checkpoint that it leads to."""
        where = _where(config)
        place = Where(where.get("checkpoint_ns", ""), where["checkpoint_id"])
        task = Task(task_id, task_path)
        name = write_name(place.namespace, where["checkpoint_id"], task_id)
        thread = self._known(where["thread_id"])
        with self._tasks[hash((where["thread_id"], place, task_id)) % len(self._tasks)]:
            soon = thread.traffic.announce(name)
            try:
                record = _change(thread, lambda: writes_of(thread, place, task, writes, self.serde))
                if not thread.traffic.taken(name, soon=soon):
                    # outside the lock: it shares a commit with what else is being kept
                    self.store.keeper.put(thread.home, WRITES, name, record)
            finally:
                thread.traffic.land(name)

    def get_next_version(self, current: Any, channel: None) -> int:  # noqa: ANN401 - whatever a thread began with
        """A higher version, and one that another branch will not come to as well."""
        del channel
        count = 0 if current is None else int(str(current).partition(".")[0])
        rank = count >> _BITS or count
        return (rank + 1 << _BITS) | random.getrandbits(_BITS)

    # ── removing and copying ────────────────────────────────────────────────────────────────────

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its messages; what a copy of it shares stays for the copy."""
        with self._thread(thread_id) as thread:
            remove_all(thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs; the conversation goes back to what is left."""
        runs = frozenset(run_ids)
        for name in self._all_threads() if runs else ():
            with self._thread(name) as thread:
                gone = [
                    found
                    for found in thread.all()
                    if dict(found.saved.about(self.serde)).get("run_id") in runs
                ]
                remove(thread, gone, self.serde)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or with `delete` nothing."""
        if strategy not in ("keep_latest", "delete"):
            detail = f"must be keep_latest or delete, not {strategy!r}"
            raise ValidationError(detail, path="$.strategy")
        for name in thread_ids:
            with self._thread(name) as thread:
                if strategy == "delete":
                    remove_all(thread)
                else:
                    keep_newest(thread, self.serde)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to a new one, with all its checkpoints; messages are shared."""
        with self._thread(source_thread_id) as source:
            copy(source, Thread(self.store, target_thread_id))

    # ── the same, asynchronously ────────────────────────────────────────────────────────────────

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await _hop(self.get_tuple, config)

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
        while batch := await _hop(lambda: [*islice(found, _BATCH)]):
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
        return await _hop(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        await _hop(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await _hop(partial(self.get_delta_channel_history, config=config, channels=channels))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await _hop(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await _hop(self.delete_for_runs, run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await _hop(partial(self.prune, thread_ids, strategy=strategy))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await _hop(self.copy_thread, source_thread_id, target_thread_id)


def _change(thread: Thread, work: Callable[[], _T]) -> _T:
    """Change a thread; where another process has deleted it meanwhile, begin it again."""
    with thread.traffic.lock:
        try:
            return work()
        except UnknownConversation:
            thread.forget()
            return work()


async def _hop(work: Callable[..., _T], *values: Any) -> _T:  # noqa: ANN401 - what the work takes
    """Do something on a worker thread; what has begun is not left half done."""
    return await anyio.to_thread.run_sync(work, *values)


def _where(config: RunnableConfig) -> dict[str, Any]:
    """What a config says of thread, namespace and checkpoint."""
    return config.get("configurable", {})


def _config(thread: Any, namespace: str, checkpoint: str) -> RunnableConfig:  # noqa: ANN401 - a thread's id
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint,
        }
    }
