"""A store that an earlier palaver wrote opens with everything in it, and can be verified."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest
from psycopg import sql

import palaver
from palaver.errors import LeaseTaken
from palaver.messages import assistant, user
from palaver.messages.codec import PART_TYPES
from palaver.messages.ids import uuid_for
from palaver.stores.backend import load_migrations
from palaver.stores.sqlite.connections import migrate
from tests.history.samples import one
from tests.stores.frozen import DATA, contents, fill
from tests.test_scale import statements

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store

OF_SQLITE = ["schema-1", "schema-2", "schema-5", "schema-7"]
OF_POSTGRES = ["schema-1", "schema-2", "schema-3", "schema-6", "schema-7", "schema-8", "schema-9"]
FIRST_TIME = 1_700_000_000_000


def expected(schema: str) -> dict[str, Any]:
    """What was stored; a part that named another message is read as its own message's."""
    found: dict[str, Any] = json.loads((DATA / f"{schema}.json").read_text("utf-8"))
    own_parts(found)
    return found


def own_parts(value: Any) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, dict) and "role" in value and isinstance(value.get("content"), list):
        for part in value["content"]:
            if part["type"] in PART_TYPES:  # of another type it is written as it was read
                part["messageID"] = uuid_for(value["id"])
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            own_parts(inner)


def thawed(schema: str, path: Path) -> Path:
    """The SQLite file, as it was stored."""
    path.write_bytes(gzip.decompress((DATA / f"{schema}.db.gz").read_bytes()))
    return path


def restored(schema: str, address: str) -> str:
    """The PostgreSQL database, from its dump."""
    with psycopg.connect(address, autocommit=True) as line:
        line.execute((DATA / f"{schema}.sql").read_bytes())
    return address


STORED = [("sqlite", schema) for schema in OF_SQLITE] + [("postgres", s) for s in OF_POSTGRES]


@pytest.fixture
def thaw(request: pytest.FixtureRequest, path: Path) -> Callable[[str, str], str]:
    """What restores a stored file or dump of a kind of store, and returns its address."""

    def restore(kind: str, schema: str) -> str:
        if kind == "sqlite":
            return str(thawed(schema, path))
        return restored(schema, request.getfixturevalue("postgres"))

    return restore


@pytest.mark.parametrize(("kind", "schema"), STORED)
def test_a_store_of_every_schema_opens_with_everything_in_it(
    thaw: Callable[[str, str], str], kind: str, schema: str
) -> None:
    address = thaw(kind, schema)
    package = "palaver.stores.postgres" if "://" in address else "palaver.stores.sqlite"
    with palaver.open(address) as store:
        assert (
            int(schema.removeprefix("schema-")), load_migrations(package)[-1][0],
        ) == store.backend.migrated  # fmt: skip
        assert expected(schema) == json.loads(json.dumps(contents(store)))
        assert [] == list(store.verify())
        assert 3 == store.lease("talk", "worker 3").token  # that of worker 2 ran out long ago
        with pytest.raises(LeaseTaken, match="worker 3"):
            store.lease("talk", "worker 4")


@pytest.mark.parametrize(("kind", "schema"), STORED)
def test_a_store_of_every_schema_can_be_used(
    thaw: Callable[[str, str], str], kind: str, schema: str
) -> None:
    with palaver.open(thaw(kind, schema)) as store:
        history = store.get("talk")
        history.append(one("u90", "tea, again"))
        history.insert(0, [one("s91")])
        assert "a18" == history.append(one("u92"), key="third key").id
        history.erase("a18")
        store.describe("deeper", title="Deep", tags=())
        store.get("deeper").fork(id="deepest").append(one("u93"))
        store.backend.put("talk", "draft", "d1", b"whole")
        assert {"u90"} == {hit.message.id for hit in store.search("tea again")}
        assert {"a3"} == {hit.message.id for hit in store.search("喝茶")}
        assert [] == list(store.verify())
        store.delete("deepest")
        assert [] == list(store.verify())


@pytest.mark.parametrize("schema", OF_POSTGRES)
def test_a_family_has_its_first_ancestor_in_every_row(postgres: str, schema: str) -> None:
    """So that all its rows lie on one shard, also those of forks of forks."""
    palaver.open(restored(schema, postgres)).close()
    with psycopg.connect(postgres) as line:
        names = line.execute("SELECT id, root FROM palaver.names").fetchall()
        roots = {"talk": "talk", "fork": "talk", "deeper": "talk"}
        assert roots | {"empty": "empty", "imported": "imported"} == dict(names)
        assert sorted(names) == sorted(line.execute("SELECT id, root FROM palaver.conversations"))
        for table in ("messages", "journal", "records", "words"):
            query = sql.SQL("SELECT DISTINCT conversation, root FROM palaver.{}")
            found = line.execute(query.format(sql.Identifier(table))).fetchall()
            assert {*found} <= {*names}, table


