"""The conformance suite: what every store passes, those that come with palaver and yours.

    def test_my_store():
        store_conformance(lambda: Store(MyBackend("…")))

or, check by check:

    @pytest.mark.parametrize("check", store_conformance.checks, ids=str)
    def test_my_store(check):
        check(lambda: Store(MyBackend("…")))

The function that is handed in opens the same store every time: checks close it and open it again,
or open it twice at the same time as two processes would. Every check creates conversations of its
own, so one store serves for all, and what it had before is left alone.
"""

from __future__ import annotations

from palaver.testing.stores import basics, concurrency, durability, forks
from palaver.testing.stores.suite import Check, Conformance, ConformanceReport, Trial

__all__ = ["Check", "Conformance", "ConformanceReport", "Trial", "store_conformance"]

store_conformance = Conformance(
    basics.CHECKS,
    durability.CHECKS,
    forks.CHECKS,
    concurrency.CHECKS,
)
"""Runs every check, and reports which failed; `checks` has them one by one."""
