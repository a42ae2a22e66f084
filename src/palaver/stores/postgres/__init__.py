"""Histories in PostgreSQL, for any number of processes and machines."""

from __future__ import annotations

from palaver.stores.postgres.keeper import PostgresKeeper

__all__ = ["PostgresKeeper"]
