"""What a change would do, computed before anything is changed: from a state to a `Commit`.

A `HistoryState` is a history's log, its current frame and all its versions. Each `plan_…` function
takes a state and returns the commit that makes the next version, or None if there is nothing to
change. Planning changes nothing: new messages are staged (see `StagedLog`), and `apply` adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import NothingToUndo, ValidationError
from palaver.history.frame import (
    Batch,
    Frame,
    Leaf,
    Redo,
    Versions,
    build,
    concat,
    jump_of,
    numbering_after,
    runs,
    session_after,
    splice,
    split,
    split_last,
)
from palaver.history.log import LogReader, StagedLog
from palaver.history.marks import PersistentMap, has, put
from palaver.history.merge import MergeInput, merge_views
from palaver.history.operations import (
    Append,
    Clear,
    Edit,
    Filter,
    Insert,
    Operation,
    Replace,
    Rewrite,
    Rollback,
    Truncate,
)
from palaver.history.view import Result, State, View, view_of_log
from palaver.messages import Message
from palaver.messages.limits import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.history.frame import Counter, Rope

__all__ = [
    "Commit",
    "EditPlan",
    "HistoryState",
    "Planner",
    "StaleCommit",
    "WhenStale",
    "edit_rope",
    "plan",
    "plan_all",
    "plan_append",
    "plan_edit",
    "plan_erase",
    "plan_mark",
    "plan_merge",
    "plan_redo",
    "plan_replace_all",
    "plan_restore",
    "plan_rollback",
    "plan_selection",
    "plan_team_task",
    "plan_undo",
    "rebase",
    "stale_policy",
]

WhenStale: TypeAlias = Literal["replan", "merge", "refuse"]
"""What to do when another writer committed first: plan again on the newest version, merge the
change as it was meant with what the others did, or refuse it with a `Conflict`."""

_NO_ORIGINS: Final = cast("Mapping[int, int]", EMPTY)


class Commit(Struct, frozen=True):
    """The next version of a history, as a value.

    `stop` is where the view's tail ends. `frame` is None for an append that only lengthens the
    tail. `origins` gives, by index, which log position a new message replaces. `merged` is the id
    of a merged conversation, and the positions of its new messages there and here. `summary` says
    what was done, for the `Conflict` if the commit is refused.
    """

    kind: str
    stop: int
    frame: Frame | None = None
    messages: tuple[Message, ...] = ()
    origins: Mapping[int, int] = _NO_ORIGINS
    merged: tuple[str, Mapping[int, int]] | None = None
    summary: str = ""


class _WritableLog(LogReader, Protocol):
    @property
    def start(self) -> int: ...

    def extend(self, messages: Sequence[Message], /) -> object: ...


class HistoryState:
    """Where a history stands: its log, the current frame, where its tail ends, all versions.

    `merged_positions` holds, for each conversation that was merged, the positions of its messages
    there and here. `origin` is the id and version of the conversation this one was forked from.
    """

    __slots__ = (
        "clock", "frame", "id", "log", "merged_positions", "origin", "stop", "stops", "versions",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        log: _WritableLog,
        frame: Frame,
        versions: Versions,
        clock: Callable[[], int],
        *,
        origin: tuple[str, int] | None = None,
    ) -> None:
        """Take the log, the frame of the newest version, and all versions."""
        self.id = name
        self.log = log
        self.frame = frame
        self.versions = versions
        self.stops = versions.stops
        self.stop = versions.stops[len(versions.stops) - 1]
        self.clock = clock
        self.origin = origin
        self.merged_positions: dict[str, dict[int, int]] = {}

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return len(self.stops) - 1

    def view(self) -> View:
        """Return the newest version as a view."""
        return View(self.log, self.frame, self.stop, len(self.stops) - 1)

    def at(self, version: int) -> View:
        """Return a version as a view."""
        return View(self.log, self.versions.frame(version), self.stops[version], version)

    def result(self) -> Result:
        """Return the newest version as the result of an operation."""
        return Result(State(self.view()), self.frame.batch_index)

    def apply(self, commit: Commit) -> None:
        """Add a commit's messages to the log, and make its version the newest."""
        if commit.messages:
            self.log.extend(commit.messages)
        if commit.frame is None:
            self.stops.append(commit.stop)
        else:
            self.frame = commit.frame
            self.versions.add(commit.frame, commit.stop)
        self.stop = commit.stop
        if commit.merged is not None:
            other, positions = commit.merged
            self.merged_positions.setdefault(other, {}).update(positions)


