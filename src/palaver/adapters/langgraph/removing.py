"""Taking checkpoints away, a thread as a whole, and what a delta channel still needs of them.

Only the saver's own records go; the log keeps what was said, and `Store.prune` and `erase` are the
ways to be rid of that. A delta channel's value is the sum of writes back to its last snapshot. So a
checkpoint whose parent goes gets a record with what it would have found there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.adapters.langgraph.naming import (
    BLOBS,
    CHECKPOINTS,
    FOLDED,
    KINDS,
    WRITES,
    blob_name,
    checkpoint_name,
    inner,
    point,
    split_name,
)
from palaver.errors import StoreError, UnknownConversation

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.thread import Found, Thread
    from palaver.stores.records import Record

__all__ = ["delta_history", "keep_newest", "remove", "remove_all"]

_MANY = 1_000_000


def remove_all(thread: Thread) -> None:
    """Delete a thread: its conversations, and all that lies beside them.

    A conversation that another was forked from, such as by copying the thread, is emptied: the
    other one reads its messages.
    """
    for name in (*thread.store.named(inner(thread.home), limit=_MANY), thread.home):
        try:
            thread.store.delete(name)
        except UnknownConversation:
            continue
        except StoreError:
            _empty(thread, name)
    thread.forget()


def _empty(thread: Thread, name: str) -> None:
    thread.store.get(name).clear(keep_system_message=False)
    thread.keeper.keep(
        name,
        [(kind, each, None) for kind in KINDS for each in thread.keeper.records(name, kind)],
    )


def keep_newest(thread: Thread, serde: SerializerProtocol) -> None:
    """Take away all checkpoints but the newest of each namespace."""
    newest = {found.namespace: found for found in thread.all()}  # by name: the newest comes last
    remove(
        thread, [found for found in thread.all() if newest[found.namespace].id != found.id], serde
    )


def remove(thread: Thread, gone: Sequence[Found], serde: SerializerProtocol) -> None:
    """Take some checkpoints away, and what only they have."""
    if not gone:
        return
    names = {checkpoint_name(found.namespace, found.id) for found in gone}
    left = [one for one in thread.all() if checkpoint_name(one.namespace, one.id) not in names]
    if not left:
        remove_all(thread)
        return
    records: list[Record] = [(CHECKPOINTS, name, None) for name in names]
    blobs: set[str] = set()
    for found in left:
        versions: dict[str, Any] = found.saved.body(serde)["channel_versions"]
        blobs |= {blob_name(found.namespace, *item) for item in versions.items()}
        if checkpoint_name(found.namespace, found.saved.parent or "") in names:
            records += _folded(thread, found, serde)
    keeper, home = thread.keeper, thread.home
    records += ((BLOBS, name, None) for name in keeper.records(home, BLOBS) if name not in blobs)
    for kind in (WRITES, FOLDED):
        for name in keeper.records(home, kind):
            if checkpoint_name(*split_name(name)) in names:
                records.append((kind, name, None))
    keeper.keep(home, records)
    thread.forget()
    _return(thread, left)


def _return(thread: Thread, left: Sequence[Found]) -> None:
    """Where the last thing a saver did went with a checkpoint, go back to the newest there is."""
    newest = {found.namespace: found for found in left}
    for found in newest.values():
        for ref in found.saved.messages.values():
            shelf = thread.shelf(ref.conversation)
            kept = any(one.id == shelf.tip.checkpoint for one in left)
            if not kept and ref.version < shelf.tip.version == shelf.history.version:
                shelf.restore(ref.version, found.id)


# ── delta channels ──────────────────────────────────────────────────────────────────────────────


def _folded(thread: Thread, found: Found, serde: SerializerProtocol) -> list[Record]:
    """What a checkpoint's delta channels need of its ancestors, as a record."""
    about: dict[str, Any] = {**found.saved.about(serde)}
    channels = list(about.get("counters_since_delta_snapshot") or ())
    if not channels:
        return []
    kind, data = serde.dumps_typed(delta_history(thread, found, channels, serde))
    name = checkpoint_name(found.namespace, found.id)
    return [(FOLDED, name, kind.encode() + b"\n" + data)]


def delta_history(
    thread: Thread, target: Found, channels: Collection[str], serde: SerializerProtocol
) -> dict[str, DeltaChannelHistory]:
    """For each channel the writes since its last value before a checkpoint, and that value."""
    writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    remaining = set(channels)
    found = target
    while remaining:
        parent = found.saved.parent
        above = None if parent is None else thread.find(found.namespace, parent)
        if above is None:
            folded = _unfolded(thread, found, serde)
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


def _unfolded(thread: Thread, found: Found, serde: SerializerProtocol) -> dict[str, Any]:
    """What was kept for a checkpoint's delta channels when its ancestors went."""
    name = checkpoint_name(found.namespace, found.id)
    kept = thread.keeper.records(thread.home, FOLDED, since=name, until=point(name))
    kind, _, data = kept.get(name, b"").partition(b"\n")
    return dict(serde.loads_typed((kind.decode(), data))) if kept else {}
