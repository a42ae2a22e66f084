"""Proof that a store is whole: it walks everything and says what is wrong, and where.

Sequences without gaps, every row's hash, role counts that add up, versions without gaps, every
frame readable, every selection within the log. It never stops at the first fault and never fails on
a damaged file: what can't be read is one more thing to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import PalaverError
from palaver.history.rope import MASK, SHIFTS
from palaver.stores.rows import one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head
    from palaver.stores.store import Store

__all__ = ["problems"]

_PAGE = 1_000


def problems(store: Store, conversation: str | None) -> Iterator[str]:
    """Everything that is wrong with a conversation, or with the whole store."""
    try:
        if conversation is None:
            yield from store.keeper.check()
        heads = [store.keeper.head(conversation)] if conversation is not None else list(store)
    except PalaverError as error:
        yield str(error)
        return
    for head in heads:
        for part in (
            _messages(store.keeper, head),
            _journal(store.keeper, head),
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
    history = store.get(head.id)
    if history.version != head.version:
        return  # somebody wrote meanwhile: what follows would compare two moments
    view = history.view
    if len(view) != head.size:
        yield f"the view has {len(view)} messages, the head says {head.size}"
    for start, stop in view.ranges():
        if not 0 <= start < stop <= head.length:
            yield f"the view has positions {start} to {stop}, the log has {head.length}"


def _messages(keeper: Keeper, head: Head) -> Iterator[str]:
    counts = keeper.before(head.id, head.base) if head.base else 0
    position = head.base
    while position < head.length:
        stop = min(position + _PAGE, head.length)
        damaged = False
        for problem in keeper.damaged(head.id, position, stop):
            damaged = True
            yield problem
        if damaged:  # what else could be said of these would only follow from it
            position = stop
            counts = keeper.before(head.id, position)
            continue
        for offset, message in enumerate(keeper.messages(head.id, position, stop)):
            before = keeper.before(head.id, position + offset)
            if before != counts:
                yield f"message {position + offset}: {_difference(before, counts)}"
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


def _journal(keeper: Keeper, head: Head) -> Iterator[str]:
    version, length = -1, head.base
    while version < head.version:
        changes = keeper.journal(head.id, version, _PAGE)
        if not changes:
            yield f"version {version + 1} is missing from the journal"
            return
        for change in changes:
            if change.version <= version:
                yield f"version {change.version} comes after version {version} in the journal"
                return
            if change.version != version + 1:
                yield f"version {version + 1} is missing from the journal"
            if change.first != length:
                yield f"version {change.version} begins at {change.first}, expected {length}"
            version = change.version
            length = change.first + change.count
    if length != head.length:
        yield f"the journal has {length} messages, the head says {head.length}"
