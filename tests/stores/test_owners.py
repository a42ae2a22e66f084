"""Whom a conversation belongs to: it is stored, listed, searched, carried along, and refused."""

from __future__ import annotations

import io
from itertools import count
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest

import palaver
from palaver.errors import UnknownConversation, ValidationError, VersionMismatch
from palaver.messages import user
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.sqlite.connections import QUERIES
from palaver.stores.transfer import copy_conversations, export_conversation, import_conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store


def ids(store: Store, **limits: Any) -> list[str]:  # noqa: ANN401 - what `list` takes
    return sorted(head.id for head in store.list(**limits).conversations)


def test_an_owner_is_stored_with_the_conversation(open_store: Callable[[], Store]) -> None:
    with open_store() as store:
        assert "anna" == store.create([user("tea")], id="tea", owner="anna").owner
        assert store.create(id="rum").owner is None
    with open_store() as store:
        assert ("anna", "anna") == (store.head("tea").owner, store.get("tea").owner)
        assert store.get("rum", last=5).owner is None
        assert [] == list(store.verify())


def test_a_listing_and_a_search_can_be_of_one_owner(store: Store) -> None:
    store = store.with_clock(count(1_700_000_000_000).__next__)
    for number in range(7):
        owner = ("anna", "jim", None)[number % 3]
        store.create([user(f"tea {number}")], id=f"c{number}", owner=owner, tags=["hot"][:number])
    store.get("c3").append(user("more tea"))
    assert ["c0", "c3", "c6"] == ids(store, owner="anna")
    assert ["c3", "c6"] == ids(store, owner="anna", tag="hot")
    assert [] == ids(store, owner="nobody")
    page = store.list(owner="anna", limit=2)
    assert "c3" == page.conversations[0].id
    assert 1 == len(store.list(owner="anna", limit=2, after=page.next).conversations)
    assert {"c0", "c3", "c6"} == {hit.conversation for hit in store.search("tea", owner="anna")}
    assert {"c1", "c4"} == {hit.conversation for hit in store.search("tea", owner="jim")}
    assert [] == store.search("tea", owner="jim", conversation="c0")
    assert 1 == len(store.search("tea", owner="anna", conversation="c0"))
    assert 8 == len(store.search("tea"))


def test_a_fork_belongs_to_its_parents_owner_unless_told_otherwise(store: Store) -> None:
    parent = store.create([user("tea")], id="tea", owner="anna", title="Tea")
    assert "anna" == parent.fork(id="f1").owner
    assert ("jim", "Tea") == ((other := parent.fork(id="f2", owner="jim")).owner, other.title)
    store.set_owner("tea", "max")  # behind the back of the one who holds the parent
    assert ("max", "max") == (parent.fork(id="f3").owner, store.head("f3").owner)
    assert ["f1"] == ids(store, owner="anna")
    assert [] == list(store.verify())


def test_the_owner_changes_and_the_index_follows(store: Store) -> None:
    store.create([user("tea")], id="tea", owner="anna")
    history = store.get("tea")
    store.set_owner("tea", "jim", expect=0)
    assert ("jim", 0) == (history.refresh().owner, history.version)
    history.append(user("more"))
    assert ([], ["tea"]) == (ids(store, owner="anna"), ids(store, owner="jim"))
    with pytest.raises(VersionMismatch):
        store.set_owner("tea", "anna", expect=0)
    with pytest.raises(UnknownConversation):
        store.set_owner("rum", "anna")
    store.describe("tea", title="Tea")
    assert ("jim", "Tea") == ((head := store.head("tea")).owner, head.title)
    store.get("tea").erase(0)
    store.set_owner("tea", None)
    assert [] == ids(store, owner="jim")
    assert [] == list(store.verify())


