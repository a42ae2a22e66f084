"""Connections to the server: a pool, errors in palaver's words, and patience with a lost server.

A server that is silent is a lost one: see `timed` for how that is found out.

Everything runs in autocommit, most of it as one statement: one statement is one transaction and one
round trip. What is run here may run a second time, when the connection was lost before the answer
came; whoever gives it in sees to it that this is harmless.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from palaver.errors import StoreDamaged, StoreError
from palaver.stores.forking import restart_in_child
from palaver.stores.postgres.address import parse_address
from palaver.stores.postgres.timed import ServerSilent, TimedConnection
from palaver.stores.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Values = Sequence[Any] | Mapping[str, Any]
    Line = TimedConnection
    Cursor = psycopg.Cursor[tuple[Any, ...]]

__all__ = ["STATEMENTS", "Connections"]

_T = TypeVar("_T")

STATEMENTS: Final = {
    name: statement.encode() for name, statement in load_queries("palaver.stores.postgres").items()
}

_AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)
_DAMAGE: Final = (errors.DataCorrupted, errors.IndexCorrupted)
_TIMES: Final = 20
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key",
                   "scram_server_key")  # fmt: skip
_AT_REST: Final = TransactionStatus.IDLE, PipelineStatus.OFF
_OLD: Final = 3_600.0  # seconds after which a connection is not used again
_UNUSED: Final = 600.0  # seconds without use after which one is closed
_AT_WORK: Final = b"""
SELECT 1 FROM pg_stat_activity
WHERE pid = %s AND state IN ('active', 'disabled') AND wait_event_type IS DISTINCT FROM 'Client'
"""
_STATEMENT: Final = 60  # seconds for a statement, as the server is told here
_SETTINGS: Final = b"""
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('statement_timeout', '60s', false), set_config('lock_timeout', '30s', false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
"""


def _adapters() -> AdaptersMap:
    """Numbers all go as bigint, so that a statement is prepared once and not by their sizes."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(int, Int8BinaryDumper)
    return adapters


class _Context:
    """What psycopg takes adapters from."""

    def __init__(self) -> None:
        self.adapters = _adapters()
        self.connection = None


_CONTEXT: Final = _Context()


class Connections:
    """The way to one database. Connections are opened when they are first needed.

    No more than `size` are in use at a time; who finds none free waits in line. A forked child
    begins with none, and leaves the parent's alone.
    """

    def __init__(self, address: str, *, size: int, patience: float) -> None:
        """Take the address; `patience` is how many seconds a lost server is waited for."""
        half = patience / 2
        parts: dict[str, Any] = {
            "application_name": "palaver",
            "tcp_user_timeout": round(half * 1000),
            "keepalives_idle": max(round(half), 1),
            "keepalives_interval": max(round(half / 3), 1),
            "keepalives_count": 3,
        }
        parts |= parse_address(address)
        self.name = make_conninfo(
            "", **{key: parts[key] for key in ("host", "port", "dbname") if key in parts}
        )
        self._secrets = [str(parts[key]) for key in _SECRETS if parts.get(key)]
        self._parts = parts
        self._patience = patience
        self._size = size
        self._closed = False
        self._start()
        restart_in_child(self)

    def _start(self) -> None:
        self._gate = threading.Lock()
        self._idle: deque[TimedConnection] = deque()
        self._left = self._size
        self._waiting: deque[threading.Lock] = deque()

    def after_fork_in_child(self) -> None:
        """Begin with no connection; the parent's are dealt with in `timed`."""
        self._start()

    def close(self) -> None:
        """Close what is not in use, and the rest when it comes back; safe to call twice."""
        self._closed = True
        self._drop_idle()

    def dial(self, seconds: float | None = None, *, ask: bool = True) -> Line:
        """A connection of one's own, outside the pool.

        `seconds` is how long the server may take, by default as long as the store's patience; `ask`
        is whether another connection asks about a server that is silent.
        """
        try:
            return self._dial(self._patience if seconds is None else seconds, ask=ask)
        except psycopg.Error as error:
            raise self.own(error) from error

    def _dial(self, seconds: float, *, ask: bool = True) -> TimedConnection:
        timeout = self._timeout(min(seconds, self._patience))
        line = TimedConnection.connect(
            make_conninfo("", **self._parts | {"connect_timeout": timeout}),
            autocommit=True,
            context=_CONTEXT,
        )
        line.limit = self._patience / 2
        line.longest = _STATEMENT + self._patience
        line.is_at_work = self._is_at_work if ask else None
        line.execute(_SETTINGS)
        return line

    def _timeout(self, seconds: float) -> int:
        """Seconds to connect in: whole ones, and less if the address says so."""
        whole = max(math.ceil(seconds), 1)
        with suppress(ValueError):
            whole = min(whole, int(self._parts.get("connect_timeout") or 0) or whole)
        return whole

    def _is_at_work(self, process: int) -> bool:
        """Ask the server, on a new connection, whether one of its processes runs a statement."""
        half = self._patience / 2
        end = time.monotonic() + half
        try:
            with closing(self._dial(half, ask=False)) as line:
                return line.execute(_AT_WORK, (process,)).fetchone() is not None
        except psycopg.Error as error:
            if time.monotonic() < end:  # it answers, but takes no connections
                return False
            msg = (
                f"the server did not answer for {self._patience:g} s; "
                "it is not known whether a change under way was made"
            )
            raise ServerSilent(msg) from error

    def run(self, work: Callable[[Line], _T], *, again: bool = True) -> _T:
        """Have something done on a connection; again, where the first was lost or in the way."""
        end = 0.0
        times = 0
        while True:
            line: TimedConnection | None = None
            began = time.monotonic()
            self._take_turn()
            try:
                line = self._take(end - began if end else self._patience)
                return work(line)
            except psycopg.Error as error:
                times += 1
                now = time.monotonic()
                end = end or (began if line is None else now) + self._patience
                lost = (line is None or line.closed) and now < end
                if lost:
                    self._drop_idle()  # they may be lost, too
                lost = lost and not isinstance(error, ServerSilent)
                if not again or not (lost or (isinstance(error, _AGAIN) and times < _TIMES)):
                    raise self.own(error) from error
            finally:
                self._put(line)
            time.sleep(min(0.002 * 2**times, 0.25))

    # ── the pool ────────────────────────────────────────────────────────────────────────────────

    def _take_turn(self) -> None:
        """Wait until fewer than all are in use; who came first has the first turn."""
        with self._gate:
            if self._left:
                self._left -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=self._patience):
                return
        except BaseException:
            if not self._leave(turn):
                self._give_turn()
            raise
        if self._leave(turn):
            msg = f"{self.name}: all {self._size} connections were in use for {self._patience:g} s"
            raise StoreError(msg)

    def _leave(self, turn: threading.Lock) -> bool:
        """Leave the line; False where the turn has come already."""
        with self._gate:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def _give_turn(self) -> None:
        with self._gate:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._left += 1

    def _take(self, seconds: float) -> TimedConnection:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        with self._gate:
            if self._idle:
                return self._idle.pop()
        return self._dial(seconds)

    def _put(self, line: TimedConnection | None) -> None:
        """Take a connection back, if it can be used again, and let the next have a turn."""
        try:
            if line is None or line.closed:
                return
            now = time.monotonic()
            state = line.pgconn.transaction_status, line.pgconn.pipeline_status
            if self._closed or state != _AT_REST or line.opened + _OLD < now:
                line.close()
                return
            line.used = now
            stale: list[TimedConnection] = []
            with self._gate:
                self._idle.append(line)
                while self._idle[0].used + _UNUSED < now:
                    stale.append(self._idle.popleft())
            for each in stale:
                each.close()
        finally:
            self._give_turn()

    def _drop_idle(self) -> None:
        with self._gate:
            idle, self._idle = self._idle, deque()
        for line in idle:
            line.close()

    def fetch(self, name: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a named statement and answer all its rows."""
        return self.run(lambda line: line.execute(STATEMENTS[name], values).fetchall())

    def count(self, name: str, values: Values) -> int:
        """Run a named statement and answer how many rows it touched."""
        return self.run(lambda line: line.execute(STATEMENTS[name], values).rowcount)

    def own(self, error: psycopg.Error) -> StoreError:
        """The server's error as one of palaver's, without passwords."""
        text = f"{self.name}: {str(error).strip()}"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return StoreDamaged(text) if isinstance(error, _DAMAGE) else StoreError(text)
