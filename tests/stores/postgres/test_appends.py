"""A plain append is its message's own row, and is read as a change like those in the journal."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import palaver
from palaver.errors import NothingToUndo, Stale, StoreDamaged
from palaver.messages import assistant, user
from palaver.stores.memory import MemoryBackend
from palaver.stores.postgres.changes import commit
from palaver.stores.postgres.connections import STATEMENTS, PostgresConnections, TimedConnection
from palaver.stores.postgres.notify import newest_visible
from palaver.stores.records import Change, pack_counts
from palaver.stores.store import Store
from tests.patience import within
from tests.stores.test_migrations import restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import StoredHistory
    from palaver.stores.postgres.connections import Values
    from palaver.stores.records import Head, JournalEntry


_UPDATES = b"""
SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'conversations'
"""

_READ = b"""
SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
FROM pg_stat_xact_user_tables WHERE schemaname = 'palaver' AND relname = %s
"""
_OWNED = """
INSERT INTO palaver.conversations (
    root, id, owner, updated, created, version, stop, length, n_system, n_user, n_assistant, framed,
    size, base, origin, tags)
SELECT 'c' || n, 'c' || n, CASE WHEN n < 60 THEN 'rare' ELSE 'o' || mod(n, 10) END,
       n * 1000::bigint, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}'
FROM generate_series(1, 4000) AS n
"""


@pytest.fixture
def store(postgres: str) -> Iterator[Store]:
    with palaver.open(postgres) as opened:
        yield opened


def ask(address: str, statement: str, *values: object) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as line:
        done = line.execute(statement.encode(), values)
        return done.fetchall() if done.description else []


def test_only_one_message_alone_has_no_record_in_the_journal(postgres: str, store: Store) -> None:
    history = store.create([user("0")])
    history.append(user("1"))
    history.append(user("2"), key="k")
    history.extend([user("3"), user("4")])
    history.append(assistant("5"))
    history.mark(0, "pin")
    history.append(user("6"))
    journal = ask(postgres, "SELECT version FROM palaver.journal ORDER BY version")
    assert [(0,), (2,), (3,), (5,)] == journal
    own = "SELECT version, seq FROM palaver.messages WHERE version IS NOT NULL ORDER BY seq"
    assert [(1, 1), (4, 5), (6, 6)] == ask(postgres, own)
    assert list(range(7)) == [entry.version for entry in store.backend.journal(history.id, -1, 99)]
    assert [] == list(store.verify())


def test_an_append_with_a_key_is_sent_like_one_without(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values with names go through a cursor of psycopg's, which takes longer than the server."""
    sent: list[type] = []
    real = TimedConnection.ask

    def ask_watched(
        connection: TimedConnection, statement: bytes, values: Values
    ) -> tuple[object, ...] | None:
        sent.append(type(values))
        return real(connection, statement, values)

    monkeypatch.setattr(TimedConnection, "ask", ask_watched)
    history = store.create([user("0")])
    for number in range(4):
        history.append(user("plain"))
        history.append(user("keyed"), key=f"k{number}")
        history.append(user("not again"), key=f"k{number}")
    assert {tuple} == {*sent}
    assert ["0", *["plain", "keyed"] * 4] == [message.text for message in history]
    assert {2 * n + 2: f"k{n}" for n in range(4)} == store.keys(history.id, -1, 99)
    assert [] == list(store.verify())


def changed(history: StoredHistory, steps: list[int]) -> None:
    for number, step in enumerate(steps):
        if step == 0:
            history.append(user(f"m{number}"))
        elif step == 1:
            history.append(assistant(f"m{number}"), key=f"k{number}")
        elif step == 2 and len(history):
            history.truncate(remove_last=1)
        elif step == 3:
            with suppress(NothingToUndo):
                history.undo()
        else:
            history.extend([user(f"m{number} {n}") for n in range(step)])


def comparable(entries: list[JournalEntry]) -> list[tuple[object, ...]]:
    return [(e.version, e.kind, e.first, e.count, dict(e.data)) for e in entries]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4, 5]), max_size=30),
    st.lists(st.sampled_from([0, 0, 1, 2, 4]), max_size=8),
    st.integers(1, 12),
)
def test_pages_of_changes_are_those_of_the_memory_store(
    store: Store, steps: list[int], more: list[int], limit: int
) -> None:
    """From every version on, of a conversation and of its fork; and where each version ended."""
    memory = Store(MemoryBackend())
    histories = [each.create([user("first")]) for each in (memory, store)]
    for history in histories:
        changed(history, steps)
    forks = [history.fork() for history in histories]
    for fork in forks:
        changed(fork, more)
    for expected, found in (histories, forks):
        theirs, ours = memory.backend, store.backend
        for after in range(-1, expected.version + 1):
            assert comparable(theirs.journal(expected.id, after, limit)) == comparable(
                ours.journal(found.id, after, limit)
            )
        for version in range(expected.version + 1):
            assert theirs.stop(expected.id, version) == ours.stop(found.id, version)
        with pytest.raises(StoreDamaged):
            ours.stop(found.id, found.version + 1)
        assert [] == list(store.verify(found.id))