def test_damaged_rows_do_not_keep_a_store_from_its_migration(postgres: str) -> None:
    """Forks without a parent, or in a circle, and messages without a conversation."""
    restored("schema-3", postgres)
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("UPDATE palaver.conversations SET parent = 'lost' WHERE id = 'deeper'")
        line.execute("UPDATE palaver.conversations SET parent = 'fork' WHERE id = 'fork'")
        line.execute("UPDATE palaver.messages SET conversation = 'nobody' WHERE id = 'u16'")
    with palaver.open(postgres) as store:
        assert 5 == len(list(store))
        assert any("nobody" in problem for problem in store.verify())
    with psycopg.connect(postgres) as line:
        names = {"deeper": "deeper", "fork": "fork", "talk": "talk"}
        assert names.items() <= dict(line.execute("SELECT id, root FROM palaver.names")).items()


def test_a_partitioned_store_of_the_schema_before_is_migrated(postgres: str) -> None:
    """Its indexes have other names there."""
    restored("schema-7", postgres)
    with psycopg.connect(postgres, autocommit=True) as line:
        for table in ("conversations", "messages", "journal", "records", "words", "names"):
            line.execute(sql.SQL("TRUNCATE palaver.{}").format(sql.Identifier(table)))
        line.execute(statements())
    with palaver.open(postgres) as store:
        newest = load_migrations("palaver.stores.postgres")[-1][0]
        assert (7, newest) == store.backend.migrated
        fill(store)
        assert expected("schema-7") == json.loads(json.dumps(contents(store)))
        assert [] == list(store.verify())
    with psycopg.connect(postgres) as line:
        made = "SELECT indexdef FROM pg_indexes WHERE tablename = 'conversations'"
        assert not [row for (row,) in line.execute(made) if "updated" in row]


def test_a_sqlite_store_of_the_second_schema_opens_and_lists_everything(path: Path) -> None:
    with palaver.open(thawed("schema-2", path)) as store:
        assert 2 == store.backend.migrated[0]
        assert expected("schema-2") == json.loads(json.dumps(contents(store)))
        heads = sorted((store.backend.head(name) for name in expected("schema-2")),
                       key=lambda head: (head.updated, head.id), reverse=True)  # fmt: skip
        assert heads == list(store)
        page = store.list(limit=1)
        assert heads[:1] == list(page.conversations)
        assert heads[1:] == list(store.list(after=page.next).conversations)
        store.get("talk").append(one("u90", "tea, again"))
        assert "talk" == store.list(limit=1).conversations[0].id
        assert [] == list(store.verify())


@pytest.mark.parametrize("upto", [3, 4, 5, 6, 7])
def test_what_an_older_schema_holds_is_found_beside_what_is_new(path: Path, upto: int) -> None:
    """By role, id and time: old messages stand in indexes, and new ones in order in none."""
    connection = apsw.Connection(str(thawed("schema-2", path)))
    assert upto == migrate(connection, upto=upto)
    connection.close()
    with palaver.open(path) as store:
        before = store.get("talk").messages
        history = store.get("talk")
        new = [user("new"), assistant("newer")]
        history.extend(new)
        fork = history.fork()
        fork.append(user("newest"))
        assert [*before, *new] == history.messages
        for message in [*before, *new]:
            assert message == history.log[history.view.find(message.id)]
        for role in ("system", "user", "assistant", "tool"):
            assert [m for m in fork.messages if m.role == role] == fork.by_role(role)
        assert [*new, fork[-1]] == list(fork.query(since=new[0].timestamp))
        assert before == list(fork.query(until=new[0].timestamp))
        assert [] == list(store.verify())


def test_an_earlier_palaver_that_has_the_file_open_cannot_write_any_more(path: Path) -> None:
    """Its messages would stand in no index, and not in order."""
    thawed("schema-5", path)
    earlier = apsw.Connection(str(path))
    columns = "cid, seq, version, batch, at, role, ordinal, n_system, n_user, n_assistant, time"
    statement = f"INSERT INTO messages ({columns}, hash, id, body) SELECT {columns}, hash, id, body"
    earlier.execute(f"{statement} FROM messages WHERE 0")
    palaver.open(path).close()
    with pytest.raises(apsw.SQLError, match="ordinal"):
        earlier.execute(f"{statement} FROM messages WHERE 0")
    earlier.close()


def without_times(value: Any) -> Any:  # noqa: ANN401 - JSON
    """JSON without the times of the clock, which is read more or less often over the versions."""
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_times(inner) for inner in value]
    return "a time" if isinstance(value, int) and value >= FIRST_TIME else value


def test_the_stored_files_hold_what_is_written_today(store: Store) -> None:
    fill(store)
    known = expected("schema-5")
    assert without_times(known) == without_times(json.loads(json.dumps(contents(store))))
    assert [] == list(store.verify())


@pytest.mark.parametrize(
    "statement",
    [
        "messages SET body = replace(body, 'says', 'said') WHERE seq = 3",
        "messages SET role = 3 WHERE seq = 3",
        "messages SET time = time + 1 WHERE seq = 3",
        "messages SET id = 'x' WHERE seq = 3",
        "messages SET rank = rank + 100 WHERE seq = 3",
        "messages SET n_user = n_user + 1 WHERE seq = 3",
    ],
)
def test_damage_to_old_rows_is_noticed_where_their_body_tells(path: Path, statement: str) -> None:
    palaver.open(thawed("schema-1", path)).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE {statement} AND cid = 1")
    assert 1 == connection.changes()
    connection.close()
    with palaver.open(path) as store:
        assert [] != list(store.verify("talk"))
