"""Histories in one SQLite file, for one machine and any number of its processes."""

from __future__ import annotations

from palaver.stores.sqlite.backend import SQLiteBackend

__all__ = ["SQLiteBackend"]
