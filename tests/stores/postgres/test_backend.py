"""The PostgreSQL backend: lost connections, transactions, followers, erasure, migrations."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import palaver
from palaver.errors import AlreadyExists, LeaseLost, Stale, StoreError, UnknownConversation
from palaver.history.log import packed_count
from palaver.messages import user
from palaver.stores import Store
from palaver.stores.backend import load_migrations
from palaver.stores.postgres import PostgresBackend, connections, erase
from palaver.stores.records import Change
from tests.patience import set_patience, within
from tests.stores.postgres_server import Server
from tests.stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.records import Head, JournalEntry
    from tests.stores.proxy import When


@pytest.fixture
def store(postgres: str) -> Iterator[Store]:
    with palaver.open(postgres) as opened:
        yield opened


def run(address: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements beside the store, and answer the last one's rows."""
    with psycopg.connect(address, autocommit=True) as line:
        for statement in statements[:-1]:
            line.execute(statement.encode())
        answer = line.execute(statements[-1].encode())
        return answer.fetchall() if answer.description else []


def after(head: Head, text: str, *, key: str | None = None, token: int | None = None) -> Change:
    """An append to a conversation as it stands."""
    message = user(text)
    return Change(
        conversation=head.id, after=head.version, kind="append", at=1, stop=head.stop + 1,
        size=head.size + 1, first=head.length, counts=head.counts, messages=(message,), key=key,
        token=token,
    )  # fmt: skip


# ── many writers ────────────────────────────────────────────────────────────────────────────────


def append_many(address: str, name: str, writer: int, count: int) -> int:
    with palaver.open(address) as store:
        history = store.get(name)
        for number in range(count):
            history.append(user(f"{writer} {number}"))
    return count


def test_processes_that_append_to_one_conversation_lose_and_double_nothing(postgres: str) -> None:
    writers, count = 8, 25
    with palaver.open(postgres) as store, within(300):
        name = store.create().id
        with ProcessPoolExecutor(writers, mp_context=get_context("spawn")) as pool:
            done = [pool.submit(append_many, postgres, name, w, count) for w in range(writers)]
            assert [count] * writers == [each.result() for each in done]
        history = store.get(name)
        said = [message.text.split() for message in history]
        for writer in range(writers):
            mine = [int(number) for who, number in said if int(who) == writer]
            assert list(range(count)) == mine  # each writer's own order is kept
        assert writers * count == history.version
        assert [] == list(store.verify())


def test_a_server_that_is_stricter_than_need_be_is_no_hindrance(postgres: str) -> None:
    """Under `serializable` the server refuses where others came first; it is asked again."""
    strict = f"{postgres}&options=-c%20default_transaction_isolation%3Dserializable"
    with palaver.open(strict) as store, within(300):
        name = store.create().id
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda writer: append_many(strict, name, writer, 10), range(4)))
        assert 40 == len(store.get(name)) == store.get(name).version
        assert [] == list(store.verify())


def test_a_follower_of_all_hears_every_change_once_while_many_write(postgres: str) -> None:
    writers, count = 4, 40
    told: list[JournalEntry] = []
    with palaver.open(postgres) as store, palaver.open(postgres) as other, within(300):
        names = [store.create().id for _ in range(writers)]
        start = store.backend.newest()

        def listen() -> None:
            for change in other.follow(after=start, seconds=60):
                told.append(change)
                if len(told) == writers * count:
                    return

        ear = threading.Thread(target=listen)
        ear.start()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(lambda name: append_many(postgres, name, 0, count), names))
        ear.join()
        assert sorted((n, v) for n in names for v in range(1, count + 1)) == sorted(
            (change.conversation, change.version) for change in told
        )
        assert sorted({change.cursor for change in told}) == [change.cursor for change in told]
        time.sleep(0.05)
        assert [] == store.backend.journal(None, told[-1].cursor, 10)


