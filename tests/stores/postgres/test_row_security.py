"""With row security, a connection of one owner can neither see nor change anything of another's.

Every public method of a store and of a history is tried: one that is added later has to be tried,
too, or these tests fail.
"""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

import palaver
from palaver.cli.app import app as program
from palaver.errors import EncryptionError, PalaverError, StoreError, UnknownConversation
from palaver.messages import user
from palaver.stores import Store, StoredHistory
from palaver.stores.postgres import PostgresBackend
from palaver.stores.transfer import import_archive
from palaver.testing import store_conformance
from palaver.testing.stores.suite import dump_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "the door code is 4711"  # noqa: S105 - nobody's
GRANTS = """
DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT USAGE ON SCHEMA palaver TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA palaver TO app;
"""


@pytest.fixture
def admin(postgres: str) -> Iterator[Store]:
    """The store as its administrator has it, with row security on."""
    with palaver.open(postgres) as store:
        store.secure_rows()
        with psycopg.connect(postgres, autocommit=True) as line:
            line.execute(GRANTS)
        yield store


@pytest.fixture
def app(admin: Store, postgres: str) -> str:
    """The address for a role that row security binds."""
    del admin
    return postgres.replace("postgres@", "app@", 1)


@pytest.fixture
def anna(app: str) -> Iterator[Store]:
    with palaver.open(app, owner="anna") as store:
        yield store


@pytest.fixture
def jim(app: str) -> Iterator[Store]:
    with palaver.open(app, owner="jim") as store:
        yield store


def test_each_owner_has_a_store_of_its_own(admin: Store, anna: Store, jim: Store) -> None:
    hers = anna.create([user(SECRET)], id="hers", title="Hers")
    his = jim.create([user("his own")], id="his")
    fork = hers.fork(id="fork")
    fork.append(user("more"))
    hers.merge(fork)
    hers.erase(1)
    assert ("anna", "jim", "anna") == (hers.owner, his.owner, fork.owner)
    assert {"hers", "fork"} == {head.id for head in anna}
    assert {"his"} == {head.id for head in jim}
    assert {"hers", "fork", "his"} == {head.id for head in admin}
    assert [] == jim.search("door")
    assert 1 == len(anna.search("door"))
    assert 1 == len(jim.search("own"))
    assert 1 == len(admin.search("door"))
    jim.get("his").append(user("late words of jim"))
    assert 1 == len(jim.search("late"))
    anna.get("hers").append(user("late words of anna"))
    assert 1 == len(anna.search("late"))
    assert 2 == len(admin.search("late"))
    assert [] == list(anna.verify())
    assert [] == list(admin.verify())
    assert {"his"} == {change.conversation for change in jim.follow(after=0, seconds=0)}
    anna.delete("fork")
    anna.delete("hers")
    assert {"his"} == {head.id for head in admin}
    assert [] == list(admin.verify())


def test_an_owner_expires_what_is_its_own(
    admin: Store, anna: Store, jim: Store, tmp_path: Path
) -> None:
    """A role that may not clean up the tables can expire all the same."""
    for store, name in ((anna, "anna"), (jim, "jim")):
        for number in range(30):
            store.with_clock(lambda: 1_000).create([user("old")], id=f"{name}{number}")
        store.create([user("new")], id=f"{name}s")
    found = anna.expire(timedelta(days=1), archive=tmp_path / "hers.jsonl")
    assert (30, 30) == (found.conversations, len(import_archive(admin, tmp_path / "hers.jsonl")))
    assert 30 == anna.expire(timedelta(days=1)).conversations
    assert {"annas"} == {head.id for head in anna}
    assert 31 == len(list(jim))
    assert [] == list(admin.verify())


@pytest.mark.parametrize("check", store_conformance.checks[::25], ids=str)
def test_a_store_of_an_owner_keeps_the_promises_of_every_store(
    check: Callable[..., None], app: str
) -> None:
    """Those that speak of other owners are refused what they want to do."""
    with suppress(StoreError):
        check(lambda: palaver.open(app, owner="anna"))


# ── every call ──────────────────────────────────────────────────────────────────────────────────

