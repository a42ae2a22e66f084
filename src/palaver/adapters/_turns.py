"""Turns: a run has a conversation to itself while it is at work.

A turn is a lease of some seconds, so that a process that was killed is soon succeeded. A run may be
silent for much longer, while a model thinks or a tool works: a thread renews the leases of all the
turns of the process. It stops where a turn has ended, where its run is over without having said so,
where nobody has its object any more, and after `silent_seconds` in which the run stored nothing.

A store that is closed gives back the turns that were taken in it, and a process that ends all of
its. A fork takes none along.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import math
import os
import threading
import time
import weakref
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from palaver.errors import LeaseTaken, StoreError, UnknownConversation
from palaver.messages.limits import describe_argument
from palaver.stores.holders import holder_name
from palaver.stores.store import before_close

if TYPE_CHECKING:
    import asyncio

    from palaver.stores import Lease, Store

__all__ = ["Turn", "Wait", "check_seconds"]

_log = logging.getLogger("palaver.adapters")
_PART: Final = 3
"""A lease is renewed when so great a part of its time is over: one in three."""
_SHORTEST: Final = 0.01
_LONGEST: Final = 31_536_000  # as stores have it
_LOG_AFTER: Final = 2.0
"""A run that waits for so many seconds says so in the log."""


def check_seconds(turn_seconds: float, wait_seconds: float) -> None:
    """Refuse times that a run can't keep others from a session, or wait for them.

    >>> check_seconds(60, -1)
    Traceback (most recent call last):
    ...
    ValueError: wait_seconds must be a number from 0 on, not -1
    """
    given = describe_argument(turn_seconds), describe_argument(wait_seconds)
    if not _is_number(turn_seconds) or not _SHORTEST <= turn_seconds <= _LONGEST:
        allowed = f"a number from {_SHORTEST} to {_LONGEST:,}"
        raise ValueError(f"turn_seconds must be {allowed}, not {given[0]}")
    if not _is_number(wait_seconds) or not wait_seconds >= 0:
        raise ValueError(f"wait_seconds must be a number from 0 on, not {given[1]}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Wait:
    """A run waits for the run before it: so long at most, and not in silence."""

    def __init__(self, conversation: str, seconds: float) -> None:
        """Begin to wait."""
        self._conversation, self._seconds = conversation, seconds
        self._began = time.monotonic()
        self._is_logged = False

    def is_over(self, error: StoreError) -> bool:
        """Tell whether it has waited for long enough; `error` says who has the turn."""
        waited = time.monotonic() - self._began
        if waited >= _LOG_AFTER and not self._is_logged:
            self._is_logged = True
            _log.warning(
                "%s: waiting for another run, for %g s at most: %s",
                self._conversation, self._seconds, _describe(error),
            )  # fmt: skip
        return waited >= self._seconds

    def describe(self, error: StoreError) -> str:
        """Return why the run is refused in the end, and what to do."""
        waited = f"waited {self._seconds:g} s for its turn"
        return f"{waited}: {_describe(error)}; try again, or wait longer with wait_seconds"


def _describe(error: StoreError) -> str:
    return error.describe() if isinstance(error, LeaseTaken) else str(error)


class Turn:
    """The turn of a run on a conversation, once it was taken.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> turn = Turn(store, store.create(id="talk").id, 60)
    >>> turn.take(), turn.take()
    (False, True)
    >>> turn.release()
    """

    def __init__(
        self, store: Store, conversation: str, seconds: float, *, silent_seconds: float = math.inf
    ) -> None:
        """Take nothing yet."""
        self._store, self._conversation, self._seconds = store, conversation, seconds
        self._silent_seconds = silent_seconds
        self._holder = ""
        self._lock = threading.Lock()  # of the lease, which the run and the thread renew
        self._token = 0
        """Of the last lease that it had."""
        self._renew_at = self._asked_at = 0.0
        self._is_watched = False
        self._is_suspended = False
        self.lease: Lease | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where the run is at work."""

    def is_over(self) -> bool:
        """Tell whether the run is over, though it did not end its turn. Any thread may ask."""
        return self.loop is not None and self.loop.is_closed()

    def take(self) -> bool:
        """Take the turn or go on with it; tell whether nobody else had it since it last had it.

        Raises `LeaseTaken` while another run has it.
        """
        with self._lock:
            self._asked_at = time.monotonic()
            if self.lease is not None and self._asked_at < self._renew_at:
                return True
            goes_on = self._renew()
            self._is_suspended = False
            if not self._is_watched:
                self._is_watched = True
                _watches[0].add(self, self._renew_at)
            return goes_on

    def _renew(self) -> bool:
        """Take or renew the lease. Needs the lock."""
        began = time.monotonic()
        if self.lease is None:  # a fork may have made two of this object
            self._holder = holder_name()
        lease = self._store.lease(self._conversation, self._holder, seconds=self._seconds)
        goes_on = (
            0 < self._token >= lease.token - 1
        )  # whoever has it after another raises it by one
        self.lease, self._token = lease, lease.token
        self._renew_at = began + self._seconds / _PART
        return goes_on

    def let_go(self) -> None:
        """Have the turn no more, where it was lost, or given back with a change."""
        with self._lock:
            self.lease = None

    def release(self) -> None:
        """Let others have their turn. A store that is closed meanwhile waits for that."""
        with self._lock:
            lease, self.lease = self.lease, None
            self._give_back(lease)

    def suspend(self) -> None:
        """Let others have their turn until the run goes on: then it takes its turn again, or not.

        That is for a run that seems to be over.
        """
        with self._lock:
            if self.lease is not None:
                self._is_suspended, self._renew_at = True, 0.0
                self._give_back(self.lease)

    def keep(self) -> float | None:
        """Renew the lease while the run is silent; return when to do it again, or None for never.

        A turn that went to another run is left as it is: its run learns of it when it goes on.
        """
        with self._lock:
            again = self._keep(time.monotonic())
            self._is_watched = again is not None
            return again

    def _keep(self, now: float) -> float | None:
        had, token = self.lease, self._token
        if had is None or self._is_suspended or now - self._asked_at > self._silent_seconds:
            return None
        if self.is_over():
            self.lease = None
            self._give_back(had)
            return None
        try:
            goes_on = now < self._renew_at or self._renew()
        except (LeaseTaken, UnknownConversation):
            return None
        except Exception as error:  # noqa: BLE001 - it must not end the thread of all turns
            _log.warning("%s: the turn of a run was not renewed: %s", self._conversation, error)
            return now + self._seconds / _PART
        if not goes_on:
            self._give_back(self.lease)
            self.lease, self._token, self._renew_at = had, token, 0.0
        return self._renew_at if goes_on else None

    def leave_to_parent(self) -> None:
        """Have no turn in a child that was forked: the process that took it has it."""
        self._lock = threading.Lock()
        self._is_watched, self.lease = False, None

    def is_in(self, store: Store) -> bool:
        """Tell whether it is the turn of a conversation in this store."""
        return self._store is store

    def _give_back(self, lease: Lease | None) -> None:
        if lease is not None:
            with suppress(StoreError):  # the store may be closed by now
                self._store.release(lease)


