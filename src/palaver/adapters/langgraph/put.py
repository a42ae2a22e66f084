"""Storing a checkpoint and the writes of tasks: the new messages, and records, in one change.

The messages of the graph are compared with those it was given, object by object. Messages that only
come after them are an append; anything else (a message removed or changed, another branch) is one
new selection of the log. What is in the log is never written again. A put doesn't ask first whether
others have changed the conversation: the store refuses a stale change, and then it is planned anew.

The writes of a task are mostly messages, which are in the log a moment later. The change that
brings them there also replaces the task's record by one that names their positions.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, empty_checkpoint
from msgspec.structs import replace

from palaver.adapters.langgraph.message_channel import (
    ConversationMoved,
    are_messages,
    take_snapshot,
)
from palaver.adapters.langgraph.thread import (
    BLOBS,
    CHECKPOINTS,
    WRITES,
    CheckpointKey,
    CheckpointRecord,
    GivenMessages,
    MessagesRef,
    StoredCheckpoint,
    TaskWrite,
    WaitingWrites,
    blob_name,
    channel_conversation,
    checkpoint_name,
    is_small,
    just_after,
    read_writes,
    write_name,
    writes_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.message_channel import MessageChannel, MessageSnapshot
    from palaver.adapters.langgraph.thread import Thread, TypedBytes
    from palaver.stores.records import Record

__all__ = [
    "CheckpointInput",
    "GraphTask",
    "make_writes_record",
    "put_checkpoint",
    "put_first_checkpoint",
    "settle_writes",
]


_MESSAGES: Final = "messages"
_START: Final = "__start__"
_BRANCHES: Final = ("fork", "update")
"""The sources of checkpoints that go on from any other, and not from what a graph has just read."""
_FIRST: Final = "00000000-0000-6000-8000-"
"""What the id of a conversation's first checkpoint begins with: it sorts before LangGraph's own."""


class CheckpointInput(NamedTuple):
    """A checkpoint to store, as LangGraph gives it."""

    checkpoint: Checkpoint
    metadata: Any
    new_versions: dict[str, Any]


class _Channel(NamedTuple):
    """A channel of messages to store."""

    name: str
    messages: list[BaseMessage]
    conversation: str
    changed: bool
    given: GivenMessages | None
    ran: bool
    """Whether a node ran since the graph was given the messages."""
    branches: bool
    """Whether the checkpoint is a branch or an update, which may go on from any other."""


class _Step(NamedTuple):
    """A change of a conversation: none, messages to append, or another selection."""

    version: int
    new: list[BaseMessage] | None = None
    pieces: list[range | BaseMessage] | None = None
    apart: bool = False

    @property
    def added(self) -> list[BaseMessage]:
        """The messages that are new in the log."""
        if self.pieces is None:
            return self.new or []
        return [piece for piece in self.pieces if not isinstance(piece, range)]


class _Draft(NamedTuple):
    """A checkpoint to store, without its messages."""

    namespace: str
    parent: str | None
    id: str
    checkpoint: TypedBytes
    metadata: TypedBytes
    small: dict[str, TypedBytes]
    large: tuple[str, ...]
    blobs: list[Record]
    channels: list[_Channel]


def put_first_checkpoint(
    thread: Thread, version: int, serde: SerializerProtocol
) -> StoredCheckpoint | None:
    """Store a checkpoint of a conversation that others began, if there are messages.

    It shows the version that its id ends with.
    """
    if not thread.exists:
        return None
    history = thread.channel("").history
    if not len(history):
        return None
    name = f"{_FIRST}{history.version:012x}"
    body: dict[str, Any] = {
        **empty_checkpoint(),
        "id": name,
        "channel_versions": {_MESSAGES: version},
    }
    del body["channel_values"]
    about: CheckpointMetadata = {"source": "update", "step": -2, "parents": {}}
    saved = CheckpointRecord(
        None, serde.dumps_typed(body), serde.dumps_typed(about),
        {_MESSAGES: MessagesRef("", history.version)}, {}, (),
    )  # fmt: skip
    thread.store.put_record(thread.home, CHECKPOINTS, checkpoint_name("", name), saved.record())
    return StoredCheckpoint("", name, saved)


def put_checkpoint(
    thread: Thread, where: CheckpointKey, data: CheckpointInput, serde: SerializerProtocol
) -> None:
    """Store a checkpoint that follows another; plan it anew if the conversation has moved."""
    thread.begin()
    thread.batcher.await_writes(write_name(where.namespace, where.checkpoint or ""))
    draft = _make_draft(thread, where, data, serde)
    while True:
        try:
            _store_draft(thread, draft, serde)
        except ConversationMoved:
            thread.check_replaced()
            continue
        return


def _make_draft(
    thread: Thread, where: CheckpointKey, data: CheckpointInput, serde: SerializerProtocol
) -> _Draft:
    namespace, parent = where
    checkpoint, metadata, new_versions = data
    body: dict[str, Any] = {**checkpoint}
    values: dict[str, Any] = body.pop("channel_values")
    before = None if parent is None else thread.saved(namespace, parent)
    known = {} if before is None else before.body(serde)["channel_versions"]
    small: dict[str, TypedBytes] = {}
    blobs: list[Record] = []
    lists: dict[str, list[BaseMessage]] = {}
    given: dict[str, GivenMessages | None] = {}
    # the step after an input runs no node: it only adds the input to what was read just now
    ran = before is None or before.metadata_of(serde).get("source") != "input"
    branches = metadata.get("source") in _BRANCHES
    for channel, value in values.items():
        version = body["channel_versions"].get(channel)
        was_list = before is not None and channel in before.messages
        given[channel] = thread.given(namespace, parent, channel)
        if _are_messages(value, given[channel]) or (was_list and type(value) is list and not value):
            lists[channel] = value
        elif before is not None and channel not in new_versions and known.get(channel) == version:
            if channel in before.small:
                small[channel] = before.small[channel]
        else:
            dumped = serde.dumps_typed(value)
            if is_small(dumped) or channel == _START:
                small[channel] = dumped
            else:
                name = blob_name(namespace, channel, version)
                blobs.append((BLOBS, name, dumped[0].encode() + b"\n" + dumped[1]))
    large = tuple(channel for channel in values if channel not in lists and channel not in small)
    homes = _conversations(thread, namespace, before, lists)
    refs = {} if before is None else before.messages
    for name in lists:
        if name in refs and refs[name].conversation != homes[name]:
            given[name] = None  # its version is one of the conversation that this was copied from
    channels = [
        _Channel(name, messages, homes[name], name in new_versions, given[name], ran, branches)
        for name, messages in lists.items()
    ]
    return _Draft(
        namespace, parent, checkpoint["id"], serde.dumps_typed(body), serde.dumps_typed(metadata),
        small, large, blobs, channels,
    )  # fmt: skip


def _are_messages(value: object, given: GivenMessages | None) -> bool:
    return are_messages(value, () if given is None else given.messages)


def _conversations(
    thread: Thread,
    namespace: str,
    before: CheckpointRecord | None,
    lists: dict[str, list[BaseMessage]],
) -> dict[str, str]:
    """Choose the conversation of each channel: the one it had, the thread's own, or another."""
    refs = {} if before is None else before.messages
    had = {channel: ref for channel, ref in refs.items() if thread.owns(ref.conversation)}
    where = {channel: had[channel].conversation for channel in lists if channel in had}
    taken = namespace != "" or any(ref.conversation == "" for ref in had.values())
    for channel in sorted(lists, key=lambda name: name != _MESSAGES):
        if channel not in where:
            other = channel_conversation(thread.home, namespace, channel)
            fits = not taken and (channel in refs or _fits_home(thread, channel))
            where[channel] = "" if fits else other
            taken = taken or not where[channel]
    return where


