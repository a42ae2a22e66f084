"""Verification of a store: it reads everything and reports what is wrong, and where.

It checks that sequences and versions have no gaps, that every row has its hash, that role counts
add up, that the head agrees with the journal, that every frame can be read and that every view is
within the log. It never stops at the first problem and never fails on a damaged file: what can't be
read is one more problem. Others may write meanwhile: each conversation is checked as it was when
its turn came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import PalaverError, UnknownConversation
from palaver.history.frame import MASK, SHIFTS
from palaver.history.log import packed_count
from palaver.stores.records import check_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores.backend import Backend
    from palaver.stores.records import Head, JournalEntry
    from palaver.stores.store import Store

__all__ = ["find_problems"]

_PAGE = 1_000


class _Progress:
    """How many messages and versions have been checked."""

    def __init__(
        self, heads: list[Head], progress: Callable[[int, int | None], object] | None
    ) -> None:
        self._total = sum(head.length - head.base + head.version + 1 for head in heads)
        self._report = progress
        self._done = 0

    def add(self, count: int) -> None:
        """Count so many more as checked."""
        self._done += count
        if self._report is not None:
            self._report(self._done, max(self._total, self._done))


def find_problems(
    store: Store,
    conversation: str | None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[str]:
    """Yield everything that is wrong with a conversation, or with the whole store."""
    try:
        if conversation is None:
            yield from store.backend.check()
        else:
            check_known(conversation)
        heads = [store.backend.head(conversation)] if conversation is not None else list(store)
    except PalaverError as error:
        yield str(error)
        return
    done = _Progress(heads, progress)
    gone: set[str] = set()
    for listed in heads:
        head = _look_again(store.backend, listed)
        for problem in _check(store, head, done) if head is not None else ():
            if _look_again(store.backend, listed) is None:  # deleted meanwhile
                head = None
                break
            yield f"{listed.id}: {problem}"
        if head is None:
            gone.add(listed.id)
    for listed in store if gone else ():
        if listed.id in gone and _look_again(store.backend, listed) is None:
            yield f"{listed.id}: is in the list of conversations, and can't be found"


def _look_again(backend: Backend, head: Head) -> Head | None:
    """Return a head as it is now, None if the conversation is gone."""
    try:
        return backend.head(head.id)
    except UnknownConversation:
        return None
    except Exception:  # noqa: BLE001 - a damaged file: what was listed leads to what is wrong
        return head


def _check(store: Store, head: Head, done: _Progress) -> Iterator[str]:
    """Yield everything that is wrong with a conversation."""
    for part in (
        store.backend.unsound(head.id),
        _check_messages(store.backend, head, done),
        _check_journal(store.backend, head, done),
        _check_view(store, head),
    ):
        try:
            yield from part
        except PalaverError as error:
            yield str(error)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file may bring about
            yield f"{type(error).__name__}: {error}"


def _check_view(store: Store, head: Head) -> Iterator[str]:
    frames = store.backend.frames(head.id, head.framed - 1, head.version)
    if [head.framed] != [frame.version for frame in frames]:
        yield f"the head says the last frame is of version {head.framed}, and it is not"
    stop = store.backend.stop(head.id, head.version)
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


def _check_messages(backend: Backend, head: Head, done: _Progress) -> Iterator[str]:
    counts = backend.before(head.id, head.base) if head.base else 0
    position = head.base
    while position < head.length:
        stop = min(position + _PAGE, head.length)
        done.add(stop - position)
        damaged = False
        for problem in backend.damaged(head.id, position, stop):
            damaged = True
            yield problem
        if damaged:  # any other problem of these would only follow from it
            position = stop
            counts = backend.before(head.id, position)
            continue
        stored = backend.befores(head.id, position, stop)
        messages = backend.messages(head.id, position, stop)
        for index, (before, message) in enumerate(zip(stored, messages, strict=True), position):
            if before != counts:
                yield f"message {index}: {_difference(before, counts)}"
                counts = before
            counts += packed_count(message)
        position = stop
    if counts != head.counts:
        yield f"the head: {_difference(head.counts, counts)}"


def _difference(stored: int, found: int) -> str:
    wrong = [
        f"{stored >> shift & MASK} {role} messages before it, counted {found >> shift & MASK}"
        for role, shift in SHIFTS.items()
        if stored >> shift & MASK != found >> shift & MASK
    ]
    return "says there are " + ", ".join(
        wrong or [f"{stored & MASK} before it, not {found & MASK}"]
    )


def _check_journal(backend: Backend, head: Head, done: _Progress) -> Iterator[str]:
    version, length, updated = -1, head.base, 0
    before: JournalEntry | None = None
    while version < head.version:
        page = backend.journal(head.id, version, _PAGE)
        changes = [change for change in page if change.version <= head.version]
        done.add(len(changes))
        if not changes:
            yield f"version {version + 1} is missing from the journal"
            return
        for change in changes:
            if change.version <= version:
                yield f"version {change.version} comes after version {version} in the journal"
                return
            yield from _check_successor(change, before, length)
            before, version = change, change.version
            length = change.first + change.count
            updated = max(updated, change.at)
    if length != head.length:
        yield f"the journal has {length} messages, the head says {head.length}"
    if updated != head.updated:
        yield f"the last change was at {updated}, the head says {head.updated}"
    if backend.journal(head.id, version, 1) and backend.head(head.id).version == head.version:
        yield f"the journal goes on after version {version}, where the head says it ends"


def _check_successor(
    change: JournalEntry, before: JournalEntry | None, length: int
) -> Iterator[str]:
    """Yield what is wrong with a change as the one that comes after another."""
    expected = 0 if before is None else before.version + 1
    if change.version != expected:
        yield f"version {expected} is missing from the journal"
    if change.first != length:
        yield f"version {change.version} begins at {change.first}, expected {length}"
    if before is not None and change.cursor <= before.cursor and before.cursor:
        yield f"version {change.version} has a lower cursor than version {before.version}"
