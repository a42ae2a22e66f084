"""The one suite that every store passes, those that come with palaver and yours.

    def test_my_store():
        store_conformance(lambda: Store(MyKeeper("…")))

or, check by check:

    @pytest.mark.parametrize("check", store_conformance.checks, ids=str)
    def test_my_store(check):
        check(lambda: Store(MyKeeper("…")))

What is handed in opens the same store every time: checks close it and open it again, or open it
twice at the same time as two processes would. Every check makes conversations of its own, so one
store serves for all, and what it had before is left alone.
"""

from __future__ import annotations

from palaver.testing.stores import (
    arguments,
    erasing,
    finding,
    forking,
    keeping,
    lasting,
    leasing,
    lineage,
    preconditions,
    pruning,
    repeating,
    sharing,
)
from palaver.testing.stores.running import Check, Conformance, Report, Trial

__all__ = ["Check", "Conformance", "Report", "Trial", "store_conformance"]

store_conformance = Conformance(
    arguments.CHECKS,
    keeping.CHECKS,
    lasting.CHECKS,
    forking.CHECKS,
    lineage.CHECKS,
    erasing.CHECKS,
    pruning.CHECKS,
    repeating.CHECKS,
    sharing.CHECKS,
    leasing.CHECKS,
    preconditions.CHECKS,
    finding.CHECKS,
)
"""Runs every check, and says which failed; `checks` has them one by one."""
