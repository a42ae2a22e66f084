"""Redaction of secrets in error texts, before a text is stored or shown to a model.

The error text of a tool, a provider or a program may quote the key it was given. These are taken
for secrets: the values of environment variables with names such as `API_KEY`, passwords in URLs of
the environment, and strings that have the form of a key. Redaction is not complete: a secret of
another form that is in no variable is not found.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["REDACTED", "is_secret_name", "redact"]

REDACTED: Final = "[redacted]"
_SHORTEST: Final = 8
"""Shorter values occur in too many harmless texts."""
_SHORTEST_LINE: Final = 16

_SECRET: Final = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEYS?|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORD|PASSPHRASE|PWD|CREDENTIALS?"
    r"|AUTH|COOKIE|DSN)(?:$|_)|(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)$",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(
    r"^(?:OLD)?PWD$|_(?:FILE|PATH|DIR|HOME|SOCK|ID|URL_PATH)$", re.IGNORECASE
)
"""Names of variables that hold a path or an id and no secret."""

_IN_URL: Final = re.compile(r"://[^\s/:@\"']{0,200}:([^\s/@\"']{1,500})@")

_NAMES: Final = (
    r"(?:x-)?api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret"
    r"|access[_-]?token|auth[_-]?token|refresh[_-]?token|id[_-]?token|session[_-]?token"
    r"|token|secret|password|passwd|passphrase|signature"
)
_SHAPES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, flags), put)
    for pattern, flags, put in (
        # a private key, to its end or the end of the text
        (
            (
                r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?"
                r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)"
            ),
            re.DOTALL,
            REDACTED,
        ),
        # scheme://user:password@host
        (r"(?<=://)([^\s/:@\"']{0,200}):[^\s/@\"']{1,500}@", 0, rf"\1:{REDACTED}@"),
        # headers: Authorization and Proxy-Authorization, with or without a scheme
        (
            (
                r"(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest) )?)"
                r"(?=[^\s\"',}]{0,200}[0-9]|[^\s\"',}]{20})[^\s\"',}\[]{6,}"
            ),
            re.IGNORECASE,
            rf"\1{REDACTED}",
        ),
        (
            (
                r"\b(bearer|basic)\s{1,3}(?=[a-z0-9._~+/=-]{0,200}[0-9]|[a-z0-9._~+/=-]{20})"
                r"[a-z0-9._~+/=-]{8,}"
            ),
            re.IGNORECASE,
            rf"\1 {REDACTED}",
        ),
        # name=value, as in a query or a connection string, and "name": "value", as in JSON
        (
            rf"\b({_NAMES})(=[\"']?)(?!\[redacted\])[^\s\"'&,;)\]}}]{{6,}}",
            re.IGNORECASE,
            rf"\1\2{REDACTED}",
        ),
        (
            rf"([\"'](?:{_NAMES})[\"']\s{{0,3}}:\s{{0,3}}[\"'])[^\"'\s]{{6,}}",
            re.IGNORECASE,
            rf"\1{REDACTED}",
        ),
        (r"(?<=[?&])(key|sig)=[^\s\"'&]{6,}", re.IGNORECASE, rf"\1={REDACTED}"),
        # keys of well-known services, and JSON web tokens
        (r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}", 0, REDACTED),
        (r"\bAIza[0-9A-Za-z_-]{30,}", 0, REDACTED),
        (r"\b(?:gh[oprsu]_[0-9A-Za-z]{20,}|github_pat_[0-9A-Za-z_]{20,})", 0, REDACTED),
        (r"\b(?:xox[abeoprs]|xapp)-[0-9A-Za-z-]{10,}", 0, REDACTED),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", 0, REDACTED),
        (r"\b(?:glpat-|hf_|gsk_|xai-|pplx-|npm_|pypi-|r8_|ya29\.)[0-9A-Za-z_-]{16,}", 0, REDACTED),
        (r"(?<![0-9A-Za-z_-])eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]*", 0, REDACTED),
    )
)


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the text with `[redacted]` in place of everything that looks like a secret.

    `environ` is this process's environment unless another is given.

    >>> redact("401 for key sk-proj-abcdefghijklmnop", {})
    '401 for key [redacted]'
    >>> redact("can't reach postgres://ann:hunter2@db/tea", {})
    "can't reach postgres://ann:[redacted]@db/tea"
    >>> redact("wrong: opensesame", {"CAVE_PASSWORD": "opensesame"})
    'wrong: [redacted]'
    """
    for value in sorted(_values(os.environ if environ is None else environ), key=len, reverse=True):
        text = text.replace(value, REDACTED)
    for shape, put in _SHAPES:
        text = shape.sub(put, text)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name is likely to hold a secret.

    >>> [is_secret_name(name) for name in ("OPENAI_API_KEY", "PGPASSWORD", "PATH", "SSH_AUTH_SOCK")]
    [True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not _PLACE.search(name)


def _values(environ: Mapping[str, str]) -> set[str]:
    """Return every form in which a secret of the environment may occur in a text."""
    secrets = {value.strip() for name, value in environ.items() if is_secret_name(name)}
    for value in environ.values():
        secrets.update(_IN_URL.findall(value))
    return {
        spelled for secret in secrets if len(secret) >= _SHORTEST for spelled in _spellings(secret)
    }


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield repr(value)[1:-1]
    yield quote(value, safe="")
    yield quote_plus(value)
    lines = value.splitlines()
    if len(lines) > 1:  # a key of many lines is rarely quoted in full
        yield from (line for line in lines if len(line.strip()) >= _SHORTEST_LINE)