NAME = "hers"
HARMLESS = {
    "close", "kind", "migrated", "examine", "distribute", "secure_rows", "with_clock",
    "wait", "newest", "encrypted", "encrypt", "decrypt",
}  # fmt: skip
"""What says nothing of a conversation; `newest` is a number, and
`encrypt` and `decrypt` are refused: see below."""
STORE: dict[str, Callable[[Store], object]] = {
    "create": lambda s: s.create([user("x")], id=NAME),
    "get": lambda s: s.get(NAME, last=20).messages,
    "head": lambda s: s.head(NAME),
    "list": lambda s: (s.list(), s.list(owner="anna"), s.list(tag="hers")),
    "each": lambda s: (list(s), list(s.each(owner="anna"))),
    "named": lambda s: s.named(""),
    "describe": lambda s: s.describe(NAME, title="changed"),
    "set_owner": lambda s: s.set_owner(NAME, "jim"),
    "delete": lambda s: s.delete(NAME),
    "prune": lambda s: s.prune(NAME),
    "expire": lambda s: s.with_clock(lambda: 10**15).expire(timedelta(0)),
    "erase_owner": lambda s: s.erase_owner("anna"),
    "check_receipt": lambda s: list(s.check_receipt(s.erase_owner("anna"))),
    "search": lambda s: (s.search("door"), s.search("door", owner="anna"),
                         s.search("door", conversation=NAME)),
    "find_positions": lambda s: s.find_positions(NAME, "secret"),
    "messages": lambda s: s.messages(NAME, 0, 9),
    "keys": lambda s: s.keys(NAME, -1, 9),
    "family": lambda s: s.family(NAME),
    "forks": lambda s: s.forks(NAME),
    "generation": lambda s: s.generation(NAME),
    "records": lambda s: s.records(NAME, "draft"),
    "kinds": lambda s: s.kinds(NAME),
    "put_record": lambda s: s.put_record(NAME, "draft", "d", b"changed"),
    "put_records": lambda s: s.put_records(NAME, [("draft", "d", None)]),
    "follow": lambda s: (list(s.follow(after=0, seconds=0)),
                         list(s.follow(NAME, after=-1, seconds=0))),
    "journal": lambda s: (s.journal(None, 0, 100), s.journal(NAME, -1, 100)),
    "lease": lambda s: s.lease(NAME, "jim"),
    "begin_work": lambda s: s.begin_work(NAME, "jim", kinds=["draft"]),
    "release": lambda s: s.release(palaver.stores.Lease(NAME, "anna", 1, 0, 1)),
    "verify": lambda s: list(s.verify()),
    "notes": lambda s: list(s.notes()),
}  # fmt: skip
HISTORY: dict[str, Callable[[StoredHistory], object]] = {
    "append": lambda h: h.append(user("changed")),
    "extend": lambda h: h.extend([user("changed")]),
    "execute": lambda h: h.execute({"type": "clear"}),
    "insert": lambda h: h.insert(0, [user("changed")]),
    "replace": lambda h: h.replace(0, user("changed")),
    "truncate": lambda h: h.truncate(keep_first=1),
    "clear": lambda h: h.clear(),
    "filter": lambda h: h.filter(roles=["assistant"]),
    "rewrite": lambda h: h.rewrite([(0, user("changed"))]),
    "replace_all": lambda h: h.replace_all([user("changed")], team_task=None),
    "rollback": lambda h: h.rollback(0),
    "undo": lambda h: h.undo(),
    "redo": lambda h: h.redo(),
    "restore": lambda h: h.restore(0),
    "merge": lambda h: h.merge(h),
    "mark": lambda h: h.mark(0, "changed"),
    "unmark": lambda h: h.unmark(0, "hers"),
    "set_team_task": lambda h: h.set_team_task("changed"),
    "erase": lambda h: h.erase(0),
    "fork": lambda h: h.fork(id="stolen"),
    "refresh": lambda h: h.refresh(),
    "messages": lambda h: h.messages,
    "query": lambda h: h.query(text="door"),
    "by_role": lambda h: h.by_role("user"),
    "recent": lambda h: h.recent(5),
    "range": lambda h: h.range(0, 5),
    "at": lambda h: list(h.at(1)),
    "diff": lambda h: h.diff(0, 1),
    "batch_snapshot": lambda h: h.batch_snapshot(0),
    "view": lambda h: list(h.view),
    "log": lambda h: list(h.log),
}


def public(kind: type) -> set[str]:
    """The public methods and properties of a class, without the async twins of others."""
    names = {name for name in dir(kind) if not name.startswith("_")}
    return {
        name for name in names
        if not (name[0] == "a" and inspect.iscoroutinefunction(getattr(kind, name)))
    }  # fmt: skip


