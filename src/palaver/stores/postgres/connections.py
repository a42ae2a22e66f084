"""Connections to a PostgreSQL server: a pool, error translation, and waiting for a lost server.

An address may name several hosts, of which one accepts changes at a time, the primary. Where that
is lost, the next one is looked for among all of them. Behind a pooler that gives a server's
connection to one transaction after the other, nothing is used that belongs to a session.

Everything runs in autocommit, most of it as one statement: one statement is one transaction and one
round trip. Work that is run here may run a second time, when the connection was lost before the
answer came; the caller makes sure that this is harmless. A server that is silent is treated as a
lost one (`TimedConnection`), a forked child starts without connections, and no error shows a
password.
"""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import closing, contextmanager, suppress
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors, generators
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from palaver.errors import StoreDamaged, StoreError
from palaver.stores.backend import load_migrations, load_queries
from palaver.stores.process_fork import leak, restart_in_child

__all__ = [
    "STATEMENTS",
    "PostgresConnections",
    "ServerSilent",
    "TimedConnection",
    "migrate",
    "parse_address",
    "shift_numbers",
]


if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

    Values = Sequence[Any] | Mapping[str, Any]
    Cursor = psycopg.Cursor[tuple[Any, ...]]


_T = TypeVar("_T")
_PACKAGE: Final = "palaver.stores.postgres"

STATEMENTS: Final = {name: text.encode() for name, text in load_queries(_PACKAGE).items()}
"""The statements of `queries.sql`, by name."""

_FUNCTIONS: Final = resources.files(_PACKAGE).joinpath("functions.sql").read_text("utf-8")
_QUOTED_OR_END: Final = re.compile(r"--[^\n]*|'[^']*'|\$\$.*?\$\$|;", re.DOTALL)
_AGAIN: Final = (
    errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation,
    errors.InvalidSqlStatementName,
)  # fmt: skip
_DAMAGE: Final = (errors.DataCorrupted, errors.IndexCorrupted)
_TIMES: Final = 20
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key",
                   "scram_server_key")  # fmt: skip
_AT_REST: Final = TransactionStatus.IDLE, PipelineStatus.OFF
_WELL: Final = ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK
_OFTEN: Final = 3  # times after which a statement is prepared
_SOON: Final = 100  # milliseconds in which most answers come
_FOR_OWNER: Final = b"SELECT set_config('palaver.owner', %s, true)"
_OLD: Final = 3_600.0  # seconds after which a connection is not used again
_SOON_OLD: Final = 60.0  # the same where a standby is preferred, and may be there by now
_UNUSED: Final = 600.0  # seconds without use after which one is closed
_AT_WORK: Final = b"""
SELECT 1 FROM pg_stat_activity
WHERE CASE WHEN %s THEN application_name = %s ELSE pid = %s END
  AND state IN ('active', 'disabled') AND wait_event_type IS DISTINCT FROM 'Client'
"""
_STATEMENT: Final = 60  # seconds for a statement, as in `_SETTINGS`
# Nothing is set where another process answers than the one that was said when connecting.
_SETTINGS: Final = b"""
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('statement_timeout', '60s', false), set_config('lock_timeout', '30s', false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       set_config('plan_cache_mode', CASE  -- a call goes to another node by its values
                  WHEN to_regclass('pg_catalog.pg_dist_partition') IS NULL
                  THEN 'force_generic_plan' ELSE 'auto' END, false)
WHERE pg_backend_pid() = coalesce(%s, pg_backend_pid())
"""
_DURABILITY: Final = b"SELECT current_setting('synchronous_commit')"
_PROGRESS: Final = 5.0  # seconds between two lines in the log while a server is waited for
_log: Final = logging.getLogger("palaver.stores")


