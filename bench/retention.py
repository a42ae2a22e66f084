"""What expiring costs others: writers' times before and meanwhile, and the disk that is given back.

`python -m bench.retention sqlite postgres` fills a store with 100,000 conversations; 10,000 of them
are old. Some processes append to young ones at a steady rate; first alone, then while the old ones
expire into an archive. `--conversations` and `--old` make it larger. The processes, the server and
whoever else is at work share one machine.
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


def _fill(address: str, conversations: int, old: int, messages: int) -> None:
    now = int(time.time() * 1000)
    with palaver.open(address) as store:
        past = store.with_clock(lambda: now - 200 * _DAY)

        def make(number: int) -> None:
            said = [
                (user, assistant)[index % 2](f"{number} {index} " + "some words of a talk " * 12)
                for index in range(messages)
            ]
            (past if number < old else store).create(
                said, id=_name(number), owner=f"o{number % 100}"
            )

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(make, range(conversations), chunksize=100))


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


def _expire(address: str, archive: str) -> None:
    with palaver.open(address) as store:
        found = store.expire(timedelta(days=90), archive=archive)
    Path(f"{archive}.receipt").write_text(json.dumps(found.conversations), "utf-8")


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
    expiring = context.Process(target=_expire, args=(address, archive))
    begun = time.monotonic()
    expiring.start()
    expiring.join()
    ended = time.monotonic()
    stop.set()
    for writer in writers:
        writer.join()
    times = [tuple(pair) for file in files for pair in json.loads(Path(file).read_text("utf-8"))]
    return {
        "before, ms": _spread([took for at, took in times if calm <= at < begun]),
        "meanwhile, ms": _spread([took for at, took in times if begun <= at < ended]),
        "expired": json.loads(Path(f"{archive}.receipt").read_text("utf-8")),
        "seconds": round(ended - begun, 1),
        "archive, bytes": Path(archive).stat().st_size,
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
    if "://" not in address:
        with closing(apsw.Connection(address)) as line:
            line.execute("VACUUM")
            line.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with psycopg.connect(address, autocommit=True) as line:
        for table in _TABLES:
            line.execute(f"VACUUM FULL palaver.{table}".encode())


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--old", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=6, help="of each conversation")
    parser.add_argument("--seconds", type=float, default=30, help="of writing before it begins")
    parser.add_argument("--folder", type=Path, help="where the files go; removed afterwards")
    chosen = parser.parse_args(arguments)
    for kind in chosen.kinds:
        folder = Path(tempfile.mkdtemp(prefix="palaver-retention-", dir=chosen.folder))
        try:
            with _place(kind, folder) as address:
                load, begun = os.getloadavg()[0], time.monotonic()
                _fill(address, chosen.conversations, chosen.old, chosen.messages)
                found: dict[str, Any] = {
                    "store": kind, "conversations": chosen.conversations,
                    "messages": chosen.conversations * chosen.messages,
                    "load when it began": round(load, 2),
                    "filled in, s": round(time.monotonic() - begun),
                    "disk before": _disk(address),
                }  # fmt: skip
                found |= _measure(address, folder, chosen.conversations, chosen.old, chosen.seconds)
                found["disk after"] = _disk(address)
                begun = time.monotonic()
                _vacuum(address)
                found["disk after VACUUM"] = _disk(address)
                found["VACUUM, s"] = round(time.monotonic() - begun, 1)
                sys.stdout.write(json.dumps(found, indent=1) + "\n")
                sys.stdout.flush()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
