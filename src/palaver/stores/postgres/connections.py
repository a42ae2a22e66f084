"""Connections to the server: a pool, errors in palaver's words, and patience with a lost server.

Everything runs in autocommit, most of it as one statement: one statement is one transaction and one
round trip. What is run here may run a second time, when the connection was lost before the answer
came; whoever gives it in sees to it that this is harmless.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from palaver.errors import StoreDamaged, StoreError
from palaver.stores.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Values = Sequence[Any] | Mapping[str, Any]
    Line = psycopg.Connection[tuple[Any, ...]]
    Cursor = psycopg.Cursor[tuple[Any, ...]]

__all__ = ["STATEMENTS", "Connections"]

_T = TypeVar("_T")

STATEMENTS: Final = {
    name: statement.encode() for name, statement in load_queries("palaver.stores.postgres").items()
}

_AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)
_DAMAGE: Final = (errors.DataCorrupted, errors.IndexCorrupted)
_TIMES: Final = 20
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
    """The way to one database. Connections are opened when they are first needed."""

    def __init__(self, address: str, *, size: int, patience: float) -> None:
        """Take the address; `patience` is how many seconds a lost server is waited for."""
        try:
            parts: dict[str, Any] = {"connect_timeout": 10, "application_name": "palaver"}
            parts |= conninfo_to_dict(address)
        except psycopg.Error as error:
            msg = f"that is not a PostgreSQL address: {str(error).strip()}"
            raise StoreError(msg) from None
        self.name = make_conninfo(
            "", **{key: parts[key] for key in ("host", "port", "dbname") if key in parts}
        )
        self._conninfo = make_conninfo("", **parts)
        self._patience = patience
        self._gate = threading.Lock()
        self._closed = False
        self._pool: ConnectionPool[Line] = ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "context": _CONTEXT},
            min_size=0,
            max_size=size,
            open=False,
            configure=_configure,
            timeout=patience,
            reconnect_timeout=max(patience, 1),
            num_workers=1,
        )

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        with self._gate:
            self._closed = True
        self._pool.close()

    def dial(self) -> Line:
        """A connection of one's own, outside the pool."""
        try:
            line = psycopg.connect(self._conninfo, autocommit=True, context=_CONTEXT)
            _configure(line)
        except psycopg.Error as error:
            raise self.own(error) from error
        return line

    def run(self, work: Callable[[Line], _T], *, again: bool = True) -> _T:
        """Have something done on a connection; again, where the first was lost or in the way."""
        end = 0.0
        times = 0
        while True:
            line = None
            try:
                line = self._take()
                return work(line)
            except PoolTimeout as error:
                msg = f"{self.name}: no connection within {self._patience:g} s"
                raise StoreError(msg) from error
            except psycopg.Error as error:
                times += 1
                now = time.monotonic()
                end = end or now + self._patience
                lost = line is not None and line.closed and now < end
                if not again or not (lost or (isinstance(error, _AGAIN) and times < _TIMES)):
                    raise self.own(error) from error
            finally:
                if line is not None:
                    self._pool.putconn(line)
            time.sleep(min(0.002 * 2**times, 0.25))

    def _take(self) -> Line:
        if self._pool.closed:
            with self._gate:
                if self._closed:
                    msg = "the store is closed"
                    raise StoreError(msg)
                self._pool.open()
        try:
            return self._pool.getconn()
        except PoolClosed:
            msg = "the store is closed"
            raise StoreError(msg) from None

    def fetch(self, name: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a named statement and answer all its rows."""
        return self.run(lambda line: line.execute(STATEMENTS[name], values).fetchall())

    def count(self, name: str, values: Values) -> int:
        """Run a named statement and answer how many rows it touched."""
        return self.run(lambda line: line.execute(STATEMENTS[name], values).rowcount)

    def own(self, error: psycopg.Error) -> StoreError:
        """The server's error as one of palaver's."""
        text = f"{self.name}: {str(error).strip()}"
        return StoreDamaged(text) if isinstance(error, _DAMAGE) else StoreError(text)


def _configure(line: Line) -> None:
    line.execute(_SETTINGS)
