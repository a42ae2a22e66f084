"""Versions: list them, compare two of them, and go back with undo, redo, rollback and restore.

A version says how long the view was and which batch was open. One that went back says which earlier
version it returned to, so that a page can draw what was left behind as a side branch. Alternatives
to a message (another answer to the same question) are found in the versions and forks; nothing is
stored for them, and to choose one is to restore its version or to open its fork.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from palaver.history.diff import find_alternative, missing
from palaver.history.erase import ERASED
from palaver.messages import AssistantInfo, Message
from palaver.server.requests import IfMatch, Shape, read_if_match, with_etag
from palaver.server.routes.operations import ChangeResult, change_response
from palaver.server.services import Service, ServiceDependency
from palaver.stores.forks import FAR
from palaver.stores.records import PRUNED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.history import View
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import JournalEntry

__all__ = ["ROUTES"]

_RETURNING: Final = frozenset(("undo", "redo", "rollback", "restore"))
"""The kinds of change that bring an earlier version back."""
_EDITS: Final = frozenset(("insert", "replace", "truncate", "clear", "filter"))
"""The kinds of change that end a batch, and describe themselves in its snapshot."""

_GONE: Final = frozenset((ERASED, PRUNED))
"""The metadata of what is left of a message whose content was destroyed."""
_LOOKED_AT: Final = 200
"""How many of the versions that an edit followed are searched for alternatives."""
_RELATIVES: Final = 40
"""How many forks and ancestors are searched; fewer than the server has open at a time."""

_Number = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, QueryParameter(ge=1, le=1_000)]
_DiffLimit = Annotated[int, QueryParameter(ge=0, le=10_000)]
_Version = Annotated[int | None, QueryParameter(ge=0)]
_After = Annotated[int | None, QueryParameter(ge=-1)]
_Other = Annotated[str | None, QueryParameter(max_length=200)]

_ViewKey: TypeAlias = tuple[int, int, int, int]
"""What tells two views of a conversation apart: batch, its boundary, length, last position."""


class VersionInfo(Shape, frozen=True):
    """One change: its time, its kind, how many messages it added, and the view's length then.

    `returns` is the version whose messages an undo, redo, rollback or restore brought back.
    """

    version: int
    kind: str
    at: int
    added: int
    length: int
    batch: int
    description: str
    returns: int | UnsetType = UNSET


class BatchInfo(Shape, frozen=True):
    """A batch; the open one has neither an end nor a description yet."""

    batch: int
    boundary: int
    length: int
    at: int | None
    description: str | None
    versions: tuple[int, int] | None


class ForkInfo(Shape, frozen=True):
    """A fork: the version that it was forked at, and its state now."""

    id: str
    title: str | None
    at: int
    version: int
    length: int


class ForkOrigin(Shape, frozen=True):
    """The conversation that this one was forked from, and at which version."""

    id: str
    at: int


class VersionList(Shape, frozen=True):
    """The versions of a conversation, its batches and its forks."""

    version: int
    first: int
    items: list[VersionInfo]
    next: int | None
    batches: list[BatchInfo]
    forks: list[ForkInfo]
    undo: bool
    redo: bool
    parent: ForkOrigin | UnsetType = UNSET


class DiffedMessage(Shape, frozen=True):
    """A message and its index in the view that has it."""

    index: int
    message: Message


class VersionDiff(Shape, frozen=True):
    """The difference of two versions: removed messages by index before, added ones after.

    There may be more than are listed; the counts say how many there are.
    """

    before: int
    after: int
    before_length: int
    after_length: int
    removed_count: int
    added_count: int
    removed: list[DiffedMessage]
    added: list[DiffedMessage]


class Alternative(Shape, frozen=True):
    """A message, and the newest version that has it: of this conversation or of a relative."""

    message: str
    conversation: str
    version: int
    model: str | None
    at: int


class MessageAlternatives(Shape, frozen=True):
    """The message at an index and what stands in its place elsewhere, oldest first.

    `current` is the place of the one that the conversation has now.
    """

    index: int
    current: int
    items: list[Alternative]


class AlternativeList(Shape, frozen=True):
    """Every message of a conversation that has alternatives, in order."""

    version: int
    items: list[MessageAlternatives]


class RollbackRequest(Shape, frozen=True):
    """The batch to roll back to."""

    batch: _Number


class RestoreRequest(Shape, frozen=True):
    """The version to return to."""

    version: _Number


@get("/conversations/{conversation:str}/versions", sync_to_thread=True)
def list_versions(
    service: ServiceDependency,
    conversation: FromPath[str],
    after: _After = None,
    limit: _Count = 500,
) -> Response[VersionList]:
    """List versions, oldest first, with the line of batches and the forks.

    By default these are the newest, otherwise those after a version; `next` is the `after` of the
    next page, None after the last.
    """
    store = service.store
    history = store.get(conversation)
    newest = history.version
    begin = max(newest - limit, -1) if after is None else min(after, newest)
    changes = [c for c in store.journal(conversation, begin, limit) if c.version <= newest]
    items = _list_versions(history, changes)
    last = changes[-1].version if changes else newest
    found = VersionList(
        version=newest,
        first=changes[0].version if changes else newest,
        items=items,
        next=last if last < newest else None,
        batches=_list_batches(history.view, items),
        forks=_list_forks(store, conversation),
        undo=history.can_undo,
        redo=history.can_redo,
        parent=UNSET
        if history.origin is None
        else ForkOrigin(id=history.origin[0], at=history.origin[1]),
    )
    return with_etag(found, newest)


def _list_forks(store: Store, conversation: str) -> list[ForkInfo]:
    return [
        ForkInfo(
            id=head.id,
            title=head.title,
            at=head.origin,
            version=head.version,
            length=head.size,
        )
        for head in store.forks(conversation)
    ]


@get("/conversations/{conversation:str}/diff", sync_to_thread=True)
def diff(
    service: ServiceDependency,
    conversation: FromPath[str],
    before: _Version = None,
    after: _Version = None,
    other: _Other = None,
    limit: _DiffLimit = 2_000,
) -> Response[VersionDiff]:
    """Compare two versions, by default the newest with the one before it.

    With `other`, a fork of this conversation or the one that it was forked from, `after` is a
    version of that one. At most the first `limit` messages are listed on each side.
    """
    history = service.store.get(conversation)
    there = history if other is None else service.store.get(other)
    end = there.view if after is None else there.at(after)
    default = history.version if other is not None else max(end.version - 1, 0)
    begin = history.at(default if before is None else before)
    shared = None if other is None else _shared_length(service.store, conversation, other)
    return with_etag(_compare(begin, end, limit, shared), history.version)


def _shared_length(store: Store, one: str, other: str) -> int:
    """How many positions of the log two conversations share: up to where their lines parted."""
    found = dict(_line(store, one))
    for name, upto in _line(store, other):
        if name in found:
            return min(upto, found[name])
    return 0


def _line(store: Store, name: str | None) -> Iterator[tuple[str, int]]:
    """A conversation and its ancestors, each with how much of its log the conversation reads."""
    upto = FAR
    while name is not None:
        yield name, upto
        head = store.head(name)
        name, upto = head.parent, min(upto, head.base)


def _compare(begin: View, end: View, limit: int, shared: int | None) -> VersionDiff:
    removed_count, removed = _find_missing(begin, end, limit, shared)
    added_count, added = _find_missing(end, begin, limit, shared)
    return VersionDiff(
        before=begin.version,
        after=end.version,
        before_length=len(begin),
        after_length=len(end),
        removed_count=removed_count,
        added_count=added_count,
        removed=removed,
        added=added,
    )


def _find_missing(
    view: View, other: View, limit: int, shared: int | None
) -> tuple[int, list[DiffedMessage]]:
    """How many messages a view has that another has not, and the first of them."""
    count = 0
    found: list[DiffedMessage] = []
    for index, start, stop in missing(view, other, shared):
        count += stop - start
        read = view.log.between(start, min(stop, start + limit - len(found)))
        found += [
            DiffedMessage(index=index + offset, message=one) for offset, one in enumerate(read)
        ]
    return count, found


@post("/conversations/{conversation:str}/undo", sync_to_thread=True, status_code=200)
def undo(
    service: ServiceDependency, conversation: FromPath[str], if_match: IfMatch = None
) -> Response[ChangeResult]:
    """Reverse the last change; that is itself a new version."""
    history = service.store.get(conversation)
    return change_response(history, history.undo(expect=read_if_match(if_match)))


@post("/conversations/{conversation:str}/redo", sync_to_thread=True, status_code=200)
def redo(
    service: ServiceDependency, conversation: FromPath[str], if_match: IfMatch = None
) -> Response[ChangeResult]:
    """Reverse the last undo, rollback or restore."""
    history = service.store.get(conversation)
    return change_response(history, history.redo(expect=read_if_match(if_match)))


@post("/conversations/{conversation:str}/rollback", sync_to_thread=True, status_code=200)
def rollback(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[RollbackRequest],
    if_match: IfMatch = None,
) -> Response[ChangeResult]:
    """Go back to the end of a batch."""
    history = service.store.get(conversation)
    return change_response(history, history.rollback(data.batch, expect=read_if_match(if_match)))


@post("/conversations/{conversation:str}/restore", sync_to_thread=True, status_code=200)
def restore(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[RestoreRequest],
    if_match: IfMatch = None,
) -> Response[ChangeResult]:
    """Return to a version: its messages, batches, marks and team task."""
    history = service.store.get(conversation)
    return change_response(history, history.restore(data.version, expect=read_if_match(if_match)))


@get("/conversations/{conversation:str}/alternatives", sync_to_thread=True)
def list_alternatives(
    service: ServiceDependency, conversation: FromPath[str]
) -> Response[AlternativeList]:
    """List the messages that have alternatives: other messages after all the same ones before.

    They are found in the newest 200 versions that an edit followed, and in the newest state of 40
    relatives: the forks, the parent and its forks, and so on. Restore its version, or open its
    conversation, to have one in the place of another.
    """
    history = service.conversations.get(conversation).history
    view = history.view
    found: dict[int, dict[str, Alternative]] = {}
    for other, id_, shared in _list_relatives(service, history):
        index = find_alternative(view, other, shared)
        if index is None or _GONE & other[index].metadata.keys():
            continue
        known = found.setdefault(index, {})
        if not known:
            _add_alternative(known, view, index, history.id)
        _add_alternative(known, other, index, id_)
    items = [
        MessageAlternatives(
            index=index,
            current=[one.message for one in ordered].index(view[index].id),
            items=ordered,
        )
        for index, known in sorted(found.items())
        for ordered in [sorted(known.values(), key=lambda one: (one.at, one.message))]
    ]
    return with_etag(AlternativeList(version=view.version, items=items), view.version)


def _list_relatives(
    service: Service, history: StoredHistory
) -> Iterator[tuple[View, str, int | None]]:
    """The views that may have alternatives, with how much of the log is shared."""
    for version in history.ends(_LOOKED_AT):
        yield history.at(version), history.id, None
    for name, shared in islice(_find_relatives(service.store, history.id), _RELATIVES):
        yield service.conversations.get(name).history.view, name, shared


def _find_relatives(store: Store, name: str) -> Iterator[tuple[str, int]]:
    """The forks of a conversation, newest first, then its parent and the parent's, and so on."""
    child = name
    for ancestor, upto in _line(store, name):
        if ancestor != name:
            yield ancestor, upto
        for fork in reversed(store.forks(ancestor)):
            if fork.id != child:
                yield fork.id, min(fork.base, upto)
        child = ancestor


