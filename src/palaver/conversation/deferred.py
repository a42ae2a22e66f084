"""Edits that wait: a cleanup that is applied when the provider's cache breaks anyway.

An edit in the middle of a conversation makes the provider read everything after it anew. A deferred
edit is stored beside the conversation and changes nothing, until a request is about to be sent that
can't be read from the cache as it is: to another model, with other tools, after the cache has
expired, or after a compaction or another edit before it. Then all that wait are applied in one
batch, in the change that removes their records: once, and undone like any other. An edit names
messages by their position in the log, so that appends and other edits don't move it; one whose
messages are no longer there is not applied, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged, ValidationError
from palaver.history import History, Rewrite
from palaver.history.diff import common_prefix
from palaver.history.operations import Append, Rollback, as_operations
from palaver.messages import Message, new_id
from palaver.messages.decode import decode
from palaver.messages.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.conversation.prompt_cache import PromptPrefix
    from palaver.history import Piece, View
    from palaver.history.operations import OperationInput
    from palaver.stores import StoredHistory
    from palaver.stores.records import Record
    from palaver.stores.store import Store

__all__ = [
    "DEFERRED", "AddedMessage", "DeferredEdit", "apply_edits", "edits_due", "plan_deferred",
    "read_deferred",
]  # fmt: skip

DEFERRED: Final = "deferred"
"""The kind of record that holds an edit that waits."""
REASON: Final = "DEFERRED"
"""The reason of the batch that applies edits."""
_GONE: Final = "its messages are no longer in the conversation as they were"


class AddedMessage(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message that an edit adds: after which log position (-1: first), in place of which one."""

    after: int
    message: Message
    replaces: int | None = None


