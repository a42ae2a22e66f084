"""The ASGI application: the gate in front, the routes and the page behind it, and the metrics.

Every request passes the gate (path, Host, Origin, token), then the limits, then its route. Every
response gets the same security headers, and every error becomes a problem document. The page's
files pass the same gate and are then sent without litestar. A request counts as being processed
only when its whole body has arrived, so unfinished requests take no place from others.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from palaver.messages.parts import UnknownPart
from palaver.server.errors import PROBLEM_JSON, RequestRefused, error_response
from palaver.server.openai import socket
from palaver.server.openai.routes import ROUTES as OPENAI_ROUTES
from palaver.server.openai.routes import Door
from palaver.server.openai.shapes import encode_error, respond_to_error
from palaver.server.requests import BodyDTO
from palaver.server.routes import ROUTES
from palaver.server.security import HEADERS, OPEN, RateLimit, read_headers, read_path
from palaver.server.services import Service
from palaver.server.static import page_files

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litestar import Request, Response
    from litestar.connection import ASGIConnection
    from litestar.handlers import BaseRouteHandler
    from litestar.types import HTTPScope, Message, Receive, Scope, Send

    from palaver.server.settings import Settings
    from palaver.stores import Store

__all__ = ["App", "Metrics", "make_app"]


_HEALTH = "/api/health"  # answered under any load
_OPENAI = "/v1/"  # where errors have OpenAI's form
_EVENTS = "/api/events"  # long streams, with a limit of their own in `live`
_OPEN_BODY = 16 * 1024  # bytes, for a request that needs no token
_API = "/api/"
_FILE_METHODS = frozenset(("GET", "HEAD"))
_ASKED_AS = {"HEAD": "GET", "OPTIONS": "TRACE"}
"""What litestar is asked instead: it has no HEAD, and lists all methods of a path only where it
refuses a method that no path has."""
_READS = frozenset(("GET", "HEAD", "OPTIONS"))


def make_app(store: Store, settings: Settings) -> App:
    """Create an ASGI application that serves a store; the caller closes the store.

    >>> import palaver
    >>> from palaver.server import Settings
    >>> from litestar.testing import TestClient
    >>> app = make_app(palaver.open(":memory:"), Settings(token="a-token-for-this-example"))
    >>> with TestClient(app, base_url="http://127.0.0.1:7007") as client:
    ...     client.get("/api/health").json()["status"]
    'ok'
    """
    service = Service(store, settings)

    door = Door(service)

    async def provide_service() -> Service:
        return service

    async def provide_door() -> Door:
        return door

    @asynccontextmanager
    async def run_service(app: Litestar) -> AsyncGenerator[None, None]:
        del app
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    return App(
        service,
        door,
        route_handlers=[*ROUTES, OPENAI_ROUTES],
        dependencies={"service": Provide(provide_service), "door": Provide(provide_door)},
        dto=BodyDTO,
        return_dto=BodyDTO,
        exception_handlers={Exception: _respond_to_error},
        guards=[_refuse_writes] if settings.read_only else None,  # each costs time per request
        lifespan=[run_service],
        logging_config=None,
        openapi_config=None,
        request_max_body_size=settings.body,
        state=State({"service": service}),
        type_encoders={UnknownPart: lambda part: part.raw},
    )


def _respond_to_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for any exception, in the form that the client of its path knows."""
    respond = respond_to_error if request.scope["path"].startswith(_OPENAI) else error_response
    return respond(request, error)