class _Watch:
    """The thread that renews turns: it begins with the first one, and ends with the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, weakref.ref[Turn]]] = []
        self._renewed: weakref.ref[Turn] | None = None
        """The one that is being renewed."""
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def add(self, turn: Turn, due: float) -> None:
        """Renew a turn when it is due."""
        with self._changed:
            heapq.heappush(self._due, (due, next(self._numbers), weakref.ref(turn)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="palaver-turns", daemon=True)
                self._thread.start()
            elif self._due[0][0] == due:
                self._changed.notify()

    def turns(self) -> list[Turn]:
        """Return all turns that are to be renewed, and perhaps some that are over."""
        found = [*map(itemgetter(2), [*self._due])]
        if self._renewed is not None:
            found.append(self._renewed)
        return [turn for each in found if (turn := each()) is not None]

    def _run(self) -> None:
        if hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # it may have begun in a thread that is kept on a processor
                os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
        while True:
            turn = self._next()
            again = None if turn is None else turn.keep()
            if turn is not None and again is not None:
                self.add(turn, again)
            del turn  # or it would live as long as there is no other

    def _next(self) -> Turn | None:
        """Wait for the next turn that is due; None if its run has gone."""
        with self._changed:
            while not self._due or self._due[0][0] > time.monotonic():
                self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
            self._renewed = self._due[0][2]
            heapq.heappop(self._due)
            return self._renewed()


_watches: Final = [_Watch()]
"""The one of this process: a fork takes no threads along, and the child begins with another."""


def _begin_anew() -> None:
    for turn in _watches[0].turns():
        turn.leave_to_parent()
    _watches[0] = _Watch()


def _release_all(store: Store | None = None) -> None:
    """Give back all turns of a store, or of the process."""
    for turn in _watches[0].turns():
        if store is None or turn.is_in(store):
            turn.release()


os.register_at_fork(after_in_child=_begin_anew)
before_close.append(_release_all)
atexit.register(_release_all)
