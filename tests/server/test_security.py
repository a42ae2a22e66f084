"""Nobody comes in without the token, under another name, or from another page: on any route."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from litestar.routes import HTTPRoute

import palaver
from palaver.errors import ValidationError
from palaver.server import Settings, make_app
from palaver.server.security import cookie_value, read_token
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

OPEN = {("GET", "/api/health"), ("POST", "/api/session")}
APP = make_app(palaver.open(":memory:"), Settings(token=TOKEN))
ROUTES = sorted(
    (method, route.path_format)
    for route in APP.routes
    if isinstance(route, HTTPRoute)
    for method in route.methods
    if method != "OPTIONS"
)
GUARDED = [one for one in ROUTES if one[1].startswith("/api") and one not in OPEN]
WRITING: list[tuple[str, str, Any]] = [
    ("POST", "conversations", {}),
    ("PATCH", "conversations/x", {"title": "t"}),
    ("DELETE", "conversations/x", None),
    ("POST", "conversations/x/messages", {"messages": []}),
    ("POST", "conversations/x/operations", {"operation": {"operation": "CLEAR"}}),
    ("POST", "conversations/x/undo", {}),
    ("PUT", "conversations/x/marks/m", {"message": 0}),
    ("POST", "conversations/x/erase", {"message": 0}),
    ("POST", "conversations/x/prune", {}),
    ("POST", "conversations/x/fork", {}),
]


def path(template: str) -> str:
    return template.replace("{", "").replace("}", "")


@pytest.fixture(scope="module")
def client() -> Generator[APIClient]:
    app = make_app(palaver.open(":memory:"), Settings(token=TOKEN, rate=0, guesses=0))
    with APIClient(app, base_url=ADDRESS) as asker:
        yield asker


@pytest.fixture
def stranger(client: APIClient) -> APIClient:
    """A client that has no token."""
    client.cookies.clear()
    return client


def test_every_route_is_looked_at() -> None:
    assert len(GUARDED) > 40


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"cookie": f"palaver_7007={TOKEN}"},
        {"cookie": "palaver_7007=" + "0" * 64},
        {"cookie": f"palaver_7008={cookie_value(TOKEN)}"},
        {"cookie": ";;=;"},
    ],
)
def test_a_wrong_token_is_refused(stranger: APIClient, headers: dict[str, str]) -> None:
    for method, route in GUARDED:
        answer = stranger.request(method, path(route), headers=headers)
        assert (401, route) == (answer.status_code, route)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7007", "127.0.0.1:7008", "127.0.0.1", "localhost.evil:7007",
     "127.0.0.1:7007@evil", "[::2]:7007", "0.0.0.0:7007", "", "127.0.0.1:port", "localhost:7007/",
     "[::1]x:7007", "x[::1]:7007", "[127.0.0.1:7007", "127.0.0.1:7007:7007", "127.0.0.1 :7007"],
)  # fmt: skip
def test_another_name_is_refused(stranger: APIClient, host: str) -> None:
    headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
    for method, route in ROUTES:
        answer = stranger.request(method, path(route), headers=headers)
        assert (421, route) == (answer.status_code, route)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://127.0.0.1:7008", "http://127.0.0.1",
     "http://localhost:7007", "https://127.0.0.1:7007.evil", "file://", "http://127.0.0.1:7007/x",
     "ftp://127.0.0.1:7007", "http://\u00e9vil"],
)  # fmt: skip
def test_another_origin_is_refused(stranger: APIClient, origin: str) -> None:
    bearer = f"Bearer {TOKEN}".encode()
    headers = {b"origin": origin.encode("latin-1"), b"authorization": bearer}
    for method, route in ROUTES:
        answer = stranger.request(method, path(route), headers=headers)
        assert (403, route) == (answer.status_code, route)


@pytest.mark.parametrize("host", ["127.0.0.1:7007", "localhost:7007", "[::1]:7007"])
def test_the_names_of_this_machine_are_known(ask: APIClient, host: str) -> None:
    assert ask.get("/api/info", headers={"host": host}).status_code == 200


def test_another_name_can_be_allowed() -> None:
    settings = Settings(token=TOKEN, allow_hosts=("talks.example.org",))
    with APIClient(make_app(palaver.open(":memory:"), settings), base_url=ADDRESS) as asker:
        for host in ("talks.example.org", "TALKS.example.org:443", "127.0.0.1:7007"):
            headers = {"host": host, "origin": f"https://{host}"}
            assert asker.get("/api/health", headers=headers).status_code == 200
        assert asker.get("/api/health", headers={"host": "x.talks.example.org"}).status_code == 421


def test_the_token_buys_a_cookie_that_no_script_can_read(stranger: APIClient) -> None:
    answer = stranger.post("/api/session", json={"token": TOKEN}, headers={"origin": ADDRESS})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"palaver_7007={cookie_value(TOKEN)};")
    assert TOKEN not in cookie
    assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= set(cookie.split("; "))
    assert "secure" not in cookie
    assert stranger.get("/api/info").status_code == 200


def test_behind_tls_the_cookie_stays_there() -> None:
    settings = Settings(token=TOKEN, allow_hosts=("talks.example.org",))
    with APIClient(make_app(palaver.open(":memory:"), settings), base_url=ADDRESS) as asker:
        headers = {"host": "talks.example.org", "origin": "https://talks.example.org"}
        answer = asker.post("/api/session", json={"token": TOKEN}, headers=headers)
        assert "secure" in answer.headers["set-cookie"].lower()


def test_a_wrong_token_buys_nothing(stranger: APIClient) -> None:
    problem = stranger.refused("POST", "session", {"token": "wrong"})
    assert (problem["status"], problem["path"]) == (401, "$.token")
    assert stranger.get("/api/info").status_code == 401


def test_a_cookie_can_be_given_back(stranger: APIClient) -> None:
    stranger.post("/api/session", json={"token": TOKEN})
    assert stranger.delete("/api/session", headers={"origin": ADDRESS}).status_code == 204
    assert stranger.get("/api/info").status_code == 401


def test_a_change_with_the_cookie_comes_from_the_own_page(stranger: APIClient) -> None:
    stranger.post("/api/session", json={"token": TOKEN})
    assert stranger.post("/api/conversations", json={}).status_code == 403
    for headers in ({"origin": ADDRESS}, {"sec-fetch-site": "same-origin"}):
        assert stranger.post("/api/conversations", json={}, headers=headers).status_code == 201
    crossed = {"sec-fetch-site": "cross-site"}
    assert stranger.post("/api/conversations", json={}, headers=crossed).status_code == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_form_can_change_nothing(stranger: APIClient, kind: str) -> None:
    stranger.post("/api/session", json={"token": TOKEN})
    headers = {"origin": ADDRESS, "content-type": kind}
    assert stranger.post("/api/conversations", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize("where", ["/", "/page/scripts/app.js", "/api/health", "/api/none", "/x"])
def test_every_answer_says_the_same_to_browsers(stranger: APIClient, where: str) -> None:
    headers = stranger.get(where).headers
    assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    is_file = where in {"/", "/page/scripts/app.js"}
    assert ("no-cache" if is_file else "no-store") == headers["cache-control"]


def test_a_read_only_server_changes_nothing() -> None:
    store = palaver.open(":memory:")
    store.create([palaver.user("hi")], id="x")
    app = make_app(store, Settings(token=TOKEN, read_only=True))
    with APIClient(app, base_url=ADDRESS) as asker:
        asker.headers["authorization"] = f"Bearer {TOKEN}"
        for method, where, body in WRITING:
            assert (403, where) == (asker.refused(method, where, body)["status"], where)
        assert asker.texts("x") == ["hi"]


def test_a_read_only_server_answers_what_only_asks() -> None:
    store = palaver.open(":memory:")
    store.create([palaver.user("hi")], id="x")
    app = make_app(store, Settings(token=TOKEN, read_only=True))
    with APIClient(app, base_url=ADDRESS) as asker:
        asker.headers["authorization"] = f"Bearer {TOKEN}"
        assert asker.good("GET", "info")["readOnly"] is True
        assert len(asker.good("POST", "conversations/x/query", {"text": "h"})["items"]) == 1
        price = {"operation": {"operation": "CLEAR"}}
        assert asker.good("POST", "conversations/x/price", price)["removedCount"] == 1
        assert asker.good("POST", "conversations/x/prune", {"dryRun": True})["messages"] == []


def test_there_are_no_websockets(stranger: APIClient) -> None:
    from litestar.exceptions import WebSocketDisconnect  # noqa: PLC0415 - for this one

    with pytest.raises(WebSocketDisconnect), stranger.websocket_connect("/api/events"):
        pass


# ── the token's file ────────────────────────────────────────────────────────────────────────────


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert len(token) == 43
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_token(file) == token
    assert read_token(tmp_path / "other") != token


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    read_token(file)
    file.chmod(0o644)
    if os.name == "posix":
        with pytest.raises(ValidationError, match="others may read"):
            read_token(file)


@pytest.mark.parametrize("text", ["", "short", "with a blank in the middle of it", "\u00e9" * 40])
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, "utf-8")
    file.chmod(0o600)
    with pytest.raises(ValidationError, match="holds no token"):
        read_token(file)
