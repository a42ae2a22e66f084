"""Every route, in every spelling, with every method: nothing is answered without the token.

The application is called as a server calls it, with the path as it stands in the request.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pytest

import palaver
from palaver.server import Settings, make_app
from palaver.server.openapi import openapi_document
from palaver.server.security import OPEN
from tests.server.client import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.server.app import App

METHODS: Final = (
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND",
)  # fmt: skip
BEARER: Final = (b"authorization", f"Bearer {TOKEN}".encode())
HOST: Final = (b"host", b"127.0.0.1:7007")


def _after_api(text: str) -> Callable[[str], str]:
    """A spelling with something between the first segment and the rest."""
    return lambda path: f"/api{text}{path[5:]}"


def _before(text: str) -> Callable[[str], str]:
    """A spelling with something before the path."""
    return lambda path: text + path


def _behind(text: str) -> Callable[[str], str]:
    """A spelling with something behind the path."""
    return lambda path: path + text


def _encoded(path: str) -> str:
    """A spelling with every character of every segment encoded."""
    return "/".join("".join(f"%{ord(c):02x}" for c in part) for part in path.split("/"))


ODD: Final[dict[str, Callable[[str], str]]] = {
    **{f"before: {text}": _before(text) for text in (
        "/", "//", "/%2f", "/%2F", "/.", "/..", "/x/..", "/%2e", "/%2e%2e", "/%2E.", "/;", "/;x",
        "/%00", "/%09", "/%20", "/\\", "/%5c", "/\\..", "/%c0%af", "/%ef%bc%8f", "/page/..",
        "/api/health/..", "http://127.0.0.1:7007", "//127.0.0.1:7007", "http:/", "127.0.0.1:7007",
        "*", "#", "%",
    )},
    **{f"after api: {text}": _after_api(text) for text in (
        "//", "/./", "/../api/", "%2f", "%2F", "%5c", "\\", ";/", ";x=y/", "%00/", "%3b/", "./",
        "%20/", "/%2e/", "/health/../", "/health;/../", "/health%2f..%2f", "%252f", "%zz/", "%2/",
    )},
    **{f"behind: {text}": _behind(text) for text in (
        "/", "//", "/.", "/..", "%2f", ";", ";x", "%00", "%0a", "%0d%0a", "%ff", "%ed%a0%80", "#x",
        "\\", "%5c", "/;", "/%2e", "%7f", " ", "%",
    )},
    "no slash": lambda path: path[1:],
    "backslash for slash": lambda path: path.replace("/", "\\"),
    "encoded slashes": lambda path: path.replace("/", "%2f"),
    "all encoded": _encoded,
    "one letter encoded": lambda path: path.replace("/api", "/%61pi"),
    "encoded twice": lambda path: path.replace("/api", "/%2561pi"),
    "capitals": lambda path: path.replace("/api", "/API"),
    "one capital": lambda path: path.replace("/api", "/apI"),
    "dotless i": lambda path: path.replace("/api", "/ap%c4%b1"),
}  # fmt: skip


def operations() -> list[tuple[str, str]]:
    """Every operation of the API's description: its method, and a path of something that exists."""
    described = json.loads(openapi_document())["paths"]
    return sorted(
        (method.upper(), path.replace("{conversation}", "x").replace("{", "").replace("}", ""))
        for path, found in described.items()
        for method in found
        if method in {"get", "put", "post", "patch", "delete"}
    )


OPERATIONS: Final = operations()
PATHS: Final = sorted({path for _, path in OPERATIONS} | {"/api", "/api/openapi.json", "/api/none"})


@pytest.fixture(scope="module")
def app() -> App:
    store = palaver.open(":memory:")
    store.create([palaver.user("secret")], id="x")
    return make_app(store, Settings(token=TOKEN, rate=0, guesses=0))


async def asked(
    app: App, method: str, raw: str, *headers: tuple[bytes, bytes], body: bytes = b"{}"
) -> tuple[int, dict[bytes, bytes], bytes]:
    """The answer of an application to one request: status, headers, body."""
    answered: list[dict[str, Any]] = []
    target, _, query = raw.partition("?")

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        answered.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 7007),
        "client": ("127.0.0.1", 50_000),
        "method": method,
        "root_path": "",
        "path": unquote(target),
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "headers": [HOST, *headers],
        "state": {},
    }
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in answered[1:])
    return answered[0]["status"], dict(answered[0]["headers"]), content


