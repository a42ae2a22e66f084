"""Failures of providers as palaver's errors, and whether a request may be repeated.

Providers report the same failures by different statuses, codes and texts; only this module knows
them. Texts that people see contain no API key.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.errors import (
    AuthError,
    BadAnswer,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    NetworkError,
    RateLimited,
    Unavailable,
)
from palaver.messages.limits import is_list, is_object
from palaver.messages.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "ErrorReply",
    "Failure",
    "bad_answer",
    "classify",
    "connection_failed",
    "read_error_body",
    "retry_after",
    "scrub",
    "timed_out",
    "transport_failure",
]

_LONGEST: Final = 2_000
_SHORTEST_KEY: Final = 6
_OVERFLOW_CODES: Final = frozenset(("context_length_exceeded", "exceed_context_size_error"))
_OVERFLOW: Final = re.compile(
    r"context[ _](?:length|window|size|limit)|prompt is too long|input is too long"
    r"|input token count|too many (?:input )?tokens",
    re.IGNORECASE,
)
_FILTER_CODES: Final = frozenset(("content_filter", "content_policy_violation", "invalid_prompt"))
_NO_CREDIT: Final = frozenset(("insufficient_quota", "billing_error"))
_TRANSPORTS: Final = frozenset(("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"))
_API_KEY: Final = re.compile(r"api[ _]key", re.IGNORECASE)

_STATUS: Final[dict[str, int]] = {
    "authentication_error": 401,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
    "invalid_request_error": 400,
    "server_error": 500,
    "api_error": 500,
    "timeout_error": 504,
    **dict.fromkeys(_OVERFLOW_CODES | _FILTER_CODES, 400),
}
"""The HTTP status for an error code that arrives inside a stream, where there is no status."""


class Failure(NamedTuple):
    """An error, and whether the same request may be sent again."""

    error: ModelError
    retryable: bool = False


class ErrorReply(NamedTuple):
    """What a provider replied when it refused a request."""

    provider: str
    status: int | None
    text: str
    code: str = ""
    wait: float | None = None
    retryable: bool | None = None
    """What the provider itself says about a repeat, if it does."""


def classify(reply: ErrorReply) -> Failure:
    """Return the error for a provider's reply.

    >>> classify(ErrorReply("openai", 429, "slow down", wait=2.0)).error
    RateLimited('slow down', 'openai', 429, 2.0)
    """
    status = reply.status or _STATUS.get(reply.code)
    kind, retryable = _kind(reply, status)
    error = kind(
        reply.text or "no reason given",
        provider=reply.provider,
        status=status,
        retry_after=reply.wait,
    )
    return Failure(error, retryable if reply.retryable is None else reply.retryable)


def connection_failed(provider: str, failure: Exception) -> Failure:
    """The connection could not be made, or broke before anything arrived."""
    cause = failure.__cause__
    reason = str(cause) if cause is not None and str(cause) else str(failure)
    detail = f"the connection failed: {reason or type(failure).__name__}{_asked(failure)}"
    return Failure(NetworkError(detail, provider=provider), retryable=True)


def _asked(failure: Exception) -> str:
    """Return which server was asked, where the HTTP library says so; a path may be secret."""
    try:
        url: Any = getattr(failure, "request").url  # noqa: B009 - few errors have one
    except (AttributeError, RuntimeError):  # httpx: no request was set
        return ""
    return f" ({url.host}:{url.port})" if url.port else f" ({url.host})"


def timed_out(provider: str, seconds: float | None) -> Failure:
    """Nothing arrived in time; not repeated, since a repeat could wait just as long again."""
    limit = "the time that its client allows" if seconds is None else f"{seconds:g} s"
    return Failure(NetworkError(f"nothing came within {limit}", provider=provider))


def bad_answer(provider: str, reason: str) -> Failure:
    """The reply is not an answer."""
    return Failure(BadAnswer(reason, provider=provider))


def transport_failure(error: Exception, provider: str, seconds: float | None) -> Failure | None:
    """Classify an error of the HTTP library below an SDK; None if it is not one.

    SDKs choose their own HTTP library; all of them name a timeout alike.
    """
    if type(error).__module__.partition(".")[0] not in _TRANSPORTS:
        return None
    if "Timeout" in type(error).__name__:
        return timed_out(provider, seconds)
    return connection_failed(provider, error)


def read_error_body(body: object) -> tuple[str, str]:
    """Return the message and the code in the JSON of an error reply.

    >>> read_error_body({"error": {"message": "No.", "code": "because"}})
    ('No.', 'because')
    >>> read_error_body("<html>")
    ('<html>', '')
    """
    inner: object = body
    if is_list(inner) and inner:
        inner = inner[0]
    if is_object(inner) and is_object(inner.get("error")):
        inner = inner["error"]
    if not is_object(inner):
        return (inner.strip() if isinstance(inner, str) else ""), ""
    codes = (inner.get(name) for name in ("code", "status", "type"))
    code = next((found for found in codes if isinstance(found, str) and found), "")
    message = inner.get("message")
    return (message if isinstance(message, str) else ""), code


def retry_after(headers: Mapping[str, str], body: object = None) -> float | None:
    """Return the seconds to wait, from an error's headers or, for Google, from its details.

    >>> retry_after({"retry-after": "7"}), retry_after({"retry-after-ms": "250"})
    (7.0, 0.25)
    """
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return max(0.0, seconds / unit)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, at.timestamp() - time.time())
    except (ValueError, OverflowError):
        return _google_delay(body)


def scrub(text: str, secrets: Iterable[str | None]) -> str:
    """Return the text without any key, cut to a length that people read.

    >>> scrub("wrong key: sk-12345678", ["sk-12345678"])
    'wrong key: …'
    """
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_KEY:
            text = text.replace(secret, "…")
    text = redact(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _kind(reply: ErrorReply, status: int | None) -> tuple[type[ModelError], bool]:
    match status:
        case None:
            found = ModelError, False
        case 401 | 403:
            found = AuthError, False
        case 429:
            found = RateLimited, reply.code not in _NO_CREDIT
        case 408:
            found = NetworkError, True
        case 413:
            found = ContextOverflow, False
        case 409:
            found = Unavailable, True
        case _ if status >= 500:  # noqa: PLR2004 - HTTP's own number is the clearest name
            found = Unavailable, True
        case _:
            found = _bad_request(reply), False
    return found


def _bad_request(reply: ErrorReply) -> type[BadRequest | AuthError]:
    if reply.code in _OVERFLOW_CODES or _OVERFLOW.search(reply.text):
        return ContextOverflow
    if reply.code in _FILTER_CODES:
        return ContentFiltered
    if reply.code in ("INVALID_ARGUMENT", "API_KEY_INVALID") and _API_KEY.search(reply.text):
        return AuthError
    return BadRequest


def _google_delay(body: object) -> float | None:
    error: Any = body.get("error") if is_object(body) else None
    details: Any = error.get("details") if is_object(error) else None
    for detail in details if is_list(details) else ():
        delay = detail.get("retryDelay") if is_object(detail) else None
        if isinstance(delay, str):
            return _number(delay.removesuffix("s"))
    return None


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