Planner: TypeAlias = "Callable[[HistoryState], Commit | None]"
"""Plans a change on a state; None where there is nothing to change."""


# ── the operations ──────────────────────────────────────────────────────────────────────────────


def plan(state: HistoryState, operation: Operation | Rewrite) -> Commit | None:
    """Plan an operation."""
    if isinstance(operation, Append):
        return plan_append(state, operation.messages)
    if isinstance(operation, Rollback):
        return plan_rollback(state, operation.target_batch_index)
    return plan_edit(state, operation)


def plan_all(state: HistoryState, operations: Sequence[Operation | Rewrite]) -> Commit | None:
    """Plan operations that follow one another as one version; an error's path has the index.

    Each is planned on what the ones before it would leave, so every edit opens its batch. `undo`
    leads back to before the first.
    """
    staged, commits = copy(state), list[Commit]()
    messages: tuple[Message, ...] = ()
    origins: dict[int, int] = {}
    for index, operation in enumerate(operations):
        try:
            commit = plan(staged, operation)
        except ValidationError as error:
            raise error.under(f"$[{index}]") from None
        if commit is None:
            continue
        commits.append(commit)
        origins |= {len(messages) + new: old for new, old in commit.origins.items()}
        messages += commit.messages
        staged.log = cast("_WritableLog", StagedLog(state.log, messages, origins))
        staged.frame = staged.frame if commit.frame is None else commit.frame
        staged.stop = commit.stop
    if len(commits) < 2:  # noqa: PLR2004 - the plan of one operation
        return commits[0] if commits else None
    kinds = {commit.kind for commit in commits}
    frame = None
    if staged.frame is not state.frame:
        redo = _redo(state) if commits[-1].kind == "rollback" else None
        frame = replace(staged.frame, logged=len(staged.log), back=state.version, redo=redo)
    return Commit(
        kinds.pop() if len(kinds) == 1 else "operations",
        staged.stop, frame, messages, origins, summary=f"{len(commits)} operations",
    )  # fmt: skip


def stale_policy(*operations: Operation | Rewrite) -> WhenStale:
    """Return what to do with operations when another writer committed first.

    Several edits are refused: merged, they would be one.
    """
    if len(operations) > 1:
        return "replan" if all(isinstance(one, Append) for one in operations) else "refuse"
    (operation,) = operations or (Append(()),)
    if isinstance(operation, Append):
        return "replan"
    return "refuse" if isinstance(operation, Rollback) else "merge"


def plan_append(state: HistoryState, messages: tuple[Message, ...]) -> Commit | None:
    """Plan messages at the end. A new frame is needed if the tail is not the log's end."""
    if not messages:
        return None
    first = len(state.log)
    stop = first + len(messages)
    if first == state.stop:
        return Commit("append", stop, None, messages)
    root = state.view().rope
    frame = replace(
        state.frame, root=root, start=first, logged=first, back=state.version, redo=None
    )
    return Commit("append", stop, frame, messages)


def plan_edit(state: HistoryState, operation: Edit) -> Commit:
    """Plan an operation that begins a batch."""
    view = state.view()
    edit = plan_selection(view, operation)
    origins = dict(edit.origins)
    log = StagedLog(state.log, edit.messages, origins) if edit.messages else state.log
    rope = edit_rope(edit, view.rope, len(state.log), log)
    frame = _carry_marks(state.frame, origins, len(state.log), log)
    return _begin_batch(
        state, frame, rope, edit.reason, edit.place, messages=edit.messages, origins=origins
    )


