"""A history: a log, the view of it that is current, and every change that can be made.

`BaseHistory` has all public methods. Reading goes to the view. A change checks its arguments, is
planned (see `plan`) and is committed; how a commit is made lasting is up to the two subclasses:
`History` applies it in memory, `palaver.stores.StoredHistory` sends it to a backend first. All
versions stay readable, so undo, redo, rollback and restore only select another one.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history import marks as marking
from palaver.history.diff import Diff, compare
from palaver.history.erase import Receipt, erase_everywhere
from palaver.history.frame import IMPORT, Expected, Frame, Versions, check_expected
from palaver.history.impact import Impact, measure_impact
from palaver.history.log import Log
from palaver.history.operations import (
    Clear,
    Filter,
    Insert,
    Operation,
    Range,
    Replace,
    Rewrite,
    Rollback,
    Truncate,
    as_operations,
    read_messages,
)
from palaver.history.plan import (
    HistoryState,
    plan,
    plan_all,
    plan_append,
    plan_erase,
    plan_mark,
    plan_merge,
    plan_redo,
    plan_replace_all,
    plan_restore,
    plan_rollback,
    plan_team_task,
    plan_undo,
    stale_policy,
)
from palaver.history.view import View, check_range, view_of_log
from palaver.messages import Message, new_id, parse_message
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    check_argument,
    check_callable,
    check_name,
    check_text,
    not_pickled,
)
from palaver.messages.message import message_rows, show_html, show_rich

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Literal

    from palaver.history.frame import Counter, Rope
    from palaver.history.operations import OperationInput, Piece
    from palaver.history.plan import Commit, Planner, WhenStale
    from palaver.history.view import BatchSnapshot, MarkMap, Result, State, Stats
    from palaver.messages import Role

__all__ = ["BaseHistory", "History"]

_Ranges: TypeAlias = "Sequence[range]"  # in the class, `range` is a method


class BaseHistory(Sequence[Message]):
    """The methods of every history, in memory or in a store.

    It is a sequence of messages. Each reading method works on the view of one moment, so it never
    sees half a change. Changing methods take `expect`: the version that must be the newest, or
    several of which one must be; otherwise they raise `VersionMismatch`, and nothing changes. For
    `insert`, `replace`, `truncate`, `clear` and `filter`, `execute` takes it.
    """

    __slots__ = ("_lock", "_state", "id")

    id: str
    """The id of the conversation."""
    _lock: threading.RLock
    _state: HistoryState

    @abstractmethod
    def _commit(
        self, planner: Planner, *, when_stale: WhenStale = "replan", expect: Expected | None = None
    ) -> int:
        """Plan a change on the newest state and make it; return the newest version."""

    @abstractmethod
    def fork(self, *, at: int | None = None, id: str | None = None) -> Self:  # noqa: A002 - the word for it
        """Return a history that goes its own way from here, or from a version."""

    @abstractmethod
    def erase(self, which: int | str | Message, *, expect: Expected | None = None) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays."""

    def _announce(self) -> None:
        """Report the changes that were committed, once the lock is free; a store overrides it."""

    def _change(
        self, planner: Planner, when_stale: WhenStale = "replan", expect: Expected | None = None
    ) -> Result:
        with self._lock:
            self._commit(planner, when_stale=when_stale, expect=expect)
            result = self._state.result()
        self._announce()
        return result

    # ── the messages ────────────────────────────────────────────────────────────────────────────

    @property
    def view(self) -> View:
        """The conversation as it is now: a sequence that does not change when the history does."""
        with self._lock:
            state = self._state
            return View(state.log, state.frame, state.stop, len(state.stops) - 1)

    def __len__(self) -> int:
        """Return how many messages there are now."""
        return len(self.view)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """Return the message at an index, or a list for a slice."""
        return self.view[index]

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages as they are now; later changes are not seen."""
        return iter(self.view)

    def __reversed__(self) -> Iterator[Message]:
        """Iterate over the messages as they are now, from the last to the first."""
        return reversed(self.view)

    def __contains__(self, value: object) -> bool:
        """Tell whether a message is there now."""
        return value in self.view

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first message that equals a value."""
        view = self.view
        return view.index(value, start, len(view) if stop is None else stop)

    def __repr__(self) -> str:
        """Return the id, the number of messages and the version, as text."""
        return (
            f"<{type(self).__name__} {self.id}: {len(self):,} messages at version {self.version}>"
        )

    def _repr_html_(self) -> str:
        """Return the history as a notebook shows it."""
        return show_html(repr(self), message_rows(self.view))

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the history as `rich` shows it."""
        return show_rich(repr(self), message_rows(self.view))

    __reduce_ex__ = not_pickled(
        "pickle its messages, or keep it in a store: palaver.open('chat.db')"
    )

    @property
    def messages(self) -> list[Message]:
        """The messages as they are now, as a new list."""
        return self.view[:]

    def query(
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
        speaker: str | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        recent: int | None = None,
    ) -> list[Message]:
        """Return the messages that match everything given; see `View.query`."""
        return self.view.query(
            role=role, roles=roles, mark=mark, since=since, until=until, text=text,
            speaker=speaker, range=range, recent=recent,
        )  # fmt: skip

    def by_role(self, role: Role) -> list[Message]:
        """Return all messages of a role."""
        return self.view.by_role(role)

    def recent(self, n: int, *, role: Role | None = None) -> list[Message]:
        """Return the last n messages, or the last n of a role."""
        return self.view.recent(n, role=role)

    def range(self, start: int, end: int, *, role: Role | None = None) -> list[Message]:
        """Return the messages from start to before end, counted within a role if one is given."""
        return self.view.range(start, end, role=role)

    def count(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - counts matches
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
        speaker: str | None = None,
    ) -> int:
        """Return how many messages match everything given; see `View.query`."""
        return self.view.count(
            role=role, roles=roles, mark=mark, since=since, until=until, text=text, speaker=speaker
        )

    # ── versions, batches, marks ────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        """The number of the last change; 0 before the first."""
        return self._state.version

    @property
    def origin(self) -> tuple[str, int] | None:
        """The id and version of the conversation that this one was forked from, if any."""
        return self._state.origin

    @property
    def log(self) -> View:
        """Everything that was ever added, as a view."""
        with self._lock:
            return view_of_log(self._state.log, self._state.frame, self._state.version)

    def at(self, version: int) -> View:
        """Return the conversation as it was at a version.

        >>> from palaver.messages import user
        >>> history = History()
        >>> _ = history.append(user("a")), history.append(user("b"))
        >>> len(history.at(1)), len(history.at(2))
        (1, 2)
        """
        with self._lock:
            return self._state.at(version)

    def ends(self, limit: int | None = None) -> list[int]:
        """Return the versions that an edit followed, newest first: at most `limit` of them.

        An append only makes a view longer, so whatever was ever in a view is in the view of one of
        these versions or of the newest.

        >>> from palaver.messages import user
        >>> history = History([user("a")])
        >>> _ = history.append(user("b")), history.truncate(keep_first=1)
        >>> history.ends()
        [1]
        """
        with self._lock:
            return self._state.versions.ends()[::-1][:limit]

    def diff(self, before: int | None = None, after: int | None = None) -> Diff:
        """Return what changed from one version to another: by default, in the last change."""
        end = self.view if after is None else self.at(after)
        begin = max(end.version - 1, 0) if before is None else before
        return compare(self.at(begin), end)

    @property
    def can_undo(self) -> bool:
        """Whether there is something to undo."""
        with self._lock:
            return self._state.versions.back(self._state.version) is not None

    @property
    def can_redo(self) -> bool:
        """Whether there is something to redo."""
        with self._lock:
            return self._state.versions.redo(self._state.version) is not None

    @property
    def batch_index(self) -> int:
        """The number of the open batch."""
        return self.view.batch_index

    def batch_snapshot(self, index: int) -> BatchSnapshot | None:
        """Return a batch as it ended; None for the open one and for one that does not exist."""
        return self.view.batch_snapshot(index)

    @property
    def state(self) -> State:
        """The messages and the snapshots, computed when accessed."""
        return self.view.state

    @property
    def stats(self) -> Stats:
        """The numbers of messages and batches."""
        return self.view.stats

    def mark_map(self) -> MarkMap:
        """Return the view as log positions, by role, and where the batches of the line opened."""
        return self.view.mark_map()

    @property
    def team_task(self) -> str | None:
        """The task that the team is working on, if any."""
        return self.view.team_task

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """The ids of the marked messages, by mark."""
        return self.view.marks

    def marks_of(self, which: int | str | Message) -> list[str]:
        """Return the marks of one message."""
        return self.view.marks_of(which)

    def price(
        self,
        operation: Operation | Rewrite | Mapping[str, Any] | bytes | str,
        *,
        tokens: Callable[[Message], int],
    ) -> Impact:
        """Return what an operation would remove, break and cost, without executing it.

        >>> from palaver.messages import user
        >>> history = History([user("one"), user("two")])
        >>> history.price({"operation": "TRUNCATE", "keepLast": 1}, tokens=lambda m: 1).tokens_freed
        1
        """
        return measure_impact(operation, self.view, tokens)

    # ── adding ──────────────────────────────────────────────────────────────────────────────────

    def append(
        self, message: Message | Mapping[str, Any], *, expect: Expected | None = None
    ) -> Message:
        """Add a message at the end and return it.

        >>> from palaver.messages import user
        >>> History().append(user("hello")).text
        'hello'
        """
        if type(message) is not Message:
            message = parse_message(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a mapping
        new = (message,)
        self._commit(lambda state: plan_append(state, new), expect=expect)
        return message

    def extend(
        self, messages: Iterable[Message | Mapping[str, Any]], *, expect: Expected | None = None
    ) -> Result:
        """Add messages at the end, in one change."""
        new = read_messages(messages)
        return self._change(lambda state: plan_append(state, new), expect=expect)

    # ── editing ─────────────────────────────────────────────────────────────────────────────────

    def execute(
        self,
        operation: OperationInput,
        *,
        expect: Expected | None = None,
    ) -> Result:
        """Execute an operation, or a list of them, given as values or as JSON.

        A list is executed all or nothing and makes one version, which one `undo` reverses; each
        edit in it opens its batch. An error has the place in its path: `$[1].position`.

        >>> History().execute({"operation": "CLEAR"}).affected_batch_index
        1
        >>> History().execute([{"operation": "CLEAR"}, {"operation": "CLEAR"}])
        <Result: 0 messages, batch 2>
        """
        given = as_operations(operation)
        return (
            self._execute_all(given, expect)
            if isinstance(given, list)
            else self._execute(given, expect)
        )

    def _execute_all(
        self, operations: Sequence[Operation | Rewrite], expect: Expected | None = None
    ) -> Result:
        return self._change(
            lambda state: plan_all(state, operations), stale_policy(*operations), expect
        )

    def _execute(self, operation: Operation | Rewrite, expect: Expected | None = None) -> Result:
        return self._change(lambda state: plan(state, operation), stale_policy(operation), expect)

    def insert(self, position: int, messages: Iterable[Message | Mapping[str, Any]]) -> Result:
        """Insert messages before the one at a position; the position may be the length."""
        return self._execute(Insert(position, read_messages(messages)))

    def replace(self, index: int, message: Message | Mapping[str, Any]) -> Result:
        """Replace the message at an index."""
        return self._execute(Replace(index, cast("Message", message)))

    def truncate(
        self,
        *,
        keep_first: int | None = None,
        keep_last: int | None = None,
        remove_first: int | None = None,
        remove_last: int | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        role: Role | None = None,
        others: Literal["drop", "keep"] = "drop",
    ) -> Result:
        """Keep one range of the messages; see `Truncate` for how the options combine."""
        if range is not None:
            check_range(range)
        operation = Truncate(
            keep_first=keep_first,
            keep_last=keep_last,
            remove_first=remove_first,
            remove_last=remove_last,
            range=None if range is None else Range(*range),
            role=role,
            others=others,
        )
        return self._execute(operation)

    def clear(self, *, keep_system_message: bool = True) -> Result:
        """Remove all messages; system messages stay unless `keep_system_message` is false."""
        return self._execute(Clear(keep_system_message))

    def filter(
        self,
        *,
        roles: Iterable[Role] | None = None,
        content_contains: Iterable[str] | None = None,
        content_excludes: Iterable[str] | None = None,
    ) -> Result:
        """Keep the messages that match; see `Filter`."""
        operation = Filter(
            roles=cast("Any", roles),  # the operation makes tuples of them
            content_contains=cast("Any", content_contains),
            content_excludes=cast("Any", content_excludes),
        )
        return self._execute(operation)

    def rewrite(
        self,
        pieces: Iterable[Piece],
        *,
        reason: str = "COMPACT",
        of_log: bool = False,
        expect: Expected | None = None,
    ) -> Result:
        """Select anew, old ranges and new messages in any order, in one batch.

        Ranges are indexes of the current selection or, with `of_log`, positions in the log.

        >>> history = History([{"role": "user", "content": word} for word in "abc"])
        >>> [m.text for m in history.rewrite([range(2, 3), range(1)]).state.messages]
        ['c', 'a']
        """
        check_name(reason, "$.reason")
        return self._execute(Rewrite(tuple(pieces), reason, of_log), expect)

    def replace_all(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        team_task: str | None,
        reason: str = IMPORT,
        shown: _Ranges | None = None,
        expect: Expected | None = None,
    ) -> Result:
        """Replace all messages and set the team task, in one change.

        Importing a snapshot does this, and, with no messages, starting a new session. `undo` and
        `rollback` lead back. With `shown`, only these ranges of the messages are in the view; the
        log has all.

        >>> history = History([{"role": "user", "content": "old"}])
        >>> history.replace_all([], team_task=None).stats.total_messages
        0
        """
        new = read_messages(messages)
        if team_task is not None:
            check_text(team_task, "$.teamTask")
        check_name(reason, "$.reason")
        return self._change(
            lambda state: plan_replace_all(state, new, team_task, reason, shown), "refuse", expect
        )

    # ── back and forth ──────────────────────────────────────────────────────────────────────────

    def rollback(self, batch_index: int, *, expect: Expected | None = None) -> Result:
        """Return to a batch as it ended; later batches leave the line, and `redo` returns."""
        target = Rollback(batch_index).target_batch_index
        return self._change(lambda state: plan_rollback(state, target), "refuse", expect)

    def undo(self, *, expect: Expected | None = None) -> Result:
        """Reverse the last change. Undoing is itself a new version.

        >>> from palaver.messages import user
        >>> history = History([user("a")])
        >>> _ = history.clear(keep_system_message=False)
        >>> history.undo().stats.total_messages
        1
        """
        return self._change(plan_undo, "refuse", expect)

    def redo(self, *, expect: Expected | None = None) -> Result:
        """Return to what the last undo, rollback or restore left, until the next change."""
        return self._change(plan_redo, "refuse", expect)

    def restore(self, version: int, *, expect: Expected | None = None) -> Result:
        """Return to a version: its messages, its batches, its marks, its team task."""
        return self._change(lambda state: plan_restore(state, version), "refuse", expect)

    # ── merging, marks, the team task ───────────────────────────────────────────────────────────

    def merge(self, other: BaseHistory, *, expect: Expected | None = None) -> Result:
        """Bring in what a fork did since it began, or since it was last merged.

        A fork can bring in its parent's changes in the same way. A `Conflict` names every message
        that both sides touched, and nothing changes.
        """
        wanted = "a history, such as a fork of this one"
        check_argument(other, BaseHistory, "$.other", wanted)
        first, second = sorted((self, other), key=lambda side: (side.id, id(side)))
        # both locks in one order, whoever merges whom
        with first._lock, second._lock:  # noqa: SLF001 - of the same class
            self._commit(lambda state: plan_merge(state, other._state), expect=expect)
            result = self._state.result()
        self._announce()
        return result

    def mark(
        self, which: int | str | Message, name: str, *, expect: Expected | None = None
    ) -> None:
        """Put a mark on a message, given by its index, its id, or itself."""
        self._change_mark(which, name, marking.put, expect)

    def unmark(
        self, which: int | str | Message, name: str, *, expect: Expected | None = None
    ) -> None:
        """Remove a mark from a message."""
        self._change_mark(which, name, marking.take, expect)

    def _change_mark(
        self,
        which: int | str | Message,
        name: str,
        change: Callable[[Rope, int, Counter], Rope],
        expect: Expected | None,
    ) -> None:
        check_name(name, "$.mark")
        found: list[int] = []

        def planner(state: HistoryState) -> Commit | None:
            if not found:  # an index means what it meant when the caller gave it
                found.append(state.view().find(which))
            return plan_mark(state, found[0], name, change)

        self._commit(planner, expect=expect)
        self._announce()

    def set_team_task(
        self,
        task: str | None,
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        expect: Expected | None = None,
    ) -> None:
        """Set the task that the team is working on; None for no task.

        `messages`, such as the one that sets it, are added at the end in the same change.
        """
        if task is not None:
            check_text(task, "$.teamTask")
        new = read_messages(messages)
        self._commit(lambda state: plan_team_task(state, task, new), expect=expect)
        self._announce()


class History(BaseHistory):
    """The messages of a conversation in memory, every edit they went through, and the way back.

    >>> from palaver.messages import assistant, user
    >>> history = History([user("one"), assistant("two"), user("three")])
    >>> history.truncate(keep_last=1).stats.total_messages
    1
    >>> history.rollback(0)
    <Result: 3 messages, batch 0>
    >>> [message.text for message in history]
    ['one', 'two', 'three']
    """

    __slots__ = ("_log",)

    def __init__(
        self,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Begin with some messages, or with none; `clock` returns the time in milliseconds."""
        check_callable(clock, "$.clock", "a function that returns milliseconds")
        log = Log()
        log.extend(read_messages(messages))
        frame, stop = Frame(logged=len(log)), len(log)
        self._begin(log, HistoryState(_new_name(id), log, frame, Versions(frame, stop), clock))

    def _begin(self, log: Log, state: HistoryState) -> None:
        self.id = state.id
        self._lock = threading.RLock()
        self._log = log
        self._state = state

    def _commit(
        self,
        planner: Planner,
        *,
        when_stale: WhenStale = "replan",  # noqa: ARG002 - nobody else writes to it
        expect: Expected | None = None,
    ) -> int:
        with self._lock:
            state = self._state
            check_expected(expect, state.version)
            commit = planner(state)
            if commit is not None:
                if commit.origins:
                    first = len(self._log)
                    self._log.note_origins({first + n: old for n, old in commit.origins.items()})
                state.apply(commit)
            return state.version

    def append(
        self, message: Message | Mapping[str, Any], *, expect: Expected | None = None
    ) -> Message:
        """Add a message at the end and return it.

        >>> from palaver.messages import user
        >>> History().append(user("hello")).text
        'hello'
        """
        if type(message) is not Message:
            message = parse_message(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a mapping
        lock, state, own = self._lock, self._state, self._log.own
        lock.acquire()  # the hot path: this way costs half of what `with` does
        try:
            messages = own.messages
            position = own.start + len(messages)
            if position != state.stop or expect is not None:
                return super().append(message, expect=expect)
            own.index.positions[message.role].append(position)  # as `plan_append` and `apply` do
            messages.append(message)
            state.stop = position = position + 1
            state.stops.append(position)
        finally:
            lock.release()
        return message

    def fork(self, *, at: int | None = None, id: str | None = None) -> Self:  # noqa: A002 - the word for it
        """Return a history that goes its own way from here, or from a version; nothing is copied.

        >>> from palaver.messages import user
        >>> history = History([user("a")])
        >>> other = history.fork()
        >>> _ = other.append(user("b"))
        >>> len(history), len(other)
        (1, 2)
        """
        if id == self.id:
            raise ValidationError("must be another than its parent's", path="$.id", rule="fork-id")
        with self._log.family.lock, self._lock:
            state = self._state
            version = state.version if at is None else at
            frame, stop = state.versions.frame(version), state.stops[version]
            log = self._log.fork(max(frame.logged, stop))
            frame = replace(frame, logged=len(log), back=None, redo=None)
            fork = object.__new__(type(self))
            fork._begin(
                log,
                HistoryState(
                    _new_name(id), log, frame, Versions(frame, stop), state.clock,
                    origin=(self.id, version),
                ),
            )  # fmt: skip
            return fork

    def merge(self, other: BaseHistory, *, expect: Expected | None = None) -> Result:
        """Bring in what a fork did; see `BaseHistory.merge`."""
        with self._log.family.lock:  # so that nothing is erased meanwhile
            return super().merge(other, expect=expect)

    def erase(self, which: int | str | Message, *, expect: Expected | None = None) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays in its place.

        An id or a handle that could mean two messages is refused with `AmbiguousMessage`.
        """
        with self._log.family.lock, self._lock:
            state = self._state
            check_expected(expect, state.version)
            position = state.view().find(which, strict=True)
            commit = plan_erase(state)
            receipt = erase_everywhere(
                self._log, position, at=state.clock(), versions=state.version + 1
            )
            state.apply(commit)
            return receipt


def _new_name(name: str | None) -> str:
    name = new_id() if name is None else name
    check_name(name, "$.id")
    return name
