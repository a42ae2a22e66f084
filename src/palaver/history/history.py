"""A history: a log, the view of it that is current, and every change that can be made.

This is the front door. Reading goes to the view; a change takes the lock, checks everything first,
adds to the log what is new, and makes the next version. A version is a frame (see `frame`) and the
place where its tail ends; all of them are kept, so undo, redo, rollback and restore only ever look
at another one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from palaver.errors import NothingToUndo, ValidationError
from palaver.history import marks as marking
from palaver.history.diff import Diff, compare
from palaver.history.editing import Editor
from palaver.history.erasing import Receipt, erase_everywhere
from palaver.history.frame import Batch, Frame, Redo, jump_of, session_after
from palaver.history.handles import IMPORT
from palaver.history.log import Log
from palaver.history.merging import Sides, join
from palaver.history.operations import (
    Append,
    Operation,
    Rollback,
    as_operation,
    read_messages,
)
from palaver.history.persistent import PersistentMap
from palaver.history.plan import Edit, Plan, carried_out, planned
from palaver.history.pricing import Price, price_of
from palaver.history.results import Result, State
from palaver.history.rope import Rope, build, split_last
from palaver.history.versions import Versions
from palaver.history.view import View, batch_frame, whole, whole_log
from palaver.messages import Message, new_id, parse_message
from palaver.messages.gate import check_name, check_text
from palaver.messages.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.history.rewriting import Rewrite

__all__ = ["History"]


class History(Editor):
    """The messages of a conversation, every edit they went through, and the way back.

    >>> from palaver.messages import assistant, user
    >>> history = History([user("one"), assistant("two"), user("three")])
    >>> history.truncate(keep_last=1).stats.total_messages
    1
    >>> history.rollback(0)
    <Result: 3 messages, batch 0>
    >>> [message.text for message in history]
    ['one', 'two', 'three']
    """

    __slots__ = (
        "_clock", "_frame", "_lock", "_log", "_names", "_stop", "_stops", "_versions", "id",
        "origin",
    )  # fmt: skip

    def __init__(
        self,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Begin with some messages, or with none; `clock` gives times in milliseconds."""
        log = Log()
        log.extend(read_messages(messages))
        self._set_up(log, Frame(logged=len(log)), len(log), new_id() if id is None else id, clock)
        self.origin: tuple[str, int] | None = None

    def _set_up(
        self, log: Log, frame: Frame, stop: int, name: str, clock: Callable[[], int]
    ) -> None:
        check_name(name, "$.id")
        self.id = name
        self._clock = clock
        self._lock = threading.RLock()
        self._log = log
        self._frame = frame
        self._stop = stop
        self._versions = Versions(frame, stop)
        self._stops = self._versions.stops  # at hand, for append
        self._names: dict[str, dict[int, int]] = {}  # of messages from elsewhere: there and here

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        """The number of the last change; 0 before the first."""
        return len(self._stops) - 1

    @property
    def view(self) -> View:
        """The conversation as it is now: a sequence that does not change when the history does."""
        with self._lock:
            return View(self._log, self._frame, self._stop, len(self._stops) - 1)

    @property
    def log(self) -> View:
        """Everything that was ever added, as a view."""
        with self._lock:
            return whole_log(self._frame, self._log, len(self._stops) - 1)

    def at(self, version: int) -> View:
        """The conversation as it was at a version.

        >>> from palaver.messages import user
        >>> history = History()
        >>> _ = history.append(user("a")), history.append(user("b"))
        >>> len(history.at(1)), len(history.at(2))
        (1, 2)
        """
        with self._lock:
            return View(self._log, self._versions.frame(version), self._stops[version], version)

    def __repr__(self) -> str:
        """Say how many and which version."""
        return f"<History {self.id}: {len(self)} messages at version {self.version}>"

    # ── the seven operations ────────────────────────────────────────────────────────────────────

    def execute(self, operation: Operation | Mapping[str, Any] | bytes | str) -> Result:
        """Carry out an operation, given as a value or as JSON.

        >>> History().execute({"operation": "CLEAR"}).affected_batch_index
        1
        """
        operation = as_operation(operation)
        if isinstance(operation, Append):
            return self.extend(operation.messages)
        if isinstance(operation, Rollback):
            return self.rollback(operation.target_batch_index)
        return self._edit(operation)

    def append(self, message: Message | Mapping[str, Any]) -> Message:
        """Add a message at the end and return it.

        >>> from palaver.messages import user
        >>> History().append(user("hello")).text
        'hello'
        """
        if type(message) is not Message:
            message = parse_message(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a mapping
        lock = self._lock
        lock.acquire()  # the hot path: this way costs half of what `with` does
        try:
            position = self._log.own.add(message)
            if position != self._stop:
                self._begin_tail(position)
            self._stop = position + 1
            self._stops.append(position + 1)
        finally:
            lock.release()
        return message

    def extend(self, messages: Iterable[Message | Mapping[str, Any]]) -> Result:
        """Add messages at the end, in one change."""
        new = read_messages(messages)
        with self._lock:
            if new:
                first = self._log.extend(new)
                if first != self._stop:
                    self._begin_tail(first)
                self._stop = first + len(new)
                self._stops.append(self._stop)
            return self._result()

    def _begin_tail(self, position: int) -> None:
        """The tail does not reach the end of the log: put it away and begin another there."""
        self._frame = self._tail_frame(position)
        self._versions.begin(self._frame)

    def _tail_frame(self, position: int) -> Frame:
        root = whole(self._frame, self._stop, self._log)
        return replace(
            self._frame, root=root, start=position, logged=position, back=self.version, redo=None
        )

    def rollback(self, batch_index: int) -> Result:
        """Go back to a batch as it ended; what came after leaves the line, and `redo` returns."""
        target = Rollback(batch_index).target_batch_index
        with self._lock:
            if target != self._frame.batch_index:
                batch = self._frame.ended(target)
                frame = batch_frame(self._frame, batch)
                self._commit(frame, batch.stop, "rollback", Redo(self.version))
            return self._result()

    def replace_all(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        team_task: str | None,
        reason: str = IMPORT,
    ) -> Result:
        """Put other messages in the place of all there are, and set the team task, in one change.

        That is what importing a snapshot comes to, and with no messages a new session: `undo` and
        `rollback` lead back.

        >>> history = History([{"role": "user", "content": "old"}])
        >>> history.replace_all([], team_task=None).stats.total_messages
        0
        """
        new = read_messages(messages)
        if team_task is not None:
            check_text(team_task, "$.teamTask")
        check_name(reason, "$.reason")
        with self._lock:
            return self._replace_all(new, team_task, reason)

    def _replace_all(
        self, messages: tuple[Message, ...], team_task: str | None, reason: str
    ) -> Result:
        opened = self._log.extend(messages)
        rope = build([(opened, opened + len(messages))] if messages else [], self._log)
        return self._open_batch(replace(self._frame, team_task=team_task), rope, opened, reason)

    def _edit(self, operation: Edit) -> Result:
        with self._lock:
            return self._carry_out(planned(self.view, operation))

    def _carry_out(self, plan: Plan) -> Result:
        opened = len(self._log)
        rope = whole(self._frame, self._stop, self._log)
        first = self._log.extend(plan.messages)
        self._log.note_origins({first + new: old for new, old in plan.origins})
        changed = carried_out(plan, rope, first, self._log)
        return self._open_batch(self._frame, changed, opened, plan.reason, plan.place)

    def _open_batch(
        self, frame: Frame, rope: Rope, opened: int, reason: str, place: int | None = None
    ) -> Result:
        """End the open batch and begin the next with a selection."""
        now = self._frame
        ended = Batch(
            now.batch_index, now.line, jump_of(now.line), now.root, now.start, self._stop,
            now.opened, self._clock(), reason, place, now.merged,
            session_after(now.line, now.opened),
        )  # fmt: skip
        start = stop = len(self._log)
        rest, last = split_last(rope)
        if last is not None and last.stop == stop:
            rope, start = rest, last.start  # it can grow: let it be the tail
        changed = replace(frame, root=rope, start=start, line=ended, opened=opened)
        self._commit(changed, stop, reason.lower())
        return self._result()

    def _commit(self, frame: Frame, stop: int, kind: str, redo: Redo | None = None) -> None:
        """Make a frame current, as the next version, with the way back to the one before."""
        self._set(replace(frame, logged=len(self._log), back=self.version, redo=redo), stop, kind)

    def _set(self, frame: Frame, stop: int, kind: str) -> None:
        del kind  # what a store would write down beside it
        self._frame, self._stop = frame, stop
        self._versions.add(frame, stop)

    def _result(self) -> Result:
        return Result(State(self.view), self._frame.batch_index)

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    @property
    def can_undo(self) -> bool:
        """Tell whether there is something to undo."""
        with self._lock:
            return self._versions.back(self.version) is not None

    @property
    def can_redo(self) -> bool:
        """Tell whether there is something to redo."""
        with self._lock:
            return self._versions.redo(self.version) is not None

    def undo(self) -> Result:
        """Reverse the last call. The undoing is itself a new version.

        >>> from palaver.messages import user
        >>> history = History([user("a")])
        >>> _ = history.clear(keep_system_message=False)
        >>> history.undo().stats.total_messages
        1
        """
        with self._lock:
            version = self.version
            back = self._versions.back(version)
            if back is None:
                msg = "there is nothing to undo"
                raise NothingToUndo(msg)
            frame = replace(
                self._versions.frame(back),
                logged=len(self._log),
                back=self._versions.back(back),
                redo=Redo(version, self._versions.redo(version)),
            )
            self._set(frame, self._stops[back], "undo")
            return self._result()

    def redo(self) -> Result:
        """Bring back what the last undo, rollback or restore left, until the next change."""
        with self._lock:
            redo = self._versions.redo(self.version)
            if redo is None:
                msg = "there is nothing to redo"
                raise NothingToUndo(msg)
            frame = replace(
                self._versions.frame(redo.version),
                logged=len(self._log),
                back=self._versions.back(redo.version),
                redo=redo.after,
            )
            self._set(frame, self._stops[redo.version], "redo")
            return self._result()

    def restore(self, version: int) -> Result:
        """Return to a version: its messages, its batches, its marks, its team task."""
        with self._lock:
            frame = self._versions.frame(version)
            self._commit(frame, self._stops[version], "restore", Redo(self.version))
            return self._result()

    # ── forks ───────────────────────────────────────────────────────────────────────────────────

    def fork(self, *, at: int | None = None, id: str | None = None) -> History:  # noqa: A002 - the word for it
        """A history that goes its own way from here, or from a version; nothing is copied.

        >>> from palaver.messages import user
        >>> history = History([user("a")])
        >>> other = history.fork()
        >>> _ = other.append(user("b"))
        >>> len(history), len(other)
        (1, 2)
        """
        if id == self.id:
            raise ValidationError("must be another than its parent's", path="$.id", rule="HI-13")
        with self._log.family.lock, self._lock:
            version = self.version if at is None else at
            frame, stop = self._versions.frame(version), self._stops[version]
            log = self._log.fork(max(frame.logged, stop))
            frame = replace(frame, logged=len(log), back=None, redo=None)
            fork: History = object.__new__(type(self))
            fork._set_up(log, frame, stop, new_id() if id is None else id, self._clock)
            fork.origin = (self.id, version)
            return fork

    def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """What changed from one version to another; from the one before the last, to now."""
        end = self.view if after is None else self.at(after)
        begin = max(end.version - 1, 0) if before is None else before
        return compare(self.at(begin), end)

    def merge(self, other: History) -> Result:
        """Bring in what a fork did since it began, or since it was last brought in.

        A fork can bring in its parent's changes in the same way. A `Conflict` names every message
        that both sides touched, and nothing changes.
        """
        shared = self._shared_with(other)
        with self._log.family.lock, self._lock, other._lock:
            back = {here: there for there, here in other._names.get(self.id, {}).items()}
            known = {**back, **self._names.get(other.id, {})}
            base, is_ours = self._base(other)
            theirs = other.view
            joined = join(Sides(base, self.view, theirs, shared, known, is_ours))
            if joined.changes_anything():
                opened = first = len(self._log)
                self._log.extend(joined.messages)
                self._log.note_origins(dict(joined.origins(first)))
                self._names.setdefault(other.id, {}).update(joined.names(first))
                frame = replace(
                    self._frame,
                    marks=joined.marks(first, self._log),
                    team_task=joined.team_task,
                    merged=PersistentMap.of(self._frame.merged).set(other.id, theirs.version),
                )
                rope = joined.rope(self.view.rope, first, self._log)
                self._open_batch(frame, rope, opened, "MERGE")
            return self._result()

    def _base(self, other: History) -> tuple[View, bool]:
        """What both sides last had in common, and whether it is a view of ours.

        That is what one of them last brought in from the other; a fork begins with its parent.
        """
        have = self._taken_from(other, self._frame)
        given = other._taken_from(self, other._frame)
        if given >= 0 and self._taken_from(other, self._versions.frame(given)) >= have:
            return self.at(given), True
        return other.at(have), False

    def _taken_from(self, other: History, frame: Frame) -> int:
        """Up to which version of another the frame has everything; -1 where it has nothing."""
        begun = self.origin[1] if self.origin and self.origin[0] == other.id else -1
        return frame.merged.get(other.id, begun)

    def _shared_with(self, other: History) -> int:
        """Up to where both logs are the same."""
        if other.origin and other.origin[0] == self.id:
            return other._log.start
        if self.origin and self.origin[0] == other.id:
            return self._log.start
        detail = "is neither a fork of this history nor what it was forked from"
        raise ValidationError(detail, path="$.other", rule="HI-13")

    # ── marks and the team task ─────────────────────────────────────────────────────────────────

    def mark(self, which: int | str | Message, name: str) -> None:
        """Put a mark on a message, given by its index, its id, or itself."""
        self._remark(which, name, marking.put)

    def unmark(self, which: int | str | Message, name: str) -> None:
        """Take a mark off a message."""
        self._remark(which, name, marking.take)

    def _remark(
        self, which: int | str | Message, name: str, change: Callable[[Rope, int, Log], Rope]
    ) -> None:
        check_name(name, "$.mark")
        with self._lock:
            position = self.view.find(which)
            before = self._frame.marks.get(name)
            after = change(before, position, self._log)
            if after is before:
                return
            marks = PersistentMap.of(self._frame.marks)
            marks = marks.remove(name) if after is None else marks.set(name, after)
            self._commit(replace(self._frame, marks=marks), self._stop, "mark")

    def set_team_task(self, task: str | None) -> None:
        """Say what the team is at work on, or None for nothing."""
        if task is not None:
            check_text(task, "$.teamTask")
        with self._lock:
            if task != self._frame.team_task:
                self._commit(replace(self._frame, team_task=task), self._stop, "team_task")

    # ── before and beyond ───────────────────────────────────────────────────────────────────────

    def price(
        self,
        operation: Operation | Rewrite | Mapping[str, Any] | bytes | str,
        *,
        tokens: Callable[[Message], int],
    ) -> Price:
        """What an operation would take away, break and cost, without doing it.

        >>> from palaver.messages import user
        >>> history = History([user("one"), user("two")])
        >>> history.price({"operation": "TRUNCATE", "keepLast": 1}, tokens=lambda m: 1).tokens_freed
        1
        """
        return price_of(operation, self.view, tokens)

    def erase(self, which: int | str | Message) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays in its place."""
        with self._log.family.lock, self._lock:
            name = self._log[self.view.find(which)].id
            version = self.version
            frame = replace(self._frame, back=self._versions.back(version), redo=None)
            receipt = erase_everywhere(self._log, name, at=self._clock(), versions=version + 1)
            self._set(replace(frame, logged=len(self._log)), self._stop, "erase")
            return receipt
