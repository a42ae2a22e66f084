"""What was spent is counted once, whatever became of the answers, and is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import palaver
from palaver.conversation.usage import NOTHING, Usage
from palaver.errors import UnknownConversation
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    Message,
    TokenCounts,
    assistant,
    user,
)
from palaver.messages.ids import now_ms
from palaver.server.services import costs as costs_module
from palaver.server.services.costs import Costs

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store

TOKENS = TokenCounts(10, 5, 1, CacheCounts(4, 2))
_DAY = 86_400_000


@pytest.fixture
def store() -> Generator[Store]:
    with palaver.open(":memory:") as opened:
        yield opened


def answer(cost: float | None = 0.5, at: int | None = None) -> Message:
    info = AssistantInfo(tokens=TOKENS, cost=cost)
    return assistant("Yes.", timestamp=now_ms() if at is None else at, info=info)


def spent(costs: Costs, **query: Any) -> tuple[int, float | None]:  # noqa: ANN401
    total = costs.of_store(**{"days": 7, **query}).total
    return total.calls, total.cost


class Reads:
    """The messages that were read from a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = store.messages

        def counting(conversation: str, start: int, stop: int) -> list[Message]:
            found = read(conversation, start, stop)
            self.count += len(found)
            return found

        monkeypatch.setattr(store, "messages", counting)

    def take(self) -> int:
        self.count, found = 0, self.count
        return found


# ── a conversation ──────────────────────────────────────────────────────────────────────────────


def test_an_answer_counts_once_whatever_was_edited(store: Store) -> None:
    history = store.create([user("Tea?"), answer(), answer(None)], title="Tea")
    costs = Costs(store)
    report = costs.report(history.id, NOTHING)
    assert (2, 0.5, 1, 2) == (
        report.usage.calls,
        report.usage.cost,
        report.unknown_costs,
        report.dated,
    )
    edited = replace(history[1], content="No.")
    history.execute(
        {"operation": "REPLACE", "index": 1, "message": palaver.messages.to_dict(edited)}
    )
    history.execute({"operation": "TRUNCATE", "keepFirst": 1})
    report = costs.report(history.id, NOTHING)
    assert (2, 0.5, 4, 4) == (report.usage.calls, report.usage.cost, report.read, report.length)
    assert (2, 0.5) == spent(costs)


def test_a_record_has_what_was_erased(store: Store) -> None:
    history = store.create([user("Tea?"), answer(), answer()])
    costs = Costs(store)
    recorded = Usage(calls=2, cost=1.0)
    assert 2 == costs.report(history.id, recorded).dated
    history.erase(1)
    report = costs.report(history.id, recorded)
    assert (2, 1.0, 1) == (report.usage.calls, report.usage.cost, report.dated)
    assert (1, 0.5) == spent(costs)
    assert 1 == costs.usage(history.id, NOTHING).calls


def test_a_fork_has_its_parents_costs_and_the_store_counts_them_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = store.create([user("Tea?"), answer()], title="Tea")
    fork = parent.fork()
    fork.append(answer())
    grandchild = fork.fork()
    grandchild.append(answer())
    parent.append(user("More?"))
    costs = Costs(store)
    assert [1, 2, 3] == [
        costs.report(one.id, NOTHING).usage.calls for one in (parent, fork, grandchild)
    ]
    reads = Reads(store, monkeypatch)
    assert (3, 1.5) == spent(costs)
    assert 5 == reads.take()  # what forks share is read once, too
    parent.merge(fork)
    assert (3, 1.5) == spent(costs)
    assert 2 == costs.report(parent.id, NOTHING).usage.calls
    later = grandchild.fork()  # its relatives are known by now
    later.append(answer())
    assert (4, 2.0) == spent(costs)


def test_points_grow_wider_in_a_long_conversation(store: Store) -> None:
    now = now_ms()
    history = store.create([answer(at=now + second * 1_000) for second in range(2_500)])
    report = Costs(store, patience=60).report(history.id, NOTHING)
    assert report.bucket > 1_000
    assert len(report.points) <= 120
    assert 2_500 == sum(point.calls for point in report.points)
    assert sorted(point.at for point in report.points) == [point.at for point in report.points]
    few = Costs(store).report(store.create([answer(at=now), answer(at=now + 7_000)]).id, NOTHING)
    assert (1_000, [1, 1]) == (few.bucket, [point.calls for point in few.points])
    assert (16, 6, 4, 2) == (
        few.points[0].prompt,
        few.points[0].completion,
        few.points[0].cache_read,
        few.points[0].cache_write,
    )


