"""Run a server: bind a socket, run uvicorn on it, and shut down without losing anything.

On SIGTERM or Ctrl-C the server takes no new requests, ends the streams and the running steps,
finishes the responses that it has begun, and exits.

A connection always has a deadline, except while a complete request is being answered and the client
reads. If there are too many connections, the one that has waited longest is closed; one that has
shown the token is closed only if there is no other. So a client that sends complete requests is
answered however many others wait, from its own address or from another.
"""

from __future__ import annotations

import logging
import math
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palaver.errors import PalaverError
from palaver.server.errors import PROBLEM_JSON, RequestRefused
from palaver.server.openai.socket import PATH as SOCKET_PATH
from palaver.server.security import HEADERS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from palaver.server.app import App
    from palaver.server.settings import Settings

__all__ = [
    "AddressUnavailable",
    "ClientConnection",
    "ClientConnections",
    "UvicornConfig",
    "bind",
    "serve",
]


State: TypeAlias = Literal["idle", "head", "body", "rest", "working", "closing"]
"""What a connection waits for: a request, the rest of its head or body, the rest of a body whose
request is answered already, the response, or its own end."""

_Queue: TypeAlias = (
    "dict[ClientConnection, None]"  # in the order of insertion: the oldest is the first
)

_CLOSING_SECONDS: Final = 5
_WAITING: Final = frozenset(("idle", "head", "body", "rest"))
_UNFINISHED: Final = frozenset(("head", "body", "rest"))


class ClientConnections:
    """All connections of a server, with the limits on their numbers."""

    def __init__(self, settings: Settings, most: int) -> None:
        """Take the limits; `most` is how many connections may be open."""
        self.settings = settings
        self._most = most
        self._open: set[ClientConnection] = set()
        self._newest: dict[
            tuple[str, int], ClientConnection
        ] = {}  # by the client's address and port
        self._waiting: dict[bool, _Queue] = {False: {}, True: {}}
        self._peers: dict[str, _Peer] = {}

    def add(self, connection: ClientConnection) -> bool:
        """Add a new connection, and close another if there are too many.

        Return False if every open connection is being answered, so that none can be closed.
        """
        if len(self._open) >= self._most:
            oldest = _oldest(self._waiting, connection)
            if oldest is None:
                return False
            oldest.close_early()
        self._open.add(connection)
        self._newest[connection.address] = connection
        self._peers.setdefault(connection.peer, _Peer()).number += 1
        return True

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection that is closed."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        # after a reset the client may use its port again before the old end is noticed here
        if self._newest.get(connection.address) is connection:
            del self._newest[connection.address]
        self._unqueue(connection)
        peer = self._peers[connection.peer]
        peer.number -= 1
        if not peer.number:
            del self._peers[connection.peer]

    def set_trusted(self, client: tuple[str, int], *, trusted: bool) -> None:
        """Record whether the request that a connection has begun shows the token."""
        connection = self._newest.get((client[0], client[1]))
        if connection is not None:
            connection.set_trusted(trusted=trusted)

    def queue(self, connection: ClientConnection) -> None:
        """Queue a connection that waits; close others of its peer if too many wait."""
        if connection not in self._open:
            return
        if connection.is_queued:
            self._unqueue(connection)
        if not connection.is_waiting:
            return
        connection.is_queued = True
        peer, limits = self._peers[connection.peer], self.settings
        self._waiting[connection.trusted][connection] = None
        peer.waiting[connection.trusted][connection] = None
        if connection.is_unfinished and not connection.trusted:
            peer.unfinished[connection] = None
            if len(peer.unfinished) > limits.peer_unfinished:
                next(iter(peer.unfinished)).close_early()
        if sum(map(len, peer.waiting.values())) > limits.peer_connections:
            oldest = _oldest(peer.waiting, connection)
            if oldest is not None:
                oldest.close_early()

    def _unqueue(self, connection: ClientConnection) -> None:
        connection.is_queued = False
        peer = self._peers[connection.peer]
        peer.unfinished.pop(connection, None)
        for queues in (self._waiting, peer.waiting):
            for queue in queues.values():
                queue.pop(connection, None)


class _Peer:
    """The connections of one network address."""

    def __init__(self) -> None:
        self.number = 0
        self.waiting: dict[bool, _Queue] = {False: {}, True: {}}
        self.unfinished: _Queue = {}


def _oldest(queues: dict[bool, _Queue], new: ClientConnection) -> ClientConnection | None:
    """The connection to close for a new one: the oldest, those without the token first."""
    return next(
        (one for trusted in (False, True) for one in queues[trusted] if one is not new), None
    )


