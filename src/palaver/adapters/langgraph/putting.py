"""Keeping a checkpoint: what is new in its messages, and one record, in one change.

The messages that the graph hands over are compared with those it was handed, object by object. What
only comes after them is an append; anything else (a message removed or changed, another branch) is
one new selection of the log. What is there already is never written again. Nobody asks first where
the conversation stands: the store refuses what is no longer true, and then it is looked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.adapters.langgraph.naming import (
    BLOBS,
    CHECKPOINTS,
    WRITES,
    Where,
    blob_name,
    channel_conversation,
    checkpoint_name,
    write_name,
)
from palaver.adapters.langgraph.saved import Ref, Saved, is_small
from palaver.adapters.langgraph.shelf import Moved, are_messages
from palaver.adapters.langgraph.tasks import settled_by
from palaver.adapters.langgraph.thread import Handed

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import Checkpoint
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.saved import Typed
    from palaver.adapters.langgraph.shelf import Shelf
    from palaver.adapters.langgraph.thread import Thread
    from palaver.stores.records import Record

__all__ = ["Given", "put"]

_MESSAGES: Final = "messages"
_START: Final = "__start__"


class Given(NamedTuple):
    """What LangGraph gives to be kept."""

    checkpoint: Checkpoint
    metadata: Any
    new_versions: dict[str, Any]


class _Channel(NamedTuple):
    """A channel of messages that is to be kept."""

    name: str
    messages: list[BaseMessage]
    conversation: str
    changed: bool
    handed: Handed | None
    ran: bool
    """Whether a node ran since the graph was handed them."""


class _Step(NamedTuple):
    """What is to be done to a conversation: nothing, messages added, or another selection."""

    version: int
    new: list[BaseMessage] | None = None
    pieces: list[range | BaseMessage] | None = None
    apart: bool = False

    @property
    def added(self) -> list[BaseMessage]:
        """The messages that come into the log."""
        if self.pieces is None:
            return self.new or []
        return [piece for piece in self.pieces if not isinstance(piece, range)]


class _Draft(NamedTuple):
    """A checkpoint that is to be kept, but for its messages."""

    namespace: str
    parent: str | None
    id: str
    checkpoint: Typed
    metadata: Typed
    small: dict[str, Typed]
    large: tuple[str, ...]
    blobs: list[Record]
    channels: list[_Channel]


def put(thread: Thread, where: Where, given: Given, serde: SerializerProtocol) -> None:
    """Keep a checkpoint that follows another; where someone else came first, look again."""
    thread.begin()
    thread.traffic.await_writes(write_name(where.namespace, where.checkpoint or ""))
    draft = _drafted(thread, where, given, serde)
    while True:
        try:
            _keep(thread, draft, serde)
        except Moved:
            thread.put_away()
            continue
        return


def _drafted(thread: Thread, where: Where, given: Given, serde: SerializerProtocol) -> _Draft:
    namespace, parent = where
    checkpoint, metadata, new_versions = given
    body: dict[str, Any] = {**checkpoint}
    values: dict[str, Any] = body.pop("channel_values")
    before = None if parent is None else thread.saved(namespace, parent)
    known = {} if before is None else before.body(serde)["channel_versions"]
    small: dict[str, Typed] = {}
    blobs: list[Record] = []
    lists: dict[str, list[BaseMessage]] = {}
    handed: dict[str, Handed | None] = {}
    # the step after an input runs no node: it only adds the input to what was read just now
    ran = before is None or before.about(serde).get("source") != "input"
    for channel, value in values.items():
        version = body["channel_versions"].get(channel)
        was_list = before is not None and channel in before.messages
        handed[channel] = thread.handed(namespace, parent, channel)
        if _are_messages(value, handed[channel]) or (
            was_list and type(value) is list and not value
        ):
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
    channels = [
        _Channel(name, messages, homes[name], name in new_versions, handed[name], ran)
        for name, messages in lists.items()
    ]
    return _Draft(
        namespace, parent, checkpoint["id"], serde.dumps_typed(body), serde.dumps_typed(metadata),
        small, large, blobs, channels,
    )  # fmt: skip


def _are_messages(value: object, handed: Handed | None) -> bool:
    return are_messages(value, () if handed is None else handed.messages)


def _conversations(
    thread: Thread, namespace: str, before: Saved | None, lists: dict[str, list[BaseMessage]]
) -> dict[str, str]:
    """The conversation of each channel: the one it had, else the thread's own, else another."""
    refs = {} if before is None else before.messages
    had = {channel: ref for channel, ref in refs.items() if thread.owns(ref.conversation)}
    where = {channel: had[channel].conversation for channel in lists if channel in had}
    taken = namespace != "" or any(ref.conversation == "" for ref in had.values())
    for channel in sorted(lists, key=lambda name: name != _MESSAGES):
        if channel not in where:
            other = channel_conversation(thread.home, namespace, channel)
            where[channel] = other if taken else ""
            taken = True
    return where


