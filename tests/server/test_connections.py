"""Nobody is shut out by sockets that wait: real ones, many, slow, silent, and one good client."""

from __future__ import annotations

import json
import re
import resource
import select
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import httpx
import pytest

import palaver
from palaver.server import Settings, run
from palaver.server.run import ClientConnections, UvicornConfig
from tests.patience import within
from tests.server.client import TOKEN
from tests.server.process import BEARER, run_in_thread
from tests.server.scripted_server import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from palaver.stores import Store

AUTHORIZATION: Final = f"Authorization: Bearer {TOKEN}\r\n"
SHORT: Final = 0.3
LONG: Final = 600.0


@pytest.fixture
def store() -> Generator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


def head(port: int, line: str, *headers: str) -> bytes:
    """The head of a request."""
    lines = [f"{line} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers]
    return "".join(f"{one}\r\n" for one in lines).encode() + b"\r\n"


def dial(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """A connection that has sent something."""
    line = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))
    line.sendall(sent)
    return line


def rest_of(line: socket.socket) -> bytes:
    """All that a server sends until it closes the connection."""
    found = b""
    try:
        while piece := line.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


def answer(line: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer: its status, its headers, its body."""
    stream = line.makefile("rb")
    status = int(stream.readline().split()[1])
    headers: dict[str, str] = {}
    while text := stream.readline().decode().strip():
        name, _, value = text.partition(": ")
        headers[name.lower()] = value
    return status, headers, stream.read(int(headers.get("content-length", 0)))


def is_open(line: socket.socket) -> bool:
    """Tell whether a server has left a connection alone."""
    return not select.select([line], [], [], 0)[0]


def ended(lines: list[socket.socket], number: int) -> list[bool]:
    """Which connections have ended, once so many have."""
    wait_for(lambda: sum(not is_open(line) for line in lines) >= number)
    time.sleep(0.1)  # for those that must not end
    return [not is_open(line) for line in lines]


@contextmanager
def many(port: int, number: int, sent: bytes = b"") -> Generator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(dial(port, sent)) for _ in range(number)]


def good(port: int) -> list[int]:
    """How a client is answered that sends whole requests, each over a new connection."""
    address = f"http://127.0.0.1:{port}/api"
    with httpx.Client(timeout=60) as client:
        said = {"messages": [{"role": "user", "content": "x" * 100_000}]}
        answers = [client.get(f"{address}/health")]
    with httpx.Client(timeout=60, headers=BEARER) as client:
        answers += [
            client.get(f"{address}/info"),
            client.post(f"{address}/conversations", json=said),
        ]
    with httpx.Client(timeout=60) as client:
        answers += [client.post(f"{address}/session", json={"token": TOKEN})]
    return [one.status_code for one in answers]


# ── the good client is answered ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /api/inf",
        "POST /api/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\n{{",
        "POST /api/info HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\n{{",
        "POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n"
        + AUTHORIZATION + "\r\n{{",
    ],
    ids=["idle", "head", "session", "refused", "token"],
)  # fmt: skip
def test_250_unfinished_requests_keep_nobody_out(store: Store, sent: str) -> None:
    with within(60), run_in_thread(store) as port:
        assert [200, 200, 201, 204] == good(port)
        with many(port, 250, sent.format(port=port).encode()):
            assert [200, 200, 201, 204] == good(port)


def test_health_is_answered_whatever_the_load_is(store: Store) -> None:
    with within(60), run_in_thread(store, requests=0, streams=0) as port:
        assert [200, 429, 429, 429] == good(port)


def test_a_request_is_work_only_once_it_has_arrived(store: Store) -> None:
    sent = "POST /api/conversations", "Content-Length: 2", AUTHORIZATION.strip()
    with (
        within(60),
        run_in_thread(store, requests=1) as port,
        many(port, 20, head(port, *sent)) as all_,
    ):
        assert [200, 200, 201, 204] == good(port)
        for line in all_:
            line.sendall(b"{}")
            assert 201 == answer(line)[0]


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────


def trickle(line: socket.socket, data: bytes, pause: float = 0.02) -> int:
    """Send byte by byte until the server has had enough; how many bytes it took."""
    for number in range(len(data)):
        if select.select([line], [], [], pause)[0]:
            return number
        line.sendall(data[number : number + 1])
    return len(data)


def test_a_slow_head_is_closed(store: Store) -> None:
    sent = head(1, "GET /api/health", f"X: {'y' * 5_000}")
    with within(60), run_in_thread(store, head_seconds=SHORT) as port, dial(port) as line:
        assert trickle(line, sent) < len(sent)
        status, headers, body = answer(line)
        assert (408, "close", "no-store") == (
            status,
            headers["connection"],
            headers["cache-control"],
        )
        assert 408 == json.loads(body)["status"]
        assert b"" == rest_of(line)


@pytest.mark.parametrize("what", ["/api/conversations", "/api/session"])
@pytest.mark.parametrize("how", ["Content-Length: 5000", "Transfer-Encoding: chunked"])
def test_a_slow_body_is_answered_with_408(store: Store, what: str, how: str) -> None:
    limits: dict[str, Any] = {"body_seconds": SHORT, "body_rate": 100_000}
    with within(60), run_in_thread(store, **limits) as port:
        sent = head(port, f"POST {what}", how, AUTHORIZATION.strip())
        with dial(port, sent) as line:
            body = b"1\r\n \r\n" * 900
            assert trickle(line, body) < len(body)
            status, headers, said = answer(line)
            assert (408, "application/problem+json") == (status, headers["content-type"])
            assert "no-store" == headers["cache-control"]
            assert "in time" in json.loads(said)["detail"]
            assert b"" == rest_of(line)


def test_a_body_that_keeps_coming_is_waited_for(store: Store) -> None:
    with within(60), run_in_thread(store, body_seconds=1, body_rate=100) as port:
        body = b"{}" + b" " * 1_500  # at a thousand bytes a second: ten times as fast as it must be
        sent = f"Content-Length: {len(body)}", AUTHORIZATION.strip()
        with dial(port, head(port, "POST /api/conversations", *sent)) as line:
            begun = time.monotonic()
            for start in range(0, len(body), 50):
                line.sendall(body[start : start + 50])
                time.sleep(0.05)
            assert time.monotonic() - begun > 1
            assert 201 == answer(line)[0]


def test_idle_connections_are_closed(store: Store) -> None:
    with (
        within(60),
        run_in_thread(store, idle_seconds=SHORT, head_seconds=LONG) as port,
        ExitStack() as all_,
    ):
        never, once = (all_.enter_context(dial(port)) for _ in range(2))
        once.sendall(head(port, "GET /api/health"))
        assert 200 == answer(once)[0]
        assert (b"", b"") == (rest_of(never), rest_of(once))


def test_uvicorn_closes_no_idle_connection_before_its_time() -> None:
    for seconds in (0.3, 7.5, 90):
        connections = ClientConnections(Settings(token=TOKEN, idle_seconds=seconds), 10)
        assert seconds <= UvicornConfig(None, connections).timeout_keep_alive


def test_a_refused_body_is_not_waited_for(store: Store) -> None:
    with within(60), run_in_thread(store, body_seconds=SHORT, idle_seconds=LONG) as port:
        sent = head(port, "POST /api/conversations", "Content-Length: 50000000")
        with dial(port, sent) as line:
            assert 401 == answer(line)[0]
            assert b"" == rest_of(line)


def test_a_client_that_does_not_read_is_dropped(store: Store) -> None:
    text = "x" * 1_000_000
    store.create([palaver.user(text) for _ in range(20)], id="long")
    with (
        within(60),
        run_in_thread(store, write_seconds=SHORT, idle_seconds=LONG) as port,
        socket.socket() as line,
    ):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.settimeout(30)
        line.connect(("127.0.0.1", port))
        line.sendall(head(port, "GET /api/conversations/long/messages", AUTHORIZATION.strip()))
        assert wait_for(lambda: not is_open(line))
        time.sleep(4 * SHORT)
        found = rest_of(line)
        assert found.startswith(b"HTTP/1.1 200")
        assert len(found) < 20 * len(text)
        assert [200, 200, 201, 204] == good(port)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def test_the_oldest_unfinished_requests_of_a_peer_are_closed_first(store: Store) -> None:
    with (
        within(60),
        run_in_thread(store, peer_unfinished=3) as port,
        many(port, 5, b"GET /") as lines,
    ):
        assert [True, True, False, False, False] == ended(lines, 2)
        assert 408 == answer(lines[0])[0]


def test_the_oldest_idle_connections_of_a_peer_are_closed_first(store: Store) -> None:
    """One that has shown the token is closed last."""
    with within(60), run_in_thread(store, peer_connections=5) as port:
        known = dial(port, head(port, "GET /api/info", AUTHORIZATION.strip()))
        assert 200 == answer(known)[0]
        with known, many(port, 6) as lines:
            assert [True, True, False, False, False, False] == ended(lines, 2)
            assert is_open(known)
            with dial(port, source="127.0.0.2"):
                assert [False] * 4 == ended(lines, 2)[2:]


def test_too_many_connections_in_all_close_the_oldest_that_waits(store: Store) -> None:
    with within(60), run_in_thread(store, connections=4) as port, many(port, 4) as lines:
        other = dial(port, head(port, "GET /api/health"), source="127.0.0.2")
        with other:
            assert 200 == answer(other)[0]
            assert [True, False, False, False] == ended(lines, 1)


def test_where_every_connection_is_answered_a_new_one_is_closed(store: Store) -> None:
    with within(60), run_in_thread(store, connections=2) as port:
        stream = head(port, "GET /api/events", AUTHORIZATION.strip())
        with many(port, 2, stream) as lines:
            assert [200, 200] == [answer(line)[0] for line in lines]
            with dial(port) as late:
                assert b"" == rest_of(late)

        def is_well() -> bool:
            with dial(port, head(port, "GET /api/health", "Connection: close")) as line:
                return rest_of(line).startswith(b"HTTP/1.1 200")

        wait_for(is_well)


class Waiting:
    """A connection as `ClientConnections` sees it."""

    trusted = is_unfinished = is_queued = False
    is_waiting = True
    address = "127.0.0.1", 5
    peer = "127.0.0.1"


def test_a_port_that_is_used_again_early_leaves_nothing_behind() -> None:
    """After a reset a client may come again from the same port before the server has noticed."""
    connections = ClientConnections(Settings(token=TOKEN), 10)
    first, second = cast("Any", Waiting()), cast("Any", Waiting())
    for one in (first, second):
        assert connections.add(one)
        connections.queue(one)
    for one in (second, first, first):
        connections.remove(one)
    left = vars(connections)
    assert [0, 0, 0] == [len(left[name]) for name in ("_open", "_newest", "_peers")]
    assert {False: {}, True: {}} == left["_waiting"]


# ── the log, and the files a process may open ───────────────────────────────────────────────────

FEW: Final = 200


def test_a_server_that_may_open_few_files_stays_reachable_and_quiet(tmp_path: Path) -> None:
    """Three times as many idle sockets as it may open files, and as many broken requests."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    command = [sys.executable, "-c", "from palaver.cli import main; raise SystemExit(main())",
               "serve", "--json", "--cold", "--port", "0", "--token-file", str(token),
               "--store", str(tmp_path / "s.db")]  # fmt: skip
    log = tmp_path / "log"
    with log.open("w") as errors, within(60), ExitStack() as stack:
        running = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW)),  # noqa: PLW1509 - it starts no thread
        )
        stack.callback(running.communicate)
        stack.callback(running.kill)
        assert running.stdout is not None
        port = int(json.loads(running.stdout.readline())["address"].rpartition(":")[2])
        assert [200, 200, 201, 204] == good(port)
        for _ in range(3 * FEW):
            stack.enter_context(dial(port))
        for _ in range(FEW):
            with dial(port, b"\0\r\n\r\n") as line:
                assert rest_of(line).startswith(b"HTTP/1.1 400 ")
        assert [200, 200, 201, 204] == good(port)
    said = log.read_text()
    assert f"this process may open {FEW} files" in said
    assert re.search(r"Invalid HTTP request", said)
    assert len(said.splitlines()) < FEW, said  # one a second, however slow the machine is


def test_as_many_files_as_are_needed_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, 4_096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert 2_000 == run._raise_file_limit(2_000)
    assert (2_400, 4_096) == limits[-1]
    assert 3_696 == run._raise_file_limit(10_000)
    assert (4_096, 4_096) == limits[-1]
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert 10_000 == run._raise_file_limit(10_000)
