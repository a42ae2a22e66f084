"""Property tests run here under the same profiles as elsewhere: see `tests/conftest.py`."""

from __future__ import annotations

from tests.conftest import pytest_report_teststatus, pytest_terminal_summary, told

# hooks and a fixture, found here by pytest
__all__ = ["pytest_report_teststatus", "pytest_terminal_summary", "told"]
