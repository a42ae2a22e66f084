"""Stores: where conversations last."""

from __future__ import annotations

from palaver.stores.opening import open_store
from palaver.stores.store import Store

__all__ = ["Store", "open_store"]
