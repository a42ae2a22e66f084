"""How the conformance checks are written, collected and run, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.errors import PalaverError
from palaver.history import BaseHistory, History, Result
from palaver.messages import Message, new_id, to_dict
from palaver.stores import Store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from palaver.messages import Role
    from palaver.stores import StoredHistory


__all__ = [
    "Check",
    "Checks",
    "Conformance",
    "ConformanceReport",
    "HistoryPair",
    "ManualClock",
    "Trial",
    "dump_history",
    "expect",
    "ids_of",
    "make_message",
    "make_messages",
    "raises",
]


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
        """Yield the store as it is, and then opened again."""
        yield self.store
        yield self.reopen()

    def another(self) -> Store:
        """Open the same store once more, as another process would."""
        store = self._open_store()
        self._others.append(store)
        return store

    def close(self) -> None:
        """Close everything that was opened."""
        for store in (*self._others, self.store):
            store.close()


class Check(Struct, frozen=True):
    """One promise of a store. Call it with a function that opens the store; it raises if broken."""

    name: str
    promise: str
    run: Callable[[Trial], None]

    def __call__(self, open_store: Callable[[], Store]) -> None:
        """Run the check."""
        trial = Trial(open_store)
        try:
            self.run(trial)
        finally:
            trial.close()

    def __str__(self) -> str:
        """The name, as a test runner shows it."""
        return self.name


class Checks(list[Check]):
    """The checks of one file; it is used as a decorator of their functions."""

    def __call__(self, run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        """Add a check: its name is the function's, its promise the docstring's first line."""
        promise = (run.__doc__ or "").strip().partition("\n")[0]
        self.append(Check(run.__name__, promise, run))
        return run


class ConformanceReport(Struct, frozen=True):
    """Which checks passed, and which failed with which error."""

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

    def report(self, open_store: Callable[[], Store]) -> ConformanceReport:
        """Run all checks and report which passed and which failed.

        >>> from palaver.stores import Store
        >>> from palaver.stores.memory import MemoryBackend
        >>> backend = MemoryBackend()
        >>> from palaver.testing import store_conformance
        >>> store_conformance.report(lambda: Store(backend)).ok
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
        return ConformanceReport(tuple(passed), failed)

    def __call__(self, open_store: Callable[[], Store]) -> ConformanceReport:
        """Run all checks; raise an `ExceptionGroup` with the errors of those that failed."""
        report = self.report(open_store)
        if report.failed:
            for name, error in report.failed.items():
                error.add_note(f"in the check {name}")
            raise ExceptionGroup(str(report), list(report.failed.values()))
        return report


_LETTERS: Final[dict[str, Role]] = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: int = 1_000) -> None:
        """Start at a time."""
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now


def make_message(name: str, text: str | None = None, **fields: Any) -> Message:  # noqa: ANN401 - a message's own
    """Return a message; the first letter of its name is that of its role."""
    content = f"says {name}" if text is None else text
    fields = {"timestamp": 0, **fields}
    return Message(_LETTERS[name[0]], content, id=name, **fields)


def make_messages(names: str) -> list[Message]:
    """Return messages with the names of a line."""
    return [make_message(name, timestamp=number) for number, name in enumerate(names.split())]


def ids_of(messages: Iterable[Message]) -> str:
    """Return the names of messages, in a line."""
    return " ".join(message.id for message in messages)


def expect(expected: object, found: object, what: str) -> None:
    """Raise `AssertionError` where something else than expected was found."""
    if expected != found:
        msg = f"{what}: expected {_short(expected)}, found {_short(found)}"
        raise AssertionError(msg)


@contextmanager
def raises(kind: type[Exception], what: str) -> Generator[list[Exception]]:
    """Raise `AssertionError` unless the block raises; the list has the error afterwards."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        msg = f"{what}: expected {kind.__name__}, and nothing was raised"
        raise AssertionError(msg)


def dump_history(history: BaseHistory) -> dict[str, Any]:
    """Return everything that can be seen of a history, at every version."""
    return {
        "version": history.version,
        "state": history.state.to_dict(),
        "stats": to_dict(history.stats),
        "log": to_dict(list(history.log)),
        "markMap": to_dict(history.mark_map()),
        "marks": dict(history.marks),
        "teamTask": history.team_task,
        "versions": [_moment(history, version) for version in range(history.version + 1)],
    }


def _moment(history: BaseHistory, version: int) -> dict[str, Any]:
    view = history.at(version)
    return {
        "state": view.state.to_dict(),
        "marks": dict(view.marks),
        "teamTask": view.team_task,
        "markMap": to_dict(view.mark_map()),
    }


class HistoryPair:
    """A history in memory and one in the store that get the same changes."""

    def __init__(self, store: Store, names: str = "") -> None:
        """Start both with the same messages."""
        self.clock = ManualClock()
        self.plain = History(make_messages(names), id=new_id(), clock=self.clock)
        self.stored = Store(store.backend, clock=self.clock).create(
            make_messages(names), id=self.plain.id
        )

    def both(self, *steps: Callable[[BaseHistory], object]) -> None:
        """Do the same with both, and check that result or error are the same."""
        for what in steps:
            self.clock.now += 1
            expect(_outcome(what, self.plain), _outcome(what, self.stored), "the answer")

    def reopen(self, store: Store) -> StoredHistory:
        """Get the stored one from a store again."""
        self.stored = Store(store.backend, clock=self.clock).get(self.plain.id)
        return self.stored

    def compare(self) -> None:
        """Check that nothing tells them apart."""
        plain, stored = dump_history(self.plain), dump_history(self.stored)
        for name, value in plain.items():
            expect(value, stored[name], name)


def _outcome(what: Callable[[BaseHistory], object], history: BaseHistory) -> object:
    try:
        found = what(history)
    except PalaverError as error:
        return error.to_dict()
    return found.to_dict() if isinstance(found, Result) else found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}…{text[-90:]}"  # noqa: PLR2004 - a screenful
