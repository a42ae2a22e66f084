"""Copying conversations from one store to another, of any kind.

A copy that was interrupted continues where it stopped, and copying again brings over what is new.
Parents are copied before their forks, so that forks share their messages in the target as they do
in the source. Messages that were erased in the source since the last copy are erased in the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import AlreadyExists, UnknownConversation
from palaver.history.erase import ERASED
from palaver.history.log import packed_count
from palaver.stores.transfer.export import read_changes, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.stores.backend import Backend
    from palaver.stores.records import Change, Head
    from palaver.stores.store import Store

__all__ = ["Copied", "copy_conversations", "first_head"]

_CHUNK: Final = 2_000


class Copied(Struct, frozen=True, rename="camel"):
    """The result of a copy: conversations copied or continued, and those that were complete."""

    copied: int
    unchanged: int
    messages: int


def copy_conversations(
    source: Store,
    target: Store,
    conversations: Iterable[str] | None = None,
    *,
    progress: Callable[[int, int | None], object] | None = None,
) -> Copied:
    """Copy conversations, all or the given ones, to another store, with all their versions.

    >>> import palaver
    >>> here, there = palaver.open(":memory:"), palaver.open(":memory:")
    >>> history = here.create([palaver.user("hello")])
    >>> copy_conversations(here, there).copied, there.get(history.id)[0].text
    (1, 'hello')
    """
    heads = list(_parents_first(source, conversations))
    total = sum(head.version + 1 for head in heads)
    done = copied = messages = 0
    for head in heads:
        before = _copied_version(source.backend, target.backend, head)
        added = 0
        for changes in _chunks(read_changes(source.backend, head, after=before)):
            start = first_head(head, changes[0]) if changes[0].after < 0 else None
            target.backend.adopt(start, changes)
            added += len(changes)
            messages += sum(len(change.messages) for change in changes)
            if progress is not None:
                progress(done + before + 1 + added, total)
        _copy_rest(source.backend, target.backend, head, before)
        copied += added > 0
        done += head.version + 1
        if progress is not None:
            progress(done, total)
    return Copied(copied, len(heads) - copied, messages)


def first_head(head: Head, first: Change) -> Head:
    """Return a conversation's head as it was after its first change."""
    own = len(first.messages)
    return replace(
        head,
        version=0,
        stop=first.stop,
        length=first.first + own,
        counts=first.counts + sum(map(packed_count, first.messages)),
        framed=0,
        size=first.size,
        updated=first.at,
        erased=0,
    )


def _parents_first(source: Store, wanted: Iterable[str] | None) -> Iterator[Head]:
    """Yield the heads of conversations and of their ancestors, parents first."""
    heads = {head.id: head for head in source}
    names = list(heads) if wanted is None else list(wanted)
    seen: set[str] = set()
    for name in names:
        line: list[Head] = []
        above: str | None = name
        while above is not None and above not in seen:
            if above not in heads:
                msg = f"no conversation has the id {above!r}"
                raise UnknownConversation(msg)
            seen.add(above)
            line.append(heads[above])
            above = heads[above].parent
        yield from reversed(line)


def _copied_version(source: Backend, target: Backend, head: Head) -> int:
    """Return the version up to which the target has a conversation; -1 where it has none."""
    try:
        there = target.head(head.id)
    except UnknownConversation:
        return -1
    version = min(there.version, head.version)
    mine, theirs = (
        [(c.kind, c.at, c.first, c.count) for c in backend.journal(head.id, version - 1, 1)]
        for backend in (source, target)
    )
    if mine != theirs or (there.parent, there.base) != (head.parent, head.base):
        msg = f"the target has another conversation with the id {head.id!r}"
        raise AlreadyExists(msg)
    return version


def _chunks(changes: Iterator[Change]) -> Iterator[list[Change]]:
    chunk: list[Change] = []
    count = 0
    for change in changes:
        chunk.append(change)
        count += 1 + len(change.messages)
        if count >= _CHUNK:
            yield chunk
            chunk, count = [], 0
    if chunk:
        yield chunk


def _copy_rest(source: Backend, target: Backend, head: Head, before: int) -> None:
    """Copy title, tags, owner and records as they are now, and erasures since the last copy."""
    there = target.head(head.id)
    if there.version != head.version:
        return  # the copy was changed in the target: it is left alone
    if (there.title, there.tags) != (head.title, head.tags):
        target.describe(head.id, head.title, head.tags)
    if there.owner != head.owner:
        target.set_owner(head.id, head.owner)
    mine, theirs = read_records(source, head.id), read_records(target, head.id)
    if mine != theirs:
        wanted = {(kind, name) for kind, name, _ in mine}
        for kind, name, _ in theirs:
            if (kind, name) not in wanted:
                target.put(head.id, kind, name, None)
        for kind, name, value in mine:
            target.put(head.id, kind, name, value)
    if head.erased and before >= 0:
        for at, names in _erased_since(source, target, head).items():
            target.erase(head.id, names, at)


def _erased_since(source: Backend, target: Backend, head: Head) -> dict[int, list[str]]:
    """Return the messages erased in the source and not yet in the target, by time."""
    found: dict[int, list[str]] = {}
    for start in range(head.base, head.length, _CHUNK):
        stop = min(start + _CHUNK, head.length)
        there = target.messages(head.id, start, stop)
        for mine, theirs in zip(source.messages(head.id, start, stop), there, strict=True):
            at = mine.metadata.get(ERASED)
            if isinstance(at, int) and ERASED not in theirs.metadata:
                found.setdefault(at, []).append(mine.id)
    return found