def walk(
    app: App, requests: Iterable[tuple[str, str]], *headers: tuple[bytes, bytes]
) -> Counter[int]:
    """How many requests ended in which status; each answer must not be stored."""

    async def work() -> Counter[int]:
        found: Counter[int] = Counter()
        for method, raw in requests:
            status, said, _ = await asked(app, method, raw, *headers)
            assert b"no-store" == said[b"cache-control"], (method, raw)
            found[status] += 1
        return found

    return asyncio.run(work())


def test_the_walk_goes_everywhere() -> None:
    assert len(OPERATIONS) >= 52
    assert len(ODD) >= 40
    head_of_open = {("HEAD", path) for method, path in OPEN if method == "GET"}
    assert {one for one in OPERATIONS if one in OPEN} == OPEN - head_of_open


def test_without_the_token_nothing_is_answered_in_any_spelling(app: App) -> None:
    """Routes times spellings times methods: all refused but the two that are open."""
    spellings: list[Callable[[str], str]] = [str, *ODD.values()]
    requests = [
        (method, spelling(path))
        for path in PATHS
        for spelling in spellings
        for method in METHODS
        if (method, spelling(path)) not in OPEN
    ]
    found = walk(app, requests)
    assert len(PATHS) * len(spellings) * len(METHODS) == len(requests) + len(OPEN)
    assert {400, 401} == set(found)
    assert len(requests) == found[400] + found[401]
    assert found[400] > found[401] > len(PATHS)


def test_with_the_token_a_route_has_one_spelling(app: App) -> None:
    requests = [(method, odd(path)) for method, path in OPERATIONS for odd in ODD.values()]
    found = walk(app, requests, BEARER)
    assert {400, 404} == set(found)
    assert len(requests) == sum(found.values())
    good = walk(app, [("GET", "/api/conversations/x/messages"), ("GET", "/api/metrics")], BEARER)
    assert {200: 2} == good


def test_the_files_of_the_page_have_one_spelling(app: App) -> None:
    files = ["/page/scripts/app.js", "/page/styles.css", "/page/0123456789abcdef/scripts/app.js"]
    before = ("/", "/%2f", "/.", "/x/..", "/;", "/%2e%2e", "/api/..", "http://127.0.0.1:7007")
    behind = ("/", "//", ";", "%00", "%2f", "/..", "/.", "\\", "x", "%20", "/x")
    odd = [f"{text}{file}" for file in files for text in before]
    odd += [f"{file}{text}" for file in files for text in behind]
    requests = [(method, raw) for raw in odd for method in METHODS]
    requests += [(method, file) for file in files for method in METHODS[2:]]
    assert {400, 401} == set(walk(app, requests))

    async def good() -> list[int]:
        return [(await asked(app, method, file))[0] for file in files for method in METHODS[:2]]

    assert [200] * 6 == asyncio.run(good())


@pytest.mark.parametrize(
    "id_",
    ["café", "a b", "100%", "a;b", "?#[]", "…", "a.b", "-_.~!$&'()*+,=:@", "%2f", "\U0001f375"],
)
def test_every_other_id_can_be_named(app: App, id_: str) -> None:
    """What encodeURIComponent and quote make of an id is understood."""
    app.service.store.create([palaver.user("here")], id=id_)

    async def found() -> list[int]:
        spelled = {quote(id_, safe=""), quote(id_, safe="!'()*")}
        raw = [f"/api/conversations/{one}" for one in sorted(spelled)]
        return [(await asked(app, "GET", one, BEARER))[0] for one in raw]

    assert {200} == set(asyncio.run(found()))


def test_a_path_that_is_too_long_is_refused(app: App) -> None:
    long = f"/api/conversations/{'x' * 9_000}"
    assert {414: 2} == walk(app, [("GET", long)]) + walk(app, [("GET", long)], BEARER)


@pytest.mark.parametrize(
    "name", ["host", "origin", "authorization", "content-type", "content-length", "sec-fetch-site"]
)
def test_a_header_that_decides_is_there_once(app: App, name: str) -> None:
    values = {"host": "127.0.0.1:7007", "authorization": f"Bearer {TOKEN}", "content-length": "2"}
    pair = (name.encode(), values.get(name, "http://127.0.0.1:7007").encode())
    assert {400: 1} == walk(app, [("POST", "/api/conversations")], BEARER, pair, pair)


def test_a_body_has_one_length(app: App) -> None:
    both = ((b"content-length", b"2"), (b"transfer-encoding", b"chunked"))
    assert {400: 1} == walk(app, [("POST", "/api/conversations")], BEARER, *both)


def test_methods_that_nobody_knows_are_counted_as_one(app: App) -> None:
    walk(app, [(f"M{number}", "/api/none") for number in range(50)])
    text = app.metrics.text({})
    assert 'method="other",status="401"' in text
    assert 'method="M' not in text
