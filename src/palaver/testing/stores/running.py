"""How checks are written, gathered and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store

__all__ = ["Check", "Checks", "Conformance", "Report", "Trial"]


class Trial:
    """What a check is given: a store that can be opened again, and more than once."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        """Open the store."""
        self._open_store = open_store
        self._others: list[Store] = []
        self.store = open_store()

    def reopen(self) -> Store:
        """Close the store and open it again, as after the end of a process."""
        self.store.close()
        self.store = self._open_store()
        return self.store

    def now_and_later(self) -> Iterator[Store]:
        """The store as it is open, and then opened again."""
        yield self.store
        yield self.reopen()

    def another(self) -> Store:
        """The same store, opened once more, as by another process."""
        store = self._open_store()
        self._others.append(store)
        return store

    def close(self) -> None:
        """Close everything that was opened."""
        for store in (*self._others, self.store):
            store.close()


class Check(Struct, frozen=True):
    """One promise of a store. Call it with what opens the store; it raises where it is broken."""

    name: str
    promise: str
    run: Callable[[Trial], None]

    def __call__(self, open_store: Callable[[], Store]) -> None:
        """Try it."""
        trial = Trial(open_store)
        try:
            self.run(trial)
        finally:
            trial.close()

    def __str__(self) -> str:
        """The name, as a test runner shows it."""
        return self.name


class Checks(list[Check]):
    """The checks of one file: used as a decorator, it takes a function in."""

    def __call__(self, run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        """Add a check: its name is the function's, its promise the docstring's first line."""
        promise = (run.__doc__ or "").strip().partition("\n")[0]
        self.append(Check(run.__name__, promise, run))
        return run


class Report(Struct, frozen=True):
    """Which checks passed, and which failed with what."""

    passed: tuple[str, ...]
    failed: dict[str, Exception]

    @property
    def ok(self) -> bool:
        """Tell whether all of them passed."""
        return not self.failed

    def __str__(self) -> str:
        """One line for each that failed, and how many did not."""
        lines = [f"{name}: {type(error).__name__}: {error}" for name, error in self.failed.items()]
        return "\n".join([*lines, f"{len(self.passed)} passed, {len(self.failed)} failed"])


class Conformance:
    """A suite of checks."""

    def __init__(self, *groups: Checks) -> None:
        """Take the checks, group by group."""
        self.checks = tuple(check for group in groups for check in group)

    def report(self, open_store: Callable[[], Store]) -> Report:
        """Run all checks and say what came of each.

        >>> from palaver.stores import Store
        >>> from palaver.stores.memory import MemoryKeeper
        >>> keeper = MemoryKeeper()
        >>> from palaver.testing import store_conformance
        >>> store_conformance.report(lambda: Store(keeper)).ok
        True
        """
        passed: list[str] = []
        failed: dict[str, Exception] = {}
        for check in self.checks:
            try:
                check(open_store)
            except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the report
                failed[check.name] = error
            else:
                passed.append(check.name)
        return Report(tuple(passed), failed)

    def __call__(self, open_store: Callable[[], Store]) -> Report:
        """Run all checks; an `ExceptionGroup` holds what those that failed raised."""
        report = self.report(open_store)
        if report.failed:
            for name, error in report.failed.items():
                error.add_note(f"in the check {name}")
            raise ExceptionGroup(str(report), list(report.failed.values()))
        return report