def _fits_home(thread: Thread, channel: str) -> bool:
    """Tell whether a channel may have the thread's own conversation: not if that is of others."""
    home = thread.channel("", refresh=False)
    return channel == _MESSAGES or not len(home.history) or home.tip.version >= 0


# ── messages ────────────────────────────────────────────────────────────────────────────────────


def _store_draft(thread: Thread, draft: _Draft, serde: SerializerProtocol) -> None:
    refs: dict[str, MessagesRef] = {}
    steps: dict[str, _Step] = {}
    own: tuple[MessageChannel, _Step] | None = None
    new_positions: dict[int, tuple[str, int]] = {}
    for channel in draft.channels:
        stored = thread.channel_for(channel.conversation, channel.messages)
        step = _plan_step(stored, channel, serde)
        for position, message in enumerate(step.added, stored.end):
            new_positions[id(message)] = channel.conversation, position
        steps[channel.name] = step
        refs[channel.name] = MessagesRef(channel.conversation, step.version)
        if channel.conversation:
            _apply_step(stored, step, draft.id, [], serde)
        else:
            own = stored, step
    saved = CheckpointRecord(
        draft.parent, draft.checkpoint, draft.metadata, refs, draft.small, draft.large
    )
    name = checkpoint_name(draft.namespace, draft.id)
    settled = settle_writes(thread, CheckpointKey(draft.namespace, draft.parent), new_positions)
    records = [
        *draft.blobs,
        (CHECKPOINTS, name, saved.record()),
        *((WRITES, which, data) for which, data in settled.items() if data is not None),
    ]
    if own is None or not _apply_step(*own, draft.id, records, serde):
        thread.put_records(records)
    for which in settled:
        thread.waiting.pop(which, None)
        thread.batcher.offered.pop(which, None)
    thread.batcher.lock.notify_all()
    thread.remember(draft.namespace, draft.id, saved)
    for channel in draft.channels:
        step = steps[channel.name]
        given = GivenMessages(step.version, channel.messages[:], step.apart)
        thread.note_given(draft.namespace, draft.id, channel.name, given)


