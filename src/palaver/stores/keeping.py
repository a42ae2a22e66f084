"""Every change of a kept history is on disk before it is seen, and appends never fail for others'.

Another process may have changed the conversation since it was read. An append then simply goes
after what came in between; what becomes of an edit is decided in `history`. A change with an
`expect` is made after the version it names, or not at all: see `preconditions`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from palaver.errors import Stale, StoreDamaged, ValidationError, VersionMismatch
from palaver.history import History
from palaver.history.operations import read_messages
from palaver.history.rope import size
from palaver.history.versions import Versions
from palaver.messages import Message
from palaver.messages.gate import EMPTY
from palaver.messages.ids import now_ms
from palaver.stores.ancestry import read_frames
from palaver.stores.arguments import check_idempotency_key, check_known, check_records
from palaver.stores.forking import restart_in_child
from palaver.stores.log import StoredLog
from palaver.stores.names import NAMES, read_names, write_names
from palaver.stores.preconditions import check_expected, expected_versions
from palaver.stores.records import NONE, Again, Change
from palaver.stores.versions import StoredStops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from palaver.history.frame import Frame
    from palaver.history.log import Log
    from palaver.history.results import Result
    from palaver.history.view import View
    from palaver.stores.preconditions import Expected
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Lease, Record

__all__ = ["KeptBefore", "KeptHistory"]

_T = TypeVar("_T")


class KeptBefore(Exception):  # noqa: N818 - nothing went wrong
    """The change was kept before, under the same key, as this version."""

    def __init__(self, version: int) -> None:
        self.version = version


class _ReadAgain:
    """Stands in for the lock of a history that was left in the middle of a change.

    Whoever takes it first has the history read anew from its store, which then has a lock again.
    """

    def __init__(self, read: Callable[[], threading.RLock]) -> None:
        self._read = read
        self._gate = threading.Lock()
        self._lock: threading.RLock | None = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock of the history, read anew; False for who may not wait for that."""
        if not blocking:
            return False
        with self._gate:
            if self._lock is None:
                self._lock = self._read()
        return self._lock.acquire()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()


