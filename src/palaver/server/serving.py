"""Running a server: a socket, uvicorn on it, and an end that loses nothing.

Told to stop (SIGTERM, Ctrl-C), it takes no new requests, ends the streams and the steps at work,
answers what it has begun to answer, and then goes.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from palaver.errors import PalaverError

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.server.app import App

__all__ = ["AddressTaken", "bound", "serve"]

_PATIENCE: Final = 20
_WAITING: Final = 2_048
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.service.stop()
        await super().shutdown(sockets)


def serve(app: App, listening: socket.socket, **settings: Any) -> None:  # noqa: ANN401 - uvicorn's
    """Serve until told to stop."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=_PATIENCE,
        backlog=_WAITING,
        **settings,
    )
    _Server(app, config).run([listening])
