"""What a suite is, and what its outcomes say.

A test that fails with the framework's own class says nothing about palaver's. Of the others, those
that can't pass with palaver's are known by name, each with its reason: `compare` finds every other
test that fails, and every known one that passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRAMEWORKS", "CannotPass", "Comparison", "InPlace", "Suite", "compare", "suites_of"]

FRAMEWORKS: Final = (
    "langgraph",
    "openai_agents",
    "adk",
    "strands",
    "llama_index",
    "agent_framework",
)
"""The modules of this package that have suites."""


@dataclass(frozen=True)
class CannotPass:
    """Tests that can't pass, and why.

    Tests are named by file. A name is a test with all its parameters, one test with its parameters,
    or a class with all its tests; `*` stands for the rest of a long name.
    """

    reason: str
    tests: Mapping[str, tuple[str, ...]]

    def names(self, test: str) -> bool:
        """Tell whether a test, given by its id, is among them."""
        file, _, name = test.partition("::")
        names = self.tests.get(file.rpartition("/")[2], ())
        patterns = (re.escape(one).replace(r"\*", ".*") for one in names)
        return any(re.match(rf"{pattern}($|\[|::)", name) for pattern in patterns)


@dataclass(frozen=True)
class InPlace:
    """Classes of palaver's, each in place of one of the framework's, which `module:name` names."""

    title: str
    classes: Mapping[str, object]
    cannot_pass: tuple[CannotPass, ...] = ()


@dataclass(frozen=True)
class Suite:
    """Some files of a framework's tests.

    `folder` is a checkout, or a folder in it, and `files` are in it. The id of a test has to match
    the pattern `only`. A `program` runs the tests if pytest does not.
    """

    title: str
    folder: str
    files: tuple[str, ...]
    in_place: tuple[InPlace, ...]
    only: str = ""
    program: str = ""

    def takes(self, test: str) -> bool:
        """Tell whether a test belongs to the suite."""
        return re.search(self.only, test) is not None


@dataclass(frozen=True)
class Comparison:
    """What became of a suite with palaver's class, beside the framework's own."""

    tests: int
    """How many were run with the framework's own class and not skipped."""
    own: int
    """How many of them pass."""
    palaver: int
    """How many tests pass with palaver's class; some may fail with the framework's own."""
    cannot_pass: dict[str, list[str]] = field(default_factory=dict)
    """The known tests that fail, by reason."""
    broken: list[str] = field(default_factory=list)
    """Other tests that fail, or are gone, and pass with the framework's own class."""
    repaired: list[str] = field(default_factory=list)
    """Known tests that pass."""

    @property
    def is_as_expected(self) -> bool:
        """Tell whether nothing is broken, and no reason is out of date."""
        return not self.broken and not self.repaired


def suites_of(framework: str) -> tuple[Suite, ...]:
    """Return the suites of a framework, which is imported."""
    found: tuple[Suite, ...] = import_module(f"compat.framework_suites.{framework}").SUITES
    return found


def compare(
    own: Mapping[str, str], palaver: Mapping[str, str], known: tuple[CannotPass, ...]
) -> Comparison:
    """Compare outcomes, each `passed`, `failed` or `skipped` by the id of a test.

    >>> known = (CannotPass("reads the file", {"test_chat.py": ("test_file",)}),)
    >>> own = {"test_chat.py::test_file": "passed", "test_chat.py::test_add": "passed"}
    >>> found = compare(own, {**own, "test_chat.py::test_file": "failed"}, known)
    >>> found.own, found.palaver, found.cannot_pass, found.is_as_expected
    (2, 1, {'reads the file': ['test_chat.py::test_file']}, True)
    """
    cannot_pass: dict[str, list[str]] = {}
    broken: list[str] = []
    repaired: list[str] = []
    for test, outcome in own.items():
        reason = next((one.reason for one in known if one.names(test)), None)
        passes = palaver.get(test) == "passed"
        if passes and reason is not None:
            repaired.append(test)
        elif outcome == "passed" and not passes and reason is None:
            broken.append(test)
        elif not passes and reason is not None:
            cannot_pass.setdefault(reason, []).append(test)
    return Comparison(
        tests=sum(outcome != "skipped" for outcome in own.values()),
        own=sum(outcome == "passed" for outcome in own.values()),
        palaver=sum(outcome == "passed" for outcome in palaver.values()),
        cannot_pass=cannot_pass,
        broken=broken,
        repaired=repaired,
    )