def _plan_step(stored: MessageChannel, channel: _Channel, serde: SerializerProtocol) -> _Step:
    """Plan the change that makes a conversation's messages those of a channel."""
    now, value, given = stored.history.version, channel.messages, channel.given
    if stored.version != now:
        stored.read(now, serde)
    if given is not None:
        known = given.messages
        begins = value[: len(known)] == known
        goes_back = channel.branches and given.version < stored.tip.version
        if begins and len(value) == len(known) and not channel.changed and not goes_back:
            return _Step(given.version, apart=given.apart)
        edited = given.apart or given.version != now
        if (
            begins
            and edited
            and stored.tip.version <= given.version  # with palaver, and no other branch
            and all(stored.position_of(one) is not None for one in known)
        ):
            # what is new comes after the edit
            return _Step(now + 1, new=value[len(known) :], apart=True)
    count = stored.growth(value, sure=given is not None and not channel.ran)
    if count is None:
        return _Step(now + 1, pieces=stored.pieces(value))
    return _Step(now + 1, new=value[count:]) if count < len(value) else _Step(now)


def _apply_step(
    stored: MessageChannel,
    step: _Step,
    checkpoint: str,
    records: list[Record],
    serde: SerializerProtocol,
) -> bool:
    """Apply a step; False if there is nothing to do."""
    if step.pieces is not None:
        stored.select(step.pieces, checkpoint, records, serde)
    elif step.new:
        stored.extend(step.new, checkpoint, records, serde)
    else:
        return False
    return True


_MAX_WAITING: Final = 32


class GraphTask(NamedTuple):
    """A task by its id, and its path in the graph."""

    id: str
    path: str


def make_writes_record(
    thread: Thread,
    where: CheckpointKey,
    task: GraphTask,
    writes: Sequence[tuple[str, Any]],
    serde: SerializerProtocol,
) -> bytes:
    """Make the record of a task's writes, and offer it to the next checkpoint.

    Stored writes stay as they are, except errors, interrupts and the like. Only one call of a task
    may run at a time.
    """
    thread.begin()
    name = write_name(where.namespace, where.checkpoint or "", task.id)
    found = thread.store.records(thread.home, WRITES, since=name, until=just_after(name))
    stored_path, stored = read_writes(found[name]) if found else (task.path, [])
    by_index = {write.index: write for write in stored}
    messages: dict[int, list[MessageSnapshot]] = {}
    for position, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, position)
        if index >= 0 and index in by_index:
            continue
        said = _messages_in(value)
        alone = value is not said
        other = None if task.path == stored_path else task.path
        positions = () if said is None else _in_log(thread, said)
        if positions:
            write = TaskWrite(index, channel, None, "", positions, alone, other)
        else:
            if said is not None:
                messages[index] = [take_snapshot(one) for one in said]
            write = TaskWrite(index, channel, serde.dumps_typed(value), alone=alone, path=other)
        by_index[index] = write
    together = [by_index[index] for index in sorted(by_index)]
    if messages:
        thread.waiting[name] = WaitingWrites(stored_path, together, messages)
        while len(thread.waiting) > _MAX_WAITING:
            del thread.waiting[next(iter(thread.waiting))]
    record = writes_record(stored_path, together)
    thread.batcher.offer(name, record)
    return record


def _messages_in(value: Any) -> list[BaseMessage] | None:  # noqa: ANN401 - anything
    if are_messages(value):
        return value  # type: ignore[no-any-return]
    return [value] if are_messages([value]) else None


def _in_log(thread: Thread, messages: list[BaseMessage]) -> tuple[int, ...]:
    """The positions of messages in the thread's own log, if all of them are there."""
    stored = thread.channel("", refresh=False)
    positions = [position for one in messages if (position := stored.position_of(one)) is not None]
    return tuple(positions) if len(positions) == len(messages) else ()


def settle_writes(
    thread: Thread, parent: CheckpointKey, new_positions: dict[int, tuple[str, int]]
) -> dict[str, bytes | None]:
    """The writes that lead from a checkpoint to the next, with the positions of messages.

    `new_positions` are those of messages that are new in the log, by identity. A record that is in
    the store and stays as it is has None.
    """
    beginning = write_name(parent.namespace, parent.checkpoint or "")
    offered = thread.batcher.offered
    settled: dict[str, bytes | None] = {
        name: record for name, record in offered.items() if name.startswith(beginning)
    }
    for name, waiting in thread.waiting.items():
        if name.startswith(beginning):
            writes = [_settle_write(write, waiting.messages.get(write.index), new_positions)
                      for write in waiting.writes]  # fmt: skip
            same = all(map(operator.is_, writes, waiting.writes))
            settled[name] = offered.get(name) if same else writes_record(waiting.path, writes)
    return settled


def _settle_write(
    write: TaskWrite,
    snapshots: list[MessageSnapshot] | None,
    new_positions: dict[int, tuple[str, int]],
) -> TaskWrite:
    found = [
        new_positions[id(snapshot.message)]
        for snapshot in snapshots or ()
        if id(snapshot.message) in new_positions and vars(snapshot.message) == snapshot.fields
    ]
    conversations = {conversation for conversation, _ in found}
    if not snapshots or len(found) < len(snapshots) or len(conversations) > 1:
        return write
    positions = tuple(position for _, position in found)
    return replace(write, value=None, conversation=conversations.pop(), positions=positions)