class UvicornConfig(uvicorn.Config):
    """uvicorn's configuration, with the connections that its protocols share."""

    def __init__(self, app: Any, connections: ClientConnections, **more: Any) -> None:  # noqa: ANN401 - uvicorn's
        """Take the application, its connections, and everything that uvicorn takes."""
        idle = math.ceil(connections.settings.idle_seconds)  # uvicorn's own timer is no earlier
        super().__init__(
            app,
            http=ClientConnection,
            ws=SocketConnection,
            ws_max_size=connections.settings.body,
            ws_per_message_deflate=False,  # a small message could be a large one
            timeout_keep_alive=idle,
            **more,
        )
        self.connections = connections


class ClientConnection(H11Protocol):
    """uvicorn's protocol for HTTP/1.1, with time limits."""

    def __init__(self, config: UvicornConfig, **more: Any) -> None:  # noqa: ANN401 - uvicorn's
        """Start without a transport."""
        super().__init__(config, **more)
        self.trusted = False
        self.is_queued = False  # maintained by `ClientConnections`
        self.address = ("", 0)
        self._connections = config.connections
        self._limits = config.connections.settings
        self._state: State = "idle"
        self._since = self._paused = 0.0
        self._arrived = 0
        self._is_checked = False
        self._is_handed_over = False  # to the protocol of WebSockets
        self._seen: object = None  # the request that the state is about
        self._timer: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> str:
        """The network address of the client."""
        return self.address[0]

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send something next."""
        return self._state in _WAITING and (self._state != "body" or self._is_checked)

    @property
    def is_unfinished(self) -> bool:
        """Whether the client has sent a part of a request."""
        return self._state in _UNFINISHED and self.is_waiting

    # ── called by uvicorn and asyncio ───────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        self.address = self.client or ("", id(self))
        self._since = self.loop.time()
        if not self._connections.add(self):
            transport.abort()
            return
        self._connections.queue(self)
        self._schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer and remove the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        self._arrived += len(data)
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one.

        A client without the token sends one request at a time: a single packet could hold
        hundreds of them. Requests that were not answered may be sent again.
        """
        is_pipelined = self.conn.their_state is h11.DONE and self.conn.trailing_data[0]
        if is_pipelined and not self.trusted:
            self.transport.close()
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read what has been sent."""
        super().pause_writing()
        self._paused = self.loop.time()
        self._schedule()

    def resume_writing(self) -> None:
        """Continue without that limit."""
        super().resume_writing()
        self._schedule()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._refuse(RequestRefused(400, msg))

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore an upgrade, as HTTP allows, without a warning."""

    def _should_upgrade_to_ws(self) -> bool:
        """Take WebSockets at the one path that has them; elsewhere the upgrade is ignored."""
        return (self.scope["method"], self.scope["path"]) == ("GET", SOCKET_PATH)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over; it still counts as one."""
        self._is_handed_over = True
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        if isinstance(protocol, SocketConnection):
            protocol.on_lost = lambda: self._connections.remove(self)

    # ── states and deadlines ────────────────────────────────────────────────────────────────────

    def set_trusted(self, *, trusted: bool) -> None:
        """Record whether the request that has begun shows the token."""
        self.trusted, self._is_checked = trusted, True
        if self._state == "body":
            self._connections.queue(self)

    def close_early(self) -> None:
        """Close the connection before the client has sent what it should have."""
        if self._state in {"head", "body"} and not self.transport.get_write_buffer_size():
            self._refuse(RequestRefused(408, "the request did not arrive in time"))
        elif self._state == "idle" and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.transport.abort()
        self._update()

    def _update(self) -> None:
        """Determine what the connection waits for, and since when."""
        state = self._current_state()
        if state == self._state and self.cycle is self._seen:
            return
        if self.cycle is not self._seen:
            self._is_checked = False
        self._state, self._seen = state, self.cycle
        self._since, self._arrived = self.loop.time(), 0
        self._connections.queue(self)
        self._schedule()

    def _current_state(self) -> State:
        if self.transport.is_closing():
            return "closing"
        if self._is_handed_over:
            return "working"
        theirs = self.conn.their_state
        if theirs is h11.IDLE:
            return "head" if self.conn.trailing_data[0] else "idle"
        if theirs is h11.SEND_BODY:
            return "rest" if self.cycle.response_complete else "body"
        return "working"

    def _deadline(self) -> float | None:
        """The time at which the connection is closed, on the loop's clock."""
        limits = self._limits
        if self._state == "closing":
            return self._since + _CLOSING_SECONDS
        if self.flow.write_paused:
            return self._paused + limits.write_seconds
        if self._state == "body":
            return self._since + limits.body_seconds + self._arrived / limits.body_rate
        seconds: dict[State, float] = {
            "idle": limits.idle_seconds,
            "head": limits.head_seconds,
            "rest": limits.body_seconds,
        }
        return self._since + seconds[self._state] if self._state in seconds else None

    def _schedule(self) -> None:
        """Set a timer for the deadline; a timer that fires early is set again."""
        deadline = self._deadline()
        if deadline is None or (self._timer is not None and self._timer.when() <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        deadline = self._deadline()
        if deadline is None:
            return
        if self.loop.time() < deadline:
            self._schedule()
        elif self._state == "closing" or self.flow.write_paused:
            self.transport.abort()
        else:
            self.close_early()

    def _refuse(self, refusal: RequestRefused) -> None:
        """Send a refusal without the application, if nothing was sent yet, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True  # what the application sends now is dropped
            body = msgspec.json.encode(refusal.problem)
            headers = [
                *HEADERS,
                (b"cache-control", b"no-store"),
                (b"content-type", PROBLEM_JSON.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            status = refusal.problem.status
            reason = refusal.problem.title.encode()
            start = h11.Response(status_code=status, headers=headers, reason=reason)
            with suppress(h11.LocalProtocolError):
                for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class SocketConnection(WebSocketsSansIOProtocol):
    """uvicorn's protocol for WebSockets, which says when the connection is lost."""

    on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)


