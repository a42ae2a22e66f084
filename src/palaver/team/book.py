"""The synchronous half of a team: everything it does to its store, under a lease.

A state is written with the message that led to it, in one change. Whoever comes back late, after
another process took over, is refused. The lease is short and renewed while there is work, so that a
team whose process was killed can go on elsewhere a moment later.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from palaver.conversation.cancellation import AtTheEnd, shielded
from palaver.errors import LeaseLost, LeaseTaken, PalaverError
from palaver.messages import new_id
from palaver.team.state import KIND, read_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.messages import Message
    from palaver.stores.history import StoredHistory
    from palaver.stores.preconditions import Expected
    from palaver.stores.records import Lease
    from palaver.stores.store import Store
    from palaver.team.state import State

__all__ = ["LEASE_SECONDS", "Book"]

LEASE_SECONDS = 10.0
_NAP = 0.2
_T = TypeVar("_T")


class Book:
    """What a team reads and writes, in whole visits."""

    def __init__(self, store: Store, history: StoredHistory, seconds: float) -> None:
        """Keep the state of one conversation; the lease lasts so many seconds."""
        self.store = store
        self.history = history
        self._seconds = seconds
        self._holder = new_id()
        self._gate = threading.Lock()
        self._holds = 0
        self._lease: Lease | None = None

    def read(self) -> State:
        """Where the team stands now, and what was said meanwhile."""
        self.history.refresh()
        return read_state(self.store.keeper.records(self.history.id, KIND))

    def note(self, state: State) -> None:
        """Keep a state that no message led to."""
        token = None if self._lease is None else self._lease.token
        self.store.keeper.keep(self.history.id, [state.record()], token=token)

    def add(
        self, message: Message, state: State, key: str | None, expect: Expected | None = None
    ) -> Message:
        """Keep a message and the state that it leads to, in one change.

        Answers the message as it is kept: with a key that is known, the one of the first time,
        which has the same id.
        """
        records = [state.record()]
        self.history.extend([message], key=key, records=records, lease=self._lease, expect=expect)
        log = self.history.view.log
        return log[log.positions_of(message.id)[0]]

    # ── the lease ───────────────────────────────────────────────────────────────────────────────

    async def while_held(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something while the lease is held; where it is lost, the work stops."""
        await self._take()
        failure: BaseException | None = None
        done: list[_T] = []

        async def renewing(scope: anyio.CancelScope) -> None:
            nonlocal failure
            try:
                while True:
                    await anyio.sleep(self._seconds / 3)
                    await to_thread.run_sync(self._renew)
            except PalaverError as lost:
                failure = lost
                scope.cancel()

        async with (
            AtTheEnd(self._let_go, needed=lambda: True),
            anyio.create_task_group() as group,
        ):
            group.start_soon(renewing, group.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return done[0]

    async def _take(self) -> None:
        """Take the lease; one whose holder died runs out by itself, so wait a little for it."""
        patience = time.monotonic() + self._seconds + 1
        while True:
            try:
                await shielded(self._hold, undo=lambda _: self._let_go())
            except LeaseTaken:
                if time.monotonic() > patience:
                    raise
                await anyio.sleep(_NAP)
            else:
                return

    def _hold(self) -> None:
        with self._gate:
            if self._holds:
                self._check(self._leased())
            else:
                self._lease = self._leased()
                self.history.under(self._lease)
            self._holds += 1

    def _renew(self) -> None:
        with self._gate:
            if self._holds:
                self._check(self._leased())

    def _leased(self) -> Lease:
        return self.store.lease(self.history.id, self._holder, seconds=self._seconds)

    def _check(self, lease: Lease) -> None:
        """A new token says that the lease ran out: others may have been here."""
        if self._lease is not None and lease.token != self._lease.token:
            msg = "the lease ran out before it was renewed"
            raise LeaseLost(msg)

    def _let_go(self) -> None:
        with self._gate:
            self._holds -= 1
            if not self._holds and self._lease is not None:
                self.store.release(self._lease)
                self.history.under(None)
                self._lease = None