# ── messages ────────────────────────────────────────────────────────────────────────────────────


def _keep(thread: Thread, draft: _Draft, serde: SerializerProtocol) -> None:
    refs: dict[str, Ref] = {}
    steps: dict[str, _Step] = {}
    own: tuple[Shelf, _Step] | None = None
    placed: dict[int, tuple[str, int]] = {}
    for channel in draft.channels:
        shelf = thread.shelf_for(channel.conversation, channel.messages)
        step = _step(shelf, channel, serde)
        for position, message in enumerate(step.added, shelf.end):
            placed[id(message)] = channel.conversation, position
        steps[channel.name] = step
        refs[channel.name] = Ref(channel.conversation, step.version)
        if channel.conversation:
            _take(shelf, step, draft.id, [], serde)
        else:
            own = shelf, step
    saved = Saved(draft.parent, draft.checkpoint, draft.metadata, refs, draft.small, draft.large)
    name = checkpoint_name(draft.namespace, draft.id)
    settled = settled_by(thread, Where(draft.namespace, draft.parent), placed)
    records = [
        *draft.blobs,
        (CHECKPOINTS, name, saved.record()),
        *((WRITES, which, data) for which, data in settled.items() if data is not None),
    ]
    if own is None or not _take(*own, draft.id, records, serde):
        thread.keeper.head(thread.home)  # it may be gone: records alone would not be refused
        thread.keeper.keep(thread.home, records)
    for which in settled:
        thread.waiting.pop(which, None)
        thread.traffic.aloft.pop(which, None)
    thread.traffic.lock.notify_all()
    thread.remember(draft.namespace, draft.id, saved)
    for channel in draft.channels:
        step = steps[channel.name]
        handed = Handed(step.version, channel.messages[:], step.apart)
        thread.hand(draft.namespace, draft.id, channel.name, handed)


def _step(shelf: Shelf, channel: _Channel, serde: SerializerProtocol) -> _Step:
    """What it takes to make a conversation's messages those of a channel."""
    now, value, handed = shelf.history.version, channel.messages, channel.handed
    if shelf.version != now:
        shelf.read(now, serde)
    if handed is not None:
        known = handed.messages
        begins = value[: len(known)] == known
        if begins and len(value) == len(known) and not channel.changed:
            return _Step(handed.version, apart=handed.apart)
        edited = handed.apart or handed.version != now
        if (
            begins
            and edited
            and shelf.tip.version <= handed.version  # with palaver, and no other branch
            and all(shelf.place_of(one) is not None for one in known)
        ):
            # what is new comes after the edit
            return _Step(now + 1, new=value[len(known) :], apart=True)
    count = shelf.growth(value, sure=handed is not None and not channel.ran)
    if count is None:
        return _Step(now + 1, pieces=shelf.pieces(value))
    return _Step(now + 1, new=value[count:]) if count < len(value) else _Step(now)


def _take(
    shelf: Shelf, step: _Step, checkpoint: str, records: list[Record], serde: SerializerProtocol
) -> bool:
    """Carry out a step; False where there is nothing to do."""
    if step.pieces is not None:
        shelf.select(step.pieces, checkpoint, records, serde)
    elif step.new:
        shelf.extend(step.new, checkpoint, records, serde)
    else:
        return False
    return True
