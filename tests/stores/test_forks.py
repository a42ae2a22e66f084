"""Lineages: who has which rows, in few statements, however long the chain of forks is."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest

import palaver
from palaver.errors import StoreDamaged
from palaver.stores import Store
from palaver.stores.forks import FAR, Lineage, Lineages, RowRange, pages
from palaver.stores.memory import MemoryBackend
from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.transfer import copy_conversations
from tests.history.samples import one, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from palaver.stores import StoredHistory

# ── links ───────────────────────────────────────────────────────────────────────────────────────


def naive(line: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The stretches of the last conversation of a line of (key, base), position by position."""
    found: list[tuple[int, int, int]] = []
    for position in range(start, stop):
        key = [key for key, base in line if base <= position][-1]
        if found and found[-1][0] == key:
            found[-1] = key, found[-1][1], position + 1
        else:
            found.append((key, position, position + 1))
    return found


def test_the_owner_of_a_position_is_found_as_one_by_one() -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    for length in (1, 2, 3, 10, 70):
        line = [(0, 0)]
        link = Lineage(0, None, 0, 0)
        for key in range(1, length):
            base = line[-1][1] + chance.choice([0, 0, 0, 1, 3])
            line.append((key, base))
            link = Lineage(key, link, base, key * 2)
        end = line[-1][1] + 3
        for _ in range(40):
            start, stop = sorted(chance.choices(range(end + 1), k=2))
            assert naive(line, start, stop) == [tuple(s) for s in link.row_ranges(start, stop)]
        for generation in range(length):
            found = link.ancestor(generation)
            assert found is not None
            assert generation == found.generation == found.key
        assert link.ancestor(length) is None
        assert link.ancestor(-1) is None


def test_a_far_ancestor_is_few_steps_away() -> None:
    link = Lineage(0, None, 0, 0)
    for key in range(1, 10_001):
        link = Lineage(key, link, key, 0)
    steps = 0
    at: Lineage[int] | None = link
    while at is not None and at.generation > 1:
        at = at.jump if at.jump.generation >= 1 else at.parent
        steps += 1
    assert steps < 60


def test_pages_have_no_more_positions_than_they_may() -> None:
    stretches = [RowRange(1, 0, 3), RowRange(2, 3, 4), RowRange(3, 4, 11)]
    found = [[tuple(stretch) for stretch in page] for page in pages(stretches, 4)]
    assert [[(1, 0, 3), (2, 3, 4)], [(3, 4, 8)], [(3, 8, 11)]] == found


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(2, 1, 0, 0)],  # the parent is not there
        [(2, 1, 0, 0), (1, 2, 0, 0)],  # a circle
        [(2, 2, 0, 0)],
    ],
)
def test_a_line_without_a_beginning_is_damage(rows: list[tuple[int, int | None, int, int]]) -> None:
    with pytest.raises(StoreDamaged, match="the line is broken"):
        Lineages(lambda _: rows).get(2)


def test_a_name_that_was_given_again_is_read_again() -> None:
    asked: list[str] = []
    rows: list[tuple[str, str | None, int, int]] = [("b", "a", 5, 1), ("a", None, 0, 0)]

    def load(name: str) -> list[tuple[str, str | None, int, int]]:
        asked.append(name)
        return rows

    lineages: Lineages[str] = Lineages(load)
    assert 1 == lineages.get("b").generation
    lineages.learn("b", "a", 5, 1)
    assert ["b"] == asked
    lineages.learn("b", None, 0, 0)  # it was deleted, and another has its name
    assert 0 == lineages.get("b").generation
    assert ["b"] == asked


def test_a_damaged_chain_is_said_to_be_damaged(path: Path) -> None:
    with palaver.open(path) as store:
        first = store.create(talk("u1"), id="first")
        first.fork(id="second")
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE conversations SET parent = 2 WHERE id = 'first'")
    with palaver.open(path) as store:
        found = list(store.verify())
        assert any("older than what it was forked from" in problem for problem in found)
        with pytest.raises(StoreDamaged, match="older than"):
            store.get("second")