async def _refuse_writes(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Refuse every request that changes something; a route that only reads says so in `opt`."""
    method = cast("HTTPScope", connection.scope)["method"]
    if method not in _READS and not handler.opt.get("reads"):
        raise RequestRefused(403, "this server is read-only")


class App(Litestar):
    """A litestar application behind a gate that no request can go around."""

    def __init__(self, service: Service, door: Door, **configured: Any) -> None:  # noqa: ANN401 - Litestar's
        """Take the service, its door, and everything that litestar takes."""
        super().__init__(**configured)
        self.service = service
        self.door = door
        self.metrics = Metrics()
        self._gate = service.gate
        self._settings = service.settings
        self._page = page_files()
        self._rate = RateLimit(self._settings.rate)
        self._processing = 0
        self._sockets = 0

    async def __call__(self, scope: Scope | Any, receive: Receive | Any, send: Send | Any) -> None:  # noqa: ANN401 - as litestar has it
        """Answer a request or refuse it."""
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        request = cast("HTTPScope", scope)
        response = _Response(request, send, self.metrics)
        try:
            headers = self._admit(request)
            path = request["path"]
            if self._is_page(path):
                file = self._page.respond(request["method"], path, headers)
                await response.send_whole(file.status, file.headers, file.body, is_file=True)
                return
            if path != _HEALTH:
                is_open = (request["method"], path) in OPEN
                limit = min(_OPEN_BODY, self._settings.body) if is_open else self._settings.body
                body = await _receive_body(headers, receive, limit)
                if body is None:
                    return
                receive = _ReplayedBody(body, receive)
        except RequestRefused as refusal:
            await response.refuse(refusal)
            return
        await self._process(request, receive, response)

    async def _serve_socket(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: ANN401 - ASGI's
        """Let OpenAI's clients in, with the token; there are no other WebSockets."""
        request = cast("HTTPScope", {**scope, "method": "POST"})
        client = scope.get("client")
        try:
            self._admit(request)
            self._check_socket(request["path"])
        except RequestRefused as refusal:
            await _refuse_socket(scope, send, refusal)
            return
        self._sockets += 1
        try:
            await socket.ResponseSocket(
                self.door.responses,
                receive,
                send,
                check=lambda: self._rate.check(client[0] if client else ""),
                most_bytes=self._settings.body,
            ).serve()
        finally:
            self._sockets -= 1

    def _check_socket(self, path: str) -> None:
        if path != socket.PATH:
            raise RequestRefused(404, "there is no WebSocket here")
        if self._settings.read_only:
            raise RequestRefused(403, "this server is read-only")
        if self._sockets >= self._settings.steps:
            raise RequestRefused(429, "too many WebSockets are open")

    async def _process(self, scope: HTTPScope, receive: Receive, response: _Response) -> None:
        """Let litestar answer a request whose body has arrived, if there is room for it."""
        counted = scope["path"] not in {_EVENTS, _HEALTH}
        if counted and self._processing >= self._settings.requests:
            busy = RequestRefused(429, "too many requests at once", headers={"Retry-After": "1"})
            await response.refuse(busy)
            return
        self._processing += counted
        asked = cast("HTTPScope", {**scope, "method": _method_asked(scope)})
        try:
            await super().__call__(asked, receive, response.send)
        finally:
            self._processing -= counted

    def _admit(self, scope: HTTPScope) -> dict[str, str]:
        """Check a request, report the result to its connection, and return its headers."""
        client, connections = scope.get("client"), self.service.connections
        has_token = False
        try:
            headers, has_token = self._check(scope)
        finally:
            if connections is not None and client is not None:
                connections.set_trusted(client, trusted=has_token)
        return headers

    def _check(self, scope: HTTPScope) -> tuple[dict[str, str], bool]:
        """Refuse what may not come in; return the headers, and whether the token was shown."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        method, path = scope["method"], read_path(raw.partition(b"?")[0])
        scope["path"] = path
        headers = read_headers(scope["headers"])
        server, client = scope.get("server"), scope.get("client")
        port = server[1] if server else None
        self._gate.check_host(headers.get("host"), port)
        self._gate.check_origin(headers.get("origin"), headers.get("host"))
        if (method, path) in OPEN or (method in _FILE_METHODS and self._is_page(path)):
            return headers, False
        try:
            self._gate.check_holder(method, headers, port)
        except RequestRefused:
            self._gate.count_guess(client)
            raise
        self._rate.check(client[0] if client else "")
        return headers, True

    def _is_page(self, path: str) -> bool:
        """Tell whether a path is that of one of the page's files."""
        return not path.startswith(_API) and self._page.has(path)


def _has_head(path: str) -> bool:
    """Tell whether HEAD is answered where GET is; live streams have no length and no end."""
    return path.startswith(_API) and path != _EVENTS


def _method_asked(scope: HTTPScope) -> Any:  # noqa: ANN401 - TRACE is none of litestar's
    method, path = scope["method"], scope["path"]
    if method == "HEAD" and not _has_head(path):
        return method
    return _ASKED_AS.get(method, method)


async def _refuse_socket(scope: Any, send: Send, refusal: RequestRefused) -> None:  # noqa: ANN401 - ASGI's
    """Refuse a WebSocket before it is open: with a status, where the server can send one."""
    status, body = encode_error(refusal.problem)
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.problem.detail})
        return
    given = {**refusal.headers, "content-type": "application/json"}
    headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    start: Any = {
        "type": "websocket.http.response.start",
        "status": status,
        "headers": [*headers, *HEADERS],
    }
    end: Any = {"type": "websocket.http.response.body", "body": body}
    await send(start)
    await send(end)


