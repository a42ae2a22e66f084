"""What must not grow with what is there: told by bytes, steps and statements, never by seconds."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
import pytest
from msgspec.structs import replace

import palaver
from palaver.errors import Stale, StoreDamaged
from palaver.history.frame import Frame, Leaf
from palaver.history.view import intersect
from palaver.messages import system, user
from palaver.stores.frame_codec import FrameCodec
from palaver.stores.memory import MemoryBackend
from palaver.stores.records import Change
from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.transfer import export_conversation, import_conversation
from tests.history.samples import one, talk
from tools.growth import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory

NAMES = 300


@pytest.fixture
def lite(path: Path) -> Iterator[Store]:
    with palaver.open(path) as store:
        yield store


def backend_of(store: Store) -> Any:  # noqa: ANN401 - its insides are looked at
    assert isinstance(store.backend, SQLiteBackend)
    return store.backend


def said(count: int) -> list[Message]:
    return [one(f"{'u' if number % 2 else 'a'}{number}") for number in range(count)]


# ── marks ───────────────────────────────────────────────────────────────────────────────────────


def marked(store: Store, count: int = NAMES) -> StoredHistory:
    history = store.create(talk("u1 a2 u3"))
    for number in range(count):
        history.mark(number % 3, f"name-{number}")
    return history


def test_a_mark_writes_itself_and_not_all_others() -> None:
    store = palaver.open(":memory:")
    history = marked(store)
    sizes = [len(frame.data) for frame in store.backend.frames(history.id, 100, history.version)]
    assert max(sizes) < 300
    assert max(sizes) < 2 * min(sizes)
    assert history.marks == store.get(history.id).marks
    assert NAMES == len(history.marks)


def test_every_change_of_many_marks_is_read_again(store: Store) -> None:
    history = marked(store, 40)
    history.unmark("u1", "name-0")
    history.mark("a2", "name-3")
    history.append(one("u4"))
    history.undo()
    history.undo()
    history.redo()
    history.set_team_task("tea")
    history.insert(1, [one("u5")])
    history.rollback(0)
    history.restore(30)
    history.undo()
    fork = history.fork(at=20)
    fork.mark("u1", "of the fork")
    history.mark("u1", "of the parent")
    history.merge(fork)
    history.erase("u3")
    store.prune(history.id)
    for known in (history, fork):
        known.refresh()
        again = store.get(known.id)
        assert [known.at(version).marks for version in range(known.version + 1)] == [
            again.at(version).marks for version in range(again.version + 1)
        ]
    assert {"of the fork", "of the parent", "name-39"} <= set(history.marks)
    file = io.BytesIO()
    for number, known in enumerate((history, fork)):
        file = io.BytesIO()
        export_conversation(store, known.id, file)
        file.seek(0)
        copy = import_conversation(store, file, id=f"copy-{number}")
        assert known.marks == copy.marks
        copy.mark("u1", "of the copy")
        assert {**known.marks, "of the copy": ["u1"]} == store.get(copy.id).marks
    assert [] == list(store.verify())


def test_marks_that_were_written_whole_are_read_and_go_on() -> None:
    """As every frame was written before: all names, in each of them."""
    book = FrameCodec()
    names = {f"name-{number}": [0, 0, number] for number in range(40)}
    first = {"n": [[n, n + 1, 0, 1, 0] for n in range(40)], "m": names}
    second = {"m": {**names, "more": [0, 0, 7]}}
    old = book.decode(msgspec.json.encode(first), 0)
    found = old.marks["name-7"]
    assert isinstance(found, Leaf)
    assert (7, 8) == (found.start, found.stop)
    older = book.decode(msgspec.json.encode(second), 1)
    assert older.marks["more"] is old.marks["name-7"]
    changed = Frame(marks={**older.marks, "new": old.marks["name-1"]})
    data = book.encode(changed, 2)
    assert len(data) < 100
    book.keep(changed, 2)
    assert changed.marks == book.decode(data, 3).marks


@pytest.mark.parametrize("data", [b'{"m": [[0, 9], {}]}', b'{"m": [[0, 0], {"a": [0, 9, 9]}]}',
                                  b'{"m": [[0, 0]]}', b'{"w": [[0, 9], {"a": 1}]}'])  # fmt: skip
def test_changes_of_marks_that_are_not_there_are_damage(data: bytes) -> None:
    with pytest.raises(StoreDamaged):
        FrameCodec().decode(data, 1)


def test_a_merge_writes_what_it_brought_and_not_what_others_did() -> None:
    store = palaver.open(":memory:")
    history = store.create(talk("u1 a2"))
    sizes: list[int] = []
    fork = history.fork()
    for number in range(60):
        fork = history.fork()
        fork.append(one(f"u{number + 10}"))
        history.merge(fork)
        (frame,) = store.backend.frames(history.id, history.version - 1, history.version)
        sizes.append(len(frame.data))
    assert max(sizes[30:]) < max(sizes[:30]) + 100
    again = store.get(history.id)
    assert dict(history.view.frame.merged) == dict(again.view.frame.merged)
    assert 60 == len(again.view.frame.merged)
    assert len(history) == len(again.merge(fork).state.messages)  # it is known that nothing is new


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


class Statements:
    """How often a backend is asked."""

    def __init__(self, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - any backend
        self.count = 0
        for name in ("messages", "before", "befores", "select", "head"):
            monkeypatch.setattr(backend, name, self._counting(getattr(backend, name)))

    def _counting(self, method: Any) -> Any:  # noqa: ANN401 - any method
        def counting(*arguments: Any) -> Any:  # noqa: ANN401 - its
            self.count += 1
            return method(*arguments)

        return counting


def test_messages_of_a_role_are_read_many_at_once(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = lite.create(said(2_000))
    expected = [message.id for message in said(2_000) if message.role == "user"]
    again = lite.get(history.id)
    asked = Statements(lite.backend, monkeypatch)
    assert expected == [message.id for message in again.by_role("user")]
    assert asked.count < 20


def test_a_view_of_many_ranges_is_read_many_at_once(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = lite.create(said(2_000))
    expected = [message.id for message in said(2_000) if message.role == "user"]
    asked = Statements(lite.backend, monkeypatch)
    history.filter(roles=["user"])
    assert asked.count < 30
    again = lite.get(history.id)
    for read in (list, lambda h: h.by_role("user"), lambda h: h[:], lambda h: h.query(text="u")):
        asked.count = 0
        again = lite.get(history.id)
        assert expected == [message.id for message in read(again)]
        assert asked.count < 20
    asked.count = 0
    again.filter(content_contains=["1"])
    assert asked.count < 30


def test_pending_messages_and_held_ones_are_read_with_the_others(store: Store) -> None:
    history = store.create(said(100))
    history.filter(roles=["user"])
    again = store.get(history.id)
    assert 25 == len([again[index] for index in range(0, 50, 2)])  # some are held now
    again.append(one("u1000"))
    again.insert(7, [one("u1001")])
    expected = [f"u{number}" for number in range(1, 100, 2)]
    expected[7:7] = ["u1001"]
    assert [*expected, "u1000"] == [message.id for message in again]
    assert [*expected, "u1000"] == [message.id for message in again.by_role("user")]


def test_an_index_is_found_wherever_a_position_stands() -> None:
    history = palaver.open(":memory:").create(said(60))
    history.filter(roles=["user"])
    history.insert(3, [one("u100"), one("u101")])
    history.replace(9, one("u102"))
    history.append(one("u103"))
    view = history.view
    positions = [view.position(index) for index in range(len(view))]
    assert list(range(len(view))) == [view.index_of(position) for position in positions]
    assert [] == [p for p in range(-1, 70) if p not in positions and view.index_of(p) is not None]


def steps_of(store: Store, work: Any) -> int:  # noqa: ANN401 - any function
    with Steps(store) as counter:
        work()
    return counter.count


def steps_and(store: Store, most: int, work: Any) -> Any:  # noqa: ANN401 - any function
    """What work returns, which takes fewer steps."""
    found: list[Any] = []
    assert steps_of(store, lambda: found.append(work())) < most
    return found[0]


@pytest.mark.parametrize("count", [50, 1_000])
def test_sqlite_finds_by_index(lite: Store, count: int) -> None:
    """The same few steps, however many messages and changes there are."""
    history = lite.create(said(count), id="talk")
    for number in range(count // 10):
        history.replace(number, one(f"u{number + 5_000}"))
    backend = backend_of(lite)
    newest = backend.newest()
    assert steps_of(lite, lambda: backend.positions_of("talk", "u7")) < 200
    assert steps_of(lite, lambda: backend.between_times("talk", 10**15, None)) < 200
    assert steps_of(lite, lambda: backend.journal(None, newest - 2, 10)) < 600


@pytest.mark.parametrize("count", [50, 1_000])
def test_sqlite_finds_what_comes_in_order_by_bisection(lite: Store, count: int) -> None:
    """No message stands in an index, and few are looked at, however many there are."""
    made = [
        (system if number == count // 3 else user)(str(number), timestamp=1_000 + number)
        for number in range(count)
    ]
    lite.create(made, id="talk")
    backend = backend_of(lite)
    (alone,) = steps_and(lite, 700, lambda: backend.select("talk", "system", 0, 1))
    assert count // 3 == alone
    assert [20] == steps_and(lite, 700, lambda: backend.positions_of("talk", made[20].id))
    assert [20] == steps_and(lite, 100, lambda: backend.positions_of("talk", made[20].id))
    assert [] == steps_and(lite, 100, lambda: backend.positions_of("talk", "nobody"))
    last = list(range(count - 9, count))
    assert last == steps_and(lite, 900, lambda: backend.select("talk", "user", count - 10, count))
    since = 1_000 + count - 9
    assert last == steps_and(lite, 900, lambda: backend.between_times("talk", since, None))
    assert [] == steps_and(lite, 300, lambda: backend.between_times("talk", 10**15, None))


def test_positions_of_times_are_walked_through_once() -> None:
    class Runs(list[tuple[int, int]]):
        def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - as a list does
            assert not isinstance(place, slice)
            return super().__getitem__(place)

    stretches = [(n, n + 1) for n in range(0, 40, 2)]
    assert stretches[5:] == list(intersect(stretches, Runs((n, n + 1) for n in range(10, 40))))


# ── listing ─────────────────────────────────────────────────────────────────────────────────────


def order(store: Store) -> list[str]:
    return [head.id for head in store]


@pytest.mark.parametrize("count", [40, 600])
def test_a_page_costs_the_page(lite: Store, count: int) -> None:
    for number in range(count):
        lite.create([one("u1")], id=f"talk-{number}").append(one("a2"))
    lite.list(limit=5)
    first = lite.list(limit=5)
    assert steps_of(lite, lambda: lite.list(limit=5)) < 1_000
    assert steps_of(lite, lambda: lite.list(limit=5, after=first.next)) < 1_000


def test_a_listing_knows_every_append_at_once(path: Path) -> None:
    """Of this process or another, whether or not it was written into the index."""
    clock = iter(range(1_000, 10_000_000))
    with palaver.open(path) as store, palaver.open(path) as other:
        store._clock = other._clock = lambda: next(clock)
        for number in range(30):
            store.create([one("u1")], id=f"talk-{number:02}")
        expected = [f"talk-{number:02}" for number in range(29, -1, -1)]
        assert expected == order(store)
        for number in (3, 17, 3, 25):
            other.get(f"talk-{number:02}").append(one("a2"))
            expected.remove(f"talk-{number:02}")
            expected.insert(0, f"talk-{number:02}")
            assert expected == order(store) == order(other)
        page = store.list(limit=7)
        assert expected[:7] == [head.id for head in page.conversations]
        assert expected[7:14] == [
            head.id for head in store.list(limit=7, after=page.next).conversations
        ]
        history = store.get("talk-05")
        for number in range(300):
            history.append(one(f"u{number + 10}"))
        expected.remove("talk-05")
        expected.insert(0, "talk-05")
        assert expected == order(other)
        (behind,) = backend_of(store)._read("behind")
        assert behind[0] == behind[1]
        assert [] == list(store.verify())


def test_a_listing_waits_for_no_writer(path: Path) -> None:
    with palaver.open(path) as store:
        histories = [store.create([one("u1")], id=f"talk-{number}") for number in range(3)]
        for number in range(400):
            histories[number % 2].append(one(f"u{number + 10}"))
        writer = apsw.Connection(str(path))
        writer.execute("BEGIN IMMEDIATE")
        assert {"talk-0", "talk-1"} == set(order(store)[:2])
        writer.execute("ROLLBACK")
        writer.close()
        assert {"talk-0", "talk-1"} == set(order(store)[:2])
        assert [] == list(store.verify())


# ── the rest ────────────────────────────────────────────────────────────────────────────────────


def test_an_erasure_reads_its_family_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = palaver.open(":memory:")
    history = store.create(said(20))
    for number in range(5):
        source = f"s{number - 1}" if number else "u7"
        history.append(
            palaver.user("short", id=f"s{number}", metadata={"palaver.summaryOf": [source]})
        )
    fork = history.fork()
    fork.append(palaver.user("short", id="f", metadata={"palaver.summaryOf": ["s2"]}))
    asked = Statements(store.backend, monkeypatch)
    receipt = history.erase("u7")
    assert {"s0", "s1", "s2", "s3", "s4", "f"} == set(receipt.summaries)
    assert asked.count < 10


def test_the_store_in_memory_takes_back_what_could_not_be_adopted() -> None:
    store = palaver.open(":memory:")
    history = store.create(talk("u1 a2"), id="talk")
    history.append(one("u3"), key="k")
    backend = store.backend
    assert isinstance(backend, MemoryBackend)
    good = store.create(talk("u1"), id="other").fork(id="fork")
    good.append(one("u9"))
    head, newest = backend.head("talk"), backend.newest()
    change = Change(
        conversation="talk", after=head.version, kind="append", at=5, stop=head.stop + 1,
        size=head.size + 1, first=head.length, counts=head.counts, messages=(one("u4"),),
        key="new", records=(("draft", "d", b"x"),),
    )  # fmt: skip
    with pytest.raises(Stale):
        backend.adopt(None, [change, replace(change, key="newer")])
    assert head == backend.head("talk")
    assert newest == backend.newest()
    assert [] == backend.positions_of("talk", "u4")
    assert [0, 2] == backend.select("talk", "user", 0, 9)
    assert {2: "k"} == {v + 1: k for v, k in backend.keys("talk", -1, 9).items()}
    assert {} == backend.records("talk", "draft")
    assert ["other", "fork"] == backend.family("fork")
