"""What went wrong with a provider, as one of palaver's errors, and whether a repeat is worth it.

Providers say the same things by different numbers and words; this is the one place that knows them.
A text that goes to people has no key in it.
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
from palaver.messages.gate import is_list, is_object
from palaver.messages.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Failure",
    "Report",
    "bad_answer",
    "failure",
    "never_came",
    "of_transport",
    "retry_after",
    "scrubbed",
    "unreachable",
    "words_of",
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
_BROKE: Final = frozenset(("insufficient_quota", "billing_error"))
_TRANSPORTS: Final = frozenset(("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"))
_KEY: Final = re.compile(r"api[ _]key", re.IGNORECASE)

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
"""What a code inside a stream would have been as a status: there, none is left to give."""


class Failure(NamedTuple):
    """An error, and whether the same question may be asked again."""

    error: ModelError
    again: bool = False


class Report(NamedTuple):
    """What a provider said when it refused."""

    provider: str
    status: int | None
    words: str
    code: str = ""
    wait: float | None = None
    again: bool | None = None
    """What the provider itself says about a repeat, where it does."""


def failure(report: Report) -> Failure:
    """Find the error for what a provider said.

    >>> failure(Report("openai", 429, "slow down", wait=2.0)).error
    RateLimited('slow down', 'openai', 429, 2.0)
    """
    status = report.status or _STATUS.get(report.code)
    kind, again = _kind(report, status)
    error = kind(
        report.words or "no reason given",
        provider=report.provider,
        status=status,
        retry_after=report.wait,
    )
    return Failure(error, again if report.again is None else report.again)


def _kind(report: Report, status: int | None) -> tuple[type[ModelError], bool]:
    match status:
        case None:
            found = ModelError, False
        case 401 | 403:
            found = AuthError, False
        case 429:
            found = RateLimited, report.code not in _BROKE
        case 408:
            found = NetworkError, True
        case 413:
            found = ContextOverflow, False
        case 409:
            found = Unavailable, True
        case _ if status >= 500:  # noqa: PLR2004 - HTTP's own number is the clearest name
            found = Unavailable, True
        case _:
            found = _refusal(report), False
    return found


def _refusal(report: Report) -> type[BadRequest | AuthError]:
    if report.code in _OVERFLOW_CODES or _OVERFLOW.search(report.words):
        return ContextOverflow
    if report.code in _FILTER_CODES:
        return ContentFiltered
    if report.code in ("INVALID_ARGUMENT", "API_KEY_INVALID") and _KEY.search(report.words):
        return AuthError
    return BadRequest


def unreachable(provider: str, why: str) -> Failure:
    """The connection could not be made, or broke before anything came."""
    return Failure(NetworkError(f"the connection failed: {why}", provider=provider), again=True)


def never_came(provider: str, seconds: float) -> Failure:
    """Nothing came in time; who asks again may wait as long once more, so nobody does by itself."""
    return Failure(NetworkError(f"nothing came within {seconds:g} s", provider=provider))


def of_transport(error: Exception, provider: str, seconds: float) -> Failure | None:
    """What an error of the HTTP library below an SDK means; None where it is none.

    Which library it is, is the SDK's own affair; all of them name a timeout so.
    """
    if type(error).__module__.partition(".")[0] not in _TRANSPORTS:
        return None
    if "Timeout" in type(error).__name__:
        return never_came(provider, seconds)
    return unreachable(provider, str(error) or type(error).__name__)


def bad_answer(provider: str, why: str) -> Failure:
    """What came is no answer."""
    return Failure(BadAnswer(why, provider=provider))


def words_of(body: object) -> tuple[str, str]:
    """A provider's words and its code, from the JSON of a refusal.

    >>> words_of({"error": {"message": "No.", "code": "because"}})
    ('No.', 'because')
    >>> words_of("<html>")
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
    """How long to wait, from a refusal's headers or, as Google does it, from its details.

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
        return _delay(body)


def _delay(body: object) -> float | None:
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


def scrubbed(text: str, secrets: Iterable[str | None]) -> str:
    """The text without any key, and no longer than a person reads.

    >>> scrubbed("wrong key: sk-12345678", ["sk-12345678"])
    'wrong key: …'
    """
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_KEY:
            text = text.replace(secret, "…")
    text = redact(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
