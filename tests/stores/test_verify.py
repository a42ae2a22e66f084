"""`verify` finds each kind of damage, reports where it is, and goes on."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import palaver
from palaver.errors import StoreDamaged, StoreError, UnknownConversation
from palaver.stores.backend import refuse_unknown
from palaver.stores.transfer import export_conversation, import_conversation
from tests.history.samples import one, talk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store
    from palaver.stores.records import Head


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
            "talk: message 3: the row is not that of its message",
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


COLUMNS = {
    "messages": "version batch at role rank n_system n_assistant time replaces hash key id "
    "to_latest",
    "journal": "version kind at first count stop data key frame hash",
    "conversations": "version stop length n_system framed size base origin title tags created "
    "updated erased hash",
    "records": "kind name value hash",
}


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, columns in COLUMNS.items() for column in columns.split()],
)
def test_no_column_can_be_changed_unnoticed(path: Path, table: str, column: str) -> None:
    """Whatever it says: one more than it was, or something else."""
    with palaver.open(path) as store:
        history = store.create(talk("s0 u1"), id="talk", title="Tea", tags=["hot"])
        history.append(one("u2"), key="k1")
        history.extend(talk("a3 t4"), key="k2")
        history.replace(1, one("u5"))
        store.backend.put("talk", "draft", "d", b"x")
        history.fork(id="fork").append(one("u6"))
    connection = apsw.Connection(str(path))
    last = {"messages": "seq = 3", "journal": "version = 3"}.get(table, "cid = 1")
    odd = {"tags": "'[]'", "value": "x'00'", "data": "'{}'", "frame": "NULL"}.get(
        column,
        f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' ELSE ifnull({column}, 0) + 1 END",
    )
    connection.execute(f"UPDATE {table} SET {column} = {odd} WHERE cid = 1 AND {last}")  # noqa: S608 - from the list above
    assert 1 == connection.changes()
    connection.close()
    with palaver.open(path) as store:
        assert [] != list(store.verify("talk"))


def test_many_are_looked_at_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proving asks for a thousand messages at once, and for none by itself."""
    history = store.create(id="talk")
    history.extend(one(f"u{number}") for number in range(2_500))
    asked: list[str] = []

    def count(name: str) -> None:
        method = getattr(store.backend, name)

        def counted(*values: Any) -> Any:  # noqa: ANN401 - handed on
            asked.append(name)
            return method(*values)

        monkeypatch.setattr(store.backend, name, counted)

    for name in ("before", "befores", "messages", "damaged", "journal", "stop", "frames"):
        count(name)
    seen: list[tuple[int, int | None]] = []
    assert [] == list(store.verify(progress=lambda *said: seen.append(said)))
    assert len(asked) < 20, asked
    assert (2_502, 2_502) == seen[-1]
    assert sorted(seen) == seen


def test_what_merges_need_is_looked_at(store: Store) -> None:
    store.create(id="talk")
    store.backend.put("talk", "names", "fork", b"[[1, 2], nonsense")
    with pytest.raises(StoreDamaged, match="has from elsewhere can't be read"):
        store.get("talk")
    assert [] != [problem for problem in store.verify() if "from elsewhere" in problem]


def test_an_index_that_does_not_know_how_far_it_goes_is_damaged(path: Path) -> None:
    damage(path, "INSERT INTO indexing VALUES (7)")
    with palaver.open(path) as store, pytest.raises(StoreDamaged, match="search index"):
        store.search("tea")


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


@pytest.mark.parametrize("byte", [b"\xff", b"X", b"\0"])
def test_a_byte_that_changed_is_found_in_its_message(path: Path, byte: bytes) -> None:
    """Also where the text is none any more."""
    with palaver.open(path) as store:
        store.create(
            [one(f"u{number}", f"This is number {number}.") for number in range(9)], id="talk"
        )
        store.create(id="another")
    content = path.read_bytes()
    assert 1 == content.count(b"This is number 5.")
    path.write_bytes(content.replace(b"This is number 5.", b"This is " + byte + b"umber 5."))
    with palaver.open(path) as store:
        assert ["talk: message 5: the row is not what was written"] == list(store.verify())


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


def test_what_is_deleted_meanwhile_is_no_damage(open_store: Callable[[], Store]) -> None:
    with open_store() as store, open_store() as other:
        for name in ("one", "two", "three"):
            store.create(talk("u1 a2"), id=name)

        def delete(*_: object) -> None:  # the one under check, and those whose turn comes
            for name in ("one", "two", "three"):
                with suppress(UnknownConversation):
                    other.delete(name)

        assert [] == list(store.verify(progress=delete))
        assert [] == list(store)


def test_another_conversation_of_the_same_name_is_verified_as_it_is(
    open_store: Callable[[], Store],
) -> None:
    with open_store() as store, open_store() as other:
        parent = store.create(talk("u1 a2"), id="talk")
        parent.fork(id="fork").append(one("u3"))
        assert [] == list(store.verify())
        file = io.BytesIO()
        export_conversation(other, "fork", file)
        other.delete("fork")
        file.seek(0)
        import_conversation(other, file)  # with all messages as its own
        assert other.head("fork").parent is None
        assert [] == list(store.verify())


def test_what_is_listed_and_can_not_be_found_is_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(talk("u1 a2"), id="talk")

    def head(conversation: str) -> Head:
        refuse_unknown(conversation)

    monkeypatch.setattr(store.backend, "head", head)
    assert ["talk: is in the list of conversations, and can't be found"] == list(store.verify())


@pytest.mark.parametrize("tags", [7, "7", "no JSON"])
def test_tags_of_another_type_are_damage(path: Path, tags: object) -> None:
    with palaver.open(path) as store:
        store.create(id="talk", tags=["tea"])
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE conversations SET tags = ?", (tags,))
    with palaver.open(path) as store, pytest.raises(StoreDamaged):
        store.head("talk")
