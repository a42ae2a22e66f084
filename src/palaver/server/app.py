"""The application: the gate before everything, the routes, the page.

`make_app` is all of it. A request passes the gate (spelling, name, origin, token), then the limits,
then its route; every answer leaves with the same headers, and everything that goes wrong leaves as
a problem. Files of the page pass the same gate and then leave at once, without litestar. A request
counts as being processed only once its body has arrived: unfinished ones take no place from others.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from palaver.messages.parts import UnknownPart
from palaver.server.bodies import Bodies
from palaver.server.limits import Rate
from palaver.server.problems import MEDIA, Refusal, answer
from palaver.server.routes import ROUTES
from palaver.server.security import HEADERS, OPEN, read_headers, read_path
from palaver.server.service import Service
from palaver.server.static import the_page
from palaver.server.teams import Teams
from palaver.server.working import Workshop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litestar.connection import ASGIConnection
    from litestar.handlers import BaseRouteHandler
    from litestar.types import HTTPScope, Message, Receive, Scope, Send

    from palaver.server.settings import Settings
    from palaver.stores import Store

__all__ = ["App", "make_app"]

_HEALTH = "/api/health"  # answered whatever the load is
_EVENTS = "/api/events"  # streams last, and have a limit of their own: see `live`
_OPEN_BODY = 16 * 1024  # for whoever has not shown the token
_FILES = frozenset(("GET", "HEAD"))
_READS = frozenset(("GET", "HEAD", "OPTIONS"))


def make_app(store: Store, settings: Settings) -> App:
    """Put a store behind an ASGI application; the store stays the caller's to close.

    >>> import palaver
    >>> from palaver.server import Settings
    >>> from litestar.testing import TestClient
    >>> app = make_app(palaver.open(":memory:"), Settings(token="a-token-for-this-example"))
    >>> with TestClient(app, base_url="http://127.0.0.1:7007") as client:
    ...     client.get("/api/health").json()["status"]
    'ok'
    """
    service = Service(store, settings)

    async def provided() -> Service:
        return service

    @asynccontextmanager
    async def running(app: Litestar) -> AsyncGenerator[None, None]:
        del app
        await service.start()
        await service.part(Workshop).start()
        await service.part(Teams).start()
        try:
            yield
        finally:
            await service.stop()

    return App(
        service,
        route_handlers=ROUTES,
        dependencies={"service": Provide(provided)},
        dto=Bodies,
        return_dto=Bodies,
        exception_handlers={Exception: answer},
        guards=[_writes] if settings.read_only else None,  # litestar pays for each that is there
        lifespan=[running],
        logging_config=None,
        openapi_config=None,
        request_max_body_size=settings.body,
        state=State({"service": service}),
        type_encoders={UnknownPart: lambda part: part.raw},
    )


async def _writes(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Refuse a change where nothing may be changed; a route says of itself that it only reads."""
    method = cast("HTTPScope", connection.scope)["method"]
    if method not in _READS and not handler.opt.get("reads"):
        raise Refusal(403, "this server is read-only")


