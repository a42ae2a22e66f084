"""Requests as no usual client sends them, over a socket: refused or answered once, never let in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

import palaver
from palaver.server.app import Metrics, _Response
from tests.patience import within
from tests.server.client import TOKEN
from tests.server.process import run_in_thread
from tests.server.test_connections import answer, dial, head, rest_of

if TYPE_CHECKING:
    from collections.abc import Generator

AUTHORIZATION: Final = f"Authorization: Bearer {TOKEN}"
LENGTH: Final = "Content-Length: 2"


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    with palaver.open(":memory:") as store, within(120):
        store.create([palaver.user("secret")], id="x")
        with run_in_thread(store, guesses=0) as found:
            yield found


def status(port: int, sent: bytes) -> int:
    """The status of an answer, which must be a problem unless it is a success."""
    with dial(port, sent) as line:
        found, headers, body = answer(line)
    if found >= 400:
        assert "application/problem+json" == headers["content-type"]
        assert found == json.loads(body)["status"]
        assert b"secret" not in body
    assert "no-store" == headers["cache-control"]
    assert "default-src 'none'" in headers["content-security-policy"]
    return found


@pytest.mark.parametrize(
    "line",
    ["GET http://127.0.0.1:{port}/api/info", "GET //127.0.0.1:{port}/api/info", "OPTIONS *",
     "CONNECT 127.0.0.1:{port}", "CONNECT /api/info", "GET api/info", "GET ?x", "GET #", "GET *",
     "GET /api/conversations/%00", "GET /api/conversations/x%00/messages", "GET //api/info",
     "GET /api\\info", "GET /api/info#x", "GET /{{"],
)  # fmt: skip
def test_an_odd_target_is_refused_before_anything_else(port: int, line: str) -> None:
    odd = line.format(port=port)
    expected = 401 if line == "CONNECT /api/info" else 400
    assert expected == status(port, head(port, odd))
    assert status(port, head(port, odd, AUTHORIZATION)) in {400, 405}


@pytest.mark.parametrize(
    "sent",
    [b"GET /api/conversations/x\0/messages HTTP/1.1\r\nHost: h\r\n\r\n", b"\0\0\0\0\r\n\r\n",
     b"GET /api/info\r\n\r\n", b"GET /api/info HTTP/2.0\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
     b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_refused(port: int, sent: bytes) -> None:
    assert status(port, sent) in {400, 414, 421}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/conversations/x", {"GET", "PATCH", "DELETE", "HEAD", "OPTIONS"}),
        ("/api/conversations/x/undo", {"POST", "OPTIONS"}),
        ("/api/info", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_a_client_is_told_every_method_of_a_path(port: int, path: str, expected: set[str]) -> None:
    for method, status in (("OPTIONS", 204), ("PUT", 405)):
        with dial(port, head(port, f"{method} {path}", AUTHORIZATION)) as line:
            found, headers, _ = answer(line)
        assert status == found
        assert expected == set(headers["allow"].split(", "))


@pytest.mark.parametrize("path", ["/api/health", "/api/conversations/x", "/api/nothing"])
def test_head_is_get_without_the_body(port: int, path: str) -> None:
    asked = [head(port, f"{method} {path}", AUTHORIZATION) for method in ("GET", "HEAD")]
    with dial(port, asked[0]) as line:
        status, _, body = answer(line)
    with dial(port, asked[1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as line:
        sent = rest_of(line)
    first, *lines = sent.decode().split("\r\n")
    assert f"HTTP/1.1 {status} " in f"{first} "
    assert body
    assert f"content-length: {len(body)}" in [each.lower() for each in lines]
    assert sent.endswith(b"\r\n\r\n")


def test_head_of_a_stream_ends_once() -> None:
    """A server takes nothing after the event that says it was the last."""
    sent: list[Any] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - an event of ASGI
        sent.append(message)

    scope: Any = {"method": "HEAD", "path": "/api/conversations/x/export"}
    response = _Response(scope, send, Metrics())
    told: list[Any] = [
        {"type": "http.response.start", "status": 200, "headers": []},
        {"type": "http.response.body", "body": b"some", "more_body": True},
        {"type": "http.response.body", "body": b" more", "more_body": False},
    ]

    async def stream() -> None:
        for message in told:
            await response.send(message)

    anyio.run(stream)
    assert [(b"", True), (b"", False)] == [(each["body"], each["more_body"]) for each in sent[1:]]


def test_head_of_health_needs_no_token(port: int) -> None:
    """Load balancers ask so."""
    with dial(port, head(port, "HEAD /api/health", "Connection: close")) as line:
        assert rest_of(line).startswith(b"HTTP/1.1 200 ")


def test_a_long_path_is_refused(port: int) -> None:
    assert 414 == status(port, head(port, f"GET /api/{'x' * 10_000}", AUTHORIZATION))


def test_an_old_client_is_asked_for_the_same(port: int) -> None:
    old = b"GET /api/conversations/x HTTP/1.0\r\n"
    assert 421 == status(port, old + b"\r\n")
    named = old + b"Host: 127.0.0.1:%d\r\n" % port
    assert 401 == status(port, named + b"\r\n")
    assert 200 == status(port, named + AUTHORIZATION.encode() + b"\r\n\r\n")


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "TLS/1.0"])
@pytest.mark.parametrize("path", ["/api/events", "/api/info", "//api/info"])
def test_no_upgrade_goes_around_the_gate(port: int, upgrade: str, path: str) -> None:
    headers = (
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {upgrade}",
        "HTTP2-Settings: AAMA",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    assert (400 if "//" in path else 401) == status(port, head(port, f"GET {path}", *headers))


def test_a_body_with_two_lengths_is_refused_and_the_connection_closed(port: int) -> None:
    hidden = head(port, "DELETE /api/conversations/x", AUTHORIZATION)
    both = (LENGTH, "Transfer-Encoding: chunked", AUTHORIZATION)
    with dial(port, head(port, "POST /api/conversations", *both) + b"0\r\n\r\n" + hidden) as line:
        found = rest_of(line)
    assert 1 == found.count(b"HTTP/1.1 ")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert 200 == status(port, head(port, "GET /api/conversations/x", AUTHORIZATION))


def in_a_row(port: int, *requests: bytes) -> list[int]:
    """The statuses of the answers to requests that are sent all at once."""
    with dial(port, b"".join(requests)) as line:
        return [int(part[:3]) for part in rest_of(line).split(b"HTTP/1.1 ")[1:]]


def test_of_requests_in_a_row_each_is_asked_for_the_token(port: int) -> None:
    """The token of one request does not count for the next, nor does its body become one."""
    info, bare = head(port, "GET /api/info", AUTHORIZATION), head(port, "GET /api/info")
    inside = head(port, "POST /api/info", AUTHORIZATION, f"Content-Length: {len(info)}") + info
    odd = head(port, "GET //api/info", AUTHORIZATION)
    assert [200, 405, 200, 401] == in_a_row(port, info, inside, info, bare, info)
    assert [200, 400] == in_a_row(port, info, odd, info)


def test_without_the_token_there_is_no_row(port: int) -> None:
    """One packet could hold hundreds of requests; those left unanswered may be sent again."""
    assert [200] == in_a_row(port, *[head(port, "GET /")] * 200)
    assert [401] == in_a_row(port, *[head(port, "GET /api/info")] * 200)
    with dial(port) as line:
        for _ in range(3):
            line.sendall(head(port, "GET /api/health"))
            assert 200 == answer(line)[0]


def test_a_chunk_that_is_none_ends_a_refused_request_quietly(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent = head(port, "POST /api/info", "Transfer-Encoding: chunked")
    with dial(port, sent) as line:
        assert 401 == answer(line)[0]
        line.sendall(b"zz\r\n")
        assert b"" == rest_of(line)
    assert not [one for one in caplog.records if one.exc_info]
