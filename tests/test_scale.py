"""What the page about scale says can be done: its statements partition a store that then works."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import palaver
from palaver.testing import store_conformance
from tests.markdown import blocks
from tests.stores.postgres_server import serving

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scale.md"
PARTS = 3


def statements() -> bytes:
    """The page's own, with fewer partitions."""
    (block,) = (block for block in blocks(PAGE.read_text("utf-8")) if block.language == "sql")
    assert "integer := 16;" in block.code
    return block.code.replace("integer := 16;", f"integer := {PARTS};").encode()


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.faults)])
def test_a_partitioned_store_keeps_every_promise(step: int) -> None:
    """Every sixth of the checks that all stores pass; with `make faults` all of them."""
    with serving() as server, server.database() as address:
        palaver.open(address).close()
        with psycopg.connect(address, autocommit=True) as line:
            line.execute(statements())
            count = "SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r'"
            assert (5 * PARTS,) == line.execute(count.encode()).fetchone()
        for check in store_conformance.checks[::step]:
            check(lambda: palaver.open(address))
        with palaver.open(address) as store:
            assert [] == list(store.verify())