@pytest.mark.parametrize("wrong", ["", "a\nb", "x" * 10_000, 7, b"anna", ["anna"]])
def test_a_wrong_owner_is_refused_where_it_is_given(wrong: Any) -> None:  # noqa: ANN401 - what is wrong
    store = palaver.open(":memory:")
    history = store.create([user("tea")], id="tea")
    ways: list[Callable[[], object]] = [
        lambda: store.create(owner=wrong),
        lambda: store.list(owner=wrong),
        lambda: store.search("tea", owner=wrong),
        lambda: store.set_owner("tea", wrong),
        lambda: history.fork(owner=wrong),
    ]
    for way in ways:
        with pytest.raises(ValidationError) as caught:
            way()
        assert "$.owner" == caught.value.path
    assert ["tea"] == ids(store)


@pytest.mark.parametrize("form", ["lines", "document"])
def test_an_owner_is_carried_by_export_import_and_copy(store: Store, form: Any) -> None:  # noqa: ANN401 - a form
    store.create([user("tea")], id="tea", owner="anna")
    file, there = io.BytesIO(), palaver.open(":memory:")
    export_conversation(store, "tea", file, form=form)
    file.seek(0)
    assert "anna" == import_conversation(there, file, id="tea2").owner
    copy_conversations(store, there)
    assert ["tea", "tea2"] == ids(there, owner="anna")
    store.set_owner("tea", "jim")
    copy_conversations(store, there)
    assert ["tea"] == ids(there, owner="jim")


def test_a_changed_owner_behind_the_stores_back_is_found_by_verify(path: Path) -> None:
    with palaver.open(path) as store:
        store.create(id="tea", owner="anna")
        store.create(id="rum")
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE conversations SET owner = 'jim'")
    with palaver.open(path) as store:
        assert 2 == len(list(store.verify()))


# ── what must not grow ──────────────────────────────────────────────────────────────────────────


def test_a_page_of_an_owner_is_a_range_of_an_index_in_sqlite(path: Path) -> None:
    steps: dict[int, int] = {}
    for many in (100, 1000):
        with palaver.open(path) as store:
            for number in range(len(list(store)), many):
                store.create(id=f"c{number}", owner="anna" if number < 5 else f"o{number}")
            store.list(owner="anna")
        with apsw.Connection(str(path)) as connection:
            query = QUERIES["list_of_owner"]
            values = (2**60, "\U0010ffff", None, 50, "anna", None)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
            assert any("conversations_owner (owner=? AND" in step for step in plan), plan
            assert not any("SCAN c" in step or "TEMP B-TREE" in step for step in plan), plan
            cursor = connection.cursor()
            found = list(cursor.execute(query, values))
            assert 5 == len(found)
            steps[many] = connection.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)[0]
    assert steps[1000] < 3 * steps[100]


def test_a_page_of_an_owner_is_a_range_of_an_index_in_postgres(postgres: str) -> None:
    read: dict[int, int] = {}
    with palaver.open(postgres) as store:
        for many in (100, 1000):
            for number in range(len(list(store)), many):
                store.create(id=f"c{number}", owner="anna" if number < 5 else f"o{number}")
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute("ANALYZE palaver.conversations")
                connection.execute("SET enable_seqscan = off")  # few rows are read all at once
                connection.execute("SET enable_bitmapscan = off")
                query = STATEMENTS["listing_of_owner"]
                ((plan,),) = connection.execute(
                    b"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) " + query,
                    {
                        "owner": "anna",
                        "updated": 2**60,
                        "id": "\U0010ffff",
                        "tag": None,
                        "without": [],
                        "limit": 50,
                    },
                ).fetchall()
            (sort,) = plan[0]["Plan"]["Plans"]
            assert "Incremental Sort" == sort["Node Type"]
            assert ["owner", "span"] == sort["Presorted Key"]
            (node,) = sort["Plans"]
            assert ("Index Scan", "conversations_owner") == (node["Node Type"], node["Index Name"])
            assert 5 == node["Actual Rows"]
            read[many] = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    assert read[1000] < 3 * read[100]