def test_only_some_conversations_are_remembered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs_module, "_OPEN", 2)
    names = [store.create([answer()]).id for _ in range(3)]
    costs, reads = Costs(store), Reads(store, monkeypatch)
    for name in names:
        costs.report(name, NOTHING)
    assert 3 == reads.take()
    costs.report(names[-1], NOTHING)
    assert 0 == reads.take()
    costs.report(names[0], NOTHING)
    assert 1 == reads.take()


# ── what is read ────────────────────────────────────────────────────────────────────────────────


def test_a_message_is_read_once_while_the_server_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [store.create([user("Tea?"), answer()], title="Tea").id for _ in range(10)]
    costs, reads = Costs(store), Reads(store, monkeypatch)
    assert (10, 5.0) == spent(costs)
    assert 20 == reads.take()
    assert (10, 5.0) == spent(costs)
    store.get(names[0]).append(answer())
    assert (11, 5.5) == spent(costs)
    assert 1 == reads.take()
    store.delete(names[0])
    assert (9, 4.5) == spent(costs)


def test_without_time_a_request_reads_a_piece_and_the_next_goes_on(store: Store) -> None:
    history = store.create([answer() for _ in range(2_500)])
    store.create([answer()])
    costs = Costs(store, patience=0)
    for read in (1_000, 2_000, 2_500):
        report = costs.report(history.id, NOTHING)
        assert (read, read == 2_500) == (report.read, report.complete)
    seen = list[tuple[int, int, bool]]()
    while not seen or not seen[-1][-1]:
        found = costs.of_store(7)
        seen.append((found.total.calls, found.counted, found.complete))
    assert [1, 1_001, 2_001, 2_501] == [calls for calls, _, _ in seen]
    assert [1, 1, 1, 2] == [counted for _, counted, _ in seen]


def test_only_what_changed_in_the_range_is_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = now_ms()
    old = store.with_clock(lambda: now - 40 * _DAY)
    old.create([answer(at=now - 40 * _DAY)])
    times = (now - 40 * _DAY, now - 3 * _DAY, now)
    store.create([answer(at=at) for at in times], title="Tea")
    costs, reads = Costs(store), Reads(store, monkeypatch)
    found = costs.of_store(30)
    assert (1, 1, True, False) == (
        found.conversations,
        found.counted,
        found.complete,
        found.older,
    )
    assert (3, 2) == (reads.take(), found.total.calls)
    assert 30 == len(found.points)
    assert [1, 0, 0, 1] == [point.calls for point in found.points[-4:]]
    assert (4, 2.0) == spent(costs, days=90)


def test_more_conversations_than_are_counted_are_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs_module, "_MOST_CONVERSATIONS", 2)
    monkeypatch.setattr(costs_module, "_CHUNK", 1)
    for _ in range(6):
        store.create([answer()])
    costs = Costs(store)
    found = costs.of_store(7)
    assert (2, True, 2) == (found.conversations, found.older, found.total.calls)
    for _ in range(6):  # what is remembered does not grow for ever
        store.create([answer()])
        assert (2, 1.0) == spent(costs)


# ── the range ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("days", "points", "width"),
    [(1, 24, _DAY // 24), (2, 48, _DAY // 24), (7, 7, _DAY), (120, 120, _DAY), (365, 53, 7 * _DAY)],
)
def test_the_width_of_a_point_follows_the_range(
    store: Store, days: int, points: int, width: int
) -> None:
    found = Costs(store).of_store(days)
    assert (points, width) == (len(found.points), found.bucket)
    assert (found.since, found.until) == (found.points[0].at, found.points[-1].at + width)
    assert found.since < now_ms() < found.until
    assert (None, 0) == (found.total.cost, found.total.calls)


@pytest.mark.parametrize("offset", [-480, 0, 120, 330])
def test_days_begin_where_the_reader_is(store: Store, offset: int) -> None:
    found = Costs(store).of_store(7, offset)
    assert 0 == (found.since + offset * 60_000) % _DAY
    assert found.since < now_ms() < found.until


def test_the_costliest_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        store.create([user(f"Question {number}"), answer(float(number))], title=None)
    store.create([answer(None)])
    top = Costs(store).of_store(7).top
    assert [(f"Question {n}", float(n)) for n in (6, 5, 4, 3, 2)] == [
        (one.title, one.cost) for one in top
    ]

    def gone(*_: object) -> None:
        raise UnknownConversation("deleted meanwhile")

    monkeypatch.setattr(costs_module, "display_name", gone)
    assert [None] * 5 == [one.title for one in Costs(store).of_store(7).top]
