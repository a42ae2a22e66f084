"""A store whose file was deleted, moved or replaced raises an error and creates no other file."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import StoreError, StoreMoved
from palaver.stores.sqlite import SQLiteBackend, connections
from tests.history.samples import line, one, talk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for file in path.parent.glob("chat.db*"):
        file.unlink()


def move(path: Path) -> None:
    path.rename(path.parent / "moved.db")


def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.parent / "elsewhere")


def replace(path: Path) -> None:
    with palaver.open(path.parent / "other.db") as other:
        other.create(talk("u9"), id="theirs")
    (path.parent / "other.db").replace(path)


def replace_with_a_copy(path: Path) -> None:
    shutil.copy(path, path.parent / "copy.db")
    (path.parent / "copy.db").replace(path)


WAYS = [delete, delete_all, move, move_the_folder, replace, replace_with_a_copy]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "chat.db"


def in_a_thread(work: Callable[[], object]) -> BaseException | None:
    """What something raises in a thread of its own, which has no connection yet."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is handed on
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def works(store: Store) -> dict[str, Callable[[], object]]:
    """Everything that changes something, each in another way."""
    history = store.get("talk")
    return {
        "append": lambda: history.append(one("u5")),
        "append many": lambda: history.extend(talk(" ".join(f"u{n}" for n in range(20, 60)))),
        "edit": lambda: history.replace(0, one("u6")),
        "create": lambda: store.create(talk("u7")),
        "fork": history.fork,
        "erase": lambda: history.erase("u1"),
        "describe": lambda: store.describe("talk", title="another"),
        "lease": lambda: store.lease("talk", "me"),
        "record": lambda: store.backend.put("talk", "kind", "name", b"value"),
    }


KINDS = ("append", "append many", "edit", "create", "fork", "erase", "describe", "lease", "record")


@pytest.mark.parametrize("way", WAYS)
def test_no_change_is_acknowledged_when_the_file_is_gone(
    path: Path, way: Callable[[Path], None]
) -> None:
    for what in KINDS:
        shutil.rmtree(path.parent.parent / "elsewhere", ignore_errors=True)
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        store = palaver.open(path)
        store.create(talk("u1 a2"), id="talk")
        work = works(store)[what]
        way(path)
        before = sorted(path.parent.glob("*"))
        with pytest.raises(StoreMoved, match=rf"{path} was .* while the store was open"):
            work()
        for refused in (work, partial(store.get, "talk"), store.list, partial(store.search, "u1")):
            with pytest.raises(StoreMoved, match="while the store was open"):
                refused()
        assert isinstance(in_a_thread(partial(store.get, "talk")), StoreMoved)
        store.close()
        assert before == sorted(path.parent.glob("*")), what  # nothing was made


@pytest.mark.parametrize("way", WAYS)
def test_a_new_thread_makes_and_reads_no_other_file(
    path: Path, way: Callable[[Path], None]
) -> None:
    store = palaver.open(path)
    store.create(talk("u1 a2"), id="talk")
    assert 2 == len(store.get("talk"))  # this thread keeps the connection that was opened first
    way(path)
    before = sorted(path.parent.glob("*"))
    content = path.read_bytes() if path.exists() else b""
    assert isinstance(in_a_thread(lambda: store.get("talk")), StoreMoved)
    assert before == sorted(path.parent.glob("*"))
    assert content == (path.read_bytes() if path.exists() else b"")
    with pytest.raises(StoreMoved):
        store.get("talk")
    store.close()


def test_threads_that_write_together_all_get_the_error(path: Path) -> None:
    store = palaver.open(path)
    histories = [store.create(talk("u1")) for _ in range(6)]
    delete(path)
    start = threading.Barrier(len(histories))
    told: list[str] = []

    def write(number: int) -> None:
        start.wait()
        try:
            histories[number].append(one("u2"))
        except StoreMoved:
            told.append("moved")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(histories))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["moved"] * len(histories) == told


