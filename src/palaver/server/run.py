"""Run a server: bind a socket, run uvicorn on it, and shut down without losing anything.

On SIGTERM or Ctrl-C the server takes no new requests, ends the streams and the running steps,
finishes the responses that it has begun, and exits. The limits on connections are in `connections`.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from palaver.errors import PalaverError
from palaver.server.connections import ClientConnections, UvicornConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from palaver.server.app import App

__all__ = ["AddressUnavailable", "bind", "serve"]


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

    Raises `ToolUnreachable` or `ValidationError` before that if the given tools can't be used.
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