_SHUTDOWN_SECONDS: Final = 20
_BACKLOG: Final = 2_048
_ACCEPTED_AT_ONCE: Final = 64
"""How many connections are accepted before other work runs."""
_OTHER_FILES: Final = 400
"""Files reserved for the store and for connections that are accepted but not counted yet."""
_LOGGERS: Final = ("asyncio", "uvicorn.error", "palaver.server")
_log = logging.getLogger("palaver.server")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class AddressUnavailable(PalaverError):  # noqa: N818 - as palaver's other errors
    """The address is in use, is not allowed, or does not exist."""


def bind(host: str, port: int) -> socket.socket:
    """Create a socket that listens at an address; port 0 takes any free port.

    >>> with bind("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[1] > 0
    True
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        msg = f"there is no address {host!r}: {error.strerror or error}"
        raise AddressUnavailable(msg) from None
    found = socket.socket(family, kind, number)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)  # requests may come now; they are answered after startup
    except OSError as error:
        found.close()
        msg = (
            f"can't listen at {host} port {port}: {error.strerror or error}; "
            "another port is chosen with --port, and --port 0 takes any that is free"
        )
        raise AddressUnavailable(msg) from None
    return found


class _Server(uvicorn.Server):
    """A uvicorn server that ends streams and steps before it waits for responses."""

    def __init__(
        self, app: App, config: uvicorn.Config, on_ready: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on SIGINT and SIGTERM without raising them again: a clean stop is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # before uvicorn starts, so that an error here reaches the caller of `serve`
        await self._app.service.steps.open_tools()
        await self._app.service.teams.start()
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)  # the loop has set it to _ACCEPTED_AT_ONCE
        if self._on_ready is not None:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.service.stop()
        await super().shutdown(sockets)


def serve(
    app: App,
    listening: socket.socket,
    on_ready: Callable[[], None] | None = None,
    **settings: Any,  # noqa: ANN401 - uvicorn's
) -> None:
    """Serve until a signal stops the server; `on_ready` is called when requests are answered.

    Raises `ToolUnreachable` or `ValidationError` before that if the given tools can't be used, and
    another `PalaverError` if the team file can't.
    """
    limits = app.service.settings
    connections = ClientConnections(limits, _raise_file_limit(limits.connections))
    app.service.connections = connections
    config = UvicornConfig(
        app,
        connections,
        log_level="warning",
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_ACCEPTED_AT_ONCE,
        **settings,
    )
    with limit_logs():
        _Server(app, config, on_ready).run([listening])


def _raise_file_limit(wanted: int) -> int:
    """Raise the limit of open files, and return how many connections it allows."""
    if sys.platform == "win32":
        return wanted
    import resource  # noqa: PLC0415 - not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        raised = files if hard == resource.RLIM_INFINITY else min(files, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError) as error:  # pragma: no cover - systems with a lower limit
            _log.warning("the limit of open files stays at %d: %s", soft, error)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    possible = max(soft // 4, soft - _OTHER_FILES)
    _log.warning("at most %d connections: this process may open %d files", possible, soft)
    return possible


class LogLimit(logging.Filter):
    """A filter that passes one record a second for each line of code and exception type.

    The next record that passes says how many were dropped before it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing logged."""
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[str, int, type[BaseException] | None], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is logged."""
        kind = record.exc_info[0] if record.exc_info else None
        key, now = (record.pathname, record.lineno, kind), self._clock()
        then, left_out = self._last.get(key, (-1.0, 0))
        if key in self._last and now - then < 1:
            self._last[key] = (then, left_out + 1)
            return False
        self._last[key] = (now, 0)
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more like this)"
            record.args = None
        return True


@contextmanager
def limit_logs() -> Generator[None]:
    """Apply a `LogLimit` to the server's loggers inside the block."""
    limit = LogLimit()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(limit)
