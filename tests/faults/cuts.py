"""Connections lost around a commit: a random program through a proxy that cuts them.

Most are cut when the server has committed and answered, and the client has not got the answer; some
at the moment when the commit is sent, some before. The client has to find out by itself what became
of its change. After every step the store must be as it is without any cuts.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

import palaver
from palaver.errors import StoreError
from tests.faults.program import Expected, Program, picture
from tests.faults.tally import Tally
from tests.stores.postgres_server import serving
from tests.stores.proxy import Proxy, When

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.stores.postgres_server import Server

__all__ = ["GOAL", "NAME", "run"]

NAME: Final = "connection lost between COMMIT and its answer, PostgreSQL"
GOAL: Final = "500 cuts, every change made once"
_CUTS: Final = 40
"""In one program, so that many programs are run."""
_OUTCOMES: Final[dict[When, str]] = {
    "after": "cut before the answer", "between": "cut with the commit", "before": "never sent",
}  # fmt: skip


def run(count: int, seed: int) -> Tally:
    """Cut so many connections."""
    tally = Tally(NAME, "cuts", GOAL)
    program = 0
    with serving() as server:
        while tally.faults < count:
            name = f"cuts/{seed}/{program}"
            with _proxied(server) as ways:
                _one_program(name, ways, min(_CUTS, count - tally.faults), tally)
            program += 1
    return tally


class _Ways(NamedTuple):
    """The ways to a database: its address by a proxy, and its own."""

    proxy: Proxy
    through: str
    directly: str


@contextmanager
def _proxied(server: Server) -> Generator[_Ways]:
    """An empty database with a proxy before it."""
    with (
        server.database() as address,
        tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder,
        Proxy(Path(folder), server.folder) as proxy,
    ):
        name = address.partition("@/")[2].partition("?")[0]
        yield _Ways(proxy, server.address(name, Path(folder)), address)


def _one_program(name: str, ways: _Ways, cuts: int, tally: Tally) -> None:
    draw = random.Random(name)  # noqa: S311 - no secret
    program, expected = Program(name), Expected(name)
    proxy = ways.proxy
    number = made = 0
    with program.open(ways.through) as store, palaver.open(ways.directly) as other:
        while made < cuts:
            when = draw.choices(get_args(When), [1, 4, 2])[0]
            story = f"{name}, step {number}, {when}"
            proxy.cut_commit(when)
            try:
                did = program.step(store, number)
            except StoreError as error:
                tally.fail("an error surfaced", f"{story}: {error}")
                return
            proxy.spare()
            number += 1
            if picture(other) != expected.after(number):
                tally.fail("lost or doubled", f"{story}: {did}")
                return
            if proxy.cuts > made:
                made = proxy.cuts
                tally.count(_OUTCOMES[when])
        for problem in other.verify():
            tally.fail("corrupt", f"{name}: {problem}")
