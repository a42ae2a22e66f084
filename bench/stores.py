"""The SQLite store beside a bare INSERT with the same pragmas, and beside itself at other lengths.

On a real disk an append is mostly the wait for the disk; on a memory disk the program itself is
measured, in processor time, so that a busy machine does not blur it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

import palaver
from bench.harness import (
    AtLeast,
    AtMost,
    Row,
    Run,
    against_floor,
    against_peer,
    fsync_time,
    timed,
)
from palaver.messages import assistant, dump, user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.messages import Message
    from palaver.stores import StoredHistory

__all__ = ["rows"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_BODY: Final = "x" * 400


def rows(run: Run) -> Iterator[Row]:
    """Appends, threads, size on disk, opening."""
    with tempfile.TemporaryDirectory() as real:
        yield _append("a real disk", Path(real), run.rounds(400), time.perf_counter)
        yield _threads(Path(real), run.rounds(100))
        yield _growth(Path(real), 500 if run.quick else 2_000)
    if _MEMORY.is_dir():
        with tempfile.TemporaryDirectory(dir=_MEMORY) as memory:
            yield _append("a memory disk", Path(memory), run.rounds(4_000), time.process_time)
            yield from _opening(Path(memory), run)


def _append(disk: str, folder: Path, count: int, clock: Callable[[], float]) -> Row:
    """Five rounds in turn, and the best of each."""
    best = {"palaver": float("inf"), "bare": float("inf")}
    for number in range(5):
        for name, append in (("palaver", _ours), ("bare", _bare)):
            add = append(folder / f"{name}{number}.db")
            messages = [user(_BODY) for _ in range(count)]
            began = clock()
            for message in messages:
                add(message)
            best[name] = min(best[name], (clock() - began) / count * 1e6)
    goal = AtMost(2) if "memory" in disk else AtMost(1.5)
    note = f"floor: a bare INSERT, WAL, synchronous=FULL; fsync takes {fsync_time(folder):.0f} µs"
    return against_floor(
        f"durable append, {disk}", best["palaver"], best["bare"], n=count, unit="µs", goal=goal,
        note=note,
    )  # fmt: skip


def _ours(path: Path) -> Callable[[Message], object]:
    return palaver.open(path).create().append


def _bare(path: Path) -> Callable[[Message], object]:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE m (n INTEGER PRIMARY KEY, cid INT, seq INT, body TEXT)")
    connection.execute("CREATE UNIQUE INDEX i ON m (cid, seq)")
    places = iter(range(10_000_000))

    def insert(message: Message) -> None:
        values = (1, next(places), dump(message).decode())
        connection.execute("INSERT INTO m (cid, seq, body) VALUES (?, ?, ?)", values)

    return insert


def _threads(folder: Path, count: int) -> Row:
    """Eight threads on eight conversations, against one thread on one."""
    store = palaver.open(folder / "threads.db")
    histories = [store.create() for _ in range(8)]

    def fill(history: StoredHistory) -> None:
        for _ in range(count):
            history.append(user(_BODY))

    began = time.perf_counter()
    fill(histories[0])
    alone = count / (time.perf_counter() - began)
    threads = [threading.Thread(target=fill, args=(history,)) for history in histories]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = 8 * count / (time.perf_counter() - began)
    store.close()
    return against_peer(
        "8 threads on 8 conversations", 1e6 / together, 1e6 / alone, n=8 * count, unit="µs",
        goal=AtLeast(2.5), note="peer: one thread; per append, on a real disk",
    )  # fmt: skip


def _growth(folder: Path, count: int) -> Row:
    """The file after 2N changes against N, every tenth of them an edit."""
    sizes: list[int] = []
    for many in (count, 2 * count):
        path = folder / f"growth{many}.db"
        with palaver.open(path) as store:
            history = store.create()
            for number in range(many):
                if number % 10 == 9:  # noqa: PLR2004 - every tenth
                    history.replace(number // 2, user(_BODY))
                else:
                    history.append(user(_BODY))
        sizes.append(path.stat().st_size)
    return against_floor(
        "file size after twice as many changes", sizes[1] / 1e6, sizes[0] / 1e6, n=2 * count,
        unit="MB", goal=AtMost(2.1), note="floor: the file after half of them; a tenth are edits",
    )  # fmt: skip


def _opening(folder: Path, run: Run) -> Iterator[Row]:
    store = palaver.open(folder / "opening.db")
    short, long = 1_000, 20_000 if run.quick else 1_000_000
    names: dict[int, str] = {}
    for length in (short, long):
        history = store.create()
        for start in range(0, length, 10_000):
            size = min(10_000, length - start)
            history.extend(user(f"m{n}") if n % 2 else assistant(f"m{n}") for n in range(size))
        names[length] = history.id
    asked = {str(length): _open_and_read(store, name) for length, name in names.items()}
    took = timed(run.rounds(30), asked, repeats=20)
    yield against_floor(
        "open and read the last 20", took[str(long)] * 1e3, took[str(short)] * 1e3, n=long,
        unit="µs", goal=AtMost(2), note=f"floor: the same of {short:,} messages",
    )  # fmt: skip
    store.close()


def _open_and_read(store: palaver.Store, name: str) -> Callable[[int], object]:
    return lambda _: store.get(name)[-20:]
