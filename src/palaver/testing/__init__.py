"""For tests of your own: the suite that every store passes."""

from __future__ import annotations

from palaver.testing.stores import store_conformance

__all__ = ["store_conformance"]