def _add_alternative(known: dict[str, Alternative], view: View, index: int, name: str) -> None:
    """Add the message of a view, unless a newer version or this conversation has it too."""
    message = view[index]
    info = message.info
    model = info.model.model_id if isinstance(info, AssistantInfo) and info.model else None
    alternative = Alternative(
        message=message.id,
        conversation=name,
        version=view.version,
        model=model,
        at=message.timestamp,
    )
    known.setdefault(message.id, alternative)


def _list_versions(history: StoredHistory, changes: Sequence[JournalEntry]) -> list[VersionInfo]:
    """Changes as versions, each with the version that it returned to, if that is listed."""
    seen: dict[_ViewKey, int] = {}
    found: list[VersionInfo] = []
    for change in changes:
        view = history.at(change.version)
        key = _view_key(view)
        back: Any = seen.get(key, UNSET) if change.kind in _RETURNING else UNSET
        seen[key] = change.version
        found.append(
            VersionInfo(
                version=change.version,
                kind=change.kind,
                at=change.at,
                added=change.count,
                length=len(view),
                batch=view.batch_index,
                description=_description(change, view),
                returns=back,
            )
        )
    return found


def _view_key(view: View) -> _ViewKey:
    length = len(view)
    last = view.position(length - 1) if length else -1
    return view.batch_index, view.boundary, length, last


