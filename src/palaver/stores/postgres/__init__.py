"""Histories in PostgreSQL, for any number of processes and machines."""

from __future__ import annotations

from palaver.stores.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
