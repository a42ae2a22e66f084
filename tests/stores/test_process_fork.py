"""A process that has a store open and forks: parent and children go on, each by itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import palaver
from palaver.errors import StoreError
from palaver.messages import user
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import Store
    from palaver.stores.records import Change

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that processes share."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres")
        return found
    return str(tmp_path / "chat.db")


def forked(work: Callable[[], object]) -> int:
    """Run something in a child of this process; answer its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent sees the exit code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(pids: list[int], seconds: float = 60) -> list[int]:
    """Wait for children and answer their exit codes; one that hangs is killed."""
    end = time.monotonic() + seconds
    codes = []
    for pid in pids:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def append_all(store: Store, name: str, writer: str, count: int) -> None:
    history = store.get(name)
    for number in range(count):
        history.append(user(f"{writer} {number}"))
        assert f"{writer} {number}" in [message.text for message in store.get(name)]


def test_a_preloading_server(address: str) -> None:
    """The parent opens, serves and forks; its threads and the children all lose nothing."""
    workers, count = 4, 12
    with palaver.open(address) as store, within(200):
        name = store.create([user("first 0")]).id
        done = threading.Event()
        written = {"thread0": 0, "thread1": 0}
        told: list[int] = []

        def serve(writer: str) -> None:
            history = store.get(name)
            while not done.is_set():
                history.append(user(f"{writer} {written[writer]}"))
                written[writer] += 1
                assert store.get(name).version

        def follow() -> None:
            for change in store.follow(name, after=0):
                told.append(change.version)
                if done.is_set():
                    return

        threads = [threading.Thread(target=serve, args=(writer,)) for writer in written]
        threads.append(threading.Thread(target=follow))
        for thread in threads:
            thread.start()
        pids = []
        for worker in range(workers):
            time.sleep(0.03)
            pids.append(forked(lambda w=worker: append_all(store, name, f"child{w}", count)))  # type: ignore[misc]
        codes = ended(pids)
        done.set()
        store.get(name).append(user("last 0"))
        for thread in threads:
            thread.join()
        assert [0] * workers == codes
        history = store.get(name)
        said = [message.text.split() for message in history]
        expected = {
            "first": 1,
            "last": 1,
            **written,
            **{f"child{w}": count for w in range(workers)},
        }
        for writer, number in expected.items():
            assert list(range(number)) == [int(n) for who, n in said if who == writer]
        assert sum(expected.values()) == len(said) == history.version + 1
        assert list(range(1, len(told) + 1)) == told
        assert [] == list(store.verify())


_preloaded: Store | None = None


def _work(writer: int) -> int:
    assert _preloaded is not None
    (found,) = _preloaded.search("preloaded")
    append_all(_preloaded, found.conversation, f"pool{writer}", 5)
    return os.getpid()


