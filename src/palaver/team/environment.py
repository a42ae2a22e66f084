"""The environment that a program of a team gets: a chosen one, never all of it.

A program reads what others in the conversation write. What it does not get it can't give away: the
keys of providers and the server's token are in palaver's own environment, and only those go on that
the team file names.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["BASIC", "PROXIES", "chosen_environment"]

BASIC: Final = (
    # who and where: a program finds its login and its settings by HOME
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
    # how to write
    "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES",
    # whose certificates to trust
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # what Windows can't do without
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA",
    "PROGRAMDATA", "PROGRAMFILES", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH",
)  # fmt: skip
"""The variables that every program gets; `*` at the end stands for any rest."""

PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Given too, in capitals or not, where no user and password stand in them."""


def chosen_environment(
    names: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The basic variables of an environment, and those that are named.

    `environ` is this process's own unless another is given.

    >>> around = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "sk-1", "AWS_REGION": "eu"}
    >>> chosen_environment((), around)
    {'PATH': '/bin', 'LC_ALL': 'C'}
    >>> chosen_environment(["OPENAI_API_KEY", "AWS_*"], around) == around
    True
    """
    given = os.environ if environ is None else environ
    named = tuple(names)
    return {
        name: value
        for name, value in given.items()
        if _fits(name, named)
        or (_fits(name, BASIC) and not value.startswith("()"))  # a function of a shell's
        or (name.upper() in PROXIES and "@" not in value)
    }


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
