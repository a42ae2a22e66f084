"""The tool that runs the frameworks' own tests: what it makes of their outcomes."""

from __future__ import annotations

import pytest

from compat.framework_suites.suites import FRAMEWORKS, CannotPass, Suite, compare, suites_of

_FILE = "tests/memory/test_session.py"
_PASSED = {f"{_FILE}::test_add": "passed", f"{_FILE}::test_tables[a]": "passed"}
_TABLES = CannotPass("looks into tables", {"test_session.py": ("test_tables",)})


def test_known_failure_is_counted_under_its_reason() -> None:
    found = compare(_PASSED, {**_PASSED, f"{_FILE}::test_tables[a]": "failed"}, (_TABLES,))
    assert {"looks into tables": [f"{_FILE}::test_tables[a]"]} == found.cannot_pass
    assert (2, 2, 1) == (found.tests, found.own, found.palaver)
    assert found.is_as_expected


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_other_failure_is_an_error(outcome: str) -> None:
    found = compare(_PASSED, {**_PASSED, f"{_FILE}::test_add": outcome}, ())
    assert [f"{_FILE}::test_add"] == found.broken
    assert not found.is_as_expected


def test_a_test_that_is_gone_is_an_error() -> None:
    found = compare(_PASSED, {f"{_FILE}::test_add": "passed"}, ())
    assert [f"{_FILE}::test_tables[a]"] == found.broken


def test_known_failure_that_passes_is_an_error() -> None:
    found = compare(_PASSED, _PASSED, (_TABLES,))
    assert [f"{_FILE}::test_tables[a]"] == found.repaired
    assert not found.is_as_expected


def test_failure_of_the_own_class_says_nothing() -> None:
    own = {**_PASSED, f"{_FILE}::test_add": "failed", f"{_FILE}::test_skipped": "skipped"}
    found = compare(own, own, ())
    assert (2, 1) == (found.tests, found.own)
    assert found.is_as_expected


@pytest.mark.parametrize(
    ("name", "test", "named"),
    [
        ("test_tables", "test_session.py::test_tables", True),
        ("test_tables", "a/b/test_session.py::test_tables[x/y::z]", True),
        ("test_tables[a]", "test_session.py::test_tables[a]", True),
        ("test_tables[a]", "test_session.py::test_tables[b]", False),
        ("test_tables", "test_session.py::test_tables_more", False),
        ("test_tables*", "test_session.py::test_tables_more[a]", True),
        ("TestTables", "test_session.py::TestTables::test_one", True),
        ("test_tables", "test_other_session.py::test_tables", False),
    ],
)
def test_names(name: str, test: str, named: bool) -> None:  # noqa: FBT001 - a column of the table
    assert named == CannotPass("", {"test_session.py": (name,)}).names(test)


def test_suite_takes_what_its_pattern_finds() -> None:
    suite = Suite("Files", "folder", (), (), only="TestFiles")
    taken = [suite.takes(f"test_session.py::{name}::test_add") for name in ("TestFiles", "TestAll")]
    assert [True, False] == taken


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_suites(framework: str) -> None:
    for suite in suites_of(framework):
        assert suite.in_place, suite.title
        assert suite.files or suite.program, suite.title
