"""Reading an address, and saying what is wrong with one without showing the password in it.

What is malformed can have the password anywhere: libpq quotes whatever it does not understand. So
nothing that was given is quoted here, and what libpq says is shown without its quotes.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import psycopg
from psycopg.conninfo import conninfo_to_dict

from palaver.errors import StoreError

__all__ = ["parse_address"]

_QUOTED: Final = re.compile(r'"[^"]*"?')
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]*\]|[^:\[\]@]*)(:[0-9]*)?")


def parse_address(address: str) -> dict[str, Any]:
    """The parts of `postgresql://user:password@host:port/database?option=value`, as libpq has them.

    >>> parse_address("postgresql://me@localhost/talks")["dbname"]
    'talks'
    """
    if not address.isprintable():
        _refuse("there is a character in it that can't be printed")
    authority, _, _ = address.partition("://")[2].partition("?")[0].partition("/")
    path = address.partition("://")[2].partition("?")[0].partition("/")[2]
    _, _, hosts = authority.rpartition("@")
    if authority.count("@") > 1 or "@" in path:
        _refuse("there is more than one @, or one after the host")
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        _refuse("behind the host and a colon comes the port, a number")
    try:
        return dict(conninfo_to_dict(address))
    except psycopg.Error as error:
        reason = _QUOTED.sub("(not shown)", str(error).strip().partition("\n")[0])
    return _refuse(reason)


def _refuse(reason: str) -> NoReturn:
    msg = (
        f"that is not a PostgreSQL address: {reason}; expected "
        "postgresql://user:password@host:port/database?option=value, with every special character "
        "of the password percent-encoded (@ is %40, / is %2F, : is %3A, ? is %3F, # is %23)"
    )
    raise StoreError(msg)
