"""Stores: where conversations last. `palaver.open` returns a `Store`.

A `Store` has a `Backend`: memory, SQLite, PostgreSQL, or one of your own. The other names are what
their methods take and return.
"""

from __future__ import annotations

from palaver.history.frame import Expected, check_expected
from palaver.stores.backend import Backend, id_from_key
from palaver.stores.encryption import Cipher, Key
from palaver.stores.open import open_store
from palaver.stores.records import (
    AlreadyCommitted,
    Change,
    Erased,
    Head,
    Hit,
    JournalEntry,
    Lease,
    Listing,
    Record,
    StoredFrame,
    Work,
)
from palaver.stores.store import Store
from palaver.stores.stored_history import StoredHistory

__all__ = [
    "AlreadyCommitted",
    "Backend",
    "Change",
    "Cipher",
    "Erased",
    "Expected",
    "Head",
    "Hit",
    "JournalEntry",
    "Key",
    "Lease",
    "Listing",
    "Record",
    "Store",
    "StoredFrame",
    "StoredHistory",
    "Work",
    "check_expected",
    "id_from_key",
    "open_store",
]