def _carry_marks(frame: Frame, origins: Mapping[int, int], first: int, log: LogReader) -> Frame:
    """Put the marks of a message on the one that replaces it under the same id."""
    if not frame.marks:
        return frame
    marks = PersistentMap.of(frame.marks)
    for new, old in origins.items():
        if log[first + new].id == log[old].id:
            for name, rope in list(marks.items()):
                if has(rope, old):
                    marks = marks.set(name, put(rope, first + new, log))
    return replace(frame, marks=marks)


def plan_replace_all(
    state: HistoryState,
    messages: tuple[Message, ...],
    team_task: str | None,
    reason: str,
    shown: Sequence[range] | None = None,
) -> Commit:
    """Plan other messages in the place of all, and another team task.

    All go into the log; `shown` are the ranges of them that the view has, by default one of all.
    """
    first = len(state.log)
    log = StagedLog(state.log, messages, _NO_ORIGINS)
    ranges = [range(len(messages))] if shown is None else shown
    rope = build([(first + one.start, first + one.stop) for one in ranges if one], log)
    frame = replace(state.frame, team_task=team_task)
    numbering = numbering_after(first, [message.id for message in messages])
    commit = _begin_batch(state, frame, rope, reason, None, messages=messages, numbering=numbering)
    return replace(commit, summary="replaced as a whole")


def _begin_batch(
    state: HistoryState,
    frame: Frame,
    rope: Rope,
    reason: str,
    place: int | None,
    *,
    messages: tuple[Message, ...] = (),
    origins: Mapping[int, int] = _NO_ORIGINS,
    merged: tuple[str, Mapping[int, int]] | None = None,
    numbering: tuple[int, int] | None = None,
) -> Commit:
    """End the open batch and begin the next one with a selection."""
    now = state.frame
    ended = Batch(
        now.batch_index, now.line, jump_of(now.line), now.root, now.start, state.stop, now.opened,
        state.clock(), reason, place, now.merged, session_after(now.line, now.opened), numbering,
    )  # fmt: skip
    opened = len(state.log)
    start = stop = opened + len(messages)
    rest, last = split_last(rope)
    if last is not None and last.stop == stop:
        rope, start = rest, last.start  # the last range can grow: make it the tail
    changed = replace(
        frame, root=rope, start=start, line=ended, opened=opened, logged=stop,
        back=state.version, redo=None,
    )  # fmt: skip
    return Commit(reason.lower(), stop, changed, messages, origins, merged)


# ── back and forth ──────────────────────────────────────────────────────────────────────────────


def plan_rollback(state: HistoryState, batch_index: int) -> Commit | None:
    """Plan the return to a batch as it ended."""
    if batch_index == state.frame.batch_index:
        return None
    batch = state.frame.ended(batch_index)
    return _change_frame(
        state, state.frame.at_end_of(batch), batch.stop, "rollback",
        redo=_redo(state), summary=f"rolled back to batch {batch_index}",
    )  # fmt: skip


def plan_restore(state: HistoryState, version: int) -> Commit:
    """Plan the return to a version."""
    frame = state.versions.frame(version)
    return _change_frame(
        state, frame, state.stops[version], "restore",
        redo=_redo(state), summary=f"restored to version {version}",
    )  # fmt: skip


def plan_undo(state: HistoryState) -> Commit:
    """Plan the reversal of the last change; `NothingToUndo` if there is none."""
    version, versions = state.version, state.versions
    back = versions.back(version)
    if back is None:
        msg = "there is nothing to undo"
        raise NothingToUndo(msg)
    frame = replace(
        versions.frame(back),
        logged=len(state.log),
        back=versions.back(back),
        redo=_redo(state),
    )
    return Commit("undo", state.stops[back], frame, summary="undone")


def _redo(state: HistoryState) -> Redo:
    """Return what leads back to a state that is left, and then to those that it could redo."""
    return Redo(state.version, state.versions.redo(state.version))


