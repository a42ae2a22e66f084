"""Opening a store by its address: a file, `:memory:`, or `postgresql://…`.

An address can hold a password. One that is misspelt is not taken for the name of a file, which
would be shown or even made; and no error shows what was given.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from palaver.errors import StoreError
from palaver.messages.ids import now_ms
from palaver.stores.paths import database_path
from palaver.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.protocol import Keeper

__all__ = ["check_address", "open_store"]

_POSTGRES: Final = ("postgresql://", "postgres://")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_MISSPELT: Final = re.compile(
    r"""
    \s*postgres(ql)?\s*:                              # postgresql:/…
    | (?!\.{1,2}[\\/] | [A-Za-z]:[\\/] | /(?!/))      # not ./… or C:/… or /…
      (
        [^@]*:[^@]*@                                  # user:password@…
        | .*\b(password|passwd|pwd|PGPASSWORD)\s*=    # host=… password=…
      )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def open_store(address: str | os.PathLike[str], *, clock: Callable[[], int] = now_ms) -> Store:
    """Open a store, and make it if it is not there.

    A file may be given as text or as a path; `~` is the home folder. What can't be a store's file
    (a folder, a device, a name that is not UTF-8) is a `StoreError`, and nothing is made.

    >>> open_store(":memory:").create(title="A talk").title
    'A talk'
    """
    name: object = address
    if isinstance(address, os.PathLike):
        name = os.fspath(address)
    if not isinstance(name, str):
        msg = f"the address of a store must be text or a path, not {type(name).__name__}"
        raise StoreError(msg)
    check_address(name)
    if name == ":memory:":
        from palaver.stores.memory import MemoryKeeper  # noqa: PLC0415 - only what is asked for

        return Store(MemoryKeeper(), clock=clock)
    if name.startswith(_POSTGRES):
        return Store(_postgres(name), clock=clock)
    path = database_path(name)
    from palaver.stores.sqlite import SQLiteKeeper  # noqa: PLC0415 - the same

    return Store(SQLiteKeeper(path), clock=clock)


def _postgres(address: str) -> Keeper:
    try:
        from palaver.stores.postgres import PostgresKeeper  # noqa: PLC0415 - the same
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] != "psycopg":
            raise
        msg = "a store in PostgreSQL needs more packages: pip install 'palaver[postgres]'"
        raise StoreError(msg) from None
    return PostgresKeeper(address)


def check_address(address: str) -> None:
    """Refuse what is neither a file nor the address of a store, without showing it.

    >>> check_address("chat.db")
    >>> check_address("mysql://me:secret@localhost/talks")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    palaver.errors.StoreError: there is no store for mysql:// addresses; expected a file, ...
    """
    expected = "expected a file, :memory: or postgresql://user:password@host:port/database"
    scheme, found, _ = address.partition("://")
    if found and not address.startswith(_POSTGRES):
        named = f"{scheme}:// addresses" if _SCHEME.fullmatch(scheme) else "such an address"
        msg = f"there is no store for {named}; {expected}"
        raise StoreError(msg)
    if not found and _MISSPELT.match(address):
        msg = (
            f"that looks like a misspelt address and not like a file; {expected} "
            "(a file with such a name can be given by its absolute path)"
        )
        raise StoreError(msg)
