"""The history of a conversation as a picture needs it: versions, batches, and what came back.

A version says how long the view was and in which batch; one that undid something says which earlier
version it brought back, so that what was left behind can be drawn as a side way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET

from palaver.server.shapes.changes import Batch, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.history import View
    from palaver.stores.history import StoredHistory
    from palaver.stores.records import Journaled

__all__ = ["told_batches", "told_versions"]

RETURNING: Final = frozenset(("undo", "redo", "rollback", "restore"))
"""The kinds of change that bring an earlier version back."""
EDITS: Final = frozenset(("insert", "replace", "truncate", "clear", "filter"))
"""The kinds of change that end a batch, and say in its snapshot what they did."""

_Key: TypeAlias = tuple[int, int, int, int]


def told_versions(history: StoredHistory, changes: Sequence[Journaled]) -> list[Version]:
    """Changes as versions, each with the version that it brought back, if that is among them."""
    seen: dict[_Key, int] = {}
    found: list[Version] = []
    for change in changes:
        view = history.at(change.version)
        key = _key(view)
        back: Any = seen.get(key, UNSET) if change.kind in RETURNING else UNSET
        seen[key] = change.version
        found.append(
            Version(
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


def _key(view: View) -> _Key:
    """What tells the moments of one conversation apart: batch, where it opened, size, end."""
    length = len(view)
    last = view.position(length - 1) if length else -1
    return view.batch_index, view.boundary, length, last


def _description(change: Journaled, view: View) -> str:
    """What was done: what an edit says of itself stands with the batch that it ended."""
    if change.kind in EDITS:
        ended = view.batch_snapshot(view.batch_index - 1)
        if ended is not None:
            return ended.description.removeprefix("Before ")
    added = f"{change.count:,} message{'' if change.count == 1 else 's'}"
    if change.kind in {"append", "create", "import"}:
        return f"{change.kind} {added}"
    return f"{change.kind} ({added})" if change.count else change.kind


def told_batches(view: View, versions: Sequence[Version]) -> list[Batch]:
    """The batches of the line, the open one last, each with the versions it was open in."""
    ended = [
        Batch(
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
        Batch(
            batch=view.batch_index,
            boundary=view.boundary,
            length=len(view),
            at=None,
            description=None,
            versions=_span(versions, view.batch_index),
        ),
    ]


def _span(versions: Sequence[Version], batch: int) -> tuple[int, int] | None:
    """From which version to which a batch was open, as far as those versions tell."""
    numbers = [one.version for one in versions if one.batch == batch]
    return (numbers[0], numbers[-1]) if numbers else None