def test_a_pool_of_forked_processes(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with palaver.open(address) as store, within(200):
        history = store.create([user("preloaded")])
        monkeypatch.setattr(sys.modules[__name__], "_preloaded", store)
        with get_context("fork").Pool(3) as pool:
            assert os.getpid() not in pool.map(_work, range(6), chunksize=1)
        history.refresh().append(user("the end"))
        texts = [message.text for message in store.get(history.id)]
        said = {f"pool{writer} {number}" for writer in range(6) for number in range(5)}
        assert sorted({"preloaded", "the end"} | said) == sorted(texts)
        assert [] == list(store.verify())


def test_a_history_that_another_thread_was_changing(address: str) -> None:
    """The thread is not in the child: its lock is not waited for, its half change not seen."""
    with palaver.open(address) as store, within(120):
        history = store.create()
        done = threading.Event()
        locked = threading.Event()

        def hold() -> None:
            with history._lock:
                history._state.stop += 1  # half a change
                locked.set()
                done.wait()
                history._state.stop -= 1

        thread = threading.Thread(target=hold)
        thread.start()
        locked.wait()
        codes = ended([forked(lambda: history.append(user("from the child")))], 20)
        done.set()
        thread.join()
        assert [0] == codes
        assert ["from the child"] == [message.text for message in history.refresh()]


def test_a_child_of_a_child(address: str) -> None:
    with palaver.open(address) as store, within(120):
        name = store.create().id

        def child() -> None:
            append_all(store, name, "child", 2)
            codes = ended([forked(lambda: append_all(store, name, "grandchild", 2))], 20)
            append_all(store, name, "again", 1)
            assert [0] == codes

        assert [0] == ended([forked(child)], 30)
        append_all(store, name, "parent", 1)
        assert ["child 0", "child 1", "grandchild 0", "grandchild 1", "again 0", "parent 0"] == [
            message.text for message in store.get(name)
        ]


def test_a_grandchild_of_a_process_whose_history_was_in_use(address: str) -> None:
    """The child does not touch that history and forks again: the grandchild has all it needs."""
    with palaver.open(address) as store, within(120):
        history, other = store.create(), store.create()
        done, locked = threading.Event(), threading.Event()

        def hold() -> None:
            with history._lock:
                locked.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        locked.wait()

        def grandchild() -> None:
            append_all(store, other.id, "grandchild", 1)
            history.append(user("from the grandchild"))

        def child() -> None:
            sys.unraisablehook = lambda _: os._exit(9)  # what a hook of the fork raises
            assert [0] == ended([forked(grandchild)], 20)

        codes = ended([forked(child)], 30)
        done.set()
        thread.join()
        assert [0] == codes
        assert ["from the grandchild"] == [message.text for message in history.refresh()]


def test_a_follower_goes_on_in_the_child(address: str) -> None:
    with palaver.open(address) as store, within(120):
        history = store.create([user("one")])
        changes = store.follow(history.id, after=-1, seconds=20)
        assert 0 == next(changes).version
        store.backend.wait(0.01)

        def child() -> None:
            threading.Timer(0.1, lambda: store.get(history.id).append(user("two"))).start()
            assert 1 == next(changes).version

        assert [0] == ended([forked(child)], 30)
        assert 1 == next(changes).version


def test_memory_is_copied() -> None:
    with palaver.open(":memory:") as store, within(60):
        history = store.create()
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                history.append(user("parent"))

        thread = threading.Thread(target=serve)
        thread.start()
        pids = [forked(lambda: store.get(history.id).append(user("child"))) for _ in range(5)]
        codes = ended(pids, 20)
        done.set()
        thread.join()
        assert [0] * 5 == codes
        assert {"parent"} == {message.text for message in history}


# ── SQLite ──────────────────────────────────────────────────────────────────────────────────────


def locks_of(path: Path) -> list[str]:
    """The locks that this process holds on a file, as Linux lists them."""
    inode = str(path.stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [
        words[3] for words in lines
        if str(os.getpid()) in words and any(word.endswith(f":{inode}") for word in words)
    ]  # fmt: skip


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc/locks")
def test_a_child_holds_locks_of_its_own(path: Path) -> None:
    """SQLite would otherwise count the parent's locks as the child's, and protect nothing."""
    with palaver.open(path) as store, within(60):
        history = store.create([user("one")])
        held = len(locks_of(path))
        assert held

        def child() -> None:
            assert "one" == store.get(history.id)[0].text
            assert locks_of(path)

        assert [0] == ended([forked(child)], 20)
        assert "one" == store.get(history.id)[0].text
        assert locks_of(path)


def test_a_fork_from_within_a_change_is_refused_in_the_child(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is in use by the thread that forks: it can't be given up for the fork."""
    monkeypatch.setattr("palaver.stores.process_fork._PATIENCE", 0.2)
    with palaver.open(path) as store, within(60):
        history = store.create()
        codes: list[int] = []

        def child() -> None:
            with pytest.raises(StoreError, match="fork"):
                store.get(history.id)
            with pytest.raises(StoreError, match="fork"):
                history.append(user("no"))
            store.close()

        def changes() -> Iterator[Change]:
            codes.extend(ended([forked(child)], 20))
            yield from ()

        store.backend.adopt(None, changes())
        assert [0] == codes
        history.append(user("yes"))
        assert ["yes"] == [message.text for message in store.get(history.id)]


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────


def sessions(address: str) -> set[int]:
    """The server's processes that serve this database."""
    with psycopg.connect(address, autocommit=True) as line:
        rows = line.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        return {row[0] for row in rows}


def test_a_child_that_closes_the_store_leaves_the_parents_connections(postgres: str) -> None:
    with palaver.open(postgres) as store, within(60):
        history = store.create([user("one")])
        store.backend.wait(0)  # begins to listen
        before = sessions(postgres)
        assert before
        assert [0] == ended([forked(store.close)], 20)
        pid = os.fork()
        if not pid:
            history.append(user("two"))
            os.execv(sys.executable, [sys.executable, "-c", ""])  # noqa: S606 - closes what is inherited
        assert [0] == ended([pid], 20)
        assert before <= sessions(postgres)
        assert ["one", "two"] == [message.text for message in history.refresh()]
