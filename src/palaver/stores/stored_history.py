"""A history in a store: planned on what this process has read, committed by the backend.

`StoredHistory` has a state and a backend. Its one way to change anything plans on what is seen,
gives the commit to the backend, and applies it once it is stored. If another process was first, the
policy of the operation decides: append after them, merge the edit, or refuse. Its log is a
`stored_log.StoredLog`, which reads messages when they are needed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast
from weakref import WeakMethod

from msgspec.structs import replace

from palaver.errors import (
    Clash,
    Conflict,
    Stale,
    StoreDamaged,
    ValidationError,
    VersionMismatch,
)
from palaver.history.erase import Receipt, with_summaries
from palaver.history.frame import (
    MASK,
    Versions,
    check_expected,
    expected_versions,
)
from palaver.history.history import BaseHistory
from palaver.history.log import StagedLog
from palaver.history.operations import Rewrite, as_operations, read_messages
from palaver.history.plan import (
    HistoryState,
    StaleCommit,
    plan,
    plan_all,
    plan_append,
    plan_erase,
    rebase,
    stale_policy,
)
from palaver.messages import Message, new_id
from palaver.messages.ids import now_ms
from palaver.messages.limits import EMPTY, check_name
from palaver.stores.backend import (
    Opened,
    check_creation_key,
    create_once,
    open_conversation,
    was_created,
)
from palaver.stores.erase import family_messages, positions_of_others
from palaver.stores.forks import first_of_fork
from palaver.stores.frame_codec import read_frames
from palaver.stores.process_fork import ReopeningLock, restart_in_child
from palaver.stores.records import (
    MERGED_POSITIONS,
    AlreadyCommitted,
    Change,
    Head,
    JournalEntry,
    LastChange,
    Placed,
    check_idempotency_key,
    check_known,
    check_owner,
    check_records,
    read_positions,
    write_positions,
)
from palaver.stores.stored_log import StoredLog, StoredStops
from palaver.stores.twins import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.history.frame import Expected, Frame
    from palaver.history.operations import OperationInput, Piece
    from palaver.history.plan import Commit, Planner, WhenStale
    from palaver.history.view import Result, View
    from palaver.stores.backend import Backend
    from palaver.stores.frame_codec import FrameCodec
    from palaver.stores.records import Lease, Record

__all__ = ["Listener", "StoredHistory"]


Listener: TypeAlias = Callable[[JournalEntry], None]
"""A method that is called with every change; see `StoredHistory.listen`."""
_Begun: TypeAlias = "tuple[FrameCodec, Frame]"
_log: Final = logging.getLogger("palaver.stores")
_MESSAGES: Final = frozenset((Message,))
_SEQUENCES: Final = list, tuple
_PATIENCE: Final = 3
"""How often others may overtake a change before it is planned and committed in one transaction."""


class StoredHistory(BaseHistory):
    """A history in a store. `Store.create` and `Store.get` return it."""

    __slots__ = (
        "__weakref__", "_backend", "_codec", "_head", "_listeners", "_log", "_made", "_stops",
        "_token", "_torn",
    )  # fmt: skip

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        clock: Callable[[], int] = now_ms,
        last: int = 0,
        opened: Opened | None = None,
        begun: _Begun | None = None,
    ) -> None:
        """Read the head of a conversation; its messages are read when they are needed.

        The `last` so many are read at once. `opened` is what is known already, as of a new fork,
        which has `begun` with a frame that its parent's codec knows, and a codec of its own.
        """
        check_known(name)
        self.id = name
        self._backend = backend
        self._token: int | None = None
        self._listeners: list[WeakMethod[Listener]] = []
        self._made: list[JournalEntry] = []
        opened = open_conversation(backend, name, last) if opened is None else opened
        self._open(clock, opened, begun)
        self._lock = threading.RLock()
        restart_in_child(self)

    def _open(self, clock: Callable[[], int], opened: Opened, begun: _Begun | None = None) -> None:
        backend, name = self._backend, self.id
        self._head = head = opened.head
        if begun is None:
            self._codec, frames = read_frames(backend, head, opened.frames)
        else:
            self._codec, frames = begun[0], [(0, begun[1])]
        self._log = StoredLog(backend, head)
        self._log.learn(opened.first, opened.messages)
        self._stops = StoredStops(backend, name, head.version, head.stop)
        self._state = HistoryState(
            name, self._log, frames[-1][1], Versions.of(frames, self._stops), clock,
            origin=None if head.parent is None else (head.parent, head.origin),
        )  # fmt: skip
        self._read_merged_positions(opened.merged)
        self._torn = False  # whether an interrupt came while a change was taken over

    def _read_merged_positions(self, stored: Mapping[str, bytes] | None = None) -> None:
        if stored is None:
            stored = self._backend.records(self.id, MERGED_POSITIONS)
        try:
            found = {other: read_positions(pairs) for other, pairs in stored.items()}
        except ValueError as error:
            msg = f"which messages {self.id} has from elsewhere can't be read: {error}"
            raise StoreDamaged(msg) from None
        self._state.merged_positions = found

    @property
    def head(self) -> Head:
        """Where the conversation stood when it was opened or last refreshed."""
        return self._head

    @property
    def title(self) -> str | None:
        """The conversation's title."""
        return self._head.title

    @property
    def tags(self) -> tuple[str, ...]:
        """The conversation's tags."""
        return self._head.tags

    @property
    def owner(self) -> str | None:
        """Whom the conversation belongs to."""
        return self._head.owner

    def under(self, lease: Lease | None) -> Self:
        """Write only while a lease is held: later writes are refused with `LeaseLost`."""
        self._token = None if lease is None else lease.token
        return self

    def refresh(self, head: Head | None = None) -> Self:
        """Read the newest version, or take a `head` just read: others' changes become visible."""
        with self._lock:
            if head is None or head.version >= self._state.version or self._torn:
                self._catch_up(head or self._backend.head(self.id))
            return self

    def _catch_up(self, head: Head) -> None:
        """Go on from a newer head: read what others have changed, or after an interrupt all."""
        if self._torn:
            self._open(self._state.clock, open_conversation(self._backend, self.id, 0))
            return
        state, backend = self._state, self._backend
        if head.erased != self._head.erased:
            self._log.clear_cache()
        if head.version != state.version:
            self._torn = True
            merges = False
            framed = head.framed > state.version
            for stored in backend.frames(self.id, state.version, head.version) if framed else ():
                frame = self._codec.decode(stored.data, stored.version)
                state.versions.learn(frame, stored.version)
                merges |= frame.merged != state.frame.merged
                state.frame = frame
            self._stops.catch_up(head.version, head.stop)
            self._log.catch_up(head)
            state.stop = head.stop
            if merges:
                self._read_merged_positions()
            self._torn = False
        self._head = head

    # ── listeners ───────────────────────────────────────────────────────────────────────────────

    def listen(self, listener: Listener) -> None:
        """Call a method with every change that is made through this object, after it is stored.

        The method is called in the thread that made the change, while nothing is locked, as long
        as its object exists. What it raises is logged. `Store.follow` sees all changes of a
        conversation, through whichever object and in whichever process they are made.
        """
        self._listeners.append(WeakMethod(listener))

    def _announce(self) -> None:
        while self._made:
            with self._lock:
                made, self._made = self._made, []
                found = [(reference, reference()) for reference in self._listeners]
                self._listeners = [reference for reference, listener in found if listener]
            for entry in made:
                for _, listener in found:
                    try:
                        if listener is not None:
                            listener(entry)
                    except Exception:  # noqa: BLE001 - the change is made, whatever they raise
                        _log.exception("a listener of %s failed", self.id)

    # ── every change is committed before it is seen ─────────────────────────────────────────────

    def _commit(
        self,
        planner: Planner,
        *,
        when_stale: WhenStale = "replan",
        expect: Expected | None = None,
        key: str | None = None,
        records: tuple[Record, ...] = (),
        lease: Lease | None = None,
        unless: Callable[[View], None] | None = None,
        send: Callable[[Change], int] | None = None,
        commit_with: Callable[[Change], int] | None = None,
    ) -> int:
        """Plan a change on the newest state and commit it; return the version it made.

        Returns an `AlreadyCommitted` version if it was committed before under the same key, and the
        newest version if there is nothing to change. `unless` is called with each view the change
        would follow; what it raises stops the change. `send` or `commit_with` replaces `commit`.
        """
        with self._lock:
            if self._torn:
                self.refresh()
            token = self._token if lease is None else lease.token
            stale: StaleCommit | None = None
            free = expect is None and unless is None and send is None
            anywhere = free and when_stale == "replan"
            in_turn = free and getattr(self._backend, "adopts_in_turn", False)
            tries = 0
            while True:
                before = None if expect is None else self._check_expected(expect, key)
                if before is not None:
                    return before
                if unless is not None:
                    unless(self._state.view())
                prepared = self._prepare(planner, stale, key, token, records, anywhere=anywhere)
                if prepared is None:
                    return self._unchanged(expect, key)
                commit, change = prepared
                try:
                    if tries >= _PATIENCE and in_turn:
                        again = partial(self._prepare, planner, stale, key, token, records)
                        return self._commit_in_turn(again)
                    version = (send or commit_with or self._backend.commit)(change)
                except Stale:
                    policy = when_stale if expect is None else "replan"
                    stale = self._look_again(commit, policy, stale)
                    tries += 1
                    continue
                return self._committed(commit, change, version)

    def _prepare(
        self,
        planner: Planner,
        stale: StaleCommit | None,
        key: str | None,
        token: int | None,
        records: tuple[Record, ...],
        *,
        anywhere: bool = False,
    ) -> tuple[Commit, Change] | None:
        """Plan a commit on what is seen, and return it with the change to be stored.

        An append that continues the tail, whatever that is, may stand `anywhere`.
        """
        state, log = self._state, self._log
        commit = planner(state) if stale is None else rebase(planner, stale, state)
        if commit is None:
            return None
        version, first, frame, data = state.version, log.length, commit.frame, None
        if frame is None:
            frame = state.frame
        else:
            data = self._codec.encode(frame, version + 1)
        root = frame.root
        count = commit.stop - frame.start + (0 if root is None else root.counts & MASK)
        if commit.merged is not None:
            other, positions = commit.merged
            pairs = {**state.merged_positions.get(other, {}), **positions}
            records = ((MERGED_POSITIONS, other, write_positions(pairs)), *records)
        return commit, Change(
            self.id, version, commit.kind, state.clock(), commit.stop, count, first,
            log.before(first), commit.messages, data, commit.origins, key, token, EMPTY, records,
            anywhere and data is None and commit.kind == "append",
        )  # fmt: skip

    def _committed(self, commit: Commit, change: Change, version: int) -> int:
        """Make a commit visible that the backend has, under the version that it answered."""
        if type(version) is AlreadyCommitted:
            self.refresh()
            return version
        first = version.first if isinstance(version, Placed) else change.first
        if self._listeners:
            added = len(change.messages)
            entry = JournalEntry(self.id, version, change.kind, change.at, first, added)
            self._made.append(entry)
        if isinstance(version, Placed):
            now = version.head
            self._catch_up(
                replace(self._head, version=now.version, stop=now.stop, length=now.length,
                        counts=now.counts, framed=now.framed, size=now.size, erased=now.erased)
            )  # fmt: skip
            self._log.learn(first, change.messages)
            return version
        self._torn = True
        if commit.frame is not None:
            self._codec.keep(commit.frame, version)
        self._state.apply(commit)
        self._torn = False
        return version

    def _commit_in_turn(self, prepare: Callable[[], tuple[Commit, Change] | None]) -> int:
        """Plan a change that others overtook, and commit it while they can't; return its version.

        A backend with `adopts_in_turn` reads the iterator that `adopt` takes inside of its
        transaction, possibly in another thread: what is planned there cannot be overtaken.
        """
        made: list[tuple[Commit, Change]] = []

        def changes() -> Iterator[Change]:
            self._catch_up(self._backend.head(self.id))  # the lock is held, maybe elsewhere
            prepared = prepare()
            if prepared is not None:
                made.append(prepared)
                yield prepared[1]

        version = self._backend.adopt(None, changes())
        return self._committed(*made[0], version) if made else self._state.version

    def _unchanged(self, expect: Expected | None, key: str | None) -> int:
        """Return the newest version after a change that changed nothing."""
        if expect is not None:
            self.refresh()  # nothing was committed, so the backend has checked nothing
            before = self._check_expected(expect, key)
            if before is not None:
                return before
        return self._state.version

    def _check_expected(self, expect: Expected, key: str | None) -> AlreadyCommitted | None:
        """Refuse a change of another version than the newest; return the one that has its key."""
        versions = expected_versions(expect)
        if self._state.version not in versions:
            self.refresh()
        try:
            check_expected(versions, self._state.version)
        except VersionMismatch:
            for made in [] if key is None else [version + 1 for version in versions]:
                if self._backend.keys(self.id, made - 1, made).get(made) == key:
                    return AlreadyCommitted(made)
            raise
        return None

    def _look_again(
        self, commit: Commit, when_stale: WhenStale, stale: StaleCommit | None
    ) -> StaleCommit | None:
        """Read what others committed first, which must be there; return what is to be merged."""
        state = self._state
        version = state.version
        if when_stale == "merge" and stale is None:
            log = StagedLog(self._log, commit.messages, commit.origins)
            stale = StaleCommit(commit, state.view(), log)
        self.refresh()
        if state.version == version:
            msg = f"{self.id} takes no change at version {version}, though it is the last"
            raise StoreDamaged(msg) from None
        if when_stale == "refuse":
            there = f"changed from version {version} to {state.version}"
            raise Conflict((Clash("the conversation", commit.summary, there),)) from None
        return stale

    # ── changes with arguments that only a store has ────────────────────────────────────────────

    def append(
        self,
        message: Message | Mapping[str, Any],
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Add a message at the end and return it.

        With a `key`, appending again under the same key returns the message of the first time.
        `expect` is the version that the message must follow; `VersionMismatch` if that is not the
        newest.
        """
        if key is not None:
            check_idempotency_key(key)
        if type(message) is not Message:
            (message,) = read_messages([message])
        new = (message,)
        version = self._commit(lambda state: plan_append(state, new), key=key, expect=expect)
        if type(version) is AlreadyCommitted:
            return self._message_of_version(version)
        if self._made:
            self._announce()
        return message

    def _message_of_version(self, version: int) -> Message:
        found = self._backend.journal(self.id, version - 1, 1)
        if not found or found[0].version != version or not found[0].count:
            detail = f"is the key of version {version}, which brought no message"
            raise ValidationError(detail, path="$.key")
        return self._log[found[0].first]

    def extend(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        key: str | None = None,
        records: Sequence[Record] = (),
        lease: Lease | None = None,
        release: bool = False,
        unless: Callable[[View], None] | None = None,
        expect: Expected | None = None,
    ) -> Result:
        """Add messages at the end, in one change; a `key` makes repeating it harmless.

        `records` are stored beside the log in the same change. Under a `lease` that another worker
        holds by now it is refused with `LeaseLost`; `release` gives it back with the change.
        `unless` is called with the view that they would follow; what it raises stops the change.
        `expect` is the version that they must follow; `VersionMismatch` if it is not the newest.
        """
        if key is not None:
            check_idempotency_key(key)
        records = tuple(records)
        if records:
            check_records(records)
        if isinstance(messages, _SEQUENCES) and _MESSAGES.issuperset(map(type, messages)):
            new = cast("tuple[Message, ...]", tuple(messages))  # the usual case, without a call
        else:
            new = read_messages(messages)
        if not new:  # nothing to add: only `expect` counts
            records, unless = (), None
        ending = LastChange(self._backend, lease) if release else None
        with self._lock:
            self._commit(
                lambda state: plan_append(state, new), key=key, records=records, lease=lease,
                unless=unless, expect=expect,
                commit_with=None if ending is None else ending.commit,
            )  # fmt: skip
            result = self._state.result()
        if ending is not None:
            ending.release()
        if self._made:
            self._announce()
        return result

    def execute(
        self,
        operation: OperationInput,
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Result:
        """Execute an operation, or a list of them; a `key` makes repeating it harmless.

        A list is one version, all or nothing. If another writer comes first, a list of several
        edits is refused with `Conflict`. An operation that was executed before under the same key
        is not executed again. `expect` is the version that it must follow; `VersionMismatch` if
        that is not the newest.
        """
        check_idempotency_key(key)
        known = as_operations(operation)
        if isinstance(known, list):
            planner, policy = partial(plan_all, operations=known), stale_policy(*known)
        else:
            planner, policy = partial(plan, operation=known), stale_policy(known)
        with self._lock:
            self._commit(planner, when_stale=policy, key=key, expect=expect)
            result = self._state.result()
        self._announce()
        return result

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
        """Select anew in one batch; see `BaseHistory.rewrite`.

        `records`, `unless` and `expect` are as in `extend`.
        """
        check_name(reason, "$.reason")
        records = tuple(records)
        check_records(records)
        operation = Rewrite(tuple(pieces), reason, of_log)
        with self._lock:
            self._commit(
                lambda state: plan(state, operation), when_stale="merge", records=records,
                unless=unless, expect=expect,
            )  # fmt: skip
            result = self._state.result()
        self._announce()
        return result

    def erase(self, which: int | str | Message, *, expect: Expected | None = None) -> Receipt:
        """Destroy a message's content in every version and fork; a tombstone stays in its place.

        The summaries of the message and the records that repeat it are destroyed with it. An id or
        a handle that could mean two messages is refused with `AmbiguousMessage`.
        """
        name, position, at = "", 0, 0
        receipts: list[Receipt] = []

        def planner(state: HistoryState) -> Commit:
            nonlocal name, position, at
            if not name:  # an index means what it meant when the caller gave it
                position = state.view().find(which, strict=True)
                name = self._log[position].id
            at = state.clock()
            return plan_erase(state)

        def send(change: Change) -> int:
            names = with_summaries(name, family_messages(self._backend, self.id))
            note = replace(change, data={"messages": names})
            others = positions_of_others(self._backend, self.id, name, position)
            more = {"spare": others} if others else {}
            done = self._backend.erase(self.id, names, at, note=note, **more)
            self._log.clear_cache()
            version = change.after + 1
            receipts.append(
                Receipt(name, at, (name,), tuple(names[1:]), done.places, version,
                        records=done.records)
            )  # fmt: skip
            return version

        with self._lock:
            self._commit(planner, expect=expect, send=send)
            receipt = receipts[0]
            if self._made:  # the change was planned before the summaries were known
                erased = {"messages": [*receipt.messages, *receipt.summaries]}
                self._made[-1] = replace(self._made[-1], data=erased)
        self._announce()
        return receipt

    def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,  # noqa: A002 - the word for it
        owner: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Self:
        """Return a conversation that goes its own way from here; it shares every message so far.

        It belongs to the owner of this one, unless another `owner` is given. With an `id` and a
        `key`, forking again returns the fork that was made. `expect` is as in `append`.
        """
        check_creation_key(id, key)
        check_owner(owner)
        if id is not None:
            check_name(id, "$.id")
        if id == self.id:
            raise ValidationError("must be another than its parent's", path="$.id", rule="fork-id")
        with self._lock:
            state, backend = self._state, self._backend
            as_parent = owner is None and hasattr(backend, "create_fork")
            now = self._head if as_parent and expect is None else backend.head(self.id)
            try:
                check_expected(expect, now.version)
            except VersionMismatch:
                if id is None or key is None or not was_created(backend, id, self.id, key):
                    raise
                return type(self)(backend, id, clock=state.clock)
            newest = state.version if expect is None else now.version
            if newest > state.version:
                self.refresh()
            name, version = new_id() if id is None else id, newest if at is None else at
            parent = now if owner is None else replace(now, owner=owner)
            head, first, frame = first_of_fork(state, self._codec, parent, name, version, key)
            made = create_once(backend, head, first, as_parent=as_parent)
            begun = None
            if made is not None:
                read = partial(backend.ancestor_frames, name)
                begun = self._codec.branch(version, frame, read), frame
            return type(self)(backend, name, clock=state.clock, opened=made, begun=begun)

    # ── in a forked process ─────────────────────────────────────────────────────────────────────

    def after_fork_in_child(self) -> None:
        """Wait for no thread that is not in this process."""
        self._log.after_fork_in_child()
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:  # another thread was changing it: what there is of that change is not looked at
            self._lock = cast("threading.RLock", ReopeningLock(self._reopen))

    def _reopen(self) -> threading.RLock:
        self._open(self._state.clock, open_conversation(self._backend, self.id, 0))
        self._lock = threading.RLock()
        return self._lock

    # ── async twins ─────────────────────────────────────────────────────────────────────────────

    def _messages(self) -> list[Message]:
        """Return the messages of the current view, read in a worker thread."""
        return self.messages

    amessages = in_thread(_messages)
    aquery = in_thread(BaseHistory.query)
    aby_role = in_thread(BaseHistory.by_role)
    arecent = in_thread(BaseHistory.recent)
    arange = in_thread(BaseHistory.range)
    acount = in_thread(BaseHistory.count)
    aat = in_thread(BaseHistory.at)
    adiff = in_thread(BaseHistory.diff)
    abatch_snapshot = in_thread(BaseHistory.batch_snapshot)
    amarks_of = in_thread(BaseHistory.marks_of)
    aprice = in_thread(BaseHistory.price)
    arefresh = in_thread(refresh)
    aappend = in_thread(append)
    aextend = in_thread(extend)
    aexecute = in_thread(execute)
    ainsert = in_thread(BaseHistory.insert)
    areplace = in_thread(BaseHistory.replace)
    atruncate = in_thread(BaseHistory.truncate)
    aclear = in_thread(BaseHistory.clear)
    afilter = in_thread(BaseHistory.filter)
    arewrite = in_thread(rewrite)
    areplace_all = in_thread(BaseHistory.replace_all)
    arollback = in_thread(BaseHistory.rollback)
    aundo = in_thread(BaseHistory.undo)
    aredo = in_thread(BaseHistory.redo)
    arestore = in_thread(BaseHistory.restore)
    amerge = in_thread(BaseHistory.merge)
    amark = in_thread(BaseHistory.mark)
    aunmark = in_thread(BaseHistory.unmark)
    aset_team_task = in_thread(BaseHistory.set_team_task)
    aerase = in_thread(erase)
    afork = in_thread(fork)