def _description(change: JournalEntry, view: View) -> str:
    """Describe a change; the description of an edit is stored with the batch that it ended."""
    if change.kind in _EDITS:
        ended = view.batch_snapshot(view.batch_index - 1)
        if ended is not None:
            return ended.description.removeprefix("Before ")
    added = f"{change.count:,} message{'' if change.count == 1 else 's'}"
    if change.kind in {"append", "create", "import"}:
        return f"{change.kind} {added}"
    return f"{change.kind} ({added})" if change.count else change.kind


def _list_batches(view: View, versions: Sequence[VersionInfo]) -> list[BatchInfo]:
    """The batches, the open one last, each with the versions in which it was open."""
    ended = [
        BatchInfo(
            batch=snapshot.batch_index,
            boundary=snapshot.boundary,
            length=snapshot.message_count,
            at=snapshot.timestamp,
            description=snapshot.description,
            versions=_span(versions, snapshot.batch_index),
        )
        for snapshot in view.batch_snapshots()
    ]
    return [
        *ended,
        BatchInfo(
            batch=view.batch_index,
            boundary=view.boundary,
            length=len(view),
            at=None,
            description=None,
            versions=_span(versions, view.batch_index),
        ),
    ]


def _span(versions: Sequence[VersionInfo], batch: int) -> tuple[int, int] | None:
    """The first and the last of the versions in which a batch was open."""
    numbers = [one.version for one in versions if one.batch == batch]
    return (numbers[0], numbers[-1]) if numbers else None


ROUTES: Final = [list_versions, list_alternatives, diff, undo, redo, rollback, restore]
