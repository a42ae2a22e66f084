"""What expiring costs others: writers' times without it and meanwhile, and the disk given back.

`python -m bench.retention sqlite postgres` fills a store with 100,000 conversations; 10,000 of them
are old. Some processes append to young ones at a steady rate, while the old ones expire into an
archive. Expiring stops now and then, so that times without it and meanwhile are taken in turn: the
processes, the server and whoever else is at work share one machine. Afterwards VACUUM gives the
room to the file system; or with `--refill` as many new conversations are created as were deleted,
and where the room is used again, the store does not grow. `--conversations` and `--old` make it
larger.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import psycopg

import palaver
from palaver.messages import assistant, user
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.synchronize import Barrier, Event

__all__ = ["main"]

_WRITERS: Final = 4
_RATE: Final = 25  # appends in a second, of each writer
_DAY: Final = 86_400_000
_TABLES: Final = "conversations", "messages", "journal", "words", "names"


def _name(number: int) -> str:
    return f"talk-{number:07}"


def _fill(address: str, numbers: range, messages: int, *, old: int = 0) -> None:
    """Create conversations; those whose number is below `old` ended 100 to 300 days ago."""
    now = int(time.time() * 1000)
    with palaver.open(address) as store:

        def past(number: int) -> palaver.Store:
            at = now - 300 * _DAY + 200 * _DAY * number // old
            return store.with_clock(lambda: at)

        def make(number: int) -> None:
            said = [
                (user, assistant)[index % 2](f"{number} {index} " + "some words of a talk " * 12)
                for index in range(messages)
            ]
            (past(number) if number < old else store).create(
                said, id=_name(number), owner=f"o{number % 100}"
            )

        with ThreadPoolExecutor(16) as pool:
            for start in range(numbers.start, numbers.stop, 10_000):  # futures take room
                some = range(start, min(start + 10_000, numbers.stop))
                list(pool.map(make, some, chunksize=100))


def _write(  # noqa: PLR0917 - what a process is given
    address: str, number: int, young: tuple[int, int], ready: Barrier, stop: Event, file: str
) -> None:
    """Append at a steady rate until it is told to stop, and write down how long each took."""
    draw = random.Random(number)  # noqa: S311 - repeatable, not a secret
    times: list[tuple[float, float]] = []
    with palaver.open(address) as store:
        ready.wait()
        due = time.monotonic() + draw.random() / _RATE
        while not stop.is_set():
            time.sleep(max(due - time.monotonic(), 0))
            history = store.get(_name(draw.randrange(*young)))
            begun = time.monotonic()
            history.append(user("one more message of a talk that goes on"))
            times.append((begun, time.monotonic() - begun))
            due = max(due + 1 / _RATE, begun)
    Path(file).write_text(json.dumps(times), "utf-8")


def _expire(address: str, archive: str, pause: float) -> None:
    """Expire, with a pause after every so many seconds; write down when it was at work."""
    begun = time.monotonic()
    spans: list[tuple[float, float]] = []

    def tell(_: int, __: int | None) -> None:
        nonlocal begun
        if time.monotonic() - begun > pause:
            spans.append((begun, time.monotonic()))
            time.sleep(pause)
            begun = time.monotonic()

    with palaver.open(address) as store:
        found = store.expire(timedelta(days=90), archive=archive, progress=tell)
        spans.append((begun, time.monotonic()))
        damage = [line for name in _sample(store) for line in store.verify(name)]
    Path(f"{archive}.receipt").write_text(
        json.dumps({"expired": found.conversations, "spans": spans, "damage": damage}), "utf-8"
    )


def _sample(store: palaver.Store) -> list[str]:
    return [head.id for head in store.list(limit=50).conversations]


def _spread(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    times = sorted(times)
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    found = {
        name: times[min(int(len(times) * share), len(times) - 1)] for name, share in at.items()
    }
    shown = {
        name: round(seconds * 1000, 2) for name, seconds in {**found, "max": times[-1]}.items()
    }
    return {"appends": len(times), **shown}


def _measure(
    address: str, folder: Path, conversations: int, old: int, seconds: float
) -> dict[str, Any]:
    context = get_context("spawn")
    stop, ready = context.Event(), context.Barrier(_WRITERS + 1)
    young = old, conversations
    files = [str(folder / f"times{number}") for number in range(_WRITERS)]
    writers = [
        context.Process(target=_write, args=(address, number, young, ready, stop, file))
        for number, file in enumerate(files)
    ]
    for writer in writers:
        writer.start()
    ready.wait()
    time.sleep(2)
    calm = time.monotonic()
    time.sleep(seconds)
    archive = str(folder / "old.jsonl.gz")
    expiring = context.Process(target=_expire, args=(address, archive, seconds))
    expiring.start()
    expiring.join()
    time.sleep(seconds)
    stop.set()
    for writer in writers:
        writer.join()
    times = [tuple(pair) for file in files for pair in json.loads(Path(file).read_text("utf-8"))]
    receipt = json.loads(Path(f"{archive}.receipt").read_text("utf-8"))
    return {
        **_compare(times, calm, receipt["spans"]),
        "expired": receipt["expired"],
        "damage in a sample": receipt["damage"],
        "seconds at work": round(sum(end - begun for begun, end in receipt["spans"]), 1),
        "archive, bytes": Path(archive).stat().st_size,
        "load at the end": round(os.getloadavg()[0], 2),
    }


def _compare(
    times: list[tuple[float, float]], calm: float, spans: list[tuple[float, float]]
) -> dict[str, Any]:
    """Return how long appends took without the expiry and meanwhile: in all, and span by span."""
    ends = [calm, *(end for _, end in spans)]
    pauses = [*zip(ends, [begun for begun, _ in spans] + [float("inf")], strict=True)]

    def during(some: list[tuple[float, float]]) -> list[float]:
        return [took for at, took in times if any(begun <= at < end for begun, end in some)]

    def p99s(some: list[tuple[float, float]]) -> list[float]:
        return [_spread(during([span])).get("p99", 0.0) for span in some]

    return {
        "without, ms": _spread(during(pauses)),
        "meanwhile, ms": _spread(during(spans)),
        "p99 by span, without": p99s(pauses),
        "p99 by span, meanwhile": p99s(spans),
    }


@contextmanager
def _place(kind: str, folder: Path) -> Generator[str]:
    if kind == "sqlite":
        yield str(folder / "chat.db")
        return
    with (
        serving(fsync="on", shared_buffers="512MB", max_wal_size="4GB") as server,
        server.database() as address,
    ):
        yield address


def _disk(address: str) -> dict[str, int]:
    if "://" not in address:
        with closing(apsw.Connection(address)) as line:
            line.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            page, free = line.pragma("page_size"), line.pragma("freelist_count")
        return {"bytes": Path(address).stat().st_size, "free in it": page * free}
    with psycopg.connect(address, autocommit=True) as line:
        (found,) = line.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE nspname = 'palaver' "
            "AND relkind = 'r'"
        ).fetchone() or (0,)
    return {"bytes": int(found)}


def _vacuum(address: str) -> None:
    """Give the free room of a store back to the file system."""
    if "://" not in address:
        with closing(apsw.Connection(address)) as line:
            line.execute("VACUUM")
            line.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with psycopg.connect(address, autocommit=True) as line:
        for table in _TABLES:
            line.execute(f"VACUUM FULL palaver.{table}".encode())


def _run(kind: str, chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    count, old, messages = chosen.conversations, chosen.old, chosen.messages
    with _place(kind, folder) as address:
        load, begun = os.getloadavg()[0], time.monotonic()
        _fill(address, range(count), messages, old=old)
        found: dict[str, Any] = {
            "store": kind, "conversations": count, "messages": count * messages,
            "load when it began": round(load, 2),
            "filled in, s": round(time.monotonic() - begun),
            "disk before": _disk(address),
        }  # fmt: skip
        found |= _measure(address, folder, count, old, chosen.seconds)
        found["disk after"] = _disk(address)
        if chosen.refill:
            _fill(address, range(count, count + old), messages)
            found["disk with as many new ones"] = _disk(address)
        else:
            begun = time.monotonic()
            _vacuum(address)
            found["disk after VACUUM"] = _disk(address)
            found["VACUUM, s"] = round(time.monotonic() - begun, 1)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--old", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=4, help="of each conversation")
    parser.add_argument("--seconds", type=float, default=15, help="of each turn")
    parser.add_argument("--refill", action="store_true", help="create as many, and do not VACUUM")
    parser.add_argument("--folder", type=Path, help="where the files go; removed afterwards")
    chosen = parser.parse_args(arguments)
    for kind in chosen.kinds:
        folder = Path(tempfile.mkdtemp(prefix="palaver-retention-", dir=chosen.folder))
        try:
            sys.stdout.write(json.dumps(_run(kind, chosen, folder), indent=1) + "\n")
            sys.stdout.flush()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
