"""A thread copied: its conversations are forked, which costs nothing, and its records repeated.

A fork begins with what its parent was then. Older checkpoints of the copy go on reading the older
versions of the parent; the newest ones read the copy itself, which goes its own way from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from palaver.adapters.langgraph.naming import (
    BLOBS,
    CHECKPOINTS,
    FOLDED,
    WRITES,
    checkpoint_name,
    inner,
)
from palaver.adapters.langgraph.saved import Ref, read_writes, writes_record
from palaver.errors import AlreadyExists

if TYPE_CHECKING:
    from palaver.adapters.langgraph.thread import Found, Thread
    from palaver.stores.records import Record

__all__ = ["copy"]

_MANY = 1_000_000
_KEY = "langgraph copy"


def copy(source: Thread, target: Thread) -> None:
    """Copy a thread to one that has no checkpoints yet; doing it again after a crash goes on."""
    if target.all():
        msg = f"the thread {target.home!r} has checkpoints already"
        raise AlreadyExists(msg)
    found = source.all()
    if not found:
        return
    moved = {"": ""}
    for name in source.store.named(inner(source.home), limit=_MANY):
        moved[name] = inner(target.home) + name.removeprefix(inner(source.home))
    heads: dict[str, int] = {}
    for name, new in moved.items():
        history = source.shelf(name).history
        heads[name] = history.version
        history.fork(id=new or target.home, key=_KEY)
    newest = {one.namespace: one.id for one in found}
    records: list[Record] = []
    for one in found:
        last = newest[one.namespace] == one.id
        refs = {channel: _ref(source, one, ref, moved, heads, newest=last)
                for channel, ref in one.saved.messages.items()}  # fmt: skip
        name = checkpoint_name(one.namespace, one.id)
        records.append((CHECKPOINTS, name, replace(one.saved, messages=refs).record()))
    records += _writes(source)
    for kind in (BLOBS, FOLDED):
        records += ((kind, *item) for item in source.keeper.records(source.home, kind).items())
    target.keeper.keep(target.home, records)
    target.forget()


def _ref(
    source: Thread,
    one: Found,
    ref: Ref,
    moved: dict[str, str],
    heads: dict[str, int],
    *,
    newest: bool,
) -> Ref:
    """Where a copied checkpoint finds its messages: in the copy where that begins with them."""
    if ref.conversation not in moved:
        return ref  # of what the source itself was copied from
    if source.version_of(one, ref, newest=newest) == heads[ref.conversation]:
        return Ref(moved[ref.conversation], 0)
    return Ref(ref.conversation or source.home, ref.version)


def _writes(source: Thread) -> list[Record]:
    records: list[Record] = []
    for name, data in source.keeper.records(source.home, WRITES).items():
        path, writes = read_writes(data)
        moved = [replace(one, conversation=one.conversation or source.home) for one in writes]
        records.append((WRITES, name, writes_record(path, moved)))
    return records