def plan_redo(state: HistoryState) -> Commit:
    """Plan the return to what was undone; `NothingToUndo` if there is none."""
    redo = state.versions.redo(state.version)
    if redo is None:
        msg = "there is nothing to redo"
        raise NothingToUndo(msg)
    frame = replace(
        state.versions.frame(redo.version),
        logged=len(state.log),
        back=state.versions.back(redo.version),
        redo=redo.after,
    )
    return Commit("redo", state.stops[redo.version], frame, summary="redone")


# ── marks, the team task, erasure ───────────────────────────────────────────────────────────────


def plan_mark(
    state: HistoryState,
    position: int,
    name: str,
    change: Callable[[Rope, int, Counter], Rope],
) -> Commit | None:
    """Plan a mark on a log position, or its removal: `change` is `marks.put` or `marks.take`."""
    before = state.frame.marks.get(name)
    after = change(before, position, state.log)
    if after is before:
        return None
    marks = PersistentMap.of(state.frame.marks)
    marks = marks.remove(name) if after is None else marks.set(name, after)
    return _change_frame(state, replace(state.frame, marks=marks), state.stop, "mark")


def plan_team_task(
    state: HistoryState, task: str | None, messages: tuple[Message, ...] = ()
) -> Commit | None:
    """Plan another team task, with messages at the end."""
    added = plan_append(state, messages)
    if task == state.frame.team_task:
        return added
    frame, stop = state.frame, state.stop
    if added is not None:
        frame, stop = added.frame or frame, added.stop
    commit = _change_frame(state, replace(frame, team_task=task), stop, "team_task")
    return replace(commit, messages=messages)


def plan_erase(state: HistoryState) -> Commit:
    """Plan the version that records an erasure. Undo passes over it."""
    back = state.versions.back(state.version)
    frame = replace(state.frame, back=back, redo=None, logged=len(state.log))
    return Commit("erase", state.stop, frame)


def _change_frame(
    state: HistoryState,
    frame: Frame,
    stop: int,
    kind: str,
    *,
    redo: Redo | None = None,
    summary: str = "",
) -> Commit:
    frame = replace(frame, logged=len(state.log), back=state.version, redo=redo)
    return Commit(kind, stop, frame, summary=summary)


# ── merges ──────────────────────────────────────────────────────────────────────────────────────


def plan_merge(state: HistoryState, other: HistoryState) -> Commit | None:
    """Plan bringing in what a fork or the parent did since it was last merged."""
    shared = _shared_length(state, other)
    back = {here: there for there, here in other.merged_positions.get(state.id, {}).items()}
    known = {
        there: here
        for there, here in {**back, **state.merged_positions.get(other.id, {})}.items()
        if here < len(state.log)  # merges that are newer than this state do not count
    }
    base, is_ours = _merge_base(state, other)
    ours, theirs = state.view(), other.view()
    merged = merge_views(MergeInput(base, ours, theirs, shared, known, is_ours))
    if not merged.changes_anything():
        return None
    first = len(state.log)
    origins = {new - first: old for new, old in merged.origins(first)}
    log = StagedLog(state.log, merged.messages, origins)
    frame = replace(
        state.frame,
        marks=merged.marks(first, log),
        team_task=merged.team_task,
        merged=PersistentMap.of(state.frame.merged).set(other.id, theirs.version),
    )
    return _begin_batch(
        state, frame, merged.rope(ours.rope, first, log), "MERGE", None,
        messages=merged.messages, origins=origins,
        merged=(other.id, merged.positions_here(first)),
    )  # fmt: skip


def _shared_length(state: HistoryState, other: HistoryState) -> int:
    """Return the length up to which both logs are the same."""
    if other.origin and other.origin[0] == state.id:
        return other.log.start
    if state.origin and state.origin[0] == other.id:
        return state.log.start
    detail = "is neither a fork of this history nor what it was forked from"
    raise ValidationError(detail, path="$.other", rule="unrelated-history")