class DeferredEdit(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An edit that waits.

    `version` is that of the conversation it was made for, `removed` are ranges of log positions,
    `tokens` how many fewer a request will have by palaver's own count. `problem` says why it could
    not be applied when it was due: then it waits on, until it is cancelled.
    """

    id: str
    at: int
    version: int
    detail: str
    removed: tuple[tuple[int, int], ...]
    added: tuple[AddedMessage, ...] = ()
    operations: tuple[Mapping[str, Any], ...] = ()
    tokens: int = 0
    problem: str | None = None

    def record(self) -> Record:
        """Return the record that stores it."""
        return (DEFERRED, self.id, msgspec.json.encode(self))

    def first_index(self, view: View) -> int:
        """Return the first index of a view that it changes; 0 if that can't be told."""
        starts = [view.index_of(start) for start, _ in self.removed]
        anchors = [view.index_of(one.after) if one.after >= 0 else -1 for one in self.added]
        found = [*starts, *(None if index is None else index + 1 for index in anchors)]
        return min((index for index in found if index is not None), default=0)

    def overlaps(self, other: DeferredEdit) -> bool:
        """Tell whether both remove the same message."""
        return any(
            start < theirs[1] and theirs[0] < stop
            for start, stop in self.removed
            for theirs in other.removed
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as JSON-ready data, without the messages it adds."""
        count = sum(stop - start for start, stop in self.removed)
        return {
            "id": self.id,
            "at": self.at,
            "version": self.version,
            "detail": self.detail,
            "operations": [dict(operation) for operation in self.operations],
            "removedCount": count,
            "addedCount": len(self.added),
            "tokens": self.tokens,
            "problem": self.problem,
        }


def plan_deferred(view: View, given: OperationInput, detail: str = "") -> DeferredEdit:
    """Return the edit that does later what operations would do to a view now.

    Raises `ValidationError` for an operation that can't wait: one that appends, rolls back, changes
    the order of the messages, or changes nothing.
    """
    known = as_operations(given)
    operations = known if isinstance(known, list) else [known]
    for index, operation in enumerate(operations):
        if isinstance(operation, Append | Rollback):
            problem = f"{operation.operation} can't wait: only an edit of the messages can"
            raise ValidationError(problem, path=f"$[{index}].operation", rule="deferred")
    copy = History(view[:])
    copy.execute(operations)
    kept, added = _compare(copy, len(view))
    positions = [view.position(index) for index in range(len(view))]
    left = set(kept)
    gone = [positions[index] for index in range(len(view)) if index not in left]
    if not gone and not added:
        raise ValidationError("would change nothing", path="$", rule="deferred")
    moved = tuple(
        AddedMessage(
            positions[one.after] if one.after >= 0 else -1,
            one.message,
            None if one.replaces is None else positions[one.replaces],
        )
        for one in added
    )
    as_json = tuple(one.to_dict() for one in operations if not isinstance(one, Rewrite))
    names = ", ".join(
        one.reason if isinstance(one, Rewrite) else one.operation for one in operations
    )
    return DeferredEdit(
        new_id(), now_ms(), view.version, detail or names, tuple(_to_ranges(gone)), moved, as_json
    )


def _compare(copy: History, length: int) -> tuple[list[int], list[AddedMessage]]:
    """Return the indexes that are left of a history's first messages, and what was added."""
    kept, added, last = list[int](), list[AddedMessage](), -1
    log = copy.view.log
    for start, stop in copy.view.ranges():
        for position in range(start, stop):
            if position >= length:
                old = log.replaced(position)
                replaced = old if old is None or old < length else None
                added.append(AddedMessage(last, log[position], replaced))
            elif position < last:
                detail = "an edit that changes the order of the messages can't wait"
                raise ValidationError(detail, path="$", rule="deferred")
            else:
                last = position
                kept.append(position)
    return kept, added


def read_deferred(records: Mapping[str, bytes]) -> list[DeferredEdit]:
    """Read the edits that wait from their records, the oldest first."""
    try:
        found = [decode(value, DeferredEdit) for value in records.values()]
    except msgspec.DecodeError as error:
        msg = f"an edit that waits can't be read: {error}"
        raise StoreDamaged(msg) from None
    return sorted(found, key=lambda edit: (edit.at, edit.id))


def edits_due(
    history: StoredHistory,
    edits: Iterable[DeferredEdit],
    last: PromptPrefix | None,
    *,
    tools: str,
    at: int,
    is_fork: bool = False,
) -> list[DeferredEdit]:
    """Return the edits that cost nothing more now, because the cache is lost at or before them.

    `last` is the last request to the model that is about to be asked; None if there was none.
    """
    waiting = [edit for edit in edits if edit.problem is None]
    if last is None or last.tools != tools or at - last.at >= last.life.gone * 1_000:
        return waiting
    if is_fork or not waiting:
        return []
    view, then = history.view, history.at(last.version)
    same = common_prefix(then, view)
    if same >= len(then):
        return []
    return [edit for edit in waiting if edit.first_index(view) >= same]


def apply_edits(
    store: Store, history: StoredHistory, edits: Sequence[DeferredEdit]
) -> tuple[list[DeferredEdit], list[DeferredEdit]]:
    """Apply edits in one batch; return those that were applied, and those that no longer fit.

    The change that applies an edit removes its record. One that was applied or cancelled by
    somebody else meanwhile is left out; one that no longer fits is stored with its problem.
    """
    while True:
        waiting = store.records(history.id, DEFERRED)
        edits = [edit for edit in edits if edit.id in waiting]
        pieces, applied, refused = _pieces(history.refresh().view, edits)
        refused = [replace(edit, problem=_GONE) for edit in refused]
        stored = [edit.record() for edit in refused]
        if not applied:
            if stored:
                store.put_records(history.id, stored)
            return [], refused
        removals: list[Record] = [(DEFERRED, edit.id, None) for edit in applied]
        version = history.version
        try:
            history.rewrite(
                pieces, reason=REASON, of_log=True, records=[*removals, *stored],
                unless=_only_after(version),
            )  # fmt: skip
        except _Moved:  # somebody else came first: look again
            continue
        return applied, refused


class _Moved(Exception):  # noqa: N818 - it never leaves this module
    """The conversation has another version than the one that edits were planned for."""


def _only_after(version: int) -> Any:  # noqa: ANN401 - a check of a view
    def check(view: View) -> None:
        if view.version != version:
            raise _Moved

    return check


def _pieces(
    view: View, edits: Iterable[DeferredEdit]
) -> tuple[list[Piece], list[DeferredEdit], list[DeferredEdit]]:
    """Return the pieces of the log that edits leave of a view, those that fit, and the others."""
    ranges = list(view.ranges())
    inside = {place for start, stop in ranges for place in range(start, stop)}
    gone, added = set[int](), dict[int, list[AddedMessage]]()
    applied, refused = list[DeferredEdit](), list[DeferredEdit]()
    for edit in edits:
        removed = {place for start, stop in edit.removed for place in range(start, stop)}
        anchors = {one.after for one in edit.added} - {-1}
        if not inside >= removed | anchors or not gone.isdisjoint(removed | anchors):
            refused.append(edit)
            continue
        applied.append(edit)
        gone |= removed
        for one in edit.added:
            added.setdefault(one.after, []).append(one)
    return list(_select(ranges, gone, added)), applied, refused


def _select(
    ranges: Iterable[tuple[int, int]], gone: set[int], added: Mapping[int, list[AddedMessage]]
) -> Iterator[Piece]:
    yield from map(_piece, added.get(-1, ()))
    for start, stop in ranges:
        begin = start
        for position in range(start, stop):
            if position in gone or position in added:
                end = position if position in gone else position + 1
                if begin < end:
                    yield range(begin, end)
                yield from map(_piece, added.get(position, ()))
                begin = position + 1
        if begin < stop:
            yield range(begin, stop)


def _piece(one: AddedMessage) -> Piece:
    return one.message if one.replaces is None else (one.replaces, one.message)


def _to_ranges(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield positions as ranges, in their order."""
    start = stop = -1
    for position in positions:
        if position != stop:
            if start < stop:
                yield start, stop
            start = position
        stop = position + 1
    if start < stop:
        yield start, stop
