"""Kill -9 around PostgreSQL: the client, the whole server, or one of its sessions.

A client says in a ledger when each step begins and when it is acknowledged. One that was killed
leaves the store as after the last acknowledged step, or the one that had begun. One whose server
was killed waits for it, makes sure of the step under way and goes on: after its last step the store
is exactly as if nothing had happened.
"""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg

from palaver.errors import StoreError
from tests.faults.kills import look, read
from tests.faults.nursery import KILLED, Ledger, Nursery
from tests.faults.program import Expected, Program
from tests.faults.scratch import scratch
from tests.faults.tally import Tally
from tests.stores.postgres_server import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores.postgres_server import Server

__all__ = ["GOAL", "NAME", "run"]

NAME: Final = "kill -9, PostgreSQL"
GOAL: Final = "50 kills of clients and servers, none lost, none doubled"
_KILLS: Final = 12
"""Of one store, so that its programs stay short enough to run again beside."""
_VICTIMS: Final = ("client", "server", "client", "session")
_MORE: Final = 6
"""Steps that a client does after its server was killed, at most."""
_LIMIT: Final = 120.0
_SESSIONS: Final = (
    b"SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    b"AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def run(count: int, seed: int) -> Tally:
    """Kill so many times, client and server in turn."""
    tally = Tally(NAME, "kills", GOAL)
    store = 0
    with scratch() as folder, Nursery() as nursery, serving() as server:
        while tally.faults < count:
            with server.database() as address:
                trial = _Trial(
                    f"server/{seed}/{store}", tally,
                    nursery=nursery, server=server, address=address, ledger=folder / "ledger",
                )  # fmt: skip
                trial.run(min(_KILLS, count - tally.faults))
            store += 1
    return tally


def child(ledger: Ledger, address: str, name: str, first: int, stop: int) -> None:
    """Do steps up to a number, or until one is refused."""
    program = Program(name)
    store = program.open(address)
    for number in range(first, stop):
        ledger.write(f"begin {number}")
        try:
            program.step(store, number)
        except StoreError as error:
            ledger.write(f"refused {number}: {str(error)!r}")
            return
        ledger.write(f"ack {number}")
    store.close()


class _Trial:
    """One database, and a program that is killed again and again."""

    def __init__(
        self, name: str, tally: Tally, *,
        nursery: Nursery, server: Server, address: str, ledger: Path,
    ) -> None:  # fmt: skip
        self.name = name
        self.tally = tally
        self.nursery = nursery
        self.server = server
        self.address = address
        self.ledger = ledger
        self.draw = random.Random(name)  # noqa: S311 - no secret
        self.expected = Expected(name)
        self.reached = 0

    def run(self, kills: int) -> None:
        for _ in range(kills):
            victim = _VICTIMS[self.tally.faults % len(_VICTIMS)]
            self.ledger.unlink(missing_ok=True)
            status = self.kill_client() if victim == "client" else self.kill_server(victim)
            told = read(self.ledger, self.reached)
            story = f"{self.name}, {victim} killed, {told}"
            if status != (KILLED if victim == "client" else 0):
                self.tally.fail("ended by itself", story)
                return
            _await_quiet(self.address)
            failure, reached = look(self.address, self.name, self.expected, told)
            if failure:
                self.tally.fail(failure.partition(":")[0], f"{story}, {failure}")
                return
            self.reached = reached
            if told.last.startswith("refused"):
                left = "refused, and there" if reached > told.acked else "refused, without trace"
            else:
                left = "as acknowledged" if reached == told.acked else "one more, whole"
            self.tally.count(f"{victim}: {left}")

    def kill_client(self) -> int:
        """Kill a client some time after a line of its ledger."""
        lines, grace = self.draw.randint(0, 14), self.draw.choice([0, self.draw.random() * 0.01])
        args = [self.address, self.name, self.reached]
        job = "tests.faults.kills:child"
        return self.nursery.run(job, args, self.ledger, lines=lines, grace=grace, limit=_LIMIT)

    def kill_server(self, victim: str) -> int:
        """Kill the server, or one session, while a client works; the client ends by itself."""
        steps, grace = self.draw.randint(1, 6), self.draw.choice([0, self.draw.random() * 0.01])
        lines = self.draw.randint(1, 2 * steps - 1)
        stop = self.reached + steps + self.draw.randint(1, _MORE)
        args = [self.address, self.name, self.reached, stop]
        job = "tests.faults.server_kills:child"
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.nursery.run, job, args, self.ledger, limit=_LIMIT)
            while not done.done() and self._lines() < lines:
                time.sleep(0.0002)
            time.sleep(grace)
            if victim == "server":
                self.server.stop(signal.SIGKILL)
                self.server.start()
            else:
                _kill_sessions(self.address)
            return done.result()

    def _lines(self) -> int:
        return self.ledger.read_bytes().count(b"\n") if self.ledger.exists() else 0


def _kill_sessions(address: str) -> None:
    """Kill the sessions of other clients; the server then starts all of its processes anew."""
    with psycopg.connect(address) as line:
        sessions = [row[0] for row in line.execute(_SESSIONS)]
    for pid in sessions:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _await_quiet(address: str) -> None:
    """Wait until the server answers and no other session is left: what one began is over then."""
    end = time.monotonic() + _LIMIT
    while time.monotonic() < end:
        with suppress(psycopg.OperationalError), psycopg.connect(address) as line:
            if not line.execute(_SESSIONS).fetchall():
                return
        time.sleep(0.01)
    msg = "sessions of a client that ended do not end"
    raise TimeoutError(msg)