class App(Litestar):
    """A litestar application with a gate before it, which nothing can go around."""

    def __init__(self, service: Service, **configured: Any) -> None:  # noqa: ANN401 - Litestar's
        """Take the service, and everything that litestar takes."""
        super().__init__(**configured)
        self.service = service
        self._gate = service.gate
        self._settings = service.settings
        self._page = the_page()
        self._rate = Rate(self._settings.rate)
        self._working = 0

    async def __call__(self, scope: Scope | Any, receive: Receive | Any, send: Send | Any) -> None:  # noqa: ANN401 - as litestar has it
        """Let a request in, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are none here"})
            return
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        asked = cast("HTTPScope", scope)
        leaving = _Leaving(asked, send, self.service)
        try:
            headers = self._admit(asked)
            path = asked["path"]
            if self._page.has(path):
                file = self._page.answer(asked["method"], path, headers)
                await leaving.whole(file.status, file.headers, file.body, is_file=True)
                return
            if path != _HEALTH:
                is_open = (asked["method"], path) in OPEN
                most = min(_OPEN_BODY, self._settings.body) if is_open else self._settings.body
                body = await _received(headers, receive, most)
                if body is None:
                    return
                receive = _Replayed(body, receive)
        except Refusal as refusal:
            await leaving.refuse(refusal)
            return
        await self._process(asked, receive, leaving)

    async def _process(self, scope: HTTPScope, receive: Receive, leaving: _Leaving) -> None:
        """Let litestar answer a request that has arrived as a whole, if there is room for it."""
        counted = scope["path"] not in {_EVENTS, _HEALTH}
        if counted and self._working >= self._settings.requests:
            busy = Refusal(429, "too many requests at once", headers={"Retry-After": "1"})
            await leaving.refuse(busy)
            return
        self._working += counted
        try:
            await super().__call__(scope, receive, leaving.send)
        finally:
            self._working -= counted

    def _admit(self, scope: HTTPScope) -> dict[str, str]:
        """Refuse what may not come in, and tell the connection; the headers of what may."""
        client, connections = scope.get("client"), self.service.connections
        shown = False
        try:
            headers, shown = self._check(scope)
        finally:
            if connections is not None and client is not None:
                connections.judge(client, trusted=shown)
        return headers

    def _check(self, scope: HTTPScope) -> tuple[dict[str, str], bool]:
        """Refuse what may not come in; the headers of what may, and whether it has the token."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        method, path = scope["method"], read_path(raw.partition(b"?")[0])
        scope["path"] = path
        headers = read_headers(scope["headers"])
        server, client = scope.get("server"), scope.get("client")
        port = server[1] if server else None
        self._gate.check_host(headers.get("host"), port)
        self._gate.check_origin(headers.get("origin"), headers.get("host"))
        if (method, path) in OPEN or (method in _FILES and self._page.has(path)):
            return headers, False
        try:
            self._gate.check_holder(method, headers, port)
        except Refusal:
            self.service.guessed(client)
            raise
        self._rate.check(client[0] if client else "")
        return headers, True


async def _received(headers: dict[str, str], receive: Receive, most: int) -> list[bytes] | None:
    """Receive a whole body, in the pieces in which it comes; None if the client went away."""
    declared = headers.get("content-length", "")
    pieces: list[bytes] = []
    size = int(declared[:20]) if declared.isascii() and declared.isdecimal() else 0
    more, arrived = True, 0
    while more:
        if max(size, arrived) > most:
            raise Refusal(413, f"the body is too large: at most {most} bytes are taken")
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece, more = message.get("body", b""), message.get("more_body", False)
        pieces.append(piece)
        arrived += len(piece)
    return pieces


class _Replayed:
    """A body that has been received, for whoever receives it next."""

    def __init__(self, pieces: list[bytes], receive: Receive) -> None:
        self._pieces = pieces[::-1]
        self._receive = receive

    async def __call__(self) -> Any:  # noqa: ANN401 - an event of ASGI
        if not self._pieces:
            return await self._receive()
        piece = self._pieces.pop()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}


class _Leaving:
    """An answer on its way out: it gets the headers, and is counted."""

    def __init__(self, scope: HTTPScope, send: Send, service: Service) -> None:
        self._method = scope["method"]
        self._send = send
        self._service = service
        self._begun = time.monotonic()

    async def send(self, message: Message, *, is_file: bool = False) -> None:
        """Send a part of the answer; only the page's files may be stored by browsers."""
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *HEADERS]
            if not is_file:
                headers = [pair for pair in headers if pair[0].lower() != b"cache-control"]
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
            taken = time.monotonic() - self._begun
            self._service.metrics.count(self._method, message["status"], taken)
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, and nothing else."""
        body = msgspec.json.encode(refusal.problem)
        headers = {**refusal.headers, "content-type": MEDIA, "content-length": str(len(body))}
        pairs = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        await self.whole(refusal.problem.status, pairs, body)

    async def whole(
        self,
        status: int,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        *,
        is_file: bool = False,
    ) -> None:
        """Send an answer that is known as a whole."""
        start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        await self.send(start, is_file=is_file)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