def test_what_was_acknowledged_is_there_when_the_file_is_put_back(path: Path) -> None:
    store = palaver.open(path)
    history = store.create(talk("u1"), id="talk")
    for number in range(2, 30):
        history.append(one(f"u{number}"))
    acknowledged = line(history)
    move(path)
    with pytest.raises(StoreMoved, match=r"Put it back, with .*chat\.db-wal"):
        history.append(one("u99"))
    store.close()
    (path.parent / "moved.db").rename(path)
    with palaver.open(path) as again:
        assert line(again.get("talk")).startswith(acknowledged)
        assert [] == list(again.verify())


def test_the_log_of_a_replaced_file_is_said_to_be_in_the_way(path: Path) -> None:
    store = palaver.open(path)
    history = store.create(talk("u1"))
    replace(path)
    with pytest.raises(StoreMoved, match=r"was replaced .* delete .*chat\.db-wal"):
        history.append(one("u2"))
    store.close()
    for end in ("-wal", "-shm"):
        (path.parent / f"chat.db{end}").unlink()
    with palaver.open(path) as again:
        assert ["theirs"] == [head.id for head in again]
        assert [] == list(again.verify())


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@pytest.mark.parametrize("again", ["deleted", "replaced"])
def test_the_files_beside_it_are_missed_too(
    path: Path, end: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = palaver.open(path)
    history = store.create(talk("u1"), id="talk")
    history.append(one("u2"))
    beside = path.parent / f"chat.db{end}"
    data = beside.read_bytes()
    beside.unlink()
    if again == "replaced":
        beside.write_bytes(data)
    monkeypatch.setattr(connections, "_CHECK_INTERVAL", 0.0)
    assert isinstance(store.backend, SQLiteBackend)
    store.backend._connections.file._next_check = 0.0
    with pytest.raises(StoreMoved, match=rf"chat\.db{end} was deleted or replaced"):
        history.append(one("u3"))
    with pytest.raises(StoreMoved):
        store.get("talk")
    store.close()


def test_what_the_lost_log_had_is_saved_by_closing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_CHECK_INTERVAL", 0.0)
    store = palaver.open(path)
    history = store.create(talk("u1 a2 u3"), id="talk")
    (path.parent / "chat.db-wal").unlink()
    with pytest.raises(StoreMoved, match="Close the store"):
        history.append(one("u4"))
    store.close()
    with palaver.open(path) as again:
        assert line(again.get("talk")).startswith("u1 a2 u3")
        assert [] == list(again.verify())


def test_who_only_reads_notices_after_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CHECK_INTERVAL", 0.0)
    with palaver.open(path) as store:
        store.create(talk("u1"), id="talk")
        assert "u1" == line(store.get("talk"))
        move(path)
        with pytest.raises(StoreMoved):
            store.get("talk")


def test_a_follower_gets_the_error(path: Path) -> None:
    with palaver.open(path) as store:
        store.create(talk("u1"), id="talk")
        changes = store.follow("talk", after=-1, seconds=30)
        next(changes)
        delete(path)
        with pytest.raises(StoreMoved):
            next(changes)


def test_a_process_that_goes_elsewhere_still_has_its_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with palaver.open("chat.db") as store:
        history = store.create(talk("u1"), id="talk")
        (path.parent / "sub").mkdir()
        monkeypatch.chdir(path.parent / "sub")
        history.append(one("u2"))
        assert in_a_thread(lambda: store.get("talk").append(one("u3"))) is None
        assert [] == list((path.parent / "sub").iterdir())
        assert "u1 u2 u3" == line(store.get("talk"))


def test_a_link_is_followed_once(path: Path) -> None:
    link = path.parent / "link.db"
    link.symlink_to(path)
    with palaver.open(link) as store:
        history = store.create(talk("u1"), id="talk")
        history.append(one("u2"))
        assert in_a_thread(lambda: store.get("talk")) is None
        delete(path)
        with pytest.raises(StoreMoved):
            history.append(one("u3"))


def test_it_is_an_error_of_the_store(path: Path) -> None:
    assert issubclass(StoreMoved, StoreError)
    backend = SQLiteBackend(str(path))
    backend.close()
    assert [path] == list(path.parent.iterdir())
