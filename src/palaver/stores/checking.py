"""Proof that a store is whole: it walks everything and says what is wrong, and where.

Sequences without gaps, every row's hash, role counts that add up, versions without gaps, a head
that says what the journal says, every frame readable, every selection within the log. It never
stops at the first fault and never fails on a damaged file: what can't be read is one more thing to
say. It asks for many rows at a time, and others may write meanwhile: it looks at each conversation
as it was when it came to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import PalaverError
from palaver.history.rope import MASK, SHIFTS
from palaver.stores.arguments import check_known
from palaver.stores.rows import one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head, Journaled
    from palaver.stores.store import Store

__all__ = ["problems"]

_PAGE = 1_000


class _Count:
    """How far the walk has come."""

    def __init__(
        self, heads: list[Head], progress: Callable[[int, int | None], object] | None
    ) -> None:
        self._total = sum(head.length - head.base + head.version + 1 for head in heads)
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        """So many more have been looked at."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def problems(
    store: Store,
    conversation: str | None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[str]:
    """Everything that is wrong with a conversation, or with the whole store."""
    try:
        if conversation is None:
            yield from store.keeper.check()
        else:
            check_known(conversation)
        heads = [store.keeper.head(conversation)] if conversation is not None else list(store)
    except PalaverError as error:
        yield str(error)
        return
    count = _Count(heads, progress)
    for head in heads:
        for part in (
            store.keeper.unsound(head.id),
            _messages(store.keeper, head, count),
            _journal(store.keeper, head, count),
            _view(store, head),
        ):
            try:
                for problem in part:
                    yield f"{head.id}: {problem}"
            except PalaverError as error:
                yield f"{head.id}: {error}"
            except Exception as error:  # noqa: BLE001 - whatever a damaged file may bring about
                yield f"{head.id}: {type(error).__name__}: {error}"


def _view(store: Store, head: Head) -> Iterator[str]:
    frames = store.keeper.frames(head.id, head.framed - 1, head.version)
    if [head.framed] != [kept.version for kept in frames]:
        yield f"the head says the last frame is of version {head.framed}, and it is not"
    stop = store.keeper.stop(head.id, head.version)
    if stop != head.stop:
        yield f"the head says the view ends at {head.stop}, the journal says at {stop}"
    history = store.get(head.id)
    if history.version != head.version:
        return  # somebody wrote meanwhile: what follows would compare two moments
    view = history.view
    if len(view) != head.size:
        yield f"the view has {len(view)} messages, the head says {head.size}"
    for start, stop in view.ranges():
        if not 0 <= start < stop <= head.length:
            yield f"the view has positions {start} to {stop}, the log has {head.length}"


def _messages(keeper: Keeper, head: Head, count: _Count) -> Iterator[str]:
    counts = keeper.before(head.id, head.base) if head.base else 0
    position = head.base
    while position < head.length:
        stop = min(position + _PAGE, head.length)
        count.add(stop - position)
        damaged = False
        for problem in keeper.damaged(head.id, position, stop):
            damaged = True
            yield problem
        if damaged:  # what else could be said of these would only follow from it
            position = stop
            counts = keeper.before(head.id, position)
            continue
        said = keeper.befores(head.id, position, stop)
        messages = keeper.messages(head.id, position, stop)
        for place, (before, message) in enumerate(zip(said, messages, strict=True), position):
            if before != counts:
                yield f"message {place}: {_difference(before, counts)}"
                counts = before
            counts += one(message)
        position = stop
    if counts != head.counts:
        yield f"the head: {_difference(head.counts, counts)}"


def _difference(said: int, found: int) -> str:
    wrong = [
        f"{said >> shift & MASK} {role} messages before it, counted {found >> shift & MASK}"
        for role, shift in SHIFTS.items()
        if said >> shift & MASK != found >> shift & MASK
    ]
    return "says there are " + ", ".join(wrong or [f"{said & MASK} before it, not {found & MASK}"])


def _journal(keeper: Keeper, head: Head, count: _Count) -> Iterator[str]:
    version, length, updated = -1, head.base, 0
    before: Journaled | None = None
    while version < head.version:
        page = keeper.journal(head.id, version, _PAGE)
        changes = [change for change in page if change.version <= head.version]
        count.add(len(changes))
        if not changes:
            yield f"version {version + 1} is missing from the journal"
            return
        for change in changes:
            if change.version <= version:
                yield f"version {change.version} comes after version {version} in the journal"
                return
            yield from _follows(change, before, length)
            before, version = change, change.version
            length = change.first + change.count
            updated = max(updated, change.at)
    if length != head.length:
        yield f"the journal has {length} messages, the head says {head.length}"
    if updated != head.updated:
        yield f"the last change was at {updated}, the head says {head.updated}"
    if keeper.journal(head.id, version, 1) and keeper.head(head.id).version == head.version:
        yield f"the journal goes on after version {version}, where the head says it ends"


def _follows(change: Journaled, before: Journaled | None, length: int) -> Iterator[str]:
    """What is wrong with a change as the next after another."""
    expected = 0 if before is None else before.version + 1
    if change.version != expected:
        yield f"version {expected} is missing from the journal"
    if change.first != length:
        yield f"version {change.version} begins at {change.first}, expected {length}"
    if before is not None and change.cursor <= before.cursor:
        yield f"version {change.version} is told before version {before.version}"
