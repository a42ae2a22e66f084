"""Running a server: a socket, uvicorn on it, and an end that loses nothing.

Told to stop (SIGTERM, Ctrl-C), it takes no new requests, ends the streams and the steps at work,
answers what it has begun to answer, and then goes. What clients may do with their connections is
said in `connections`.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from palaver.errors import PalaverError
from palaver.server.connections import Config, Connections
from palaver.server.limits import limited_logs

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.server.app import App

__all__ = ["AddressTaken", "bound", "serve"]

_PATIENCE: Final = 20
_WAITING: Final = 2_048
_ACCEPTED: Final = 64
"""How many connections are accepted before other work has its turn."""
_OTHER_FILES: Final = 400
"""Kept free for the store's files and for connections that were accepted and not yet counted."""
_log = logging.getLogger("palaver.server")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class AddressTaken(PalaverError):  # noqa: N818 - as palaver's other errors
    """Somebody else listens there already, or nobody may."""


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes any that is free.

    >>> with bound("127.0.0.1", 0) as found:
    ...     found.getsockname()[1] > 0
    True
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        msg = f"there is no address {host!r}: {error.strerror or error}"
        raise AddressTaken(msg) from None
    found = socket.socket(family, kind, number)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_WAITING)  # whoever knows the address may ask: it is answered when all is up
    except OSError as error:
        found.close()
        msg = (
            f"can't listen at {host} port {port}: {error.strerror or error}; "
            "another port is chosen with --port, and --port 0 takes any that is free"
        )
        raise AddressTaken(msg) from None
    return found


class _Server(uvicorn.Server):
    """uvicorn, which waits for streams to end by themselves: these are told to."""

    def __init__(self, app: App, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop at the usual signals; stopping well is no failure, so they are not raised again."""
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
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_WAITING)  # the loop has set it to the number it accepts at a time

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.service.stop()
        await super().shutdown(sockets)


def serve(app: App, listening: socket.socket, **settings: Any) -> None:  # noqa: ANN401 - uvicorn's
    """Serve until told to stop."""
    limits = app.service.settings
    connections = Connections(limits, _possible(limits.connections))
    app.service.connections = connections
    config = Config(
        app,
        connections,
        log_level="warning",
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=_PATIENCE,
        backlog=_ACCEPTED,
        **settings,
    )
    with limited_logs():
        _Server(app, config).run([listening])


def _possible(wanted: int) -> int:
    """How many connections may be open: as many as are wanted, if there can be so many files."""
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
