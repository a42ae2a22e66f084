"""The SQLite file: its owner, its format, its migrations, and its connections."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from pathlib import Path

import apsw
import pytest

import palaver
from palaver.errors import StoreDamaged, StoreError
from palaver.stores.backend import load_migrations
from palaver.stores.sqlite import SQLiteBackend, connections
from palaver.stores.sqlite.connections import busy_handler, connect, schema_version
from tests.history.samples import line, one, talk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    with palaver.open(path) as store:
        store.create().append(one("u1"))
        store.search("u1")
        files = sorted(path.parent.iterdir())
        assert [f"{path.name}{end}" for end in ("", "-shm", "-wal")] == [f.name for f in files]
        assert [0o600] * 3 == [mode(file) for file in files]


def test_a_commit_is_on_disk_when_it_returns(path: Path) -> None:
    opened = connect(str(path))
    assert ("wal", 2, 1) == (
        opened.pragma("journal_mode"), opened.pragma("synchronous"), opened.pragma("secure_delete"),
    )  # fmt: skip
    opened.close()


def test_the_name_of_a_new_file_is_on_disk_before_anything_is_written_to_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[tuple[str, int]](), os.fsync

    def watched(number: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{number}").readlink()), path.stat().st_size))
        sync(number)

    monkeypatch.setattr(os, "fsync", watched)
    palaver.open(path).close()
    assert [(str(path.parent), 0)] == synced
    palaver.open(path).close()  # it is there already
    assert 1 == len(synced)


def test_a_file_system_that_can_not_sync_folders_is_no_obstacle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    with palaver.open(path) as store:
        assert "u1" == line(store.create(talk("u1")))


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="is a database, but not a palaver store") as caught:
        palaver.open(path)
    assert str(path) in str(caught.value)
    assert before == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("data", [b"nonsense " * 1_000, b"SQLite format 3\0" + b"\1" * 5_000])
def test_what_is_no_database_is_refused_and_left_alone(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="is not a palaver store") as caught:
        palaver.open(path)
    assert str(path) in str(caught.value)
    assert data == path.read_bytes()


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch(0o600)
    with palaver.open(path) as store:
        assert 0 == store.create().version


@pytest.mark.parametrize("name", ["missing/chat.db", "."])
def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match=str(tmp_path)):
        palaver.open(tmp_path / name)


def test_an_unknown_kind_of_address_is_an_error() -> None:
    with pytest.raises(StoreError, match="there is no store for mongodb:// addresses"):
        palaver.open("mongodb://localhost/chat")


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    palaver.open(path).close()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 99)
    newer.close()
    with pytest.raises(StoreError, match=r"was written by a newer palaver \(schema 99"):
        palaver.open(path)
    again = apsw.Connection(str(path))
    assert 99 == again.pragma("user_version")
    again.close()


def test_opening_again_migrates_nothing(path: Path) -> None:
    newest = load_migrations("palaver.stores.sqlite")[-1][0]
    for expected in ((0, newest), (newest, newest)):
        backend = SQLiteBackend(str(path))
        assert expected == backend.migrated
        backend.close()


STEPS = load_migrations("palaver.stores.sqlite")


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with palaver.open(path) as store:
        name = store.create(talk("u1")).id
    bad = "CREATE TABLE half (x); SELECT no_such_function()"
    with monkeypatch.context() as patch:
        patch.setattr(connections, "load_migrations", lambda _: [*STEPS, (STEPS[-1][0] + 1, bad)])
        with pytest.raises((StoreError, apsw.Error)):
            palaver.open(path)
    with palaver.open(path) as store:
        assert "u1" == line(store.get(name))
        assert [] == list(store.verify())


def test_many_may_open_a_new_file_at_once(path: Path) -> None:
    start = threading.Barrier(6)
    failures: list[BaseException] = []

    def task() -> None:
        start.wait()
        try:
            with palaver.open(path) as store:
                store.create()
        except BaseException as error:  # noqa: BLE001 - it is shown below
            failures.append(error)

    threads = [threading.Thread(target=task) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == failures
    with palaver.open(path) as store:
        assert 6 == len(list(store))


def test_who_opens_a_new_file_waits_for_another_that_sets_it_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls no busy handler where a reader is to become the one who switches to WAL."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(time, "sleep", lambda _: other.in_transaction and other.execute("COMMIT"))
    with palaver.open(path) as store:
        store.create()
        assert not other.in_transaction
        assert 1 == len(list(store))
    other.close()


@pytest.mark.parametrize("statement", [2, 3])
def test_a_file_that_is_set_up_while_it_is_looked_at_is_a_store(path: Path, statement: int) -> None:
    executed: list[str] = []

    def trace(_: object, text: str, __: object) -> bool:
        executed.append(text)
        if len(executed) == statement:
            palaver.open(path).close()
        return True

    looking = connect(str(path))
    looking.exec_trace = trace
    schema_version(looking)
    looking.close()


def test_the_busy_handler_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[float] = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", now.append)
    wait = busy_handler()
    assert [True] * 20 == [wait(times) for times in range(20)]
    assert all(0 < pause < 0.05 for pause in now[1:])
    now[0] = 61.0
    assert not wait(20)
    assert wait(0)


def test_threads_that_come_and_go_share_connections(path: Path) -> None:
    """A program that begins threads all the time does not run out of files."""
    with palaver.open(path) as store:
        history = store.create(talk("u1"))
        for _ in range(20):
            found: list[int] = []
            thread = threading.Thread(target=lambda: found.append(len(store.get(history.id))))  # noqa: B023 - run at once
            thread.start()
            thread.join()
            assert [1] == found
        links = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        files = [str(link.readlink()) for link in links]
        assert 2 == files.count(str(path))  # one writes, and one served them all


def test_who_opens_a_store_leaves_its_connection_to_who_reads(path: Path) -> None:
    """An asynchronous program opens it in one thread and reads in others."""
    palaver.open(path).close()
    with palaver.open(path) as store:
        assert isinstance(store.backend, SQLiteBackend)
        readers = store.backend._connections._readers
        assert 1 == len(readers)
        thread = threading.Thread(target=lambda: list(store.list().conversations))
        thread.start()
        thread.join()
        assert [] == list(store.list().conversations)
        assert 1 == len(readers)
        assert not store.backend.encrypted
        assert 1 == len(readers), "who reads keeps what it has"


def test_a_closed_store_says_so(path: Path) -> None:
    store = palaver.open(path)
    history = store.create(talk("u1"))
    store.close()
    store.close()
    for ask in (
        lambda: store.get(history.id),
        store.create,
        lambda: history.append(one("u2")),
        lambda: list(store),
        lambda: store.search("u1"),
    ):
        with pytest.raises(StoreError, match="closed"):
            ask()