def test_what_began_earlier_and_ends_later_is_not_missed(postgres: str, store: Store) -> None:
    """Its number is smaller than one that is in sight, so that one is not told yet."""
    slow, quick = store.create(), store.create()
    start = store.backend.newest()
    with psycopg.connect(postgres) as line:
        line.execute("SELECT pg_current_xact_id()")
        quick.append(user("quick"))
        assert [] == store.backend.journal(None, start, 10)
        assert start == store.backend.newest()
        assert [1] == [c.version for c in store.backend.journal(quick.id, 0, 10)]
        slow.append(user("slow"))
        line.rollback()
    told = store.backend.journal(None, start, 10)
    assert [quick.id, slow.id] == [change.conversation for change in told]


def test_a_visible_change_not_reported_yet_can_be_found(postgres: str, store: Store) -> None:
    history = store.create([user("tea")])
    assert 1 == len(store.search("tea"))
    with psycopg.connect(postgres) as line:
        line.execute("SELECT pg_current_xact_id()")
        history.append(user("more tea"))
        assert 2 == len(store.search("tea"))
        assert 2 == len(store.search("tea"))
    history.append(user("tea again"))
    assert 3 == len(store.search("tea"))


def test_changes_adopted_together_have_cursors_of_their_own(store: Store) -> None:
    history = store.create()
    start, head = store.backend.newest(), store.backend.head(history.id)

    def changes() -> Iterator[Change]:
        now = head
        for number in range(250):
            change = after(now, str(number))
            yield change
            counts = now.counts + packed_count(change.messages[0])
            length = now.length + 1
            now = type(now)(now.id, now.version + 1, change.stop, length, counts, 0, change.size)

    assert 250 == store.backend.adopt(None, changes())
    told = store.backend.journal(None, start, 1_000)
    assert list(range(1, 251)) == [change.version for change in told]
    assert told[100:110] == store.backend.journal(None, told[99].cursor, 10)
    assert [] == list(store.verify())


def test_a_follower_is_woken(postgres: str, store: Store) -> None:
    history = store.create()
    with palaver.open(postgres) as other:
        other.backend.wait(0)  # begins to listen
        other.backend.wait(0.5)
        waking = threading.Timer(0.1, history.append, [user("wake up")])
        waking.start()
        began = time.monotonic()
        other.backend.wait(120)
        waking.join()
        assert time.monotonic() - began < 60


def test_a_notification_is_made_only_where_somebody_listens(postgres: str, store: Store) -> None:
    """It takes a number of the server's transactions and a record in its log, as a change does."""
    history = store.create()
    with psycopg.connect(postgres, autocommit=True) as line:  # hears, and does not say so
        line.execute("LISTEN palaver")

        def heard(seconds: float) -> bool:
            history.append(user("heard?"))
            return any(line.notifies(timeout=seconds, stop_after=1))

        assert not heard(0.5)
        with palaver.open(postgres) as other:
            other.backend.wait(0)  # begins to listen
            assert heard(60)
            with palaver.open(postgres) as third:  # which is closed in the pause after the first
                others = third.get(history.id)
                others.append(user("soon"))
                assert any(line.notifies(timeout=60, stop_after=1))
                others.append(user("a last time"))
            assert any(line.notifies(timeout=60, stop_after=1))
        assert not heard(0.5)


def test_a_follower_whose_connection_is_lost_listens_again(postgres: str, store: Store) -> None:
    history = store.create()
    start = store.backend.newest()
    store.backend.wait(0)
    run(
        postgres,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'LISTEN palaver%'",
    )
    history.append(user("heard"))
    assert [1] == [change.version for change in store.follow(after=start, seconds=0.5)]


def test_another_conversation_of_the_same_name_is_read_as_it_is(
    postgres: str, store: Store
) -> None:
    parent = store.create([user("a"), user("b")])
    store.create([user("old")], id="name")
    assert "old" == store.get("name")[0].text
    with palaver.open(postgres) as other:
        other.delete("name")
        other.get(parent.id).fork(id="name")
    assert ["a", "b"] == [message.text for message in store.get("name")]


# ── a connection that is lost ───────────────────────────────────────────────────────────────────


