"""Copying conversations from one store to another, of any kind.

A copy that was interrupted goes on where it stopped, and doing it again brings over what is new.
Parents come before their forks, so forks share their messages there as they do here. What was
erased here since the last time is erased there too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import AlreadyExists, UnknownConversation
from palaver.history.erasing import ERASED
from palaver.stores.rows import one
from palaver.stores.wholes import changes_of, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Change, Head
    from palaver.stores.store import Store

__all__ = ["Copied", "copy", "first_head"]

_MANY = 2_000


class Copied(Struct, frozen=True, rename="camel"):
    """What a copy came to: conversations brought over or gone on with, and those there already."""

    copied: int
    unchanged: int
    messages: int


def copy(
    source: Store,
    target: Store,
    conversations: Iterable[str] | None = None,
    *,
    progress: Callable[[int, int | None], object] | None = None,
) -> Copied:
    """Copy conversations, all or those named, to another store, with every version of them.

    >>> import palaver
    >>> here, there = palaver.open(":memory:"), palaver.open(":memory:")
    >>> history = here.create([palaver.user("hello")])
    >>> copy(here, there).copied, there.get(history.id)[0].text
    (1, 'hello')
    """
    heads = list(_parents_first(source, conversations))
    total = sum(head.version + 1 for head in heads)
    done = copied = messages = 0
    for head in heads:
        before = _standing(source.keeper, target.keeper, head)
        brought = 0
        for changes in _chunks(changes_of(source.keeper, head, after=before)):
            begun = first_head(head, changes[0]) if changes[0].after < 0 else None
            target.keeper.adopt(begun, changes)
            brought += len(changes)
            messages += sum(len(change.messages) for change in changes)
            if progress is not None:
                progress(done + before + 1 + brought, total)
        _bring_the_rest(source.keeper, target.keeper, head, before)
        copied += brought > 0
        done += head.version + 1
        if progress is not None:
            progress(done, total)
    return Copied(copied, len(heads) - copied, messages)


def first_head(head: Head, first: Change) -> Head:
    """A conversation's head as it was when it had only its first change."""
    own = len(first.messages)
    return replace(
        head,
        version=0,
        stop=first.stop,
        length=first.first + own,
        counts=first.counts + sum(map(one, first.messages)),
        framed=0,
        size=first.size,
        updated=first.at,
        erased=0,
    )


def _parents_first(source: Store, wanted: Iterable[str] | None) -> Iterator[Head]:
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


def _standing(source: Keeper, target: Keeper, head: Head) -> int:
    """The version up to which the target has a conversation already; -1 where it has nothing."""
    try:
        there = target.head(head.id)
    except UnknownConversation:
        return -1
    version = min(there.version, head.version)
    mine, theirs = (
        [(c.kind, c.at, c.first, c.count) for c in keeper.journal(head.id, version - 1, 1)]
        for keeper in (source, target)
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
        if count >= _MANY:
            yield chunk
            chunk, count = [], 0
    if chunk:
        yield chunk


def _bring_the_rest(source: Keeper, target: Keeper, head: Head, before: int) -> None:
    """Title, tags and records as they are now; and what was erased since the last time."""
    there = target.head(head.id)
    if there.version != head.version:
        return  # somebody has gone on with the copy: it has a life of its own
    if (there.title, there.tags) != (head.title, head.tags):
        target.describe(head.id, head.title, head.tags)
    mine, theirs = records_of(source, head.id), records_of(target, head.id)
    if mine != theirs:
        kept = {(kind, name) for kind, name, _ in mine}
        for kind, name, _ in theirs:
            if (kind, name) not in kept:
                target.put(head.id, kind, name, None)
        for kind, name, value in mine:
            target.put(head.id, kind, name, value)
    if head.erased and before >= 0:
        for at, names in _erased_since(source, target, head).items():
            target.erase(head.id, names, at)


def _erased_since(source: Keeper, target: Keeper, head: Head) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for start in range(head.base, head.length, _MANY):
        stop = min(start + _MANY, head.length)
        there = target.messages(head.id, start, stop)
        for mine, theirs in zip(source.messages(head.id, start, stop), there, strict=True):
            at = mine.metadata.get(ERASED)
            if isinstance(at, int) and ERASED not in theirs.metadata:
                found.setdefault(at, []).append(mine.id)
    return found
