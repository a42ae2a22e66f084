"""A history that a store keeps: the same front door, and every change is on disk when it returns.

Another process may have changed the conversation since it was read. An append then simply goes
after what came in between. An edit is what its caller saw and meant: it is merged with what came in
between, by the same three-way merge that brings forks home, and where both touched the same message
it is a `Conflict` and nothing changes. Nothing is ever lost in silence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from msgspec.structs import replace

from palaver.errors import Clash, Conflict, Stale, StoreDamaged, ValidationError
from palaver.history import History
from palaver.history.erasing import Receipt
from palaver.history.merging import Sides, join
from palaver.history.operations import Append, as_operation, read_messages
from palaver.history.plan import Edit, planned
from palaver.history.rewriting import Rewrite
from palaver.history.rope import size
from palaver.history.versions import Versions
from palaver.messages import Message, new_id
from palaver.messages.gate import check_name
from palaver.messages.ids import now_ms
from palaver.stores.ancestry import read_frames
from palaver.stores.beginning import begin, check_key
from palaver.stores.log import StoredLog
from palaver.stores.rebasing import meant_by
from palaver.stores.records import NONE, Again, Change, Head
from palaver.stores.traces import summaries_of
from palaver.stores.versions import StoredStops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from palaver.history.frame import Frame
    from palaver.history.log import Log
    from palaver.history.operations import Operation
    from palaver.history.results import Result
    from palaver.history.rewriting import Piece
    from palaver.history.view import View
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Lease, Record

__all__ = ["StoredHistory"]

_T = TypeVar("_T")


class _KeptBefore(Exception):  # noqa: N818 - nothing went wrong
    """The change was kept before, under the same key, as this version."""

    def __init__(self, version: int) -> None:
        self.version = version


class StoredHistory(History):
    """A history in a store. Get one from `Store.create` or `Store.get`."""

    __slots__ = ("_book", "_head", "_keeper", "_key", "_records", "_token", "_unless")

    def __init__(self, keeper: Keeper, name: str, *, clock: Callable[[], int] = now_ms) -> None:
        """Read where a conversation stands; its messages are read when they are needed."""
        self._keeper = keeper
        self._head = head = keeper.head(name)
        self._book, frames = read_frames(keeper, head)
        self._key: str | None = None
        self._records: tuple[Record, ...] = ()
        self._token: int | None = None
        self._unless: Callable[[View], None] | None = None
        log = cast("Log", StoredLog(keeper, head))
        self._set_up(log, frames[-1][1], head.stop, name, clock)
        stops = StoredStops(keeper, name, head.version, head.stop)
        self._versions = Versions.of(frames, stops)
        self._stops = self._versions.stops
        self.origin = None if head.parent is None else (head.parent, head.origin)
        self._read_names()

    @property
    def title(self) -> str | None:
        """What the conversation is called."""
        return self._head.title

    @property
    def tags(self) -> tuple[str, ...]:
        """The conversation's tags."""
        return self._head.tags

    def _read_names(self) -> None:
        kept = self._keeper.records(self.id, "names")
        try:
            self._names = {other: dict(json.loads(pairs)) for other, pairs in kept.items()}
        except (ValueError, TypeError) as error:
            msg = f"which messages {self.id} has from elsewhere can't be read: {error}"
            raise StoreDamaged(msg) from None

    @property
    def _stored(self) -> StoredLog:
        return cast("StoredLog", self._log)

    def refresh(self) -> StoredHistory:
        """See what others have done meanwhile."""
        with self._lock:
            head = self._keeper.head(self.id)
            if head.erased != self._head.erased:
                self._stored.drop_held()
            if head.version != self.version:
                for kept in self._keeper.frames(self.id, self.version, head.version):
                    frame = self._book.decode(kept.data, kept.version)
                    self._versions.learn(frame, kept.version)
                    self._frame = frame
                cast("StoredStops", self._versions.stops).catch_up(head.version, head.stop)
                self._stored.catch_up(head)
                self._stop = head.stop
                self._read_names()
            self._head = head
            return self

    def under(self, lease: Lease | None) -> StoredHistory:
        """Write only while a lease is held: late writes are refused with `LeaseLost`."""
        self._token = None if lease is None else lease.token
        return self

    # ── every change is kept before it is seen ──────────────────────────────────────────────────

    def _set(self, frame: Frame, stop: int, kind: str) -> None:
        self._keep(frame, stop, kind)
        super()._set(frame, stop, kind)

    def _keep(self, frame: Frame | None, stop: int, kind: str) -> None:
        version = self.version + 1
        kept = self._keeper.commit(self._change(frame, stop, kind))
        if type(kept) is Again:
            raise _KeptBefore(kept)
        if frame is not None:
            self._book.keep(frame, version)
        self._stored.settle()

    def _change(self, frame: Frame | None, stop: int, kind: str) -> Change:
        log, version = self._stored, self.version + 1
        current = self._frame if frame is None else frame
        names: tuple[Record, ...] = ()
        if kind == "merge":
            names = tuple(
                ("names", other, json.dumps(list(pairs.items())).encode())
                for other, pairs in self._names.items()
            )
        return Change(
            conversation=self.id,
            after=self.version,
            kind=kind,
            at=self._clock(),
            stop=stop,
            size=size(current.root) + stop - current.start,
            first=log.kept,
            counts=log.before(log.kept),
            messages=tuple(log.pending),
            frame=None if frame is None else self._book.encode(frame, version),
            replaces=dict(log.replaces),
            key=self._key,
            token=self._token,
            records=(*names, *self._records),
        )

    def _kept(self, change: Callable[[], _T], rebase: Callable[[View], _T] | None = None) -> _T:
        """Make a change; where another came first, refresh and make it again, or rebase it."""
        with self._lock:
            while True:
                seen = self.view
                try:
                    return change()
                except _KeptBefore:
                    self._stored.forget()
                    self.refresh()
                    raise
                except Stale:
                    self._stored.forget()
                    if rebase is not None:
                        return rebase(seen)
                    self._see_others(seen.version)
                except BaseException:
                    self._stored.forget()
                    self._read_names()
                    raise

    def _see_others(self, version: int) -> None:
        """Refresh after `Stale`: where nothing came in between, it is the file that is wrong."""
        self.refresh()
        if self.version == version:
            msg = f"{self.id} takes no change at version {version}, though it is the last"
            raise StoreDamaged(msg)
        if self._unless is not None:
            self._unless(self.view)

    # ── appends go after what came in between ───────────────────────────────────────────────────

    def append(self, message: Message | Mapping[str, Any], *, key: str | None = None) -> Message:
        """Add a message at the end and return it.

        `key` makes doing it again harmless: what was kept the first time is returned.
        """
        if type(message) is not Message:
            (message,) = read_messages([message])
        with self._lock:
            kept = self._append_one(message, key)
            if kept is None:
                new = (message,)
                kept = self._kept_as(lambda: self._add(new, key))
            return message if kept == 0 else self._brought_by(kept)

    def _kept_as(self, change: Callable[[], None]) -> int:
        """Make a change; answer 0, or the version that it was kept as before."""
        try:
            self._kept(change)
        except _KeptBefore as known:
            return known.version
        return 0

    def _brought_by(self, version: int) -> Message:
        """The message that a version brought."""
        told = self._keeper.journal(self.id, version - 1, 1)
        if not told or told[0].version != version or not told[0].count:
            detail = f"is the key of version {version}, which brought no message"
            raise ValidationError(detail, path="$.key")
        return self._log[told[0].first]

    def _append_one(self, message: Message, key: str | None) -> int | None:
        """The common case without detours: the tail goes on, and nobody came in between.

        Answers 0, or the version that it was kept as before; None where it takes a detour.
        """
        log = self._stored
        first = log.kept
        if first != self._stop:
            return None
        stop = first + 1
        frame = self._frame
        try:
            change = Change(
                self.id, self.version, "append", self._clock(), stop,
                size(frame.root) + stop - frame.start, first, log.before(first), (message,),
                None, NONE, key, self._token,
            )  # fmt: skip
            version = self._keeper.commit(change)
        except Stale:
            return None
        if type(version) is Again:
            self.refresh()
            return version
        log.added(message)
        self._stop = stop
        self._stops.append(stop)
        return 0

    def extend(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        key: str | None = None,
        records: Sequence[Record] = (),
        lease: Lease | None = None,
        unless: Callable[[View], None] | None = None,
    ) -> Result:
        """Add messages at the end, in one change; `key` makes doing it again harmless.

        `records` are kept beside the log in the same change. Under a `lease` that another holds
        meanwhile it is refused with `LeaseLost`. `unless` is shown what the messages would come
        after, whoever wrote it; what it raises stops the change.
        """
        new = read_messages(messages)
        if not new:
            return self._result()
        with self._lock:
            token, self._token = self._token, self._token if lease is None else lease.token
            try:
                self._kept_as(lambda: self._add(new, key, records, unless))
            finally:
                self._token = token
        return self._result()

    def _add(
        self,
        messages: tuple[Message, ...],
        key: str | None,
        records: Sequence[Record] = (),
        unless: Callable[[View], None] | None = None,
    ) -> None:
        if unless is not None:
            unless(self.view)
        self._key, self._records = key, tuple(records)
        try:
            first = self._log.extend(messages)
            frame = None if first == self._stop else self._tail_frame(first)
            stop = first + len(messages)
            self._keep(frame, stop, "append")
        finally:
            self._key, self._records = None, ()
        if frame is not None:
            self._frame = frame
            self._versions.begin(frame)
        self._stop = stop
        self._stops.append(stop)

    # ── edits are merged with what came in between ──────────────────────────────────────────────

    def execute(
        self,
        operation: Operation | Mapping[str, Any] | bytes | str,
        *,
        key: str | None = None,
    ) -> Result:
        """Carry out an operation, given as a value or as JSON; `key` makes repeating it harmless.

        What was done under the same key before is not done again, whatever has come since.
        """
        operation = as_operation(operation)
        if isinstance(operation, Append):
            return self.extend(operation.messages, key=key)
        with self._lock:
            self._key = key
            try:
                return super().execute(operation)
            except _KeptBefore:
                return self._result()
            finally:
                self._key = None

    def _edit(self, operation: Edit) -> Result:
        return self._kept(
            lambda: super(StoredHistory, self)._edit(operation),
            lambda seen: self._rebased(operation, seen),
        )

    def rewrite(
        self,
        pieces: Iterable[Piece],
        *,
        reason: str = "COMPACT",
        of_log: bool = False,
        records: Sequence[Record] = (),
        unless: Callable[[View], None] | None = None,
    ) -> Result:
        """Select anew in one batch, as in a history; `records` and `unless` are as in `extend`."""
        with self._lock:
            self._records, self._unless = tuple(records), unless
            try:
                if unless is not None:
                    unless(self.view)
                return self._edit(Rewrite(tuple(pieces), reason, of_log))
            finally:
                self._records, self._unless = (), None

    def _rebased(self, operation: Edit, seen: View) -> Result:
        """The edit as it was meant, on what the caller saw, merged with what is there now."""
        plan = planned(seen, operation)
        shared = self._head_of(seen)
        meant = meant_by(plan, seen, self._keeper, shared)
        version = seen.version
        while True:
            self._see_others(version)
            version = self.version
            joined = join(Sides(seen, self.view, meant, shared.length, {}, base_is_ours=False))
            opened = len(self._log)
            self._log.extend(joined.messages)
            self._log.note_origins(dict(joined.origins(opened)))
            rope = joined.rope(self.view.rope, opened, self._log)
            place = joined.place if joined.new else plan.place
            try:
                return self._open_batch(self._frame, rope, opened, plan.reason, place)
            except Stale:
                self._stored.forget()
            except BaseException:
                self._stored.forget()
                raise

    def _head_of(self, seen: View) -> Head:
        """The head as it was when a view was taken: its log ended there."""
        length = self._stored.kept
        return replace(
            self._head, length=length, counts=self._log.before(length), version=seen.version
        )

    # ── the rest must not guess ─────────────────────────────────────────────────────────────────

    def _unseen(self, what: str) -> Callable[[View], NoReturn]:
        def refuse(seen: View) -> NoReturn:
            self.refresh()
            there = f"changed from version {seen.version} to {self.version}"
            raise Conflict((Clash("the conversation", what, there),))

        return refuse

    def rollback(self, batch_index: int) -> Result:
        """Go back to a batch; a `Conflict` where others changed the conversation meanwhile."""
        refuse = self._unseen(f"rolled back to batch {batch_index}")
        return self._kept(lambda: History.rollback(self, batch_index), refuse)

    def undo(self) -> Result:
        """Reverse the last call; a `Conflict` where others changed the conversation meanwhile."""
        return self._kept(lambda: History.undo(self), self._unseen("undone"))

    def redo(self) -> Result:
        """Bring back what was undone; a `Conflict` where others changed it meanwhile."""
        return self._kept(lambda: History.redo(self), self._unseen("redone"))

    def restore(self, version: int) -> Result:
        """Return to a version; a `Conflict` where others changed the conversation meanwhile."""
        refuse = self._unseen(f"restored to version {version}")
        return self._kept(lambda: History.restore(self, version), refuse)

    def merge(self, other: History) -> Result:
        """Bring in what a fork did; see `History.merge`."""
        first, second = sorted((self, other), key=lambda side: (side.id, id(side)))
        with first._lock, second._lock:  # noqa: SLF001 - in one order, whoever merges whom
            return self._kept(lambda: History.merge(self, other))

    def set_team_task(self, task: str | None) -> None:
        """Say what the team is at work on, or None for nothing."""
        self._kept(lambda: History.set_team_task(self, task))

    def _remark(self, which: int | str | Message, name: str, change: Any) -> None:  # noqa: ANN401 - put or take
        place = self.view.find(which)
        message = self._log[place]
        self._kept(lambda: super(StoredHistory, self)._remark(message, name, change))

    def _replace_all(
        self, messages: tuple[Message, ...], team_task: str | None, reason: str
    ) -> Result:
        """All at once; a `Conflict` where others changed the conversation meanwhile."""
        return self._kept(
            lambda: super(StoredHistory, self)._replace_all(messages, team_task, reason),
            self._unseen("replaced as a whole"),
        )

    # ── forks and erasure ───────────────────────────────────────────────────────────────────────

    def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,  # noqa: A002 - the word for it
        key: str | None = None,
    ) -> StoredHistory:
        """A conversation that goes its own way from here; it shares every message up to here.

        With an `id` and a `key` of the caller's, doing it again returns the fork that was made.
        """
        check_key(id, key)
        if id == self.id:
            raise ValidationError("must be another than its parent's", path="$.id", rule="HI-13")
        with self._lock:
            version = self.version if at is None else at
            frame, stop = self._versions.frame(version), self._stops[version]
            base = max(frame.logged, stop)
            name = new_id() if id is None else id
            check_name(name, "$.id")
            now = self._clock()
            bare = replace(frame, logged=base, back=None, redo=None)
            count = size(bare.root) + stop - bare.start
            called = self._keeper.head(self.id)  # it may have another title meanwhile
            head = Head(
                id=name, version=0, stop=stop, length=base, counts=self._log.before(base),
                framed=0, size=count, parent=self.id, base=base, origin=version,
                title=called.title, tags=called.tags, created=now, updated=now,
            )  # fmt: skip
            first = Change(
                conversation=name, after=-1, kind="fork", at=now, stop=stop, size=count, first=base,
                counts=head.counts, frame=self._book.encode(bare, 0), key=key,
            )  # fmt: skip
            begin(self._keeper, head, first)
            return StoredHistory(self._keeper, name, clock=self._clock)

    def erase(self, which: int | str | Message) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays in its place."""
        with self._lock:
            name = self._log[self.view.find(which)].id
            return self._kept(lambda: self._erase(name))

    def _erase(self, name: str) -> Receipt:
        """Bury the message and every summary of it, and note it, in one step."""
        names = [name]
        for known in names:  # grows as summaries of summaries are found
            names += [s for s in summaries_of(self._keeper, self.id, known) if s not in names]
        version, at = self.version, self._clock()
        back = self._versions.back(version)
        frame = replace(self._frame, back=back, redo=None, logged=len(self._log))
        note = replace(self._change(frame, self._stop, "erase"), data={"messages": names})
        done = self._keeper.erase(self.id, names, at, note=note)
        self._stored.drop_held()
        self._book.keep(frame, version + 1)
        super()._set(frame, self._stop, "erase")
        return Receipt(
            name, at, (name,), tuple(names[1:]), done.places, version + 1, records=done.records
        )
