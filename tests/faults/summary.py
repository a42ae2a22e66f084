"""What every campaign counted: told when it ends, and as a table at the end of the run.

A tally goes with its test's report, so it arrives whichever process ran the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.faults.tally import Tally, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter

__all__ = ["pytest_report_teststatus", "pytest_terminal_summary", "told"]


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[Tally], None]:
    """Note a tally for the table, and fail where something happened that must not."""

    def tell(tally: Tally) -> None:
        record_property("tally", msgspec.json.encode(tally).decode())
        tally.check()

    return tell


def _tallies(report: pytest.TestReport) -> Iterator[Tally]:
    for name, value in report.user_properties:
        if name == "tally":
            tally = msgspec.json.decode(str(value), type=Tally)
            tally.seconds = report.duration
            yield tally


def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """With -v, say what a campaign counted instead of only that it passed."""
    if not isinstance(report, pytest.TestReport) or report.when != "call" or not report.passed:
        return None
    words = "; ".join(map(str, _tallies(report)))
    return ("passed", ".", (f"PASSED ({words})", {"green": True})) if words else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what every campaign counted."""
    tallies = [
        tally
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for tally in _tallies(report)
    ]
    if tallies:
        terminalreporter.section("faults")
        terminalreporter.write_line(table(sorted(tallies, key=lambda tally: tally.name.casefold())))
