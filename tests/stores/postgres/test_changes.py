"""A change is one call: it takes its place in the database, or says what is against it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from msgspec.structs import replace

import palaver
from palaver.errors import AlreadyExists, LeaseLost, LeaseTaken, Stale, UnknownConversation
from palaver.messages import assistant, system, user
from palaver.stores.postgres import backend as module
from palaver.stores.postgres.changes import commit
from palaver.stores.records import AlreadyCommitted, Change, Placed
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.postgres.connections import TimedConnection
    from palaver.stores.records import Head, JournalEntry


@pytest.fixture
def store(postgres: str) -> Iterator[Store]:
    with palaver.open(postgres) as opened:
        yield opened


def appended(head: Head, *texts: str, key: str | None = None, token: int | None = None) -> Change:
    """An append that was made for a head, and may stand behind what others add."""
    count = len(texts)
    return Change(
        conversation=head.id, after=head.version, kind="append", at=1, stop=head.stop + count,
        size=head.size + count, first=head.length, counts=head.counts,
        messages=tuple(map(user, texts)), key=key, token=token, anywhere=True,
    )  # fmt: skip


def refusals(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The conversations whose changes are refused from now on because others came first."""
    found: list[str] = []
    commit = store.backend.commit

    def watched(change: Change) -> int:
        try:
            return commit(change)
        except Stale:
            found.append(change.conversation)
            raise

    monkeypatch.setattr(store.backend, "commit", watched)
    return found


# ── an append takes its place in the database ───────────────────────────────────────────────────


def test_an_append_is_not_refused_because_others_appended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, refused = store.create([user("0")]), refusals(store, monkeypatch)
    other = store.get(history.id)
    other.extend([user("1"), palaver.assistant("2")])
    history.append(user("3"))
    assert [] == refused
    assert ["0", "1", "2", "3"] == [message.text for message in history]
    assert 2 == history.version == store.head(history.id).version
    assert [0, 1, 3] == [place for place, message in enumerate(history) if message.role == "user"]
    other.extend([user("4"), user("5")])  # which has not seen the one before
    assert [] == refused
    assert ["3", "4", "5"] == [message.text for message in other[-3:]]
    assert [] == list(store.verify())


def test_an_append_follows_an_edit_that_ends_with_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, refused = store.create([user("0"), user("1")]), refusals(store, monkeypatch)
    other = store.get(history.id)
    other.mark(0, "pin")
    other.truncate(keep_last=1)
    other.append(user("2"))
    history.append(user("3"))
    assert [] == refused
    assert ["1", "2", "3"] == [message.text for message in history]
    other.refresh().undo()
    history.append(user("4"))  # the log goes on behind the view now: this needs a frame
    assert [history.id] == refused
    assert ["1", "2", "4"] == [message.text for message in history]
    assert [] == list(store.verify())


def test_what_must_follow_a_version_is_refused(store: Store) -> None:
    history = store.create([user("0")])
    other = store.get(history.id)
    other.append(user("1"))
    with pytest.raises(palaver.errors.VersionMismatch):
        history.append(user("2"), expect=0)
    seen: list[int] = []
    other.append(user("3"))
    history.extend([user("4")], unless=lambda view: seen.append(len(view)))
    assert [2, 3] == seen  # it was asked again about what it follows
    with pytest.raises(Stale):
        store.backend.commit(
            replace(appended(store.head(history.id), "5"), after=0, anywhere=False)
        )


def test_a_listener_is_told_where_the_messages_stand(store: Store) -> None:
    class Ear:
        def __init__(self) -> None:
            self.heard: list[tuple[int, int, int]] = []

        def hear(self, entry: JournalEntry) -> None:
            self.heard.append((entry.version, entry.first, entry.count))

    history, ear = store.create([user("0")]), Ear()
    history.listen(ear.hear)
    store.get(history.id).append(user("1"))
    history.extend([user("2"), user("3")])
    assert [(2, 2, 2)] == ear.heard


def test_writers_of_one_conversation_are_not_refused(store: Store) -> None:
    """They stand in the queue of the row's lock, and each takes its place when it comes up."""
    history = store.create()
    head, gate = store.head(history.id), threading.Barrier(8)

    def write(writer: int) -> list[int]:
        gate.wait()
        return [store.backend.commit(appended(head, f"{writer} {n}")) for n in range(20)]

    with within(120), ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(write, range(8)))
    assert all(mine == sorted(mine) for mine in versions)
    assert list(range(1, 161)) == sorted(version for mine in versions for version in mine)
    assert [] == list(store.verify())


WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_where_others_append_too_each_waits_for_its_turn(postgres: str, store: Store) -> None:
    """The lock of a row goes to whoever comes while it is free; this one in the order of asking."""
    history = store.create()
    with palaver.open(postgres) as another:
        another.get(history.id).append(user("another's"))
    history.append(user("behind it"))
    with psycopg.connect(postgres) as first, ThreadPoolExecutor(1) as pool, within(60):
        first.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (history.id,))
        waits = pool.submit(history.append, user("in turn"))
        while first.execute(WAITING).fetchone() != (1,):
            assert not waits.done()
        assert 2 == store.head(history.id).version
        first.rollback()
        waits.result()
        first.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (history.id,))
        history.append(user("nobody else is there any more"))
    assert 4 == store.head(history.id).version


@pytest.mark.parametrize("say", [system, user, assistant])
@pytest.mark.parametrize("crowded", [False, True])
def test_an_append_behind_others_takes_three_statements(
    postgres: str, store: Store, say: Callable[[str], Message], *, crowded: bool
) -> None:
    """Many who append to one conversation wait for each other: `commit_change` takes five."""
    late, early = store.create([user("0")], id="talk"), store.get("talk")
    if crowded:
        early.append(user("1"))
        late.append(user("2"))
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("ALTER FUNCTION palaver.commit_change RENAME TO not_to_be_called")
        for text in "345":
            early.append(assistant(text))
            late.append(say(f"behind {text}"))
        line.execute("ALTER FUNCTION palaver.not_to_be_called RENAME TO commit_change")
    said = [f"{each}{text}" for text in "345" for each in ("", "behind ")]
    assert said == [message.text for message in late][-6:]
    assert store.head("talk") == replace(late.head, updated=store.head("talk").updated)
    assert [] == list(store.verify())


def test_an_append_behind_an_edit_or_under_a_lost_lease_is_left_to_the_caller(store: Store) -> None:
    """What stands behind it is looked at again; nothing is stored for who has lost the lease."""
    late, early = store.create([user("0"), user("1")], id="talk"), store.get("talk")
    early.truncate(keep_first=1)
    late.append(user("behind an edit"))
    assert ["0", "behind an edit"] == [message.text for message in late]
    lease = store.lease("talk", "one")
    store.release(lease)
    store.lease("talk", "two")
    early.append(user("not seen"))
    with pytest.raises(LeaseLost):
        late.extend([user("late")], lease=lease)
    assert ["0", "behind an edit", "not seen"] == [m.text for m in store.get("talk")]
    assert [] == list(store.verify())


def test_whoever_is_far_behind_looks_again(postgres: str, store: Store) -> None:
    """What came since is searched for the attempt, and that is not done without an end."""
    history = store.create()
    head = store.head(history.id)
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("UPDATE palaver.conversations SET version = 1001")
    with pytest.raises(Stale):
        store.backend.commit(appended(head, "late"))


# ── an attempt is made once ─────────────────────────────────────────────────────────────────────


