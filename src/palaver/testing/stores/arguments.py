"""Arguments that no store can keep: every store gives the same answer, in palaver's own errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import UnknownConversation, UnknownMessage, ValidationError
from palaver.messages import new_id
from palaver.testing.stores.expecting import everything, expect, line, one, raises, said
from palaver.testing.stores.running import Checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store
    from palaver.testing.stores.running import Trial

__all__ = ["CHECKS"]

CHECKS = Checks()

_UNKEEPABLE: Final[tuple[Any, ...]] = ("a\0b", "\ud800", 1.5, True, float("nan"), b"k", ["k"])
_NO_NAMES: Final[tuple[Any, ...]] = (*_UNKEEPABLE, "", "k" * 1025)
_UNKNOWN: Final[tuple[Any, ...]] = (*_UNKEEPABLE, "k" * 9_000)


@CHECKS
def what_can_not_be_kept_is_refused(trial: Trial) -> None:
    """Keys, ids, holders, titles, tags, reasons and records that no store can keep."""
    store = trial.store
    history = store.create(said("u1 a2"), id=new_id(), title="Tea", tags=["t"])
    before = everything(history)
    for bad in _NO_NAMES:
        takes_a_name: dict[str, Callable[[Any], object]] = {
            "$.id": lambda v: store.create(id=v),
            "$.key": lambda v: store.create(id=new_id(), key=v),
            "$.tags[0]": lambda v: store.create(tags=[v]),
            "$.key of append": lambda v: history.append(one("u3"), key=v),
            "$.key of extend": lambda v: history.extend(said("u3 a4"), key=v),
            "$.key of extend with nothing": lambda v: history.extend([], key=v),
            "$.key of execute": lambda v: history.execute({"operation": "CLEAR"}, key=v),
            "$.key of fork": lambda v: history.fork(id=new_id(), key=v),
            "$.id of fork": lambda v: history.fork(id=v),
            "$.holder": lambda v: store.lease(history.id, v),
            "$.tags[0] of describe": lambda v: store.describe(history.id, tags=[v]),
            "$.reason": lambda v: history.replace_all([], team_task=None, reason=v),
            "$.reason of rewrite": lambda v: history.rewrite([], reason=v),
            "$.records[0].kind": lambda v: history.extend([one("u3")], records=[(v, "n", b"1")]),
            "$.records[0].kind of put": lambda v: store.keeper.put(history.id, v, "n", b"1"),
        }
        for path, attempt in takes_a_name.items():
            _refused(path, attempt, bad)
    for bad in _UNKEEPABLE:
        takes_a_text: dict[str, Callable[[Any], object]] = {
            "$.title": lambda v: store.create(title=v),
            "$.title of describe": lambda v: store.describe(history.id, title=v),
            "$.records[0].name": lambda v: history.extend([one("u3")], records=[("k", v, b"1")]),
            "$.records[0].name of put": lambda v: store.keeper.put(history.id, "k", v, b"1"),
            "$.records[1].name of keep": lambda v: store.keeper.keep(
                history.id, [("k", "n", b"1"), ("k", v, b"1")]
            ),
        }
        for path, attempt in takes_a_text.items():
            _refused(path, attempt, bad)
    text: Any = "no bytes"
    _refused("$.records[0].value", lambda v: store.keeper.put(history.id, "k", "n", v), text)
    store = trial.reopen()
    history = store.get(history.id)
    expect(before, everything(history), "what is kept")
    expect(("Tea", ("t",)), (history.title, history.tags), "title and tags")
    expect({}, store.keeper.records(history.id, "k"), "records")
    expect([], list(store.verify(history.id)), "problems")
    longest = "k" * 1024
    history.append(one("u5"), key=longest)
    history.append(one("u6"), key=longest)
    expect("u1 a2 u5", line(history), "after the longest key, twice")


def _refused(where: str, attempt: Callable[[Any], object], bad: object) -> None:
    what = f"{bad!r:.20} as {where}"
    with raises(ValidationError, what) as caught:
        attempt(bad)
    (error,) = caught
    expect(where.split(maxsplit=1)[0], getattr(error, "path", None), f"the path for {what}")


@CHECKS
def what_can_not_be_there_is_not_there(trial: Trial) -> None:
    """Looking for an id, a beginning or a tag that no store can keep finds nothing."""
    store = trial.store
    history = store.create(said("u1 a2"), id=new_id())
    for bad in _UNKNOWN:
        kind = type(bad)
        for what, attempt in _look_ups(store, bad).items():
            with raises(UnknownConversation, f"{what} of {bad!r:.20}"):
                attempt()
        if kind is str:
            with raises(UnknownConversation, f"the head of {bad!r:.20}"):
                store.keeper.head(bad)
            with raises(UnknownConversation, f"the records of {bad!r:.20}"):
                store.keeper.records(bad, "call")
            with raises(UnknownConversation, f"the journal of {bad!r:.20}"):
                store.keeper.journal(bad, -1, 1)
        for what, find in (
            ("erase", history.erase),
            ("mark", lambda which: history.mark(which, "good")),
            ("find", history.view.find),
        ):
            with raises(UnknownMessage, f"{what} of {bad!r:.20}"):
                find(bad)
        expect([], store.named(bad), f"ids that begin with {bad!r:.20}")
        expect((), store.list(tag=bad).conversations, f"conversations with the tag {bad!r:.20}")
        expect(False, bad in store, f"{bad!r:.20} in the store")  # noqa: FBT003 - the value
        with raises(ValidationError, f"a page after {bad!r:.20}"):
            store.list(after=bad)
        if kind is str:
            expect([], store.search(bad), f"messages with the word {bad!r:.20}")
        else:
            with raises(ValidationError, f"a search for {bad!r}"):
                store.search(bad)
    with raises(ValidationError, "a page after a NUL"):
        store.list(after="1:\0")
    expect("u1 a2", line(trial.reopen().get(history.id)), "what is kept")


def _look_ups(store: Store, name: Any) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - anything
    return {
        "get": lambda: store.get(name),
        "describe": lambda: store.describe(name, title="t"),
        "describe with a version": lambda: store.describe(name, title="t", expect=0),
        "delete": lambda: store.delete(name),
        "prune": lambda: store.prune(name),
        "search": lambda: store.search("tea", conversation=name),
        "follow": lambda: next(store.follow(name, seconds=0)),
        "lease": lambda: store.lease(name, "anna"),
        "notes": lambda: list(store.notes(name)),
    }
