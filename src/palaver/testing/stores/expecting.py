"""What checks say all the time: some messages, what was expected, everything there is to see."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import PalaverError
from palaver.history import History, Result
from palaver.messages import Message, new_id, to_dict
from palaver.stores import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from palaver.messages import Role
    from palaver.stores.history import StoredHistory

__all__ = ["Clock", "Twins", "everything", "expect", "line", "one", "raises", "said"]

_LETTERS: Final[dict[str, Role]] = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


class Clock:
    """A clock that stands still until somebody moves it on."""

    def __init__(self, now: int = 1_000) -> None:
        """Begin at a time."""
        self.now = now

    def __call__(self) -> int:
        """What time it is."""
        return self.now


def one(name: str, text: str | None = None, **fields: Any) -> Message:  # noqa: ANN401 - a message's own
    """One message; the first letter of its name is that of its role."""
    content = f"says {name}" if text is None else text
    fields = {"timestamp": 0, **fields}
    return Message(_LETTERS[name[0]], content, id=name, **fields)


def said(names: str) -> list[Message]:
    """Messages from a line of names."""
    return [one(name, timestamp=number) for number, name in enumerate(names.split())]


def line(messages: Iterable[Message]) -> str:
    """The names of messages, in a line."""
    return " ".join(message.id for message in messages)


def expect(expected: object, found: object, what: str) -> None:
    """Say what was expected and what was found, where those are not the same."""
    if expected != found:
        msg = f"{what}: expected {_short(expected)}, found {_short(found)}"
        raise AssertionError(msg)


@contextmanager
def raises(kind: type[Exception], what: str) -> Generator[list[Exception]]:
    """Demand an error of a kind; the list that is given has it afterwards."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        msg = f"{what}: expected {kind.__name__}, and nothing was raised"
        raise AssertionError(msg)


def everything(history: History) -> dict[str, Any]:
    """All that can be seen of a history, at every version."""
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


def _moment(history: History, version: int) -> dict[str, Any]:
    view = history.at(version)
    return {
        "state": view.state.to_dict(),
        "marks": dict(view.marks),
        "teamTask": view.team_task,
        "markMap": to_dict(view.mark_map()),
    }


class Twins:
    """A history in memory and one in the store, led through the same life."""

    def __init__(self, store: Store, names: str = "") -> None:
        """Begin both with the same messages."""
        self.clock = Clock()
        self.plain = History(said(names), id=new_id(), clock=self.clock)
        self.kept = Store(store.keeper, clock=self.clock).create(said(names), id=self.plain.id)

    def both(self, *steps: Callable[[History], object]) -> None:
        """Do something with both, and demand the same answer, or the same error."""
        for what in steps:
            self.clock.now += 1
            expect(_outcome(what, self.plain), _outcome(what, self.kept), "the answer")

    def reopen(self, store: Store) -> StoredHistory:
        """Look at what a store has of it."""
        self.kept = Store(store.keeper, clock=self.clock).get(self.plain.id)
        return self.kept

    def compare(self) -> None:
        """Demand that nothing tells them apart."""
        plain, kept = everything(self.plain), everything(self.kept)
        for name, value in plain.items():
            expect(value, kept[name], name)


def _outcome(what: Callable[[History], object], history: History) -> object:
    try:
        found = what(history)
    except PalaverError as error:
        return error.to_dict()
    return found.to_dict() if isinstance(found, Result) else found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}…{text[-90:]}"  # noqa: PLR2004 - a screenful
