"""The conformance suite: every store passes it, and it finds a backend with a fault."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from palaver.messages import user
from palaver.stores import Store, StoredHistory
from palaver.stores.backend import Backend
from palaver.stores.memory import MemoryBackend
from palaver.testing import store_conformance
from palaver.testing.stores import Conformance, concurrency
from palaver.testing.stores.suite import expect, raises
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores.records import Change
    from palaver.testing.stores import Check


@pytest.mark.parametrize("check", store_conformance.checks, ids=str)
def test_a_store_keeps_every_promise(check: Check, open_store: Callable[[], Store]) -> None:
    with within(300):
        check(open_store)


def test_on_one_machine_a_follower_of_all_hears_in_the_order_of_the_changes(
    open_store: Callable[[], Store],
) -> None:
    with open_store() as store:
        start = store.newest()
        one, other = store.create(), store.create()
        expected = [(one.id, 0), (other.id, 0)]
        for number in range(4):
            history = (one, other)[number % 2]
            history.append(user(str(number)))
            expected.append((history.id, history.version))
        feed = store.follow(after=start, seconds=0.05)
        assert expected == [(change.conversation, change.version) for change in feed]


def test_every_check_has_a_name_of_its_own_and_says_what_it_is_about() -> None:
    names = [str(check) for check in store_conformance.checks]
    assert len(names) == len({*names})
    assert [] == [check.name for check in store_conformance.checks if not check.promise]


def test_one_store_serves_for_all_checks_and_every_method_is_called() -> None:
    methods = {name for name, value in vars(Backend).items() if callable(value) and name[0] != "_"}
    called: set[str] = set()

    class Watched(MemoryBackend):
        def __getattribute__(self, name: str) -> object:
            called.add(name)
            return super().__getattribute__(name)

    backend = Watched()
    report = store_conformance(lambda: Store(backend))
    assert len(store_conformance.checks) == len(report.passed)
    assert f"{len(report.passed)} passed, 0 failed" == str(report)
    assert {"adopt", "keys", "kinds"} >= methods - called  # what copies and exports need


class Forgetful(MemoryBackend):
    """A store with a fault: what a key was used for is forgotten."""

    def commit(self, change: Change) -> int:
        stored = self._get(change.conversation)
        stored.keys.clear()
        return super().commit(change)


def test_a_store_with_a_fault_is_found_out() -> None:
    backend = Forgetful()
    suite = Conformance(concurrency.CHECKS)
    report = suite.report(lambda: Store(backend))
    broken = ["a_key_makes_doing_it_again_harmless", "a_key_brings_back_what_was_stored"]
    assert broken == list(report.failed)
    assert not report.ok
    assert "a_key_makes_doing_it_again_harmless: AssertionError: " in str(report)
    with pytest.raises(ExceptionGroup, match="2 failed") as caught:
        suite(lambda: Store(backend))
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert [[f"in the check {name}"] for name in broken] == notes


def test_what_was_expected_is_said() -> None:
    expect([1], [1], "a list")
    with pytest.raises(AssertionError, match=r"a list: expected \[1\], found \[2\]"):
        expect([1], [2], "a list")
    with pytest.raises(AssertionError, match="…"):
        expect("", "x" * 1_000, "a text")
    nothing = "a try: expected ValueError, and nothing was raised"
    with pytest.raises(AssertionError, match=nothing), raises(ValueError, "a try"):
        pass


def test_every_method_that_expects_a_version_is_checked() -> None:
    """Each is among the changes that the suite tries with a version that is not the newest."""
    expecting = {
        name
        for kind in (StoredHistory, Store)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name[0] != "_"
        and "expect" in inspect.signature(method).parameters
        and not inspect.iscoroutinefunction(method)  # a twin is the same method
    }
    assert expecting == concurrency.CHANGES.keys() | concurrency.WITHOUT_VERSION.keys()
    writing = {"append", "extend", "execute", "rewrite", "rollback", "undo", "redo", "restore"}
    assert writing | {"merge", "mark", "unmark", "erase", "fork", "describe", "delete"} < expecting
