"""Hypothesis profiles, chosen with HYPOTHESIS_PROFILE; `repeatable` unless said otherwise.

Run in the background by a shell, the tests would pass on to their children that Ctrl-C is ignored,
and what is to be interrupted would never end: so they take it back first.
"""

from __future__ import annotations

import gc
import os
import signal
from typing import Final

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from tests.faults.summary import pytest_report_teststatus, pytest_terminal_summary, told
from tests.profiles import scaled

# hooks and a fixture, found here by pytest
__all__ = ["pytest_report_teststatus", "pytest_terminal_summary", "told"]

settings.register_profile(
    "repeatable",  # the same examples every time, so that a red run is red again
    derandomize=True,
    max_examples=50,
    print_blob=True,
    deadline=None,
)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.register_profile(
    "faults",
    max_examples=scaled(5_000),
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_UNMEASURED: Final = {"page", "faults", "test_bench.py", "test_scale.py", "test_docs.py"}


@pytest.hookimpl(tryfirst=True)  # before pytest-cov starts the one whose data it takes
def pytest_sessionstart(session: pytest.Session) -> None:
    """Measure once in a worker: pytest-cov starts there twice, and drops the first one's data.

    The first would go on whenever the second is paused: `no_cover` would spare nothing.
    """
    first = Coverage.current()
    if first is not None and hasattr(session.config, "workerinput"):
        first.stop()


@pytest.hookimpl(trylast=True)  # after hypothesis has marked its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure coverage where it costs little: a property runs the same lines a thousand times.

    What only such a test would reach deserves a test with a name.
    """
    for item in items:
        places = {item.path.name, item.path.parent.name}
        if item.get_closest_marker("hypothesis") or places & _UNMEASURED:
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end, thousands of tests and all that they import.

    What the tests themselves leave behind it looks for less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
