"""Reading from a standby, for callers who ask for it, without going back in time.

A standby is behind its primary, mostly by milliseconds. So the version of a conversation that was
seen last, or made here, is remembered, and every read first says which version the server has: one
that has an older version, or does not have the conversation, is passed over for the primary. What
makes no version (a title, an erasure) is waited for by the position in the server's log.

A synchronous standby may also show a change a moment before its primary does; the primary is then
asked again.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import StoreError
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.process_fork import restart_in_child

if TYPE_CHECKING:
    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection, Values

__all__ = ["READ_FROM_STANDBY", "ReplicaReader"]

READ_FROM_STANDBY: Final = frozenset({
    "bodies", "bodies_of", "before", "befores_of", "select", "select_of", "positions_of",
    "between_times", "between_times_of", "replaced", "stop", "frames", "frames_of",
})  # fmt: skip
"""The statements about a conversation that a standby may answer, beside those of its head."""

_KNOWN: Final = 100_000  # conversations whose version is remembered
_SOON: Final = 1.0  # seconds in which a primary shows what a standby showed
_PAUSE: Final = 0.005
_log: Final = logging.getLogger("palaver.stores")


class ReplicaReader:
    """Reads about single conversations, by a standby where it has what was seen already."""

    def __init__(self, primary: PostgresConnections, standbys: PostgresConnections) -> None:
        """Take the connections to the primary, and those that prefer standbys."""
        self._primary = primary
        self._standbys = standbys
        self._seen: dict[str, int] = {}
        self._position: str | None = None
        self._gate = threading.Lock()
        restart_in_child(self)

    def after_fork_in_child(self) -> None:
        """Let go of a lock that a thread of the parent may have held."""
        self._gate = threading.Lock()

    def close(self) -> None:
        """Close the connections to standbys."""
        self._standbys.close()

    def saw(self, conversation: str, version: int) -> None:
        """Remember that a version was seen or made: no read shows an older one from now on."""
        with self._gate:
            if version > self._seen.get(conversation, -1):
                self._seen.pop(conversation, None)
                if len(self._seen) >= _KNOWN:  # the one that changed longest ago
                    del self._seen[next(iter(self._seen))]
                self._seen[conversation] = version

    def forget(self, conversation: str) -> None:
        """Forget a conversation that was deleted."""
        with self._gate:
            self._seen.pop(conversation, None)

    def changed(self) -> None:
        """Remember that something was changed that makes no version."""
        self._position = self._primary.fetch("log_position")[0][0]

    def fetch(self, conversation: str, name: str, values: Values) -> list[tuple[Any, ...]]:
        """Run a named statement about a conversation and return all its rows."""
        wanted = self._seen.get(conversation, 0)

        def read(connection: TimedConnection) -> tuple[int, list[tuple[Any, ...]]]:
            with connection.batch():
                reached = connection.execute(
                    STATEMENTS["reached"], (conversation, self._position, self._position)
                )
                found = connection.execute(STATEMENTS[name], values)
            ((version,),) = reached.fetchall() or [(-1,)]
            return version, found.fetchall()

        with suppress(StoreError):  # the primary may be there where no standby is
            version, rows = self._standbys.run(read, again=False)
            if version >= wanted:
                return rows
        end = time.monotonic() + _SOON
        while True:
            version, rows = self._primary.run(read)
            if version >= wanted or version < 0:
                return rows
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        _log.warning(
            "%s is at version %d, and was seen at %d: the primary does not have what a standby had",
            conversation, version, wanted,
        )  # fmt: skip
        with self._gate:
            self._seen[conversation] = version
        return rows