async def _receive_body(
    headers: dict[str, str], receive: Receive, limit: int
) -> list[bytes] | None:
    """Receive a whole body, piece by piece; None if the client went away."""
    declared = headers.get("content-length", "")
    pieces: list[bytes] = []
    size = int(declared[:20]) if declared.isascii() and declared.isdecimal() else 0
    more, arrived = True, 0
    while more:
        if max(size, arrived) > limit:
            raise RequestRefused(413, f"the body is too large: at most {limit} bytes are taken")
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece, more = message.get("body", b""), message.get("more_body", False)
        pieces.append(piece)
        arrived += len(piece)
    return pieces


class _ReplayedBody:
    """An ASGI `receive` that replays a body which was received already."""

    def __init__(self, pieces: list[bytes], receive: Receive) -> None:
        self._pieces = pieces[::-1]
        self._receive = receive

    async def __call__(self) -> Any:  # noqa: ANN401 - an event of ASGI
        if not self._pieces:
            return await self._receive()
        piece = self._pieces.pop()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}


class _Response:
    """A response on its way out: it gets the common headers and is counted."""

    def __init__(self, scope: HTTPScope, send: Send, metrics: Metrics) -> None:
        self._method = scope["method"]
        self._has_head = _has_head(scope["path"])
        self._is_openai = scope["path"].startswith(_OPENAI)
        self._send = send
        self._metrics = metrics
        self._begun = time.monotonic()

    async def send(self, message: Message, *, is_file: bool = False) -> None:
        """Send a part of the response; browsers may only cache the page's files."""
        if message["type"] == "http.response.start":
            self._tell_methods(message)
            headers = [*message["headers"], *HEADERS]
            if not is_file:
                headers = [pair for pair in headers if pair[0].lower() != b"cache-control"]
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
            taken = time.monotonic() - self._begun
            self._metrics.count(self._method, message["status"], taken)
        elif message["type"] == "http.response.body" and self._method in _ASKED_AS:
            more = message.get("more_body", False)
            message = {"type": "http.response.body", "body": b"", "more_body": more}
        await self._send(message)

    def _tell_methods(self, start: Any) -> None:  # noqa: ANN401 - an event of ASGI
        """List all methods of a path: to OPTIONS as the answer, to others with the refusal."""
        headers = {name.lower(): value for name, value in start["headers"]}
        if start["status"] != HTTPStatus.METHOD_NOT_ALLOWED or b"allow" not in headers:
            return
        methods = set(headers[b"allow"].decode().split(", "))
        methods |= {"HEAD"} if self._has_head and "GET" in methods else set()
        headers[b"allow"] = ", ".join(sorted(methods)).encode()
        if self._method == "OPTIONS":
            start["status"] = HTTPStatus.NO_CONTENT.value
            headers = {b"allow": headers[b"allow"]}
        start["headers"] = [*headers.items()]

    async def refuse(self, refusal: RequestRefused) -> None:
        """Send a refusal as the whole response."""
        status, body, kind = (
            refusal.problem.status,
            msgspec.json.encode(refusal.problem),
            PROBLEM_JSON,
        )
        if self._is_openai:
            status, body = encode_error(refusal.problem)
            kind = "application/json"
        headers = {**refusal.headers, "content-type": kind, "content-length": str(len(body))}
        pairs = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        await self.send_whole(status, pairs, body)

    async def send_whole(
        self,
        status: int,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        *,
        is_file: bool = False,
    ) -> None:
        """Send a complete response."""
        start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        await self.send(start, is_file=is_file)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """Counts of requests by method and status, and of their times, in Prometheus' text format.

    >>> metrics = Metrics()
    >>> metrics.count("GET", 200, 0.004)
    >>> print(metrics.text({"palaver_streams": 2}).splitlines()[2])
    palaver_requests_total{method="GET",status="200"} 1
    """

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, method: str, status: int, seconds: float) -> None:
        """Count one response; methods that HTTP does not know are counted as `other`."""
        key = (method if method in _METHODS else "other", status)
        with self._lock:
            self._requests[key] = self._requests.get(key, 0) + 1
            self._buckets[bisect_left(_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def text(self, gauges: dict[str, float]) -> str:
        """All counts and the given gauges, as text."""
        with self._lock:
            requests, buckets, seconds = dict(self._requests), list(self._buckets), self._seconds
        lines = [
            "# HELP palaver_requests_total Requests answered.",
            "# TYPE palaver_requests_total counter",
        ]
        for (method, status), number in sorted(requests.items()):
            lines.append(f'palaver_requests_total{{method="{method}",status="{status}"}} {number}')
        name, total = "palaver_request_seconds", 0
        lines += [f"# HELP {name} Time to the first byte.", f"# TYPE {name} histogram"]
        for bound, number in zip((*_BOUNDS, "+Inf"), buckets, strict=True):
            total += number
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {seconds:.6f}", f"{name}_count {total}"]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