def _merge_base(state: HistoryState, other: HistoryState) -> tuple[View, bool]:
    """Return what both sides last had in common, and whether it is a view of ours.

    That is what one of them last merged from the other; a fork begins with its parent.
    """
    have = _merged_version(state, other.id, state.frame)
    given = _merged_version(other, state.id, other.frame)
    if given >= 0 and _merged_version(state, other.id, state.versions.frame(given)) >= have:
        return state.at(given), True
    return other.at(have), False


def _merged_version(state: HistoryState, other: str, frame: Frame) -> int:
    """Return the version of another conversation up to which a frame has everything, or -1."""
    begun = state.origin[1] if state.origin and state.origin[0] == other else -1
    return frame.merged.get(other, begun)


class StaleCommit(NamedTuple):
    """A commit that came too late, the view it was planned on, and the log with its messages."""

    commit: Commit
    seen: View
    log: StagedLog


def rebase(planner: Planner, stale: StaleCommit, state: HistoryState) -> Commit:
    """Plan a change again that was planned on an earlier version.

    What it would have made of that version is merged with what others did since. Raises `Conflict`
    where both touched the same message.
    """
    commit, seen, log = stale
    after = _rebase_on_appends(planner, seen, state) if state.frame is seen.frame else None
    if after is not None:
        return after
    frame = cast("Frame", commit.frame)
    batch = cast("Batch", frame.line)
    meant = View(log, frame, commit.stop, seen.version)
    ours = state.view()
    merged = merge_views(MergeInput(seen, ours, meant, log.start, {}, base_is_ours=False))
    first = len(state.log)
    origins = {new - first: old for new, old in merged.origins(first)}
    staged = StagedLog(state.log, merged.messages, origins)
    rope = merged.rope(ours.rope, first, staged)
    place = merged.place if merged.new else batch.place
    kept = _carry_marks(state.frame, origins, first, staged)
    return _begin_batch(
        state, kept, rope, batch.reason, place, messages=merged.messages, origins=origins
    )


def _rebase_on_appends(planner: Planner, seen: View, state: HistoryState) -> Commit | None:
    """Plan an edit again after others have only appended; None if it needs a merge.

    The edit is planned on what was seen, and what was appended follows. This takes O(log n) where a
    merge takes O(n). A message that the edit puts at the end goes after the appended ones: that is
    left to the merge.
    """
    earlier = copy(state)
    earlier.stop = seen.stop
    commit = planner(earlier)
    if commit is None or commit.frame is None or commit.frame.line is None:
        return None
    log = StagedLog(state.log, commit.messages, commit.origins)
    view = View(log, commit.frame, commit.stop, state.version)
    if commit.messages and len(view) and view.position(-1) >= log.start:
        return None
    counts = log.before(state.stop) - log.before(seen.stop)
    rope, start = concat(view.rope, Leaf(seen.stop, state.stop, counts)), commit.stop
    rest, last = split_last(rope)
    if last is not None and last.stop == commit.stop:
        rope, start = rest, last.start
    batch = replace(commit.frame.line, stop=state.stop)
    return replace(commit, frame=replace(commit.frame, root=rope, start=start, line=batch))


# ── edits of a selection ────────────────────────────────────────────────────────────────────────


class EditPlan(Struct, frozen=True):
    """What an edit does to a selection: insert messages, keep a window, or keep ranges of the log.

    Among `pieces`, negative ranges are new messages: -1 is the first. `origins` gives which new
    message replaces which log position.
    """

    reason: str
    place: int | None = None
    removed: int = 0
    messages: tuple[Message, ...] = ()
    window: tuple[int, int] | None = None
    pieces: tuple[tuple[int, int], ...] | None = None
    origins: tuple[tuple[int, int], ...] = ()


