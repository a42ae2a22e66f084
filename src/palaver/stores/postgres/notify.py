"""How followers of a PostgreSQL store learn of changes: notifications, and the settled journal.

Whoever changes something sends one notification soon after, for all changes so far (`Notifier`), if
anybody listens. Whoever follows waits for one (`Listener`), and then reads what may be reported
(`read_settled`).
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.process_fork import restart_in_child

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection

__all__ = ["ABOVE_ALL", "Listener", "Notifier", "newest_visible", "read_settled"]

ABOVE_ALL: Final = 2**63 - 1
"""A number above those of all changes, which go beyond what a double holds: the largest bigint."""

_PAUSE: Final = 0.02
_UNHEARD: Final = 0.1
"""The pause while nobody listens: so late may be the first notification of one who begins to."""
_SOON: Final = 0.1
_POLL: Final = 0.25
_log: Final = logging.getLogger("palaver.stores")


class Notifier:
    """Wakes followers after changes."""

    def __init__(self, connections: PostgresConnections) -> None:
        """Take the connections to the server."""
        self._connections = connections
        self._closed = False
        self._start()
        restart_in_child(self)

    def _start(self) -> None:
        self._due = threading.Event()
        self._ends = threading.Event()
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None

    def after_fork_in_child(self) -> None:
        """Start without a thread: the parent's is not in the child."""
        self._start()

    def notify(self) -> None:
        """Wake the followers soon."""
        if self._due.is_set():
            return
        if self._thread is None:
            self._start_thread()
        self._due.set()

    def _start_thread(self) -> None:
        with self._gate:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._send, name="palaver-notify", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Notify a last time if need be, and end the thread."""
        with self._gate:
            self._closed = True
            thread = self._thread
        self._ends.set()
        self._due.set()
        if thread is not None:
            thread.join(timeout=5)

    def _send(self) -> None:
        connection: TimedConnection | None = None
        while not self._closed or self._due.is_set():
            self._due.wait()
            self._due.clear()
            pause = _PAUSE
            try:
                connection = connection or self._connections.connect(ask=False)
                row = connection.execute(STATEMENTS["notify"], prepare=False).fetchone()
                pause = _UNHEARD if row is not None and row[0] else _PAUSE
            except (psycopg.Error, StoreError):  # followers look by themselves
                if connection is not None:
                    connection.close()
                connection = None
            self._ends.wait(pause)
        if connection is not None:
            connection.close()


class Listener:
    """Waits for notifications; with a connection for each thread that waits.

    Behind a pooler nobody can listen, so whoever follows looks again every quarter of a second.
    """

    def __init__(self, connections: PostgresConnections) -> None:
        """Take the connections to the server."""
        self._connections = connections
        self._told = False
        self._start()
        restart_in_child(self)

    def _start(self) -> None:
        self._local = threading.local()
        self._open: list[TimedConnection] = []
        self._gate = threading.Lock()

    def after_fork_in_child(self) -> None:
        """Start with no connection."""
        self._start()

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most so many seconds."""
        if self._connections.pooled:
            self._tell_pooled()
            time.sleep(min(seconds, _POLL))
            return
        connection: TimedConnection | None = getattr(self._local, "connection", None)
        try:
            if connection is None or connection.closed:
                self._listen()
                return  # earlier notifications were missed: the caller looks once more
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass
        except (psycopg.Error, StoreError):
            if connection is not None:
                connection.close()
            time.sleep(min(seconds, 0.05))

    def _tell_pooled(self) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "%s is a pooler, which can't pass notifications on (LISTEN): followers look every "
                "%g s; connect to the server itself to be told at once",
                self._connections.name, _POLL,
            )  # fmt: skip

    def _listen(self) -> None:
        connection = self._connections.connect()
        connection.execute(STATEMENTS["hold_listening"])
        connection.execute(STATEMENTS["listen"])
        connection.limit = None  # no notification is no sign of a lost server
        self._local.connection = connection
        with self._gate:
            self._open = [known for known in self._open if not known.closed] + [connection]

    def close(self) -> None:
        """Close every connection."""
        with self._gate:
            opened, self._open = self._open, []
        for connection in opened:
            with suppress(psycopg.Error):
                connection.close()


def newest_visible(connections: PostgresConnections, node: int) -> int:
    """Return the number of a node's newest change, whether it may be reported already or not."""
    ((number,),) = connections.fetch("newest_of_node", {"node": node, "upto": ABOVE_ALL})
    return int(number)


def read_settled(connections: PostgresConnections, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Return the changes of the whole store after a number that may be reported.

    Where some are visible but may not be reported yet, it waits a little for those before them.
    """
    values = {"after": after, "limit": limit}
    end = time.monotonic() + _SOON
    while True:
        rows = connections.fetch("journal_of_all", values)
        if rows or time.monotonic() > end or newest_visible(connections, 0) <= after:
            return rows
        time.sleep(_PAUSE)