def test_an_append_sent_again_is_found_behind_the_changes_of_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer was lost, and others appended before it was sent again."""
    history = store.create([user("0")])
    head = store.head(history.id)
    store.backend.commit(appended(head, "1"))
    attempt = iter([7, 8, 7])
    monkeypatch.setattr(module, "new_attempt", lambda: next(attempt))
    first = store.backend.commit(appended(head, "2", "3"))
    store.backend.commit(appended(head, "4"))
    again = store.backend.commit(appended(head, "2", "3"))
    assert isinstance(first, Placed)
    assert isinstance(again, Placed)
    assert (2, 2) == (first, again)
    assert (2, 2, 3) == (first.first, again.first, again.head.version)
    assert ["0", "1", "2", "3", "4"] == [message.text for message in store.get(history.id)]


def test_a_single_message_sent_again_is_found_or_made(store: Store) -> None:
    """One message has a function of its own, which leaves what was sent before to the other."""
    backend = store.backend
    assert isinstance(backend, module.PostgresBackend)
    history = store.create([user("0")])
    head, root = store.head(history.id), history.id

    def send(text: str, attempt: int, *, again: bool) -> int:
        change = appended(head, text)
        return backend._connections.run(
            lambda connection: commit(connection, root, change, attempt, again=again)
        )

    assert 1 == send("1", 7, again=False)
    assert 1 == send("1", 7, again=True)  # at its place: nothing came between
    placed = send("2", 8, again=False)
    assert isinstance(placed, Placed)
    again = send("2", 8, again=True)  # behind the change of another
    assert isinstance(again, Placed)
    assert (2, 2, 2) == (placed, placed.first, again)
    assert 3 == send("3", 9, again=True)  # its first try never came to the server
    assert ["0", "1", "2", "3"] == [message.text for message in store.get(history.id)]
    assert [] == list(store.verify())


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("others", [0, 1])
def test_a_first_try_that_comes_after_the_second_changes_nothing(
    store: Store, others: int, *, in_turn: bool
) -> None:
    """Its connection was lost, but a busy server runs what it was sent all the same, and later."""
    backend = store.backend
    assert isinstance(backend, module.PostgresBackend)
    lines, name = backend._connections, store.create([user("0")]).id
    change = appended(store.head(name), "mine")
    for _ in range(others):
        store.get(name).append(user("another's"))

    def send(connection: TimedConnection, *, again: bool) -> int:
        return commit(connection, name, change, 7, again=again, in_turn=in_turn)

    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    late = "was made by a later try"
    with closing(lines.connect()) as one, closing(lines.connect()) as other:
        with within(60), ThreadPoolExecutor() as pool:
            with one.transaction():
                made = send(one, again=True)
                first = pool.submit(send, other, again=False)
                while not lines.run(lambda each: each.execute(waits.encode()).fetchall()):
                    time.sleep(0.01)
            with pytest.raises(psycopg.errors.SerializationFailure, match=late):
                first.result()
        with pytest.raises(psycopg.errors.SerializationFailure, match=late):
            send(other, again=False)
        assert made == send(other, again=True)
    said = [message.text for message in store.get(name)]
    assert ["0", *["another's"] * others, "mine"] == said
    assert [] == list(store.verify())


def test_a_first_try_under_a_key_that_comes_after_the_second_finds_the_key(store: Store) -> None:
    backend = store.backend
    assert isinstance(backend, module.PostgresBackend)
    name = store.create([user("0")]).id
    change = appended(store.head(name), "mine", key="k")

    def send(*, again: bool) -> int:
        return backend._connections.run(
            lambda connection: commit(connection, name, change, 7, again=again)
        )

    made, late = send(again=True), send(again=False)
    assert isinstance(late, AlreadyCommitted)
    assert made == late
    assert ["0", "mine"] == [message.text for message in store.get(name)]


def test_the_role_of_a_single_message_is_counted(store: Store) -> None:
    """Each role has its own count, which the head has behind the message and the message before."""
    history = store.create()
    for message in (palaver.system("s"), user("u"), palaver.assistant("a"), user("v")):
        history.append(message)
    assert [1, 3] == store.backend.select(history.id, "user", 0, 9)
    assert [0] == store.backend.select(history.id, "system", 0, 9)
    assert [2] == store.backend.select(history.id, "assistant", 0, 9)
    assert store.head(history.id).counts == store.backend.before(history.id, 4)
    assert [] == list(store.verify())


# ── the last change gives the lease back ────────────────────────────────────────────────────────


def test_a_change_gives_the_lease_back(store: Store) -> None:
    history = store.create([user("0")])
    for key in (None, "k", "k"):  # the third was made before, and gives it back all the same
        lease = store.lease(history.id, "a", seconds=60)
        history.extend([user("1")], key=key, lease=lease, release=True)
        assert lease.token + 1 == store.lease(history.id, "b", seconds=0).token
    assert ["0", "1", "1"] == [message.text for message in history]


def test_a_change_that_is_refused_keeps_the_lease(store: Store) -> None:
    backend = store.backend
    assert isinstance(backend, module.PostgresBackend)
    history = store.create([user("0")])
    head = store.head(history.id)
    lease = store.lease(history.id, "a", seconds=60)
    history.append(user("1"))
    stale = replace(appended(head, "2"), anywhere=False, token=lease.token)
    with pytest.raises(Stale):
        backend.commit_and_release(stale, lease)
    with pytest.raises(LeaseTaken):
        store.lease(history.id, "b")
    assert 2 == backend.commit_and_release(replace(stale, anywhere=True), lease)
    store.lease(history.id, "b")
    with pytest.raises(UnknownConversation):
        backend.commit_and_release(replace(stale, conversation="nowhere"), lease)


def test_work_begins_with_the_lease_the_head_and_records(store: Store) -> None:
    history = store.create([user("0")], title="Tea")
    store.put_records(history.id, [("a", "x", b"1"), ("a", "y", b"2"), ("c", "z", b"3")])
    work = store.begin_work(history.id, "me", ["a", "b"], seconds=60)
    assert {"a": {"x": b"1", "y": b"2"}, "b": {}} == work.records
    assert store.head(history.id) == work.head
    assert (history.id, "me", 1) == (work.lease.conversation, work.lease.holder, work.lease.token)
    with pytest.raises(LeaseTaken):
        store.begin_work(history.id, "another", [])
    with pytest.raises(UnknownConversation):
        store.begin_work("nowhere", "me", [])


def test_a_fork_made_by_the_same_attempt_is_not_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = store.create([user("0")])
    monkeypatch.setattr(module, "new_attempt", lambda: 7)
    history.fork(id="fork")
    history.fork(id="fork")
    monkeypatch.undo()
    with pytest.raises(AlreadyExists):
        history.fork(id="fork")
    with pytest.raises(AlreadyExists):
        store.create(id="fork")
    assert [history.id, "fork"] == sorted(store.family("fork"), key=len, reverse=True)


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def test_a_refusal_says_why(store: Store) -> None:
    history = store.create()
    head = store.head(history.id)
    assert 1 == store.backend.commit(appended(head, "1", key="k"))
    again = store.backend.commit(appended(head, "1", key="k"))
    assert AlreadyCommitted is type(again)
    assert 1 == again
    late = store.lease(history.id, "a", seconds=0)
    store.lease(history.id, "b")
    with pytest.raises(LeaseLost):
        store.backend.commit(appended(head, "2", token=late.token))
    with pytest.raises(LeaseLost):
        store.put_records(history.id, [("draft", "d", b"x")], token=late.token)
    for unknown in ("nowhere", history.id):
        if unknown == history.id:
            store.delete(history.id)
        with pytest.raises(UnknownConversation, match=unknown):
            store.backend.commit(replace(appended(head, "3"), conversation=unknown))
        with pytest.raises(UnknownConversation, match=unknown):
            store.lease(unknown, "a")
        with pytest.raises(UnknownConversation, match=unknown):
            store.put_record(unknown, "draft", "d", b"x")


# ── families ────────────────────────────────────────────────────────────────────────────────────


def test_a_fork_is_found_by_a_process_that_has_never_seen_it(postgres: str, store: Store) -> None:
    """Whatever it is asked for first: the id alone does not say whose fork it is."""
    deep = store.create([user("0")], id="root").fork(id="fork").fork(id="deep")
    deep.append(user("1"))
    head = store.head("deep")
    first_calls: list[Callable[[Store], object]] = [
        lambda other: other.backend.commit(appended(head, "2")),
        lambda other: other.put_record("deep", "draft", "d", b"x"),
        lambda other: other.release(other.lease("deep", "a")),
        lambda other: other.records("deep", "draft"),
        lambda other: other.describe("deep", title="Deep"),
        lambda other: other.family("deep"),
        lambda other: other.get("deep").fork(id="deeper"),
        lambda other: other.journal("deep", -1, 10),
        lambda other: other.search("1", conversation="deep"),
        lambda other: other.get("deep").erase(0),
        lambda other: other.delete("deeper"),
    ]
    for call in first_calls:
        with palaver.open(postgres) as other:
            call(other)
    assert ["", "1", "2"] == [message.text for message in store.get("deep").refresh()]
    assert "Deep" == store.get("deep").title
    assert [] == list(store.verify())
    with psycopg.connect(postgres) as line:
        roots = line.execute("SELECT DISTINCT root FROM palaver.messages").fetchall()
        assert [("root",)] == roots


def test_ids_are_unique_whatever_the_family(store: Store) -> None:
    first, second = store.create(id="first"), store.create(id="second")
    first.fork(id="fork")
    with pytest.raises(AlreadyExists):
        second.fork(id="fork")
    with pytest.raises(AlreadyExists):
        second.fork(id="first")
    assert ["first", "fork", "second"] == store.named("")
    store.delete("fork")
    second.fork(id="fork")
    assert ["fork", "second"] == sorted(store.family("fork"))
