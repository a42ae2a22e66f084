"""The way back: versions, batches, what differs, undo, redo, rollback, restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import UNSET

from palaver.history.diff import missing
from palaver.server.lineage import told_batches, told_versions
from palaver.server.routes.messages import Stamp
from palaver.server.service import Served
from palaver.server.shapes.changes import (
    BatchNumber,
    Branch,
    Changed,
    Difference,
    Entry,
    Parent,
    VersionNumber,
    Versions,
    outcome_of,
)
from palaver.server.stamps import expected, stamped

if TYPE_CHECKING:
    from palaver.history import Result, View
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory

__all__ = ["ROUTES"]

Count = Annotated[int, QueryParameter(ge=1, le=1_000)]
Most = Annotated[int, QueryParameter(ge=0, le=10_000)]
Number = Annotated[int | None, QueryParameter(ge=0)]
After = Annotated[int | None, QueryParameter(ge=-1)]
Name = Annotated[str | None, QueryParameter(max_length=200)]


@get("/conversations/{conversation:str}/versions", sync_to_thread=True)
def versions(
    service: Served, conversation: FromPath[str], after: After = None, limit: Count = 500
) -> Response[Versions]:
    """List versions, oldest first, with the line of batches and the forks.

    They are those after a version, and by default the newest; `next` is the `after` of the next
    page, None after the last.
    """
    store = service.store
    history = store.get(conversation)
    newest = history.version
    begin = max(newest - limit, -1) if after is None else min(after, newest)
    changes = [c for c in store.keeper.journal(conversation, begin, limit) if c.version <= newest]
    items = told_versions(history, changes)
    last = changes[-1].version if changes else newest
    answer = Versions(
        version=newest,
        first=changes[0].version if changes else newest,
        items=items,
        next=last if last < newest else None,
        batches=told_batches(history.view, items),
        forks=_forks(store, conversation),
        undo=history.can_undo,
        redo=history.can_redo,
        parent=UNSET
        if history.origin is None
        else Parent(id=history.origin[0], at=history.origin[1]),
    )
    return stamped(answer, newest)


def _forks(store: Store, conversation: str) -> list[Branch]:
    return [
        Branch(
            id=head.id,
            title=head.title,
            at=head.origin,
            version=head.version,
            length=head.size,
        )
        for head in store.keeper.forks(conversation)
    ]


@get("/conversations/{conversation:str}/diff", sync_to_thread=True)
def diff(
    service: Served,
    conversation: FromPath[str],
    before: Number = None,
    after: Number = None,
    other: Name = None,
    limit: Most = 2_000,
) -> Response[Difference]:
    """Say what differs between two versions, by default in the last change.

    With `other`, a fork of this conversation or what it was forked from, `after` is a version of
    that one. At most `limit` messages are listed on each side, the first ones.
    """
    history = service.store.get(conversation)
    there = history if other is None else service.store.get(other)
    end = there.view if after is None else there.at(after)
    usual = history.version if other is not None else max(end.version - 1, 0)
    begin = history.at(usual if before is None else before)
    return stamped(_difference(begin, end, limit), history.version)


def _difference(begin: View, end: View, most: int) -> Difference:
    removed_count, removed = _without(begin, end, most)
    added_count, added = _without(end, begin, most)
    return Difference(
        before=begin.version,
        after=end.version,
        before_length=len(begin),
        after_length=len(end),
        removed_count=removed_count,
        added_count=added_count,
        removed=removed,
        added=added,
    )


def _without(view: View, other: View, most: int) -> tuple[int, list[Entry]]:
    """How many messages a view has that another has not, and the first of them."""
    count = 0
    found: list[Entry] = []
    for index, start, stop in missing(view, other):
        count += stop - start
        read = view.log.between(start, min(stop, start + most - len(found)))
        found += [Entry(index=index + place, message=one) for place, one in enumerate(read)]
    return count, found


@post("/conversations/{conversation:str}/undo", sync_to_thread=True, status_code=200)
def undo(service: Served, conversation: FromPath[str], if_match: Stamp = None) -> Response[Changed]:
    """Reverse the last change; that is itself a new version."""
    history = service.store.get(conversation)
    return _changed(history, history.undo(expect=expected(if_match)))


@post("/conversations/{conversation:str}/redo", sync_to_thread=True, status_code=200)
def redo(service: Served, conversation: FromPath[str], if_match: Stamp = None) -> Response[Changed]:
    """Bring back what the last undo, rollback or restore left."""
    history = service.store.get(conversation)
    return _changed(history, history.redo(expect=expected(if_match)))


@post("/conversations/{conversation:str}/rollback", sync_to_thread=True, status_code=200)
def rollback(
    service: Served,
    conversation: FromPath[str],
    data: JSONBody[BatchNumber],
    if_match: Stamp = None,
) -> Response[Changed]:
    """Go back to a batch as it ended."""
    history = service.store.get(conversation)
    return _changed(history, history.rollback(data.batch, expect=expected(if_match)))


@post("/conversations/{conversation:str}/restore", sync_to_thread=True, status_code=200)
def restore(
    service: Served,
    conversation: FromPath[str],
    data: JSONBody[VersionNumber],
    if_match: Stamp = None,
) -> Response[Changed]:
    """Return to a version: its messages, batches, marks and team task."""
    history = service.store.get(conversation)
    return _changed(history, history.restore(data.version, expect=expected(if_match)))


def _changed(history: StoredHistory, result: Result) -> Response[Changed]:
    answer = Changed(version=history.version, result=outcome_of(result))
    return stamped(answer, history.version)


ROUTES: Final = [versions, diff, undo, redo, rollback, restore]
