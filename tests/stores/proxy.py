"""A proxy between a client and PostgreSQL that cuts the connection when it is told to.

Or it hushes it: the connection stays open, and nothing comes through any more.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

from tests.stores.postgres_frontend import Ear
from tests.stores.postgres_server import PORT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["Proxy"]

When = Literal["before", "after", "between"]


class Proxy:
    """Passes everything on, until something is said that it waits for: a word, or a commit.

    "before": the server never gets it. "after": the server does it and answers, and the client
    never gets the answer. "between": the server gets it, and the connection is cut at once.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        """Listen on a socket in a folder, for a server whose socket is in another."""
        self._server = str(server / f".s.PGSQL.{PORT}")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listener.listen()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._word: bytes | None = None
        self._commit = False
        self._when: When = "after"
        self._hush = False
        self._all = threading.Event()
        self.cuts = 0
        self.trips = 0  # how often a client waited for an answer
        self._start(self._accept)

    def cut(self, word: bytes, when: When) -> None:
        """Cut the connection on which a word is said, once."""
        self._when, self._word, self._hush = when, word, False

    def cut_commit(self, when: When) -> None:
        """Cut the connection on which something is committed, once."""
        self._when, self._commit, self._hush = when, True, False

    def hush(self, word: bytes, when: When) -> None:
        """Let nothing more through on the connection on which a word is said, once."""
        self._when, self._word, self._hush = when, word, True

    def hush_all(self) -> None:
        """Let nothing through on any connection that there is, or that comes."""
        self._all.set()

    def spare(self) -> None:
        """Cut nothing, whatever is said."""
        self._word, self._commit = None, False

    def _dooms(self, data: bytes, *, commits: bool) -> bool:
        """Tell whether this is what was waited for; if so, it is waited for no longer."""
        if not (self._commit and commits) and (self._word is None or self._word not in data):
            return False
        self.spare()
        self.cuts += 1
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listener, *self._sockets):
            _shut(each)
        for thread in self._threads:
            thread.join(timeout=60)

    def _start(self, work: Callable[..., None], *values: object) -> None:
        thread = threading.Thread(target=work, args=values, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._sockets += (client, server)
                events = threading.Event(), threading.Event()
                self._start(self._from_client, client, server, *events)
                self._start(self._from_server, client, server, *events)

    def _from_client(
        self,
        client: socket.socket,
        server: socket.socket,
        doomed: threading.Event,
        hushed: threading.Event,
    ) -> None:
        ear = Ear()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                waits = ear.waits
                if hushed.is_set() or self._all.is_set():
                    continue
                doom = self._dooms(data, commits=ear.commits(data))
                self.trips += ear.waits - waits
                if doom:
                    if self._hush:
                        hushed.set()
                        if self._when != "before":
                            server.sendall(data)
                        continue
                    doomed.set()
                    if self._when == "before":
                        break
                    server.sendall(data)
                    if self._when == "between":
                        break
                else:
                    server.sendall(data)
        if not (doomed.is_set() and self._when == "after"):
            _shut(client)
            _shut(server)

    def _from_server(
        self,
        client: socket.socket,
        server: socket.socket,
        doomed: threading.Event,
        hushed: threading.Event,
    ) -> None:
        with suppress(OSError):
            while (data := server.recv(1 << 16)) and not doomed.is_set():
                if not (hushed.is_set() or self._all.is_set()):
                    client.sendall(data)
        _shut(client)
        _shut(server)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
