"""Hypothesis profiles, chosen with HYPOTHESIS_PROFILE; `repeatable` unless said otherwise.

Run in the background by a shell, the tests would pass on to their children that Ctrl-C is ignored,
and what is to be interrupted would never end: so they take it back first.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from pathlib import Path
from typing import Final

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from tests.faults.summary import pytest_report_teststatus, pytest_terminal_summary, told
from tests.profiles import scaled

# hooks and a fixture, found here by pytest
__all__ = ["pytest_report_teststatus", "pytest_terminal_summary", "told"]


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests away from the conversations of whoever runs them, and from one another's."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


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


_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
_ROOM: Final = 4_000_000_000


def _has_room(folder: Path) -> bool:
    """Whether the tests' files fit there, and their programs may run there."""
    if not folder.is_dir():
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC


# Programs are killed here, machines are not: nobody need wait until a file is on the disk. Only the
# campaigns do.
if settings.get_current_profile_name() == "repeatable" and _has_room(_MEMORY):
    os.environ.setdefault("TMPDIR", str(_MEMORY))
    tempfile.tempdir = None  # look it up again

_UNMEASURED: Final = {
    "page", "faults", "devtools", "test_bench.py", "test_docs.py", "test_house.py",
    "test_machine.py", "test_programs.py", "test_scale.py", "test_schemathesis.py",
}  # fmt: skip
gc.disable()  # until all tests are found
_paused: Final[list[Coverage]] = []


@pytest.hookimpl(tryfirst=True)  # before pytest-cov starts the one whose data it takes
def pytest_sessionstart(session: pytest.Session) -> None:
    """With workers, measure in them alone, and once: whoever gives out the tests runs none.

    In a worker pytest-cov starts twice, and drops the data of the first, which would go on whenever
    the second is paused: `no_cover` would spare nothing.
    """
    first, config = Coverage.current(), session.config
    if first and (hasattr(config, "workerinput") or config.getoption("numprocesses", default=0)):
        first.stop()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Don't measure how tests are collected, once `src` was: then all of palaver is imported."""
    measuring = Coverage.current()
    whole = {"src", "tests"} <= set(collector.config.args)
    if measuring and whole and collector.path == Path(__file__).parent:
        measuring.stop()
        _paused.append(measuring)


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
    """Go on measuring, and let garbage be collected again.

    The collector is spared what stays to the end, thousands of tests and all that they import. What
    the tests themselves leave behind it looks for less often.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    for measuring in _paused:
        measuring.start()
