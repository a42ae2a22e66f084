"""A plugin of pytest that puts palaver's classes in place, and notes what became of each test.

A class is replaced before a test is imported, in every module of the framework that has it. A class
of the tests' own, which can't be imported so early, is replaced when all tests are collected.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.framework_suites.suites import suites_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.framework_suites.suites import InPlace


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("framework suites")
    group.addoption("--suite", help="FRAMEWORK:NUMBER", default="")
    group.addoption("--in-place", help="the number of what is put in place", type=int)
    group.addoption("--outcomes", help="the file that the outcomes are written to")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    chosen = _chosen(early_config)
    if chosen is not None:
        _put_in_place(chosen.classes, of_tests=False)


def pytest_configure(config: pytest.Config) -> None:
    outcomes = config.getoption("outcomes")
    if outcomes:
        config.pluginmanager.register(_Recorder(Path(outcomes)))


def pytest_collection_finish(session: pytest.Session) -> None:
    chosen = _chosen(session.config)
    if chosen is not None:
        _put_in_place(chosen.classes, of_tests=True)


class _Recorder:
    """Writes the outcome of each test, and which files could not be collected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}
        self.uncollected: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            why = report.longreprtext.strip().rpartition("\n")[2]
            self.uncollected[report.nodeid] = why.removeprefix("E").partition(" (")[0].strip()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self.outcomes.get(report.nodeid)
        if report.failed or known is None or (report.when == "call" and known == "passed"):
            self.outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        found = {"outcomes": self.outcomes, "uncollected": self.uncollected}
        self.path.write_text(json.dumps(found), encoding="utf-8")


def _chosen(config: pytest.Config) -> InPlace | None:
    """Return what the options ask to put in place, with the framework imported in any case.

    Later, tests may put the sources of their checkout before the release that is installed.
    """
    options = config.known_args_namespace
    if not options.suite:
        return None
    framework, _, number = options.suite.partition(":")
    suite = suites_of(framework)[int(number)]
    return None if options.in_place is None else suite.in_place[options.in_place]


def _put_in_place(classes: Mapping[str, object], *, of_tests: bool) -> None:
    """Replace classes by name: those of the framework, or those of its tests."""
    for name, new in classes.items():
        module, _, attribute = name.partition(":")
        if module.startswith("tests.") == of_tests:
            _replace(getattr(import_module(module), attribute), new)


def _replace(old: object, new: object) -> None:
    """Replace an object in all modules that were imported."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in list(names.items()) if value is old]:
            setattr(module, name, new)