def test_the_feed_has_appends_and_records_in_one_order(store: Store) -> None:
    start = store.backend.newest()
    one, other = store.create(), store.create()
    for number in range(5):
        one.append(user(f"{number}"))
        other.extend([user("a"), user("b")])
    other.append(user("last"))
    whole = store.backend.journal(None, start, 99)
    paged: list[JournalEntry] = []
    while page := store.backend.journal(None, paged[-1].cursor if paged else start, 2):
        paged += page
    assert whole == paged
    assert [one.id, other.id, *[one.id, other.id] * 5, other.id] == [e.conversation for e in whole]
    assert [e.cursor for e in whole] == sorted(e.cursor for e in whole)
    assert whole[-1].cursor == store.backend.newest()
    assert {"a", "last"} == {
        hit.message.text for word in ("a", "last") for hit in store.search(word)
    }


@pytest.mark.parametrize("name", ["newest_of_node", "newest", "journal_of_all"])
def test_a_follower_who_waits_reads_no_table(postgres: str, store: Store, name: str) -> None:
    """There is nothing new most of the time: to see that must not cost what the store holds."""
    history = store.create()
    store.backend.adopt(None, _appends(store.head(history.id), 3_000))
    values = {"node": 0, "upto": 2**62, "after": store.backend.newest(), "limit": 100}
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("ANALYZE")
        plan = line.execute(b"EXPLAIN " + STATEMENTS[name], values).fetchall()
    assert not [row for (row,) in plan if "Seq Scan on messages" in row]


def _appends(head: Head, count: int) -> Iterator[Change]:
    for number in range(count):
        yield Change(
            conversation=head.id, after=number, kind="append", at=1, stop=number + 1,
            size=number + 1, first=number, counts=pack_counts(number, 0, number, 0),
            messages=(user("hello"),),
        )  # fmt: skip


def test_a_page_of_changes_may_begin_and_end_anywhere(store: Store) -> None:
    history = store.create([user("0")])
    history.append(user("1"))
    history.append(user("2"))
    found = [
        [entry.version for entry in store.journal(history.id, after, limit)]
        for after, limit in [(-500, 10), (-1, 2**63 - 1), (1, 2**62), (2**63 - 1, 5)]
    ]
    assert [[0, 1, 2], [0, 1, 2], [2], []] == found


def test_changes_in_sight_are_seen_on_a_server_with_billions_of_transactions(
    postgres: str, store: Store
) -> None:
    """A number is 4,194,304 times that of its transaction."""
    history = store.create()
    ask(postgres, "UPDATE palaver.store SET shift = 4::bigint << 30")
    ask(postgres, "SELECT palaver.define_shift()")
    history.append(user("late"))
    with closing(PostgresConnections(postgres, size=1, patience=30)) as connections:
        assert store.backend.newest() == newest_visible(connections, 0)


def long_among_short(store: Store) -> str:
    """Return a conversation of 3,000 appends, with a record of another kind now and then.

    The server takes it for one of the many that are short.
    """
    for _ in range(40):
        store.create([user("hello")]).append(user("hello"))
    history = store.create()
    changes = list(_appends(store.head(history.id), 3_000))
    keyed = (c if c.after % 50 else replace(c, key=f"k{c.after}") for c in changes)
    store.backend.adopt(None, keyed)
    return history.id


def rows_read(address: str, table: str, work: Callable[[TimedConnection], object]) -> int:
    """Return how many rows of a table the server reads for some work, with plans for any value."""
    connections = PostgresConnections(address, size=1, patience=30)
    with connections.connect() as line, line.transaction():
        line.execute(b"SET LOCAL plan_cache_mode = force_generic_plan")
        line.prepare_threshold = 0
        work(line)
        ((count,),) = line.execute(_READ, (table,)).fetchall()
    return int(count)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("journal", {"after": 1_000, "limit": 100}),
        ("stop", {"version": 1_500}),
        ("outcome", {"version": 1_500, "first": 1_499}),
        ("release_made", {"after": 2_990, "first": 2_990, "attempt": 1, "token": 1}),
    ],
)
def test_changes_are_found_without_reading_the_conversation(
    postgres: str, store: Store, name: str, values: dict[str, int]
) -> None:
    where = dict.fromkeys(("root", "id"), long_among_short(store)) | values
    ask(postgres, "ANALYZE")
    read = rows_read(postgres, "messages", lambda line: line.execute(STATEMENTS[name], where))
    assert read <= 100


