"""Connections that do not wait for ever, and that end nothing of the parent's in a forked child.

A server that was stopped, a network that swallows everything: neither closes a connection, and
libpq waits for the next byte without a limit. Here every wait for an answer has one. When no byte
came for so long, another connection is asked whether the server is still at work on the statement:
a long statement is waited for as long as the server works on it, and its own `statement_timeout`
ends that. Otherwise the connection is closed, and it is as if it had been lost.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.rows import tuple_row

from palaver.stores.forking import leak, restart_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn

__all__ = ["ServerSilent", "TimedConnection"]

_T = TypeVar("_T")


class ServerSilent(psycopg.OperationalError):
    """The server does not answer, on this connection or on a new one."""


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits for the server have a limit.

    `limit` is how many seconds nothing may come before the server is asked, None for any time.
    `is_at_work` tells of the server's process whether it is at work, or raises `ServerSilent`.
    `longest` is after how many seconds a process that is said to be at work is not believed.
    """

    def __init__(self, pgconn: PGconn, row_factory: Any = tuple_row) -> None:  # noqa: ANN401 - psycopg's own
        """Take what libpq has opened."""
        super().__init__(pgconn, row_factory)
        self.limit: float | None = None
        self.longest: float | None = None
        self.is_at_work: Callable[[int], bool] | None = None
        self.opened = self.used = time.monotonic()
        _open.connections.add(self)

    def wait(self, gen: PQGen[_T], *args: Any, **kwargs: Any) -> _T:  # noqa: ANN401 - psycopg's own
        """Wait for the server's answer, and no longer than the limit for each part of it."""
        if self.limit is not None:
            gen = self._watched(gen, self.limit)
        return super().wait(gen, *args, **kwargs)

    def _watched(self, gen: PQGen[_T], limit: float) -> Generator[Any, Any, _T]:
        """Pass everything on; what is waited for is told every tenth of a second that it is not."""
        last = time.monotonic()
        end = last + limit
        ready: Any = None
        try:
            while True:
                ready = yield gen.send(ready)
                now = time.monotonic()
                if ready:
                    last, end = now, now + limit
                elif now > end:
                    self._ask(now - last)
                    end = time.monotonic() + limit
        except StopIteration as over:
            found: _T = over.value
            return found

    def _ask(self, seconds: float) -> None:
        """Ask another connection whether it is worthwhile to wait on; close this one if not."""
        try:
            ask = self.is_at_work if seconds < (self.longest or math.inf) else None
            if ask is not None and ask(self.pgconn.backend_pid):
                return
        except ServerSilent:
            self.close()
            raise
        self.close()
        msg = f"the server did not answer for {seconds:.3g} s"
        raise psycopg.OperationalError(msg)


class _Open:
    """Every connection that this process has opened."""

    def __init__(self) -> None:
        self.connections: WeakSet[TimedConnection] = WeakSet()
        restart_in_child(self, first=True)

    def after_fork_in_child(self) -> None:
        """Let go of the parent's sockets without a word: a farewell would end its sessions.

        libpq's part of a connection stays as it is, since another thread may have been using it.
        """
        inherited = list(self.connections)
        self.connections = WeakSet()
        if not inherited:
            return
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in inherited:
            leak(connection)
            with suppress(psycopg.Error, OSError):
                os.dup2(nowhere, connection.pgconn.socket, inheritable=False)
        os.close(nowhere)


_open: Final = _Open()
