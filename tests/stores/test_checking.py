"""`verify` finds each kind of damage, says where, and goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import apsw
import pytest

import palaver
from palaver.errors import StoreError
from tests.history.samples import one, talk

if TYPE_CHECKING:
    from pathlib import Path


def damage(path: Path, *statements: str) -> list[str]:
    """A store with two conversations and a fork; do something to its file, and verify."""
    with palaver.open(path) as store:
        history = store.create(talk("s0 u1 a2 u3"), id="talk")
        history.append(one("u4"))
        history.replace(1, one("u5"))
        history.extend(talk("a6 t7"))
        history.truncate(keep_last=4)
        history.fork(id="fork").append(one("u8"))
        store.create(talk("u1"), id="other")
        assert [] == list(store.verify())
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
        assert connection.changes()
    connection.close()
    with palaver.open(path) as store:
        return list(store.verify())


MINE = "cid = (SELECT cid FROM conversations WHERE id = 'talk')"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            f"UPDATE messages SET body = replace(body, 'says u3', 'says u!') WHERE {MINE}",  # noqa: S608 - nobody else writes it
            "talk: message 3: the row is not what was written",
        ),
        (
            f"UPDATE messages SET body = substr(body, 2) WHERE {MINE} AND seq = 2",  # noqa: S608 - as above
            "talk: message 2: the row is not what was written",
        ),
        (
            f"UPDATE messages SET hash = hash + 1 WHERE {MINE} AND seq = 0",  # noqa: S608 - as above
            "talk: message 0: the row is not what was written",
        ),
        (f"DELETE FROM messages WHERE {MINE} AND seq = 2", "talk: message 2 is missing"),  # noqa: S608 - as above
        (f"DELETE FROM messages WHERE {MINE} AND seq = 7", "talk: message 7 is missing"),  # noqa: S608 - as above
        (
            f"UPDATE messages SET n_user = n_user + 1 WHERE {MINE} AND seq = 3",  # noqa: S608 - as above
            "talk: message 3: says there are",
        ),
        (
            f"DELETE FROM journal WHERE {MINE} AND version = 2",  # noqa: S608 - as above
            "talk: version 2 is missing from the journal",
        ),
        (
            f"UPDATE journal SET first = first + 1 WHERE {MINE} AND version = 2",  # noqa: S608 - as above
            "talk: version 2 begins at 6, expected 5",
        ),
        (
            f"UPDATE journal SET frame = 'nonsense' WHERE {MINE} AND version = 2",  # noqa: S608 - as above
            "talk: the frame of version 2 can't be read",
        ),
        (
            "UPDATE conversations SET size = size + 1 WHERE id = 'talk'",
            "talk: the view has 4 messages, the head says 5",
        ),
        (
            "UPDATE conversations SET n_user = n_user + 1 WHERE id = 'talk'",
            "talk: the head: says there are",
        ),
        (
            "UPDATE conversations SET length = length + 1 WHERE id = 'talk'",
            "talk: message 8 is missing",
        ),
    ],
)
def test_damage_is_found_and_named(path: Path, statement: str, said: str) -> None:
    found = damage(path, statement.replace("'nonsense'", "CAST('nonsense' AS BLOB)"))
    assert [] != [problem for problem in found if problem.startswith(said)], found
    assert [] == [problem for problem in found if problem.startswith("other:")]


def test_one_fault_does_not_hide_another(path: Path) -> None:
    found = damage(
        path,
        f"UPDATE messages SET body = 'x' WHERE {MINE} AND seq = 0",  # noqa: S608 - nobody else writes it
        f"DELETE FROM journal WHERE {MINE} AND version = 1 OR {MINE} AND version = 2",  # noqa: S608 - as above
        f"UPDATE messages SET body = 'y' WHERE {MINE.replace('talk', 'other')}",  # noqa: S608 - as above
    )
    for said in ("talk: message 0: ", "talk: version 2 is missing", "other: message 0: "):
        assert [] != [problem for problem in found if problem.startswith(said)], found


def test_a_file_that_is_cut_off_is_said_to_be_damaged(path: Path) -> None:
    with palaver.open(path) as store:
        history = store.create(id="talk")
        for number in range(300):
            history.append(one(f"u{number}", "tea " * 100))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    found: list[str] = []
    with suppress(StoreError):  # where it can't even be opened
        store = palaver.open(path)
        found = list(store.verify()) or ["nothing"]
        store.close()
    assert ["nothing"] != found


def test_a_page_that_is_overwritten_is_found(path: Path) -> None:
    with palaver.open(path) as store:
        history = store.create(id="talk")
        for number in range(100):
            history.append(one(f"u{number}", "tea " * 100))
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    for page in range(pages // 2, pages // 2 + 4):
        data[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with palaver.open(path) as store:
        assert [] != list(store.verify())
