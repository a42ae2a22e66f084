"""Opening a store by its address: a file, `:memory:`, or `postgresql://…`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import StoreError
from palaver.messages.ids import now_ms
from palaver.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores.protocol import Keeper

__all__ = ["open_store"]


def open_store(address: str | Path, *, clock: Callable[[], int] = now_ms) -> Store:
    """Open a store, and make it if it is not there.

    >>> open_store(":memory:").create(title="A talk").title
    'A talk'
    """
    name = str(address)
    if name == ":memory:":
        from palaver.stores.memory import MemoryKeeper  # noqa: PLC0415 - only what is asked for

        return Store(MemoryKeeper(), clock=clock)
    if name.startswith(("postgresql://", "postgres://")):
        return Store(_postgres(name), clock=clock)
    if "://" in name:
        msg = f"there is no store for {name.partition('://')[0]}:// addresses"
        raise StoreError(msg)
    from palaver.stores.sqlite import SQLiteKeeper  # noqa: PLC0415 - the same

    return Store(SQLiteKeeper(name), clock=clock)


def _postgres(address: str) -> Keeper:
    try:
        from palaver.stores.postgres import PostgresKeeper  # noqa: PLC0415 - the same
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] not in {"psycopg", "psycopg_pool"}:
            raise
        msg = "a store in PostgreSQL needs more packages: pip install 'palaver[postgres]'"
        raise StoreError(msg) from None
    return PostgresKeeper(address)
