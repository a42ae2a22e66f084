"""Who may send requests: the token, the cookie, the Host, the Origin, the path, the rate.

A web page can make a browser send requests to this machine. Three checks keep it out: the Host must
be a name of this server (a name that was rebound to loopback is not), an Origin must be this
server's own, and the request must carry the token, or the cookie that is given for the token and
that no script can read.

Access is denied by default: without the token only the operations in `OPEN` and the page's own
files are answered. A path has one spelling: `read_path` refuses every other one, and both the gate
and the router use its result.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

from palaver.errors import ValidationError
from palaver.server.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

__all__ = [
    "HEADERS",
    "LOOPBACK",
    "OPEN",
    "Gate",
    "RateLimit",
    "check_segment",
    "cookie_value",
    "read_headers",
    "read_path",
    "read_token",
]


LOOPBACK: Final = frozenset(("127.0.0.1", "localhost", "::1"))
"""The names of the loopback address."""

HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""The security headers of every response."""

OPEN: Final = frozenset((("GET", "/api/health"), ("HEAD", "/api/health"), ("POST", "/api/session")))
"""The operations that need no token."""

_LONGEST: Final = 8_192
_PLAIN: Final = re.compile(rb"(?:/(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})*)+")
"""A path of RFC 3986 without `;`."""
_ENCODED: Final = re.compile(rb"%(..)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NO_SEGMENT: Final = frozenset(("", ".", ".."))
_SINGLE: Final = frozenset(
    (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"sec-fetch-site")
)
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_FORMS: Final = frozenset(
    ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
)
"""The content types that any page can make a browser send."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^][:@/?#\\\s]+)(:(?P<port>[0-9]{1,5}))?")
_BYTES: Final = 32
_SHORTEST: Final = 16
_CLIENTS: Final = 10_000
_BURST: Final = 4


def read_token(file: Path) -> str:
    """Read the token from a file that only its owner may read; create it at the first start."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_checked(file)
    token = secrets.token_urlsafe(_BYTES)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(token + "\n")
    return token


def _read_checked(file: Path) -> str:
    if os.name == "posix" and file.stat().st_mode & 0o077:
        detail = f"others may read {file}: chmod 600 it, or remove it to have a new one made"
        raise ValidationError(detail, path="$.token", rule="token")
    token = file.read_text("utf-8").strip()
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        detail = f"{file} holds no token: at least {_SHORTEST} printable characters on one line"
        raise ValidationError(detail, path="$.token", rule="token")
    return token


def cookie_value(token: str) -> str:
    """The value of the session cookie: it proves knowledge of the token without revealing it.

    >>> len(cookie_value("a")), cookie_value("a") == cookie_value("b")
    (64, False)
    """
    return hmac.new(token.encode(), b"palaver session", hashlib.sha256).hexdigest()


@lru_cache(1_024)
def read_path(raw: bytes) -> str:
    """Decode the path of a request target; refuse every spelling but the usual one.

    Refused are empty segments (`//`, a slash at the end), dot segments, encoded slashes, letters
    and digits, backslashes, `;`, control characters, what is not UTF-8, and targets that are no
    path at all (`*`, `http://host/path`).

    >>> read_path(b"/api/conversations/caf%C3%A9")
    '/api/conversations/café'
    >>> read_path(b"//api/info")
    Traceback (most recent call last):
    palaver.server.errors.RequestRefused: the path is not spelled in the usual way: ...
    """
    if len(raw) > _LONGEST:
        raise RequestRefused(414, f"the path has {len(raw)} bytes; at most {_LONGEST} are allowed")
    if raw == b"/":
        return "/"
    if _PLAIN.fullmatch(raw):
        with suppress(ValueError):
            return "/".join(["", *map(_read_segment, raw.split(b"/")[1:])])
    detail = (
        "the path is not spelled in the usual way: no empty or dot segments, no ; or backslash, "
        "no encoded slash, letter, digit or control character, UTF-8 only"
    )
    raise RequestRefused(400, detail)


def check_segment(text: str, path: str) -> None:
    r"""Refuse an id that no path can name: what has it could be neither read nor deleted here.

    >>> check_segment("café; 50%", "$.id")
    >>> check_segment("a/b", "$.id")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.id: must not be . or .., and have no /, ... [path-segment]
    """
    if not _is_segment(text):
        detail = f"must not be . or .., and have no /, \\ or control character: {text!r}"
        raise ValidationError(detail, path=path, rule="path-segment")


def _is_segment(text: str) -> bool:
    return not (text in _NO_SEGMENT or "/" in text or "\\" in text or _CONTROL.search(text))


def _read_segment(raw: bytes) -> str:
    """Decode one segment of a path; ValueError (as UnicodeError is one) if it is spelled oddly."""
    text = unquote_to_bytes(raw).decode("utf-8")
    codes = _ENCODED.findall(raw)
    if not _is_segment(text) or any(bytes.fromhex(code.decode()).isalnum() for code in codes):
        raise ValueError(text)
    return text


def read_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Read the headers of a request; refuse those that could be read in two ways."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.decode("latin-1")
        if key in headers and name in _SINGLE:
            raise RequestRefused(
                400, f"more than one {key} header", headers={"Connection": "close"}
            )
        headers[key] = value.decode("latin-1")
    if "transfer-encoding" in headers and "content-length" in headers:
        detail = "Transfer-Encoding and Content-Length contradict each other: send one of them"
        raise RequestRefused(400, detail, headers={"Connection": "close"})
    return headers


class Gate:
    """The checks that every request passes before anything else reads it."""

    def __init__(
        self, token: str, allow_hosts: tuple[str, ...] = (), *, guesses: float = 0
    ) -> None:
        """Take the token, further host names, and how many guesses a second a client may make."""
        self._token = token.encode()
        self._cookie = cookie_value(token).encode()
        self._guesses = RateLimit(guesses)
        self._names = frozenset(name.lower().rstrip(".") for name in allow_hosts)

    def check_host(self, host: str | None, port: int | None) -> None:
        """Refuse a Host that is no name of this server."""
        name, given = _split(host or "")
        local = name in LOOPBACK and given == port
        if not local and name not in self._names:
            detail = f"this server does not answer to the name {(host or '')[:100]!r}"
            raise RequestRefused(421, detail)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Refuse an Origin that is not this server."""
        if origin is None:
            return
        found = urlsplit(origin) if origin.isascii() and origin.isprintable() else None
        if (
            found is None
            or found.scheme not in {"http", "https"}
            or found.netloc.lower() != (host or "").lower()
            or found.path
            or found.query
        ):
            raise RequestRefused(403, f"a page of {origin[:100]!r} may not ask this server")

    def check_holder(self, method: str, headers: Mapping[str, str], port: int | None) -> None:
        """Refuse a request with neither the token nor the cookie."""
        if self.is_token(headers.get("authorization", "")):
            return
        cookie = _cookie(headers.get("cookie", ""), f"palaver_{port}")
        if not hmac.compare_digest(cookie.encode(), self._cookie):
            detail = "needs the server's token: Authorization: Bearer TOKEN"
            raise RequestRefused(401, detail, headers={"WWW-Authenticate": "Bearer"})
        if method in _SAFE:
            return
        if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
            raise RequestRefused(
                403, "a change with a cookie must come from this server's own page"
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _FORMS:
            raise RequestRefused(415, "a change with a cookie is no form: send application/json")

    def count_guess(self, client: tuple[str, int] | None) -> None:
        """Count a wrong or missing token; refuse a client that tries too many."""
        self._guesses.check(client[0] if client else "")

    def is_token(self, authorization: str) -> bool:
        """Tell whether an Authorization header has the token."""
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.matches_token(token.strip())

    def matches_token(self, token: str) -> bool:
        """Tell whether a text is the token, in constant time."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token)


class RateLimit:
    """A rate for each client: a bucket that fills steadily and holds a few seconds' worth.

    >>> rate = RateLimit(1, clock=lambda: 0.0)
    >>> [rate.allows("me") for _ in range(6)]
    [True, True, True, True, False, False]
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the number of requests a second; 0 sets no limit."""
        self._rate = per_second
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Take one from a client's bucket; False if it is empty."""
        if not self._rate:
            return True
        now, most = self._clock(), self._rate * _BURST
        left, then = self._left.pop(client, (most, now))
        left = min(most, left + (now - then) * self._rate)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return allowed

    def check(self, client: str) -> None:
        """Refuse a request that comes too fast."""
        if not self.allows(client):
            raise RequestRefused(429, "too many requests at once", headers={"Retry-After": "1"})


def _split(host: str) -> tuple[str, int | None]:
    """Split a Host into name and port; the port is 80 if none is given."""
    found = _HOST.fullmatch(host)
    if found is None:
        return "", None
    name = found["name"].strip("[]").lower().rstrip(".")
    return name, 80 if found["port"] is None else int(found["port"])


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