# ── statements ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Every statement that connections opened from here on run, of either database."""
    ran: list[str] = []

    def trace(_: apsw.Cursor, statement: str, __: object) -> bool:
        ran.append(statement)
        return True

    hook: Callable[[apsw.Connection], None] = lambda c: c.set_exec_trace(trace)  # noqa: E731 - for the list
    execute = psycopg.Connection.execute

    def watched(line: Any, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - as psycopg
        ran.append(str(query))
        return execute(line, query, *rest, **more)

    apsw.connection_hooks.append(hook)
    monkeypatch.setattr(psycopg.Connection, "execute", watched)
    try:
        yield ran
    finally:
        apsw.connection_hooks.remove(hook)
        monkeypatch.setattr(psycopg.Connection, "execute", execute)


def chain(store: Store, length: int, change: Callable[[StoredHistory, int], object]) -> str:
    history = store.create(talk(" ".join(f"u{n}" for n in range(30))))
    for number in range(length):
        history = history.fork()
        change(history, number)
    return history.id


def nothing(history: StoredHistory, number: int) -> None:
    """Forks that add nothing."""


def a_message(history: StoredHistory, number: int) -> None:
    history.append(one(f"a{number}m"))


def an_edit(history: StoredHistory, number: int) -> None:
    history.replace(3, one(f"a{number}e"))


def read(store: Store, name: str) -> None:
    view = store.get(name).view
    assert view[-20:] == list(view)[-20:]
    view.query(role="user")
    view.find(view[0].id)


def append(store: Store, name: str) -> None:
    store.get(name).append(one("u9a"))


def fork(store: Store, name: str) -> None:
    store.get(name).fork()


def forks(store: Store, name: str) -> None:
    assert [] == store.backend.forks(name)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("change", [nothing, a_message, an_edit])
def test_a_longer_chain_takes_hardly_more_statements(
    kind: str,
    change: Callable[[StoredHistory, int], object],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address: str | Path = tmp_path / "chat.db"
    if kind == "postgres":
        address = str(request.getfixturevalue("postgres"))
    with palaver.open(address) as store:
        names = [chain(store, length, change) for length in (4, 64)]
    for work in (read, append, forks, fork):
        counts: list[int] = []
        for name in names:
            with counted(monkeypatch) as ran, palaver.open(address) as store:
                opened = len(ran)
                work(store, name)
                counts.append(len(ran) - opened)
        short, long = counts
        assert long <= short + 12, (work.__name__, counts)


WORKS: dict[str, Callable[[Store, str, list[str]], object]] = {
    "verify": lambda store, _, family: [list(store.verify(name)) for name in family],
    "copy": lambda store, _, family: copy_conversations(store, Store(MemoryBackend()), family),
    "erase": lambda store, name, _: store.get(name).erase(3),
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_work_on_all_of_a_chain_grows_with_its_length(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, list[int]] = {what: [] for what in WORKS}
    for length in (8, 80):
        address: str | Path = tmp_path / f"chat-{length}.db"
        if kind == "postgres":
            address = str(request.getfixturevalue("postgres"))
        with counted(monkeypatch) as ran, palaver.open(address) as store:
            name = chain(store, length, a_message)
            family = store.backend.family(name)
            for what, work in WORKS.items():
                before = len(ran)
                work(store, name, family)
                counts[what].append(len(ran) - before)
    for what, (short, long) in counts.items():
        assert long <= 12 * short, (what, counts)


def test_a_read_touches_only_the_ancestors_that_have_the_rows(path: Path) -> None:
    with palaver.open(path) as store:
        backend = store.backend
        assert isinstance(backend, SQLiteBackend)
        lineage = backend._lineage(chain(store, 50, a_message))
        assert 2 == len(lineage.row_ranges(78, 80))
        assert 51 == len(lineage.row_ranges(0, FAR))
        lineage = backend._lineage(chain(store, 50, nothing))
        assert 1 == len(lineage.row_ranges(0, 30))


@pytest.mark.parametrize("back", [0, 3])
def test_a_fork_of_a_history_that_is_open_reads_none_of_its_edits(
    path: Path, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    """What the parent knows is handed on, so a fork after many edits is as quick as after few."""
    with palaver.open(path) as store:
        history = store.create(talk("s1 u2 a3"))
        for number in range(20):
            history.replace(number % 3, one(f"u{10 + number}"))
        at = history.version - back
        expected = list(history.at(at))
        history = store.get(history.id)
        with monkeypatch.context() as patch:
            for reading in ("ancestor_frames", "frames"):
                patch.setattr(store.backend, reading, lambda *_: pytest.fail("it was read"))
            fork = history.fork(at=at)
            assert expected == fork.messages
            fork.replace(0, one("u90"))
            fork.undo()
        assert expected == store.get(fork.id).messages
        assert [] == list(store.verify())