def test_every_public_method_of_a_store_is_tried() -> None:
    assert public(Store) == STORE.keys() | HARMLESS


def test_who_sees_one_owner_can_not_change_how_all_is_stored(jim: Store) -> None:
    with pytest.raises(StoreError, match="opened for an owner"):
        jim.encrypt(palaver.Key.generate())
    with pytest.raises(StoreError, match="opened for an owner"):
        jim.decrypt()
    assert not jim.encrypted


def test_an_owner_can_not_begin_to_encrypt_a_store(admin: Store, app: str) -> None:
    admin.create([user(SECRET)], owner="jim")  # plain text that anna does not see
    for key in (palaver.Key.generate(), [palaver.Key.generate()]):
        with pytest.raises(EncryptionError, match="not encrypted"):
            palaver.open(app, owner="anna", key=key)
    assert not admin.encrypted
    key = palaver.Key.generate()
    admin.encrypt(key)
    with palaver.open(app, owner="anna", key=key) as anna:
        assert [SECRET] == [anna.create([user(SECRET)])[0].text]
    assert [] == list(admin.verify())


def test_every_public_method_of_a_history_is_tried_or_reads_what_it_has() -> None:
    """What is left reads numbers and names that were in memory before."""
    known = {
        "after_fork_in_child", "batch_index", "batches", "can_redo", "can_undo", "count", "ends",
        "head", "id", "index", "listen", "mark_map", "marks", "marks_of", "origin", "owner",
        "price", "state", "stats", "tags", "team_task", "title", "under", "version",
    }  # fmt: skip
    assert public(StoredHistory) <= HISTORY.keys() | known, public(StoredHistory) - HISTORY.keys()


def prepared(store: Store, name: str = NAME) -> StoredHistory:
    return store.create([user("hello", id="hello")], id=name, title="Hers", tags=["hers"])


def seal(admin: Store, name: str = NAME) -> tuple[Any, ...]:
    """Everything there is of a conversation."""
    return (
        dump_history(admin.get(name)), admin.head(name), admin.family(name),
        admin.records(name, "draft"), list(admin.verify(name)),
    )  # fmt: skip


def test_no_call_of_a_store_reaches_another_owners(admin: Store, anna: Store, jim: Store) -> None:
    hers = prepared(anna)
    hers.append(user(SECRET, id="secret"), key="a key")
    anna.put_record(NAME, "draft", "d", SECRET.encode())
    anna.lease(NAME, "anna")
    before = seal(admin)
    for way, call in STORE.items():
        try:
            found: Any = call(jim)
        except PalaverError as error:
            found = str(error).replace(repr(NAME), "…")  # as it was asked for
        assert "4711" not in repr(found), way
        assert NAME not in repr(found), way
        assert before == seal(admin), way


def test_no_call_of_a_history_reaches_what_was_given_to_another(admin: Store, anna: Store) -> None:
    """One that was opened before: what was read is known, what came after is not."""
    for way, call in HISTORY.items():
        held = prepared(anna, f"hers {way}")
        held.mark(0, "hers")
        admin.set_owner(held.id, "jim")
        admin.get(held.id).append(user(SECRET, id="secret"))
        before = seal(admin, held.id)
        try:
            found: Any = call(held)
        except PalaverError as error:
            found = error
        assert "4711" not in repr(found), way
        assert before == seal(admin, held.id), way


def test_no_statement_of_such_a_connection_reaches_another_owners(
    admin: Store, anna: Store, jim: Store, app: str
) -> None:
    prepared(anna).append(user(SECRET))
    anna.put_record(NAME, "draft", "d", SECRET.encode())
    anna.search("door")
    jim.create(id="his")
    before = seal(admin)
    with psycopg.connect(app) as line:
        line.execute("SELECT set_config('palaver.owner', 'jim', true)")
        query = (
            "SELECT relname FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = 'palaver'::regnamespace"
        )
        tables = [name for (name,) in line.execute(query).fetchall()]
        assert {"conversations", "messages", "journal", "records", "words", "names", "indexing",
                "store"} == {*tables}  # fmt: skip
        for table in tables:
            rows = repr(line.execute(f"TABLE palaver.{table}".encode()).fetchall())
            assert "4711" not in rows
            assert "hers" not in rows
            assert "anna" not in rows
            line.execute(f"DELETE FROM palaver.{table}".encode())  # noqa: S608 - a table of ours
        line.execute("SELECT * FROM palaver.open_conversation('hers', 20)")
        line.commit()
    assert before == seal(admin)
    with psycopg.connect(app, autocommit=True) as line:  # and without the setting, nothing at all
        for table in ("conversations", "messages", "journal", "records", "words", "names"):
            assert [] == line.execute(f"TABLE palaver.{table}".encode()).fetchall()
            with pytest.raises(psycopg.Error):
                line.execute("INSERT INTO palaver.names VALUES ('new', 'hers')")
        for statement in (
            "INSERT INTO palaver.records VALUES ('hers', 'draft', 'x', 'x', 0, 'hers')",
            "INSERT INTO palaver.conversations SELECT * FROM palaver.conversations",
            "SET row_security = off; SELECT * FROM palaver.messages",
        ):
            with psycopg.connect(app, autocommit=True) as other, suppress(psycopg.Error):
                other.execute(statement.encode())
    assert before == seal(admin)


