"""Following: which changes may be told, in which order, and how followers are woken.

A follower of one conversation goes by its versions, which have no gaps. A follower of the whole
store goes by `number`: the transaction's own number (pg_current_xact_id) times 2^22, plus the
change's place in it (0, unless many were adopted in one). No two changes have the same.

Transactions get their numbers when they begin to write, and they end in any order, so the last
number one can see proves nothing: a smaller one may still be under way. Therefore only what is
below the snapshot's xmin is told. Whatever has such a number is over, and if it was kept it is in
sight; whatever is not over has a higher one. So none is missed, and since numbers only rise, none
is told twice. The price: a transaction that stays open on that server holds followers of the whole
store back until it ends. And on a database that is spread over several servers, each of which
counts for itself, only single conversations can be followed.

A store restored from a dump comes to a server that counts from elsewhere: `store.shift` is added to
the transactions' numbers, and raised when a store is opened, so that they go on rising.

NOTIFY only wakes followers. It is not part of a change's transaction, because it takes one lock for
the whole server until that transaction is on disk: all changes would wait for each other's.
A thread rings behind the changes instead, once for all that came meanwhile. If it does not, or if
the process ends first, followers look by themselves: nothing hangs on it.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg

from palaver.errors import StoreError
from palaver.stores.forking import restart_in_child

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import Connections, Line

__all__ = ["Bell", "Ears", "settled"]

_PAUSE: Final = 0.02
_SOON: Final = 0.1


class Bell:
    """Wakes followers, behind the changes."""

    def __init__(self, connections: Connections) -> None:
        """Take the way to the server."""
        self._connections = connections
        self._closed = False
        self._start()
        restart_in_child(self)

    def _start(self) -> None:
        self._due = threading.Event()
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None

    def after_fork_in_child(self) -> None:
        """Begin without a thread: the parent's is not in the child."""
        self._start()

    def ring(self) -> None:
        """There is news."""
        if self._due.is_set():
            return
        if self._thread is None:
            self._begin()
        self._due.set()

    def _begin(self) -> None:
        with self._gate:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._stay, name="bell", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ring a last time if need be, and end."""
        with self._gate:
            self._closed = True
            thread = self._thread
        self._due.set()
        if thread is not None:
            thread.join(timeout=5)

    def _stay(self) -> None:
        line: Line | None = None
        while not self._closed:
            self._due.wait()
            self._due.clear()
            try:
                line = line or self._dial()
                line.execute(b"NOTIFY palaver")
            except (psycopg.Error, StoreError):  # they will look by themselves
                if line is not None:
                    line.close()
                line = None
            if not self._closed:
                time.sleep(_PAUSE)
        if line is not None:
            line.close()

    def _dial(self) -> Line:
        line = self._connections.dial(ask=False)
        line.execute(b"SET synchronous_commit = off")
        return line


class Ears:
    """Hears the bell; a connection for each thread that waits."""

    def __init__(self, connections: Connections) -> None:
        """Take the way to the server."""
        self._connections = connections
        self._start()
        restart_in_child(self)

    def _start(self) -> None:
        self._local = threading.local()
        self._lines: list[Line] = []
        self._gate = threading.Lock()

    def after_fork_in_child(self) -> None:
        """Begin with no connection."""
        self._start()

    def wait(self, seconds: float) -> None:
        """Wait until there may be news, and no longer than this."""
        line: Line | None = getattr(self._local, "line", None)
        try:
            if line is None or line.closed:
                self._begin()
                return  # what came before it listened was not heard: the caller looks once more
            for _ in line.notifies(timeout=seconds, stop_after=1):
                pass
        except (psycopg.Error, StoreError):
            if line is not None:
                line.close()
            time.sleep(min(seconds, 0.05))

    def _begin(self) -> None:
        line = self._connections.dial()
        line.execute(b"LISTEN palaver")
        line.limit = None  # nothing to hear is no silence: followers look by themselves, too
        self._local.line = line
        with self._gate:
            self._lines = [known for known in self._lines if not known.closed] + [line]

    def close(self) -> None:
        """Close every connection."""
        with self._gate:
            lines, self._lines = self._lines, []
        for line in lines:
            with suppress(psycopg.Error):
                line.close()


def settled(connections: Connections, after: int, limit: int) -> list[tuple[Any, ...]]:
    """The changes of the whole store after a number that may be told.

    Where some are in sight but may not be told yet, a little time is given to those before them.
    """
    values = {"after": after, "limit": limit}
    end = time.monotonic() + _SOON
    while True:
        rows = connections.fetch("journal_of_all", values)
        if rows or time.monotonic() > end or not connections.fetch("in_sight", (after,))[0][0]:
            return rows
        time.sleep(_PAUSE)
