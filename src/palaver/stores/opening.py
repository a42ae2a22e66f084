"""Opening a store by its address: a file, `:memory:`, or `postgresql://…`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from palaver.errors import StoreError
from palaver.messages.ids import now_ms
from palaver.stores.paths import database_path
from palaver.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.protocol import Keeper

__all__ = ["open_store"]


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
    if name == ":memory:":
        from palaver.stores.memory import MemoryKeeper  # noqa: PLC0415 - only what is asked for

        return Store(MemoryKeeper(), clock=clock)
    if name.startswith(("postgresql://", "postgres://")):
        return Store(_postgres(name), clock=clock)
    if "://" in name:
        msg = f"there is no store for {name.partition('://')[0]}:// addresses"
        raise StoreError(msg)
    path = database_path(name)
    from palaver.stores.sqlite import SQLiteKeeper  # noqa: PLC0415 - the same

    return Store(SQLiteKeeper(path), clock=clock)


def _postgres(address: str) -> Keeper:
    try:
        from palaver.stores.postgres import PostgresKeeper  # noqa: PLC0415 - the same
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] not in {"psycopg", "psycopg_pool"}:
            raise
        msg = "a store in PostgreSQL needs more packages: pip install 'palaver[postgres]'"
        raise StoreError(msg) from None
    return PostgresKeeper(address)
