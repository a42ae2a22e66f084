"""A history that a store keeps: the same front door, and every change is on disk when it returns.

Another process may have changed the conversation since it was read. An append then simply goes
after what came in between (see `keeping`). An edit is what its caller saw and meant: it is merged
with what came in between, by the same three-way merge that brings forks home, and where both
touched the same message it is a `Conflict` and nothing changes. Nothing is ever lost in silence.

A change with an `expect` is never merged: it is made after the version it names, or refused with
`VersionMismatch` (see `preconditions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from palaver.errors import Clash, Conflict, Stale, ValidationError, VersionMismatch
from palaver.history import History
from palaver.history import marks as marking
from palaver.history.erasing import Receipt, with_summaries
from palaver.history.handles import IMPORT
from palaver.history.merging import Sides, join
from palaver.history.operations import Append, Rollback, as_operation, read_messages
from palaver.history.plan import Edit, planned
from palaver.history.rewriting import Rewrite
from palaver.history.rope import size
from palaver.messages import Message, new_id
from palaver.messages.gate import check_name
from palaver.stores.arguments import check_idempotency_key, check_records
from palaver.stores.beginning import begin, check_key, was_begun
from palaver.stores.keeping import KeptBefore, KeptHistory
from palaver.stores.preconditions import check_expected
from palaver.stores.rebasing import meant_by
from palaver.stores.records import Change, Head
from palaver.stores.traces import family_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from palaver.history.operations import Operation
    from palaver.history.results import Result
    from palaver.history.rewriting import Piece
    from palaver.history.view import View
    from palaver.stores.preconditions import Expected
    from palaver.stores.records import Record

__all__ = ["StoredHistory"]


class StoredHistory(KeptHistory):
    """A history in a store. Get one from `Store.create` or `Store.get`."""

    __slots__ = ()

    # ── edits are merged with what came in between ──────────────────────────────────────────────

    def execute(
        self,
        operation: Operation | Mapping[str, Any] | bytes | str,
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Result:
        """Carry out an operation, given as a value or as JSON; `key` makes repeating it harmless.

        What was done under the same key before is not done again, whatever has come since. `expect`
        is the version that it must follow; `VersionMismatch` where that is not the newest.
        """
        check_idempotency_key(key)
        operation = as_operation(operation)
        if isinstance(operation, Append):
            return self.extend(operation.messages, key=key, expect=expect)
        with self._lock:
            self._key = key
            try:
                self._check_expected(expect, key)
                if isinstance(operation, Rollback):
                    return self.rollback(operation.target_batch_index, expect=expect)
                return self._edit(operation, expect)
            except KeptBefore:
                return self._result()
            finally:
                self._key = None

    def _edit(self, operation: Edit, expect: Expected | None = None) -> Result:
        return self._kept(
            lambda: super(StoredHistory, self)._edit(operation),
            lambda seen: self._rebased(operation, seen),
            expect=expect,
            key=self._key,
        )

    def rewrite(
        self,
        pieces: Iterable[Piece],
        *,
        reason: str = "COMPACT",
        of_log: bool = False,
        records: Sequence[Record] = (),
        unless: Callable[[View], None] | None = None,
        expect: Expected | None = None,
    ) -> Result:
        """Select anew in one batch, as in a history.

        `records`, `unless` and `expect` are as in `extend`.
        """
        check_name(reason, "$.reason")
        records = tuple(records)
        check_records(records)
        with self._lock:
            self._check_expected(expect)
            self._records, self._unless = records, unless
            try:
                if unless is not None:
                    unless(self.view)
                return self._edit(Rewrite(tuple(pieces), reason, of_log), expect)
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

    def rollback(self, batch_index: int, *, expect: Expected | None = None) -> Result:
        """Go back to a batch; a `Conflict` where others changed the conversation meanwhile."""
        refuse = self._unseen(f"rolled back to batch {batch_index}")
        return self._kept(lambda: History.rollback(self, batch_index), refuse, expect=expect)

    def undo(self, *, expect: Expected | None = None) -> Result:
        """Reverse the last call; a `Conflict` where others changed the conversation meanwhile."""
        return self._kept(lambda: History.undo(self), self._unseen("undone"), expect=expect)

    def redo(self, *, expect: Expected | None = None) -> Result:
        """Bring back what was undone; a `Conflict` where others changed it meanwhile."""
        return self._kept(lambda: History.redo(self), self._unseen("redone"), expect=expect)

    def restore(self, version: int, *, expect: Expected | None = None) -> Result:
        """Return to a version; a `Conflict` where others changed the conversation meanwhile."""
        refuse = self._unseen(f"restored to version {version}")
        return self._kept(lambda: History.restore(self, version), refuse, expect=expect)

    def merge(self, other: History, *, expect: Expected | None = None) -> Result:
        """Bring in what a fork did; see `History.merge`."""
        first, second = sorted((self, other), key=lambda side: (side.id, id(side)))
        with first._lock, second._lock:  # noqa: SLF001 - in one order, whoever merges whom
            return self._kept(lambda: History.merge(self, other), expect=expect)

    def set_team_task(self, task: str | None, *, expect: Expected | None = None) -> None:
        """Say what the team is at work on, or None for nothing."""
        self._kept(lambda: History.set_team_task(self, task), expect=expect)

    def mark(
        self, which: int | str | Message, name: str, *, expect: Expected | None = None
    ) -> None:
        """Put a mark on a message, given by its index, its id, or itself."""
        self._remark(which, name, marking.put, expect)

    def unmark(
        self, which: int | str | Message, name: str, *, expect: Expected | None = None
    ) -> None:
        """Take a mark off a message."""
        self._remark(which, name, marking.take, expect)

    def _remark(
        self,
        which: int | str | Message,
        name: str,
        change: Any,  # noqa: ANN401 - put or take
        expect: Expected | None = None,
    ) -> None:
        with self._lock:
            self._check_expected(expect)
            message = self._log[self.view.find(which)]
            self._kept(
                lambda: super(StoredHistory, self)._remark(message, name, change), expect=expect
            )

    def replace_all(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        team_task: str | None,
        reason: str = IMPORT,
        expect: Expected | None = None,
    ) -> Result:
        """Put other messages in the place of all; see `History.replace_all`.

        A `Conflict` where others changed the conversation meanwhile.
        """
        new = read_messages(messages)
        return self._kept(
            lambda: History.replace_all(self, new, team_task=team_task, reason=reason),
            self._unseen("replaced as a whole"),
            expect=expect,
        )

    # ── forks and erasure ───────────────────────────────────────────────────────────────────────

    def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,  # noqa: A002 - the word for it
        key: str | None = None,
        expect: Expected | None = None,
    ) -> StoredHistory:
        """A conversation that goes its own way from here; it shares every message up to here.

        With an `id` and a `key` of the caller's, doing it again returns the fork that was made.
        `expect` is the version that must be the newest; `VersionMismatch` where it is not.
        """
        check_key(id, key)
        if id is not None:
            check_name(id, "$.id")
        if id == self.id:
            raise ValidationError("must be another than its parent's", path="$.id", rule="HI-13")
        with self._lock:
            called = self._keeper.head(self.id)  # it may have another title meanwhile
            try:
                check_expected(expect, called.version)
            except VersionMismatch:
                if id is None or key is None or not was_begun(self._keeper, id, self.id, key):
                    raise
                return StoredHistory(self._keeper, id, clock=self._clock)
            newest = self.version if expect is None else called.version
            if newest > self.version:
                self.refresh()
            version = newest if at is None else at
            frame, stop = self._versions.frame(version), self._stops[version]
            base = max(frame.logged, stop)
            name = new_id() if id is None else id
            now = self._clock()
            bare = replace(frame, logged=base, back=None, redo=None)
            count = size(bare.root) + stop - bare.start
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

    def erase(self, which: int | str | Message, *, expect: Expected | None = None) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays in its place."""
        with self._lock:
            self._check_expected(expect)
            name = self._log[self.view.find(which)].id
            return self._kept(lambda: self._erase(name), expect=expect)

    def _erase(self, name: str) -> Receipt:
        """Bury the message and every summary of it, and note it, in one step."""
        names = with_summaries(name, family_messages(self._keeper, self.id))
        version, at = self.version, self._clock()
        back = self._versions.back(version)
        frame = replace(self._frame, back=back, redo=None, logged=len(self._log))
        note = replace(self._change(frame, self._stop, "erase"), data={"messages": names})
        done = self._keeper.erase(self.id, names, at, note=note)
        self._stored.drop_held()
        self._book.keep(frame, version + 1)
        super(KeptHistory, self)._set(frame, self._stop, "erase")  # it is kept already
        return Receipt(
            name, at, (name,), tuple(names[1:]), done.places, version + 1, records=done.records
        )