def plan_selection(view: View, operation: Edit) -> EditPlan:
    """Plan what an edit selects, or raise `ValidationError` if it does not fit the view."""
    length = len(view)
    if isinstance(operation, Insert):
        if operation.position > length:
            _out_of_range("position", operation.position, length, "insert-position")
        return EditPlan("INSERT", operation.position, messages=operation.messages)
    if isinstance(operation, Replace):
        if operation.index >= length:
            _out_of_range("index", operation.index, length - 1, "replace-index")
        origin = ((0, view.position(operation.index)),)
        return EditPlan(
            "REPLACE", operation.index, removed=1, messages=(operation.message,), origins=origin
        )
    if isinstance(operation, Rewrite):
        among = view_of_log(view.log, Frame(), view.version) if operation.of_log else view
        return EditPlan(
            operation.reason,
            messages=operation.messages,
            pieces=tuple(_rewrite_ranges(operation, among)),
            origins=tuple((new, among.position(index)) for new, index in operation.origins()),
        )
    if isinstance(operation, Truncate) and operation.role is None:
        return EditPlan("TRUNCATE", window=operation.window(length))
    return EditPlan(operation.operation, pieces=tuple(_remaining(view, operation)))


def edit_rope(edit: EditPlan, rope: Rope, first: int, log: Counter) -> Rope:
    """Return the rope after an edit whose messages are in the log from `first` on."""
    if edit.window is not None:
        left = split(rope, edit.window[1], log)[0]
        return split(left, edit.window[0], log)[1]
    if edit.pieces is not None:
        placed = (
            (begin, end) if begin >= 0 else (first - begin - 1, first - begin)
            for begin, end in edit.pieces
            if begin >= 0 or edit.messages
        )
        return build(placed, log)
    assert edit.place is not None  # noqa: S101 - an insertion has one
    new = build([(first, first + len(edit.messages))], log)
    return splice(rope, edit.place, edit.removed, new, log)


def _out_of_range(name: str, value: int, last: int, rule: str) -> None:
    detail = f"must be 0 to {last} here, not {value}" if last >= 0 else "there are no messages"
    raise ValidationError(detail, path=f"$.{name}", rule=rule)


def _rewrite_ranges(rewrite: Rewrite, view: View) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the log, in order; new messages count from -1 downwards."""
    length, new, seen = len(view), 0, set[int]()
    for piece in rewrite.pieces:
        if not isinstance(piece, range):
            new += 1
            yield -new, -new + 1
            continue
        if piece.step != 1 or not 0 <= piece.start <= piece.stop <= length:
            detail = f"must be a range of indexes from 0 to {length}, not {piece}"
            raise ValidationError(detail, path="$.pieces", rule="rewrite-pieces")
        for index in piece:
            if index in seen:
                detail = f"must not have a message twice: index {index}"
                raise ValidationError(detail, path="$.pieces", rule="rewrite-pieces")
            seen.add(index)
        yield from view.ranges_between(piece.start, piece.stop)


def _remaining(view: View, operation: Truncate | Clear | Filter) -> Iterable[tuple[int, int]]:
    if isinstance(operation, Truncate):
        return _truncate_role(view, operation)
    if isinstance(operation, Clear):
        return runs(view.role_positions("system")) if operation.keep_system_message else ()
    return _filter(view, operation)


def _truncate_role(view: View, operation: Truncate) -> Iterator[tuple[int, int]]:
    assert operation.role is not None  # noqa: S101 - the caller looked
    positions = view.role_positions(operation.role)
    start, stop = operation.window(len(positions))
    if operation.others == "drop":
        return runs(positions[start:stop])
    gone = frozenset(positions[:start] + positions[stop:])
    return runs(p for begin, end in view.ranges() for p in range(begin, end) if p not in gone)


def _filter(view: View, operation: Filter) -> Iterator[tuple[int, int]]:
    if operation.content_contains is None and not operation.content_excludes:
        if operation.roles is None:
            return view.ranges()
        if len(operation.roles) == 1:
            return runs(view.role_positions(operation.roles[0]))
    ranges = list(view.ranges())
    return runs(
        position
        for (begin, _), messages in zip(ranges, view.log.read(ranges), strict=True)
        for position, message in enumerate(messages, begin)
        if operation.keeps(message)
    )