@pytest.fixture
def proxied(postgres_server: Server, postgres: str) -> Iterator[tuple[Proxy, str]]:
    name = postgres.partition("@/")[2].partition("?")[0]
    with (
        tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder,
        Proxy(Path(folder), postgres_server.folder) as proxy,
    ):
        yield proxy, postgres_server.address(name, Path(folder))


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_an_answer_that_is_lost_doubles_nothing(proxied: tuple[Proxy, str], when: When) -> None:
    proxy, address = proxied
    with palaver.open(address) as store, within(120):
        proxy.cut(b"the first word", when)
        history = store.create([user("the first word")])
        proxy.cut(b"the second word", when)
        history.append(user("the second word"))
        proxy.cut(b"the third word", when)
        history.insert(0, [user("the third word")])
        proxy.cut(b"the note", when)
        store.describe(history.id, title="the note")
        proxy.cut(b"the draft", when)
        store.backend.put(history.id, "draft", "d", b"the draft")
        assert 5 == proxy.cuts
        again = store.get(history.id)
        expected = ["the third word", "the first word", "the second word"]
        assert expected == [message.text for message in again]
        assert 2 == again.version
        assert "the note" == again.title
        proxy.cut(history.id.encode(), when)
        store.delete(history.id)
        assert history.id not in store
        assert 6 == proxy.cuts


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_two_writers_and_a_lost_answer(proxied: tuple[Proxy, str], when: When) -> None:
    proxy, address = proxied
    with palaver.open(address) as store, palaver.open(address) as other, within(120):
        history = store.create()
        theirs = other.get(history.id)
        proxy.cut(b"ours", when)
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(history.append, user("ours")),
                    pool.submit(theirs.append, user("theirs"))]  # fmt: skip
            for each in both:
                each.result()
        found = [message.text for message in store.get(history.id)]
        assert ["ours", "theirs"] == sorted(found)


@pytest.mark.parametrize("when", ["between", "after", "before"])
def test_adopted_or_not_after_a_lost_answer(proxied: tuple[Proxy, str], when: When) -> None:
    proxy, address = proxied
    with palaver.open(address) as store, within(120):
        history = store.create()
        head = store.backend.head(history.id)
        change = after(head, "adopted")
        proxy.cut(b"adopted", when)
        with pytest.raises(StoreError):
            store.backend.adopt(None, iter([change]))
        assert 0 == store.backend.head(history.id).version  # it had not come to the commit
        proxy.cut(b"COMMIT", "after")
        assert 1 == store.backend.adopt(None, iter([change]))
        assert 1 == store.backend.head(history.id).version


def test_patience_has_an_end(postgres_server: Server, postgres: str) -> None:
    name = postgres.partition("@/")[2].partition("?")[0]
    with tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder:
        with Proxy(Path(folder), postgres_server.folder):
            address = postgres_server.address(name, Path(folder))
            backend = PostgresBackend(address)
            history = Store(backend).create()
            set_patience(backend._connections, 0.5)
        with closing(backend), within(60), pytest.raises(StoreError):
            history.append(user("to nobody"))


# ── a server that is killed ─────────────────────────────────────────────────────────────────────


def test_what_was_acknowledged_survives_a_killed_server() -> None:
    server = Server()
    try:
        server.start()
        with server.database() as address, palaver.open(address) as store, within(300):
            history = store.create()
            said: list[str] = []
            for round_ in range(3):
                said += [history.append(user(f"{round_} {n}")).text for n in range(20)]
                server.stop(signal.SIGKILL)
                server.start()
            said.append(history.append(user("still here")).text)
            assert said == [message.text for message in store.get(history.id)]
            assert [] == list(store.verify())
    finally:
        server.remove()


# ── erasure ─────────────────────────────────────────────────────────────────────────────────────


def in_files(server: Server, word: bytes) -> list[str]:
    """The table files that have a word; the write-ahead log is another matter."""
    run(server.address("postgres"), "CHECKPOINT")
    files = (server.data / "base").rglob("*")
    return [str(file) for file in files if file.is_file() and word in file.read_bytes()]


