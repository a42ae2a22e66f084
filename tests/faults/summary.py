"""The table at the end of a run, from the reports of all tests, whichever process ran them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.faults.tally import Tally, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.terminal import TerminalReporter

__all__ = ["pytest_terminal_summary"]


def _tallies(reporter: TerminalReporter) -> Iterator[Tally]:
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for name, value in report.user_properties:
                    if name == "tally":
                        yield msgspec.json.decode(str(value), type=Tally)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what every campaign counted."""
    tallies = sorted(_tallies(terminalreporter), key=lambda tally: tally.name)
    if tallies:
        terminalreporter.section("faults")
        terminalreporter.write_line(table(tallies))