def test_every_table_has_a_policy_and_binds_the_tables_owner(admin: Store, postgres: str) -> None:
    query = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'palaver'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity AND EXISTS "
        "(SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid))"
    )
    definer = (
        "SELECT proname FROM pg_proc WHERE pronamespace = 'palaver'::regnamespace AND prosecdef"
    )
    with psycopg.connect(postgres) as line:
        assert [] == line.execute(query).fetchall()
        assert [] == line.execute(definer).fetchall()
        admin.secure_rows(on=False)
        assert 8 == len(line.execute(query).fetchall())
        admin.secure_rows()
        admin.secure_rows()
        assert [] == line.execute(query).fetchall()


# ── opening ─────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_can_be_named_in_the_address(anna: Store, app: str) -> None:
    anna.create(id="hers")
    joint = "&" if "?" in app else "?"
    with palaver.open(f"{app}{joint}owner=anna") as store:
        assert ["hers"] == [head.id for head in store]
        backend = store.backend
        assert isinstance(backend, PostgresBackend)
        assert "anna" == backend.owner
    with pytest.raises(StoreError, match="another owner"):
        palaver.open(f"{app}{joint}owner=anna", owner="jim")


def test_a_store_that_would_show_everything_is_not_opened_for_an_owner(
    admin: Store, postgres: str, app: str
) -> None:
    with pytest.raises(StoreError, match="role postgres is not bound"):
        palaver.open(postgres, owner="anna")
    with pytest.raises(StoreError, match="open it with an owner"):
        palaver.open(app)
    admin.secure_rows(on=False)
    with pytest.raises(StoreError, match="--row-security"):
        palaver.open(app, owner="anna")
    palaver.open(app).close()
    for address in (":memory:", "chat.db"):
        with pytest.raises(StoreError, match="only a store in PostgreSQL"):
            palaver.open(address, owner="anna")
        with pytest.raises(StoreError, match="no row security"):
            palaver.open(":memory:").secure_rows()


def test_what_would_be_out_of_sight_keeps_row_security_off(postgres: str) -> None:
    with palaver.open(postgres) as store:
        store.create(id="nobodys")
        with pytest.raises(StoreError, match="'nobodys' would be out of sight"):
            store.secure_rows()
        store.set_owner("nobodys", "anna")
        fork = store.get("nobodys").fork(id="fork", owner="jim")
        with pytest.raises(StoreError, match="'fork' would be out of sight"):
            store.secure_rows()
        store.set_owner(fork.id, "anna")
        store.secure_rows()
        store.secure_rows(on=False)


def test_the_setting_ends_with_the_transaction(anna: Store, app: str) -> None:
    """What a pooler gives to the next one has no owner."""
    hers = anna.create([user("one")])
    hers.append(user("two"))
    with pytest.raises(UnknownConversation):
        anna.get("nothing")
    backend: Any = anna.backend
    found = backend._connections.run(
        lambda line: psycopg.Connection.execute(
            line, "SELECT current_setting('palaver.owner', true)"
        ).fetchone()
    )
    assert found in {("",), (None,)}
    del app


def test_a_command_turns_it_on_and_off(postgres: str) -> None:
    for flag, said in (("--row-security", "on"), ("--no-row-security", "off")):
        result = CliRunner().invoke(program, ["migrate", flag, "--store", postgres])
        assert f"row security is {said}" in result.output
    result = CliRunner().invoke(
        program, ["migrate", "--row-security", "--store", postgres, "--json"]
    )
    assert json.loads(result.stdout)["rowSecurity"] is True