def test_an_append_far_behind_others_reads_no_more_than_a_thousand(
    postgres: str, store: Store
) -> None:
    """It holds the lock of the conversation meanwhile."""
    name = long_among_short(store)
    (late,) = _appends(store.head(name), 1)
    late = replace(late, anywhere=True)

    def append(line: TimedConnection) -> None:
        with pytest.raises(Stale):
            commit(line, name, late, 1)

    assert rows_read(postgres, "messages", append) <= 1_000


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("SET at = at + 1", "message 1: the row is not what was written"),
        ("SET version = NULL", "version 1 is missing from the journal"),
        ("SET version = 9", "a message belongs to nothing"),
        ("SET node = NULL", "half a record of a change"),
        ("SET number = NULL", "half a record of a change"),
    ],
)
def test_a_damaged_record_of_an_append_is_found(
    postgres: str, store: Store, damage: str, said: str
) -> None:
    history = store.create([user("0")])
    history.append(user("1"))
    history.append(user("2"))
    ask(postgres, f"UPDATE palaver.messages {damage} WHERE seq = 1")
    problems = list(store.verify())
    assert any(said in problem for problem in problems)


def test_erasing_keeps_the_record_of_an_append(store: Store) -> None:
    history = store.create([user("0")])
    message = history.append(user("a secret"))
    before = store.backend.journal(history.id, 0, 1)
    history.erase(message)
    assert before == store.backend.journal(history.id, 0, 1)
    assert [] == list(store.verify())


def test_an_append_writes_no_index_of_the_conversations(postgres: str, store: Store) -> None:
    """Its head is updated in place as long as it stays in the same span of time (HOT)."""
    history = store.create()
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("UPDATE palaver.conversations SET updated = (1::bigint << 50) + 5")
        for number in range(50):
            history.append(user(f"{number}"))
        line.execute("SELECT pg_stat_force_next_flush()")
        store.close()  # its connections report what they did when they end
        with within(60):
            while (found := line.execute(_UPDATES).fetchone() or (0, 0))[0] < 51:
                pass
    assert found[0] - 1 <= found[1]


def test_the_listing_is_in_order_within_a_span_and_across(postgres: str, store: Store) -> None:
    for number, time in enumerate([5, 4097, 7, 1 << 40, 4096, (1 << 40) + 1, 6]):
        name = store.create(id=f"c{number}").id
        ask(postgres, "UPDATE palaver.conversations SET updated = %s WHERE id = %s", time, name)
    expected = ["c5", "c3", "c1", "c4", "c2", "c6", "c0"]
    assert expected == [head.id for head in store.list().conversations]
    page, found = store.list(limit=2), []
    while True:
        found += [head.id for head in page.conversations]
        if page.next is None:
            break
        page = store.list(after=page.next, limit=2)
    assert expected == found


def test_the_listing_of_an_owner_reads_only_what_is_its_own(postgres: str, store: Store) -> None:
    """Also of one whose conversations are all older than everyone else's."""
    ask(postgres, _OWNED)
    ask(postgres, "ANALYZE")
    assert [f"c{n}" for n in range(59, 0, -1)] == [head.id for head in store.each(owner="rare")]
    page = store.list(owner="rare", limit=20)
    assert "c39" == store.list(owner="rare", limit=20, after=page.next).conversations[0].id
    values = {"owner": "rare", "updated": 2**53, "id": "z", "tag": None, "without": [], "limit": 9}
    name = "listing_of_owner"
    read = rows_read(postgres, "conversations", lambda line: line.execute(STATEMENTS[name], values))
    assert read <= 60


def test_an_earlier_palaver_that_is_still_connected_is_refused(postgres: str) -> None:
    """It would not find the appends that have no record in the journal."""
    restored("schema-7", postgres)
    with psycopg.connect(postgres, autocommit=True) as line:
        names = b"SELECT proargnames FROM pg_proc WHERE proname = 'append_message'"
        (before,) = line.execute(names).fetchall()
        palaver.open(postgres).close()
        (after,) = line.execute(names).fetchall()
    assert before != after
