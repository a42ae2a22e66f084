"""What one PostgreSQL server carries: eight processes at work on a thousand conversations.

`python -m bench.scale` fills a store, then has the processes append, open and read, and take whole
steps (open, read the last 20, append a question and an answer), and writes `scale.json` beside this
file: rates, times, bytes, write-ahead log and connections. `docs/scale.md` starts from there. The
server and the processes share one machine, so what is measured is the two of them together.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

import palaver
from bench.crowd import Spell, together
from bench.harness import fsync_time
from bench.turns import for_palaver, turns
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from bench.crowd import Job, Step

__all__ = [
    "append_any",
    "append_own_share",
    "append_to_one",
    "main",
    "open_and_read",
    "take_a_step",
]

CONVERSATIONS: Final = 1_000
PROCESSES: Final = 8
_FIRST: Final = 40  # messages that each conversation begins with
_SIZES: Final = """
SELECT relname, pg_total_relation_size(c.oid), pg_relation_size(c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
WHERE nspname = 'palaver' AND relkind = 'r' ORDER BY 1
"""


def _name(number: int) -> str:
    return f"talk-{number:05}"


def append_own_share(address: str, number: int) -> Step:
    """Append to one of the conversations that only this process writes to."""
    return _appending(address, number, range(number, CONVERSATIONS, PROCESSES))


def append_to_one(address: str, number: int) -> Step:
    """Everyone appends to the same conversation: the hottest there can be."""
    return _appending(address, number, range(1))


def append_any(address: str, number: int) -> Step:
    """Append to any of them: others have mostly been there meanwhile."""
    return _appending(address, number, range(CONVERSATIONS))


def _appending(address: str, number: int, share: range) -> Step:
    store, draw, messages = _ready(address, number)
    held: dict[int, Any] = {}

    def step() -> None:
        which = draw.choice(share)
        history = held.get(which)
        if history is None:
            history = held[which] = store.get(_name(which))
        history.append(next(messages))

    return step


def open_and_read(address: str, number: int) -> Step:
    """Open any of them and read its last 20 messages."""
    store, draw, _ = _ready(address, number)
    return lambda: store.get(_name(draw.randrange(CONVERSATIONS)), last=20)[-20:]


def take_a_step(address: str, number: int) -> Step:
    """What a worker does that was given a question: open, read the last 20, append two."""
    store, draw, messages = _ready(address, number)

    def step() -> None:
        history = store.get(_name(draw.randrange(CONVERSATIONS)), last=20)
        assert history[-20:]
        history.append(next(messages))
        history.append(next(messages))

    return step


def _ready(address: str, number: int) -> tuple[palaver.Store, random.Random, Any]:
    draw = random.Random(number)  # noqa: S311 - repeatable, not a secret
    return palaver.open(address), draw, _fresh(number)


def _fresh(number: int) -> Any:  # noqa: ANN401 - a generator of messages
    """Messages without end, each with an id of its own."""
    said = turns(400)[number:]
    while True:
        yield from for_palaver(said)


_PHASES: Final[dict[str, tuple[Job, int]]] = {
    "append, each process to its own share": (append_own_share, 1),
    "append, any process to any": (append_any, 1),
    "append, all processes to one conversation": (append_to_one, 1),
    "open and read the last 20": (open_and_read, 0),
    "a step: open, last 20, two appends": (take_a_step, 2),
}
"""What is done, and how many messages each step of it adds."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long each phase takes")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "scale.json")
    chosen = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with (
        serving(fsync="on", shared_buffers="512MB", max_wal_size="4GB") as server,
        server.database() as address,
    ):
        found: dict[str, Any] = {
            "server": _asked(address, "SHOW server_version")[0][0],
            "cores": os.cpu_count(),
            "load when it began": round(load, 2),
            "fsync, µs": round(fsync_time(server.folder)),
            "conversations": CONVERSATIONS,
            "processes": PROCESSES,
        }
        _fill(address)
        found["phases"] = {
            name: _phase(address, job, added, chosen.seconds)
            for name, (job, added) in _PHASES.items()
        }
        found["bytes"] = _bytes(address)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    chosen.output.write_text(text + "\n", "utf-8")
    print(text)
    return 0


def _asked(address: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(address, autocommit=True) as line:
        return line.execute(query.encode()).fetchall()


def _fill(address: str) -> None:
    said = turns(_FIRST)
    with palaver.open(address) as store:
        for number in range(CONVERSATIONS):
            store.create(for_palaver(said), id=_name(number), title=f"Talk {number}")


def _phase(address: str, job: Job, added: int, seconds: float) -> dict[str, Any]:
    before = _standing(address)
    watch = _Watch(address)
    spell = together(address, job, PROCESSES, seconds=seconds)
    watch.end()
    after = _standing(address)
    messages = after["messages"] - before["messages"]
    told = {**_times(spell), "connections at most": watch.most}
    if added:
        told["appends a second"] = round(spell.rate * added)
        told["WAL bytes an append"] = round((after["wal"] - before["wal"]) / messages)
    return told


def _times(spell: Spell) -> dict[str, Any]:
    return {
        "a second": round(spell.rate),
        "p50 ms": round(spell.percentile(50), 2),
        "p99 ms": round(spell.percentile(99), 2),
    }


def _standing(address: str) -> dict[str, int]:
    rows = _asked(
        address,
        "SELECT (SELECT count(*) FROM palaver.messages), "
        "(pg_current_wal_insert_lsn() - '0/0')::bigint",
    )
    return {"messages": rows[0][0], "wal": rows[0][1]}


class _Watch:
    """Counts the connections while something goes on."""

    def __init__(self, address: str) -> None:
        self.most = 0
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'palaver'"
        while not self._over.wait(0.5):
            self.most = max(self.most, _asked(self._address, query)[0][0])

    def end(self) -> None:
        """No more of it."""
        self._over.set()
        self._thread.join()


def _bytes(address: str) -> dict[str, Any]:
    """What the tables take, each with its indexes and what lies beside its pages."""
    with palaver.open(address) as store:
        store.search("nothing has this word")  # everything is in the search index now
    with psycopg.connect(address, autocommit=True) as line:
        line.execute("VACUUM ANALYZE")
    messages = _standing(address)["messages"]
    changes = _asked(address, "SELECT count(*) FROM palaver.journal")[0][0]
    body = _asked(address, "SELECT avg(octet_length(body))::float FROM palaver.messages")[0][0]
    tables = {name: (whole, heap) for name, whole, heap in _asked(address, _SIZES)}

    def each(name: str, count: int) -> str:
        whole, heap = tables[name]
        return f"{heap / count:.0f} + {(whole - heap) / count:.0f} for its indexes"

    return {
        "messages": messages,
        "changes": changes,
        "a body, on average": round(body),
        "a message": each("messages", messages),
        "a change in the journal": each("journal", changes),
        "a message in the search index": each("words", messages),
        "a conversation": each("conversations", CONVERSATIONS),
    }


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(status)