class KeptHistory(History):
    """A history in a store, and how it grows."""

    __slots__ = (
        "__weakref__", "_book", "_head", "_keeper", "_key", "_records", "_token", "_unless",
    )  # fmt: skip

    def __init__(self, keeper: Keeper, name: str, *, clock: Callable[[], int] = now_ms) -> None:
        """Read where a conversation stands; its messages are read when they are needed."""
        check_known(name)
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
        restart_in_child(self)

    def after_fork_in_child(self) -> None:
        """See to it that no thread is waited for that is not in this process."""
        self._stored.after_fork_in_child()
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:  # another thread was changing it: what there is of that change is not looked at
            self._lock = cast("threading.RLock", _ReadAgain(self._read_again))

    def _read_again(self) -> threading.RLock:
        token = self._token
        KeptHistory.__init__(self, self._keeper, self.id, clock=self._clock)
        self._token = token
        return self._lock

    @property
    def title(self) -> str | None:
        """What the conversation is called."""
        return self._head.title

    @property
    def tags(self) -> tuple[str, ...]:
        """The conversation's tags."""
        return self._head.tags

    def _read_names(self) -> None:
        kept = self._keeper.records(self.id, NAMES)
        try:
            self._names = {other: read_names(pairs) for other, pairs in kept.items()}
        except ValueError as error:
            msg = f"which messages {self.id} has from elsewhere can't be read: {error}"
            raise StoreDamaged(msg) from None

    @property
    def _stored(self) -> StoredLog:
        return cast("StoredLog", self._log)

    def refresh(self) -> Self:
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

    def under(self, lease: Lease | None) -> Self:
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
            raise KeptBefore(kept)
        if frame is not None:
            self._book.keep(frame, version)
        self._stored.settle()

    def _change(self, frame: Frame | None, stop: int, kind: str) -> Change:
        log, version = self._stored, self.version + 1
        current = self._frame if frame is None else frame
        names: tuple[Record, ...] = ()
        if kind == "merge":
            names = tuple(
                (NAMES, other, write_names(pairs))
                for other, pairs in self._names.items()
                if current.merged.get(other) != self._frame.merged.get(other)
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

    def _kept(
        self,
        change: Callable[[], _T],
        rebase: Callable[[View], _T] | None = None,
        *,
        expect: Expected | None = None,
        key: str | None = None,
    ) -> _T:
        """Make a change; where another came first, refresh and make it again, or rebase it.

        With `expect` it is neither rebased nor made after any other version.
        """
        with self._lock:
            while True:
                self._check_expected(expect, key)
                seen = self.view
                try:
                    made = change()
                except KeptBefore:
                    self._stored.forget()
                    self.refresh()
                    raise
                except Stale:
                    self._stored.forget()
                    if rebase is not None and expect is None:
                        return rebase(seen)
                    self._see_others(seen.version)
                except BaseException:
                    self._stored.forget()
                    self._read_names()
                    raise
                else:
                    if expect is not None and self.version == seen.version:
                        self.refresh()  # nothing was committed, so nothing has been checked
                        self._check_expected(expect, key)
                    return made

    def _check_expected(self, expect: Expected | None, key: str | None = None) -> None:
        """Refuse a change that expects another version than the newest.

        A change that was kept under this key, after a version that it expects, is `KeptBefore`.
        """
        if expect is None:
            return
        versions = expected_versions(expect)
        if self.version not in versions:
            self.refresh()
        try:
            check_expected(versions, self.version)
        except VersionMismatch:
            for made in [] if key is None else [version + 1 for version in versions]:
                if self._keeper.keys(self.id, made - 1, made).get(made) == key:
                    raise KeptBefore(made) from None
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

    def append(
        self,
        message: Message | Mapping[str, Any],
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Add a message at the end and return it.

        `key` makes doing it again harmless: what was kept the first time is returned. `expect` is
        the version that the message must follow; `VersionMismatch` where that is not the newest.
        """
        if key is not None:
            check_idempotency_key(key)
        if type(message) is not Message:
            (message,) = read_messages([message])
        with self._lock:
            new = (message,)
            kept = self._append_now(new, key) if expect is None else None
            if kept is None:
                kept = self._append(new, key, expect=expect)
            return message if kept == 0 else self._brought_by(kept)

    def _append(
        self,
        messages: tuple[Message, ...],
        key: str | None,
        records: tuple[Record, ...] = (),
        unless: Callable[[View], None] | None = None,
        expect: Expected | None = None,
    ) -> int:
        """Add messages; answer 0, or the version that they were kept as before."""
        try:
            if expect is not None:
                self._check_expected(expect, key)
            kept = self._append_now(messages, key, records, unless)
            if kept is None:
                self._kept(
                    lambda: self._add(messages, key, records, unless), expect=expect, key=key
                )
        except KeptBefore as known:
            return known.version
        return kept or 0

    def _brought_by(self, version: int) -> Message:
        """The message that a version brought."""
        told = self._keeper.journal(self.id, version - 1, 1)
        if not told or told[0].version != version or not told[0].count:
            detail = f"is the key of version {version}, which brought no message"
            raise ValidationError(detail, path="$.key")
        return self._log[told[0].first]

    def _append_now(
        self,
        messages: tuple[Message, ...],
        key: str | None,
        records: tuple[Record, ...] = (),
        unless: Callable[[View], None] | None = None,
    ) -> int | None:
        """The common case without detours: the tail goes on, and nobody came in between.

        Answers 0, or the version that it was kept as before; None where it takes a detour.
        """
        log = self._stored
        first = log.kept
        if first != self._stop:
            return None
        if unless is not None:
            unless(self.view)
        stop = first + len(messages)
        frame = self._frame
        try:
            change = Change(
                self.id, self.version, "append", self._clock(), stop,
                size(frame.root) + stop - frame.start, first, log.before(first), messages,
                None, NONE, key, self._token, EMPTY, records,
            )  # fmt: skip
            version = self._keeper.commit(change)
        except Stale:
            self._see_others(self.version)
            return None
        if type(version) is Again:
            self.refresh()
            return version
        log.added(messages)
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
        expect: Expected | None = None,
    ) -> Result:
        """Add messages at the end, in one change; `key` makes doing it again harmless.

        `records` are kept beside the log in the same change. Under a `lease` that another holds
        meanwhile it is refused with `LeaseLost`. `unless` is shown what the messages would come
        after, whoever wrote it; what it raises stops the change. `expect` is the version that they
        must follow; `VersionMismatch` where that is not the newest.
        """
        check_idempotency_key(key)
        records = tuple(records)
        check_records(records)
        new = read_messages(messages)
        if not new:
            return self._kept(self._result, expect=expect)
        with self._lock:
            token, self._token = self._token, self._token if lease is None else lease.token
            try:
                self._append(new, key, records, unless, expect)
            finally:
                self._token = token
        return self._result()

    def _add(
        self,
        messages: tuple[Message, ...],
        key: str | None,
        records: tuple[Record, ...] = (),
        unless: Callable[[View], None] | None = None,
    ) -> None:
        if unless is not None:
            unless(self.view)
        self._key, self._records = key, records
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