def test_what_was_erased_is_in_no_file(postgres_server: Server, store: Store) -> None:  # HI-15
    word = "xyzzyplugh"
    history = store.create([user("before"), user(f"the word is {word}"), user("after")])
    fork = history.fork()
    store.backend.put(fork.id, "prompt", "p", f"user: the word is {word}".encode())
    assert 1 == len(store.search(word, conversation=fork.id))
    assert in_files(postgres_server, word.encode())
    with within(60):
        history.erase(1)
    assert [] == store.search(word)
    assert [] == in_files(postgres_server, word.encode())
    assert ["before", "after"] == [
        m.text for m in store.get(fork.id) if m.text in {"before", "after"}
    ]
    assert [] == list(store.verify())


def test_a_large_table_is_not_written_anew(postgres: str) -> None:
    with closing(PostgresBackend(postgres, rewrite=0)) as backend:
        history = Store(backend).create([user("secret")])
        file = "SELECT pg_relation_filenode('palaver.messages')"
        before = run(postgres, file)
        history.erase(0)
        assert before == run(postgres, file)
        rows = run(postgres, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname='messages'")
        assert 1 == len(rows)


def test_the_room_of_what_expired_is_used_again(postgres: str, store: Store) -> None:
    def fill() -> None:
        for number in range(100):
            store.with_clock(lambda: 1_000).create([user("x" * 2_000)] * 10, id=f"old{number}")

    size = "SELECT pg_relation_size('palaver.messages'), pg_relation_size('palaver.journal')"
    run(postgres, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
    try:
        fill()
        (before,) = run(postgres, size)
        assert 100 == store.expire(timedelta(days=1)).conversations
        fill()
        (again,) = run(postgres, size)
        for then, now in zip(before, again, strict=True):
            assert int(str(now)) < 1.2 * int(str(then))
    finally:
        run(postgres, "ALTER SYSTEM RESET autovacuum", "SELECT pg_reload_conf()")


def test_what_expired_is_gone_also_where_the_server_can_not_clean_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_UNLESS_LOCKED", b"VACUUM nothing, ")
    store.with_clock(lambda: 1_000).create([user("old")])
    assert 1 == store.expire(timedelta(days=1)).conversations
    assert [] == list(store)


def test_who_appended_before_a_rollback_can_append_after_it(postgres: str) -> None:
    """The driver drops all prepared statements of a connection then, not only its own."""
    with closing(PostgresBackend(postgres, pool=1)) as backend:
        store = Store(backend)
        talk, other = store.create([user("1")], id="talk"), store.create(id="other")
        for number in range(8):
            talk.append(user(str(number)))
            backend.head("talk")
        with pytest.raises(AlreadyExists):
            other.fork(id="talk")  # is rolled back
        talk.append(user("one more"))
        assert 10 == len(talk)


def test_an_erasure_waits_for_who_reads(
    postgres: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_PATIENCE", 120)
    history = store.create([user("secret")])
    with psycopg.connect(postgres) as line, ThreadPoolExecutor(1) as pool:
        line.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        line.execute("SELECT count(*) FROM palaver.conversations")
        erasing = pool.submit(history.erase, 0)
        with pytest.raises(TimeoutError):
            erasing.result(0.3)
        line.rollback()
        erasing.result()


def test_an_erasure_that_can_not_clean_up_says_so(
    postgres: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = store.create([user("secret")])
    monkeypatch.setattr(erase, "_THOROUGH", b"VACUUM FULL palaver.nowhere")
    with pytest.raises(StoreError, match="it is erased, but"):
        history.erase(0)
    monkeypatch.undo()
    assert [] == [
        row for row in run(postgres, "SELECT body FROM palaver.messages") if "secret" in str(row)
    ]


def test_who_is_in_the_way_of_writing_anew_is_not_waited_for_forever(
    postgres: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_PATIENCE", 0.1)
    monkeypatch.setattr(erase, "_LOCKED", b"SET lock_timeout = '100ms'")
    history = store.create([user("secret")])
    with psycopg.connect(postgres) as line:
        line.execute("LOCK TABLE palaver.words IN ACCESS SHARE MODE")
        history.erase(0)
    assert [] == store.search("secret")


# ── leases ──────────────────────────────────────────────────────────────────────────────────────


def test_who_lost_the_lease_is_refused_even_under_way(store: Store) -> None:
    history = store.create()
    lease = store.lease(history.id, "a", seconds=0)
    head = store.backend.head(history.id)
    assert 1 == store.backend.commit(after(head, "in time", token=lease.token))
    store.lease(history.id, "b")
    late = after(store.backend.head(history.id), "late", token=lease.token)
    with pytest.raises(LeaseLost):
        store.backend.commit(late)
    with pytest.raises(Stale):
        store.backend.commit(after(head, "stale"))


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


def test_many_may_open_a_new_database_at_the_same_time(postgres: str) -> None:
    def begin(_: int) -> tuple[int, int]:
        with closing(PostgresBackend(postgres)) as backend:
            return backend.migrated

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(begin, range(8)))
    newest = load_migrations("palaver.stores.postgres")[-1][0]
    assert {newest} == {reached for _, reached in found}
    with closing(PostgresBackend(postgres)) as backend:
        assert (newest, newest) == backend.migrated


def test_a_store_of_a_newer_palaver_is_left_alone(postgres: str) -> None:
    palaver.open(postgres).close()
    run(postgres, "UPDATE palaver.store SET version = 99")
    with pytest.raises(StoreError, match="newer palaver"):
        palaver.open(postgres)


def test_an_earlier_schema_is_brought_up_to_date(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with palaver.open(postgres) as store:
        name = store.create([user("kept")]).id
    steps = [*load_migrations("palaver.stores.postgres")]
    more = (steps[-1][0] + 1, "ALTER TABLE palaver.conversations ADD COLUMN later integer")
    monkeypatch.setattr(connections, "load_migrations", lambda _: [*steps, more])
    with palaver.open(postgres) as store:
        assert (steps[-1][0], more[0]) == store.backend.migrated
        assert ["kept"] == [message.text for message in store.get(name)]
    run(postgres, "SELECT later FROM palaver.conversations")


def test_a_migration_may_take_longer_than_other_statements(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large table is written anew, or read as a whole for a new index."""
    palaver.open(postgres).close()
    steps = [*load_migrations("palaver.stores.postgres")]
    slow = "CREATE TABLE palaver.noted AS SELECT current_setting('statement_timeout') AS longest;"
    more = (steps[-1][0] + 1, slow)
    monkeypatch.setattr(connections, "load_migrations", lambda _: [*steps, more])
    palaver.open(postgres).close()
    assert [("0",)] == run(postgres, "SELECT longest FROM palaver.noted")


def test_cursors_rise_on_after_a_dump_was_restored_elsewhere(postgres: str) -> None:
    """The other server counts its transactions from a lower number."""
    with palaver.open(postgres) as store:
        history = store.create()
        run(postgres, "UPDATE palaver.journal SET number = number + 4194304 * 1000000::bigint")
    with palaver.open(postgres) as store:
        before = store.backend.newest()
        assert [history.id] == [c.conversation for c in store.backend.journal(None, 0, 10)]
        store.get(history.id).append(user("more"))
        (told,) = store.backend.journal(None, before, 10)
        assert told.cursor > before


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    address = f"postgresql://me:sesame@/db?host={tmp_path}"
    with pytest.raises(StoreError) as caught:
        palaver.open(address)
    assert "sesame" not in str(caught.value)


def test_an_address_that_is_none_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="not a PostgreSQL address"):
        palaver.open("postgresql://host/db?colour=blue")


def test_a_closed_store_says_so(postgres: str) -> None:
    store = palaver.open(postgres)
    history = store.create()
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        history.append(user("late"))
    never_used = palaver.open(postgres)
    never_used.close()
    with pytest.raises(StoreError, match="closed"):
        never_used.create()


def test_the_servers_own_errors_are_store_errors(postgres: str, store: Store) -> None:
    history = store.create()
    run(postgres, "ALTER TABLE palaver.messages RENAME TO elsewhere")
    with pytest.raises(StoreError, match="messages"):
        history.append(user("nowhere"))
    run(postgres, "ALTER TABLE palaver.elsewhere RENAME TO messages")
    history.append(user("here"))
    assert 1 == len(store.get(history.id))


def test_a_fork_of_what_is_gone_is_refused(store: Store) -> None:
    history = store.create()
    other = store.get(history.id)
    store.delete(history.id)
    with pytest.raises(UnknownConversation):
        other.fork()


def test_without_its_packages_the_store_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("palaver.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'palaver\[postgres\]'"):
        palaver.open("postgresql:///db")


def test_rows_that_belong_to_nothing_are_found(postgres: str, store: Store) -> None:
    store.create([user("hello")], id="whole")
    store.search("hello")
    run(
        postgres,
        "INSERT INTO palaver.records (root, conversation, kind, name, value) "
        "VALUES ('gone', 'gone', 'k', 'n', '')",
        "UPDATE palaver.messages SET conversation = 'lost'",
    )
    found = list(store.verify())
    assert "a message belongs to nothing: lost at 0" in found
    assert "an entry of the search index belongs to nothing: whole at 0" in found
    assert "a record belongs to nothing: gone at 0" in found
    assert "whole: message 0 is missing" in found


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("messages SET body = replace(body, 'hello', 'HELLO')", "message 0: "),
        ("messages SET time = time + 1", "message 0: "),
        ("messages SET id = id || 'x'", "message 0: "),
        ("messages SET replaces = 0", "message 0: "),
        ("journal SET kind = 'undo' WHERE version = 2", "version 2 of the journal: "),
        ("journal SET at = at - 1 WHERE version = 1", "version 1 of the journal: "),
        ("journal SET key = 'other' WHERE version = 1", "version 1 of the journal: "),
        ("journal SET frame = NULL WHERE version = 2", "version 2 of the journal: "),
        ("journal SET number = 0 WHERE version = 2", "version 2 has a lower cursor than version 1"),
        ("conversations SET title = 'Coffee'", "the head: "),
        ("conversations SET tags = tags || 'c'::text", "the head: "),
        ("conversations SET created = created + 1", "the head: "),
        ("conversations SET erased = erased + 1", "the head: "),
        ("conversations SET updated = updated + 1", "the last change was at "),
        ("conversations SET stop = stop - 1", "the head says the view ends at 1, "),
        ("conversations SET framed = 0", "the head says the last frame is of version 0, "),
        ("conversations SET version = 1", "the journal goes on after version 1, "),
        ("records SET value = 'y'", "the record draft d: the row is not what was written"),
        ("records SET name = 'e'", "the record draft e: the row is not what was written"),
    ],
)
def test_a_row_that_was_changed_is_found(
    postgres: str, store: Store, statement: str, said: str
) -> None:
    history = store.create([user("hello")], id="odd", title="Tea", tags=["a"])
    history.append(user("more"), key="k")
    history.mark(0, "pin")
    store.describe("odd", title="Tea", tags=["a", "b"])
    store.backend.put("odd", "draft", "d", b"x")
    assert [] == list(store.verify())
    run(postgres, f"UPDATE palaver.{statement}")
    found = list(store.verify("odd"))
    assert [] != [problem for problem in found if problem.startswith(f"odd: {said}")], found


def test_long_bodies_are_compressed_by_the_server(store: Store, postgres: str) -> None:
    """Here compressed storage costs nothing: the column's values are, from 2 KB on."""
    store.create([user("Where is the tea? " * 1_000)])
    statement = "SELECT octet_length(body), pg_column_size(body) FROM palaver.messages"
    ((length, taken),) = run(postgres, statement)
    assert isinstance(length, int)
    assert isinstance(taken, int)
    assert 0 < taken < length / 4