class PostgresConnections:
    """A pool of connections to one database, opened when they are first needed.

    No more than `size` are in use at a time; a thread that finds none free waits in a queue. A
    forked child starts with none, and leaves the parent's alone.
    """

    def __init__(
        self,
        address: str,
        *,
        size: int,
        patience: float,
        pooler: bool | None = None,
        standby: bool = False,
        owner: str | None = None,
    ) -> None:
        """Take the address; `patience` is how many seconds a lost server is waited for.

        `pooler` tells whether a pooler is in between; None is to find out. With `standby`, servers
        that only answer reads are preferred. Every transaction of the pool says that it is made for
        the `owner`, if there is one.
        """
        self._owner = owner
        half = patience / 2
        parts: dict[str, Any] = {
            "application_name": "palaver",
            "tcp_user_timeout": round(half * 1000),
            "keepalives_idle": max(round(half), 1),
            "keepalives_interval": max(round(half / 3), 1),
            "keepalives_count": 3,
        }
        parts |= parse_address(address)
        self._hosts = max(len(str(parts.get(key, "")).split(",")) for key in ("host", "hostaddr"))
        if standby:
            parts["target_session_attrs"] = "prefer-standby"
        elif self._hosts > 1:
            parts.setdefault("target_session_attrs", "read-write")
        self.pooled = bool(pooler)
        self._find_pooler = pooler is None
        self._last_place: tuple[bytes, ...] = ()
        self._standby = standby
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
        self._lost: float | None = None  # since when no connection can be opened
        self._told = 0.0  # when the log was last told of it

    def after_fork_in_child(self) -> None:
        """Start with no connection; `_OpenConnections` lets go of the parent's."""
        self._start()

    def close(self) -> None:
        """Close what is not in use, and the rest when it comes back; safe to call twice."""
        self._closed = True
        self._drop_idle()

    def fetch(self, name: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a named statement and return all its rows."""
        return self.run(lambda connection: connection.execute(STATEMENTS[name], values).fetchall())

    def count(self, name: str, values: Values) -> int:
        """Run a named statement and return how many rows it changed."""
        return self.run(lambda connection: connection.execute(STATEMENTS[name], values).rowcount)

    def run(self, work: Callable[[TimedConnection], _T], *, again: bool = True) -> _T:
        """Call work with a connection; once more where that was lost or the server refused it."""
        end = 0.0
        times = 0
        while True:
            connection: TimedConnection | None = None
            began = time.monotonic()
            idle = self._take_turn()
            try:
                connection = idle or self._take(end - began if end else self._patience)
                return work(connection)
            except psycopg.Error as error:
                times += 1
                now = time.monotonic()
                end = end or (began if connection is None else now) + self._patience
                lost = connection is None or connection.is_broken() or _is_node_lost(error)
                if connection is not None and isinstance(error, errors.ReadOnlySqlTransaction):
                    connection.close()  # it was the primary, and another one is by now
                    self._drop_idle()
                    lost = self._hosts > 1
                if lost:
                    self._drop_idle()  # they may be lost, too
                lost = lost and now < end and not isinstance(error, ServerSilent)
                if not again or not (lost or (isinstance(error, _AGAIN) and times < _TIMES)):
                    raise self._given_up(error, connection) from error
                if connection is None:
                    self._tell_lost(error, now)
            finally:
                self._put(connection)
            time.sleep(min(0.002 * 2**times, 0.25))

    def translate(self, error: psycopg.Error) -> StoreError:
        """Return the server's error as one of palaver's, without passwords."""
        text = f"{self.name}: {str(error).strip()}"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return StoreDamaged(text) if isinstance(error, _DAMAGE) else StoreError(text)

    def _given_up(self, error: psycopg.Error, connection: TimedConnection | None) -> StoreError:
        """Return the error of a call; where no server could be found, it says for how long."""
        if connection is not None or self._lost is None or self._hosts == 1:
            return self.translate(error)
        found = self.translate(error)
        msg = f"none of the servers accepted changes for {self._patience:g} s: {found}"
        return StoreError(msg)

    def _tell_lost(self, error: psycopg.Error, now: float) -> None:
        """Tell the log that a server is waited for, and now and then that it still is."""
        with self._gate:
            since = self._lost = self._lost or now
            if self._told > now - _PROGRESS:
                return
            self._told = now
        wanted = "one that accepts changes" if self._hosts > 1 else "it"
        _log.warning(
            "no connection to a PostgreSQL server; waiting for %s since %.0f s, up to %g s: %s",
            wanted, now - since, self._patience, self.translate(error),
        )  # fmt: skip

    def _tell_found(self, connection: TimedConnection) -> None:
        with self._gate:
            since, self._lost, self._told = self._lost, None, 0.0
        if since is not None:
            where = f"{connection.info.host}:{connection.info.port}"
            passed = time.monotonic() - since
            _log.warning("connected to PostgreSQL at %s again after %.1f s", where, passed)

    # ── opening ─────────────────────────────────────────────────────────────────────────────────

    def connect(self, *, ask: bool = True, wait: bool = False) -> TimedConnection:
        """Open a connection outside the pool.

        `ask` tells whether another connection asks about a server that is silent; `wait` whether to
        wait for a server that accepts changes, where the address has several.
        """
        began = time.monotonic()
        while True:
            try:
                return self._open(self._patience, ask=ask)
            except psycopg.Error as error:
                now = time.monotonic()
                if not wait or self._hosts == 1 or now > began + self._patience:
                    raise self._given_up(error, None) from error
                self._tell_lost(error, now)
            time.sleep(0.25)

    def _open(self, seconds: float, *, ask: bool = True) -> TimedConnection:
        parts = self._parts | {"connect_timeout": self._timeout(min(seconds, self._patience))}
        parts |= _turn(self._parts, self._last_place)
        connection = self._begin(parts, ask=ask)
        if not self.pooled and not self._set_up(connection):
            connection.close()
            self.pooled = True
            connection = self._begin(parts, ask=ask)
        if self.pooled:
            self._check_durability(connection)
        self._last_place = _place(connection)
        if self._lost is not None:
            self._tell_found(connection)
        return connection

    def _set_up(self, connection: TimedConnection) -> bool:
        """Set the session's settings; return False where a pooler was found to be in between.

        There they would stay with the server's connection, which the next client gets.
        """
        own = connection.pgconn.backend_pid if self._find_pooler else None
        return connection.execute(_SETTINGS, (own,)).fetchone() is not None

    def _begin(self, parts: dict[str, Any], *, ask: bool) -> TimedConnection:
        name = str(parts["application_name"])
        if self.pooled:  # the name tells which of the server's processes works for it
            name = f"{name} {secrets.token_hex(6)}"
        connection = TimedConnection.connect(
            make_conninfo("", **parts | {"application_name": name}),
            autocommit=True,
            prepare_threshold=None if self.pooled else 5,
            context=_CONTEXT,
        )
        connection.limit = self._patience / 2
        connection.longest = _STATEMENT + self._patience
        place = _place(connection)
        if ask:
            connection.is_at_work = lambda process: self._is_at_work(process, name, place)
        return connection

    def _check_durability(self, connection: TimedConnection) -> None:
        ((setting,),) = connection.execute(_DURABILITY).fetchall()
        if setting == "off":
            connection.close()
            msg = (
                f"{self.name}: the connections of the pooler have synchronous_commit = off, so a "
                "change that returned could be lost; ALTER ROLE … SET synchronous_commit = on "
                "changes it for new connections of the server"
            )
            raise StoreError(msg)

    def _timeout(self, seconds: float) -> int:
        """Return the seconds to connect in: a whole number, and less if the address says so.

        A host that is silent leaves time for the others.
        """
        share = seconds if self._hosts == 1 else seconds / (3 * self._hosts)
        whole = max(math.ceil(share), 1)
        with suppress(ValueError):
            whole = min(whole, int(self._parts.get("connect_timeout") or 0) or whole)
        return whole

    def _is_at_work(self, process: int, name: str, place: tuple[bytes, ...]) -> bool:
        """Ask the server, on a new connection, whether one of its processes runs a statement.

        One that is not the primary any more works for nobody. Of several that answer reads, the one
        that was asked first may not be asked now: its answer is not waited for.
        """
        half = self._patience / 2
        end = time.monotonic() + half
        try:
            with closing(self._open(half, ask=False)) as connection:
                which = self.pooled, name, process
                works = connection.execute(_AT_WORK, which).fetchone() is not None
                return works and place == _place(connection)
        except psycopg.Error as error:
            if time.monotonic() < end:  # it answers, but takes no connections
                return False
            msg = (
                f"the server did not answer for {self._patience:g} s; "
                "it is not known whether a change under way was made"
            )
            raise ServerSilent(msg) from error

    # ── the pool ────────────────────────────────────────────────────────────────────────────────

    def _take_turn(self) -> TimedConnection | None:
        """Wait until fewer than all are in use, first come, first served.

        Returns a connection where nobody had to wait and one is at hand.
        """
        with self._gate:
            if self._left:
                self._left -= 1
                return self._idle.pop() if self._idle and not self._closed else None
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=self._patience):
                return None
        except BaseException:
            if not self._leave(turn):
                with self._gate:
                    self._give_turn()
            raise
        if self._leave(turn):
            msg = f"{self.name}: all {self._size} connections were in use for {self._patience:g} s"
            raise StoreError(msg)
        return None

    def _leave(self, turn: threading.Lock) -> bool:
        """Leave the queue; return False where the turn has come already."""
        with self._gate:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def _give_turn(self) -> None:
        """Give the turn to the next who waits; the gate is held."""
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
        connection = self._open(seconds)
        connection.owner = self._owner
        return connection

    def _put(self, connection: TimedConnection | None) -> None:
        """Take a connection back, if it can be used again, and give the turn to the next."""
        now = time.monotonic()
        stale: list[TimedConnection] = []
        with self._gate:
            if connection is not None and self._is_usable(connection, now):
                connection.used = now
                self._idle.append(connection)
                while self._idle[0].used + _UNUSED < now:
                    stale.append(self._idle.popleft())
            elif connection is not None:
                stale.append(connection)
            self._give_turn()
        for each in stale:
            each.close()

    def _is_usable(self, connection: TimedConnection, now: float) -> bool:
        """Tell whether a connection can be used again; one that was closed is not at rest."""
        old = connection.opened + (_SOON_OLD if self._standby else _OLD) < now
        return not self._closed and connection.state() == _AT_REST and not old

    def _drop_idle(self) -> None:
        with self._gate:
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()


def _is_node_lost(error: psycopg.Error) -> bool:
    """Tell whether a node of a cluster was lost: the coordinator could not reach it, or is going.

    Of its own end a coordinator speaks in words only.
    """
    state = error.sqlstate or ""
    return state.startswith(("08", "57P0")) or "postmaster was shut down" in str(error)


def _place(connection: TimedConnection) -> tuple[bytes, ...]:
    """Return which of several servers a connection goes to."""
    line = connection.pgconn
    return line.host, line.hostaddr, line.port


def _turn(parts: dict[str, Any], place: tuple[bytes, ...]) -> dict[str, str]:
    """Return the hosts of an address in another order: the one that answered last is the first.

    One that is silent would be waited for with every connection if it were asked before.

    >>> _turn({"host": "one,two,three", "port": "1,2,3"}, (b"two", b"", b"2"))
    {'host': 'two,three,one', 'port': '2,3,1'}
    """
    lists = {
        key: str(parts[key]).split(",") for key in ("host", "hostaddr", "port") if key in parts
    }
    hosts = max(map(len, lists.values()), default=1)
    lists = {key: values * (hosts if len(values) == 1 else 1) for key, values in lists.items()}
    for index in range(hosts if place and hosts > 1 else 0):
        known = (lists.get(key, [""] * hosts)[index] for key in ("host", "hostaddr", "port"))
        if all(
            not given or given == found.decode() for given, found in zip(known, place, strict=True)
        ):
            return {key: ",".join(values[index:] + values[:index]) for key, values in lists.items()}
    return {}


def _adapters() -> AdaptersMap:
    """Send all numbers as bigint, so that a statement is prepared once and not by their sizes."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(int, Int8BinaryDumper)
    return adapters


class _Context:
    """What psycopg takes its adapters from."""

    def __init__(self) -> None:
        self.adapters = _adapters()
        self.connection = None


_CONTEXT: Final = _Context()


def _texts(values: Sequence[str | int]) -> list[bytes]:
    """Return values as they are written for the server, which takes no NUL in any of them.

    >>> _texts(["talk", 7, True])
    [b'talk', b'7', b'True']
    """
    return "\0".join(map(str, values)).encode().split(b"\0")  # at once: one by one takes thrice


def _checked(results: list[PGresult]) -> PGresult:
    """Return the only result of a statement, or raise the error that it is."""
    (result,) = results
    if result.status not in _WELL:
        raise error_from_result(result)
    return result


def _readiness(socket: int) -> Callable[[int], object]:
    """Return a function that tells whether a socket can be read within so many milliseconds."""
    if not hasattr(select, "poll"):
        return lambda _: False
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return poll.poll


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────


class ServerSilent(psycopg.OperationalError):
    """The server does not answer, on this connection or on a new one."""


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits for the server have a limit.

    A server that was stopped, or a network that swallows everything, closes no connection, and
    libpq waits for the next byte without a limit. Here every wait has one. When no byte came for so
    long, another connection asks whether the server is still working on the statement: a long
    statement is waited for as long as the server works on it, and its own `statement_timeout` ends
    that. Otherwise the connection is closed, as if it had been lost.

    `limit` is how many seconds nothing may come before the server is asked; None is no limit.
    `is_at_work` tells whether a process of the server is working, or raises `ServerSilent`.
    `longest` is how many seconds a process may be reported as working before that is an error.
    `owner` is whom every transaction is made for; see `palaver.stores.postgres.row_security`.
    """

    def __init__(self, pgconn: PGconn, row_factory: Any = tuple_row) -> None:  # noqa: ANN401 - psycopg's own
        """Take what libpq has opened."""
        super().__init__(pgconn, row_factory)
        self.limit: float | None = None
        self.longest: float | None = None
        self.is_at_work: Callable[[int], bool] | None = None
        self.owner: str | None = None
        self.opened = self.used = time.monotonic()
        self._asked: Counter[bytes] = Counter()
        self._names: dict[bytes, bytes] = {}  # of prepared statements
        self._readable = _readiness(pgconn.socket)
        _open.connections.add(self)

    # ── an owner, where row security is on ──────────────────────────────────────────────────────

    def begin(self) -> None:
        """Begin a transaction, for the owner if there is one; inside a pipeline."""
        super().execute(b"BEGIN")
        if self.owner is not None:
            super().execute(_FOR_OWNER, (self.owner,))

    def execute(self, query: Any, params: Values | None = None, **named: Any) -> Cursor:  # noqa: ANN401 - psycopg's own
        """Run a statement; for an owner in a transaction of its own, in the same round trip.

        The setting ends with the transaction: through a pooler, the next one on this connection to
        the server may be another's.
        """
        if self.owner is None or self.state() != _AT_REST:
            return super().execute(query, params, **named)
        with self.batch():
            return super().execute(query, params, **named)

    @contextmanager
    def transaction(self, *arguments: Any, **named: Any) -> Generator[psycopg.Transaction]:  # noqa: ANN401 - psycopg's own
        """Run the block in a transaction, for the owner if there is one."""
        outermost = self.state() == _AT_REST
        with super().transaction(*arguments, **named) as made:
            if self.owner is not None and outermost:
                super().execute(_FOR_OWNER, (self.owner,))
            yield made

    @contextmanager
    def batch(self) -> Generator[None]:
        """Send several statements in one round trip; for an owner in a transaction of their own."""
        if self.owner is None:
            with self.pipeline():
                yield
            return
        try:
            with self.pipeline():
                self.begin()
                yield
                super().execute(b"COMMIT")
        except psycopg.Error:
            if not self.closed:
                self.rollback()
            raise

    def state(self) -> tuple[Any, Any]:
        """Return whether a transaction or a pipeline is under way."""
        return self.pgconn.transaction_status, self.pgconn.pipeline_status

    def is_broken(self) -> bool:
        """Tell whether it is closed, or in a pipeline that it can't leave: its server went away."""
        return self.closed or self.pgconn.pipeline_status != PipelineStatus.OFF

    def ask(self, statement: bytes, values: Values) -> tuple[Any, ...] | None:
        """Run a statement that answers with a list of numbers, and return the row that has it.

        With values by position, none of which is None, it is prepared when it comes for the third
        time, and then sent without a cursor of psycopg's, which takes as long for an append as
        everything else that the client does.
        """
        if self.owner is not None or self.prepare_threshold is None or isinstance(values, Mapping):
            return self.execute(statement, values).fetchone()
        name = self._names.get(statement)
        if name is None:
            self._asked[statement] += 1
            if self._asked[statement] < _OFTEN:  # preparing it is a round trip of its own
                return self.execute(statement, values).fetchone()
            name = self._prepare_once(statement)
        self.pgconn.send_query_prepared(name, _texts(values))
        try:
            found = self._answer().get_value(0, 0)
        except errors.InvalidSqlStatementName:  # psycopg drops all of them after a rollback
            self._names.clear()
            raise
        return None if found is None else ([int(number) for number in found[1:-1].split(b",")],)

    def _prepare_once(self, statement: bytes) -> bytes:
        """Prepare a statement with `%s` for its values, and return its name."""
        first, *others = statement.split(b"%s")
        numbered = [b"$%d%s" % (number, text) for number, text in enumerate(others, 1)]
        name = b"palaver_%d" % len(self._names)
        self.pgconn.send_prepare(name, first + b"".join(numbered))
        self._answer()
        self._names[statement] = name
        return name

    def _answer(self) -> PGresult:
        """Return the result of the statement that was sent, or raise the server's error.

        What comes within a tenth of a second is taken straight from the socket.
        """
        line = self.pgconn
        results: list[PGresult] = []
        if line.flush() == 0 and self._readable(_SOON):
            line.consume_input()
            while not line.is_busy():
                result = line.get_result()
                if result is None:
                    return _checked(results)
                results.append(result)
        results += self.wait(generators.execute(line))
        return _checked(results)

    def wait(self, gen: PQGen[_T], *args: Any, **kwargs: Any) -> _T:  # noqa: ANN401 - psycopg's own
        """Wait for the server's answer, and no longer than the limit for each part of it."""
        if self.limit is not None:
            gen = self._watched(gen, self.limit)
        return super().wait(gen, *args, **kwargs)

    def _watched(self, gen: PQGen[_T], limit: float) -> Generator[Any, Any, _T]:
        """Pass everything on; psycopg returns here every tenth of a second while nothing came."""
        last = time.monotonic()
        end = last + limit
        doubted = False
        ready: Any = None
        try:
            while True:
                ready = yield gen.send(ready)
                now = time.monotonic()
                if ready:
                    last, end, doubted = now, now + limit, False
                elif now > end:
                    works = self._ask(now - last)
                    if doubted and not works:
                        self._give_up(now - last)
                    doubted = not works  # it may have just finished: the answer comes next, then
                    end = time.monotonic() + (limit if works else 0)
        except StopIteration as over:
            found: _T = over.value
            return found

    def _ask(self, seconds: float) -> bool:
        """Ask on another connection whether the server still works on the statement."""
        try:
            ask = self.is_at_work if seconds < (self.longest or math.inf) else None
            return ask is not None and ask(self.pgconn.backend_pid)
        except ServerSilent:
            self.close()
            raise

    def _give_up(self, seconds: float) -> NoReturn:
        self.close()
        msg = f"the server did not answer for {seconds:.3g} s"
        raise psycopg.OperationalError(msg)


class _OpenConnections:
    """Every connection that this process has opened."""

    def __init__(self) -> None:
        self.connections: WeakSet[TimedConnection] = WeakSet()
        restart_in_child(self, first=True)

    def after_fork_in_child(self) -> None:
        """Let go of the parent's sockets without closing them, which would end its sessions.

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


_open: Final = _OpenConnections()


# ── addresses ───────────────────────────────────────────────────────────────────────────────────

_QUOTED: Final = re.compile(r'"[^"]*"?')
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]*\]|[^:\[\]@]*)(:[0-9]*)?")


def parse_address(address: str) -> dict[str, Any]:
    """Split `postgresql://user:password@host:port/database?option=value` into libpq's parts.

    A malformed address can have the password anywhere, and libpq quotes what it does not
    understand. So errors quote nothing of the address, and libpq's message loses its quotes.

    >>> parse_address("postgresql://me@localhost/talks")["dbname"]
    'talks'
    """
    if not address.isprintable():
        _refuse("there is a character in it that can't be printed")
    authority, _, _ = address.partition("://")[2].partition("?")[0].partition("/")
    path = address.partition("://")[2].partition("?")[0].partition("/")[2]
    _, _, hosts = authority.rpartition("@")
    if authority.count("@") > 1 or "@" in path:
        _refuse("there is more than one @, or one after the host")
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        _refuse("behind the host and a colon comes the port, a number")
    try:
        return dict(conninfo_to_dict(address))
    except psycopg.Error as error:
        reason = _QUOTED.sub("(not shown)", str(error).strip().partition("\n")[0])
    return _refuse(reason)


def _refuse(reason: str) -> NoReturn:
    msg = (
        f"that is not a PostgreSQL address: {reason}; expected "
        "postgresql://user:password@host:port/database?option=value, with every special character "
        "of the password percent-encoded (@ is %40, / is %2F, : is %3A, ? is %3F, # is %23)"
    )
    raise StoreError(msg)


# ── migrations ──────────────────────────────────────────────────────────────────────────────────


def migrate(
    connection: TimedConnection,
    *,
    upto: int | None = None,
    migrated: Callable[..., None] = lambda _, *, new: None,  # noqa: ARG005 - nothing to do
) -> tuple[int, int]:
    """Bring the schema to the newest version, in one transaction; return what it was and is.

    `migrated` is called at the end of the transaction, with whether the store is `new`.
    """
    steps = load_migrations(_PACKAGE)
    newest = steps[-1][0] if upto is None else upto
    before = version = _schema_version(connection)
    if version > steps[-1][0]:
        msg = (
            f"the store was written by a newer palaver (schema {version}, this one knows {newest})"
        )
        raise StoreError(msg)
    if version < newest:
        connection.longest = None  # large tables take their time
        with connection.transaction():
            connection.execute(STATEMENTS["migration_lock"])
            connection.execute(b"SET LOCAL statement_timeout = 0")
            connection.execute(b"SET LOCAL row_security = off")  # all rows, or an error
            connection.execute(STATEMENTS["one_by_one"])  # which only a cluster reads
            version = _schema_version(connection)  # another process may have been quicker
            new = version < 0
            if new:
                for name in ("found", "found_store", "begin_store"):
                    connection.execute(STATEMENTS[name])
            for number, statements in steps:
                if version < number <= newest:
                    _run_all(connection, statements)
            if upto is None:
                _run_all(connection, _FUNCTIONS)
                migrated(connection, new=new)
            connection.execute(STATEMENTS["note_version"], (max(version, newest),))
    return max(before, 0), max(version, newest)


def _run_all(connection: TimedConnection, text: str) -> None:
    """Run statements one by one: Citus hands on the text of what it is given, as one statement."""
    start = 0
    for found in _QUOTED_OR_END.finditer(text):
        if found[0] == ";":
            connection.execute(text[start : found.end()].encode())
            start = found.end()
    connection.execute(text[start:].encode())  # the last may have no semicolon


def _schema_version(connection: TimedConnection) -> int:
    """Return the schema's version, -1 where there is none."""
    (present,) = connection.execute(STATEMENTS["present"]).fetchone() or (False,)
    if not present:
        return -1
    row = connection.execute(STATEMENTS["standing"]).fetchone()
    return -1 if row is None else int(row[0])


def shift_numbers(
    connection: TimedConnection, find: Callable[[TimedConnection], int] | None = None
) -> None:
    """Let journal numbers go on rising on a server whose transaction numbers are behind them.

    That is a server into which the store was restored from a dump. `find` returns how far they are
    ahead, where there are several servers.
    """
    find = find or _ahead
    if find(connection) > 0:
        with connection.transaction():
            connection.execute(STATEMENTS["migration_lock"])
            if find is not _ahead:
                connection.execute(STATEMENTS["one_by_one"])
            ahead = find(connection)  # another process may have been quicker
            if ahead > 0:
                connection.execute(STATEMENTS["shift"], (ahead,))
                connection.execute(STATEMENTS["define_shift"])


def _ahead(connection: TimedConnection) -> int:
    row = connection.execute(STATEMENTS["ahead"]).fetchone()
    return 0 if row is None else int(row[0])
