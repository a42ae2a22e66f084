"""Encryption at rest: nothing that was said is in the files, and with the key all is as ever."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import psycopg
import pytest

import palaver
from palaver import Key, assistant, system, user
from palaver.errors import EncryptionError, PalaverError, StoreDamaged, StoreError, ValidationError
from palaver.messages import Message, ReasoningPart, new_id, parse_message, to_dict
from palaver.messages.parts import TextTime
from palaver.stores.encryption import (
    _OPTIONAL,
    _WITHOUT_CONTENT,
    HIDDEN_TITLE,
    EncryptedBackend,
)
from palaver.stores.postgres import PostgresBackend
from palaver.stores.sqlite import SQLiteBackend
from palaver.stores.text_index import SEARCH_IS_OFF
from palaver.stores.transfer import copy_conversations, export_conversation, import_conversation
from palaver.testing import store_conformance
from tests.conversation.scripted import Scripted, calling, saying
from tests.patience import within
from tests.profiles import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from palaver.stores import Store, StoredHistory
    from palaver.testing.stores import Check
    from tests.stores.postgres_server import Server

OLD, NEW, OTHER = (Key(bytes([number]) * 32) for number in (1, 2, 3))


def say_everything(store: Store, word: str) -> StoredHistory:
    """Put a word into every kind of content, with every operation that stores some."""
    history = store.create(
        [system(f"{word} rules"), user(f"{word} question")],
        title=f"{word} title",
        records=[("note", "first", f"{word} record".encode())],
    )
    call = {"type": "tool_use", "tool_use": {"id": "c1", "name": "look", "input": {"at": word}}}
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": word}}
    history.append(parse_message({"role": "assistant", "content": [call]}), key="k1")
    history.extend([parse_message({"role": "tool", "content": [result]}), assistant(f"{word}!")])
    name, part, session = new_id(), new_id(), new_id()
    thought = ReasoningPart(
        id=part, session_id=session, message_id=name, text=f"{word} hm", time=TextTime(5)
    )
    history.append(Message("assistant", (thought,), id=name))
    history.mark(1, f"{word} mark")
    history.set_team_task(f"{word} task")
    history.insert(1, [user(f"{word} inserted")])
    history.replace(2, user(f"{word} replaced"))
    fork = history.fork()
    fork.append(user(f"{word} in a fork"))
    store.describe(fork.id, title=f"{word} fork")
    history.append(user(f"{word} beside it"))
    history.merge(fork)
    history.truncate(keep_last=3)
    history.undo()
    history.append(user(f"{word} undone"))
    history.undo()
    store.prune(history.id)
    gone = history.append(user(f"{word} erased: the code of the door"))
    store.put_record(history.id, "draft", "d", f"{word} erased: the code of the door".encode())
    history.erase(history[-1])
    assert {} == store.records(history.id, "draft"), gone
    store.put_record(history.id, "draft", "d2", f"{word} draft".encode())
    copy = io.BytesIO()
    export_conversation(store, history.id, copy, form="lines")
    copy.seek(0)
    import_conversation(store, copy, id=new_id())
    anyio.run(_ask, store, word)
    return history


async def _ask(store: Store, word: str) -> None:
    """A step with a tool, whose drafts and calls are in the ledger, and one that waits."""

    @palaver.tool(needs_approval=True)
    def look(at: str) -> str:
        """Look."""
        return f"{word} seen at {at}"

    model = Scripted(calling(("look", {"at": word}), text=f"{word} let me see"), saying(f"{word}."))
    talk = palaver.Conversation(store, model=model, tools=[look])
    answer = await talk.ask(f"{word}, where?")
    assert answer.waiting
    broken = Scripted([*saying(f"{word} half")[:1], OSError("cut")])
    with suppress(PalaverError, OSError):  # what came of the answer stays as a draft
        await palaver.Conversation(store, model=broken).ask(f"{word}, and then?")


def contents(store: Store) -> list[Any]:
    """Everything that can be read of a store."""
    return [
        (head, to_dict(list(store.get(head.id).log)), store.get(head.id).team_task,
         dict(store.get(head.id).marks), store.journal(head.id, -1, 1_000),
         {kind: store.records(head.id, kind) for kind in store.kinds(head.id)})
        for head in store
    ]  # fmt: skip


def bytes_in(folder: Path) -> bytes:
    """All bytes of all files in a folder, with those of folders in it."""
    found: list[bytes] = []
    for file in folder.rglob("*"):
        with suppress(OSError):
            if file.is_file():
                found.append(file.read_bytes())
    return b"".join(found)


@pytest.fixture
def word() -> str:
    """A word that nothing else has in it."""
    return f"canary{new_id().replace('-', '')}"


# ── what is on the disk ─────────────────────────────────────────────────────────────────────────


def test_nothing_that_was_said_is_in_the_file_or_its_log(path: Path, word: str) -> None:
    with palaver.open(path, key=NEW) as store:
        say_everything(store, word)
        assert path.with_name("chat.db-wal").stat().st_size > 0
        assert word.encode() not in bytes_in(path.parent)
        assert [] == list(store.verify())
    assert word.encode() not in bytes_in(path.parent)
    with palaver.open(path, key=NEW) as store:
        assert word in repr(contents(store))


def test_nothing_that_was_said_is_on_the_disk_of_the_server(
    postgres: str, postgres_server: Server, word: str
) -> None:
    with palaver.open(postgres, key=NEW) as store:
        say_everything(store, word)
        assert [] == list(store.verify())
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("CHECKPOINT")
    assert word.encode() not in bytes_in(postgres_server.data)


def test_the_hashes_of_rows_do_not_tell_a_text_that_is_guessed(path: Path) -> None:
    with palaver.open(path, key=NEW) as store:
        for _ in range(2):
            store.create([user("yes", id="m1", timestamp=5)], id=new_id())
        backend: Any = store.backend
        rows = [backend.inner.rows.read("hashes", head.id, 0, 1)[0] for head in store]
    assert 2 == len({body for _, body, *_ in rows})


# ── the same as without ─────────────────────────────────────────────────────────────────────────


def _check(check: Check, open_store: Callable[[], Store]) -> None:
    try:
        with within(300):
            check(open_store)
    except EncryptionError as error:
        assert SEARCH_IS_OFF == str(error)  # noqa: PT017 - all other checks pass


@pytest.mark.parametrize("check", store_conformance.checks, ids=str)
def test_an_encrypted_store_keeps_every_promise_but_search(check: Check, path: Path) -> None:
    _check(check, lambda: palaver.open(path, key=NEW))


@pytest.mark.faults
def test_an_encrypted_store_on_a_server_keeps_every_promise_but_search(postgres: str) -> None:
    for check in store_conformance.checks:
        _check(check, lambda: palaver.open(postgres, key=NEW))


def test_copies_between_stores_with_different_keys_are_alike(tmp_path: Path, word: str) -> None:
    with (
        palaver.open(tmp_path / "one.db", key=OLD) as one,
        palaver.open(tmp_path / "other.db", key=NEW) as other,
        palaver.open(tmp_path / "plain.db") as plain,
    ):
        say_everything(one, word)
        copy_conversations(one, other)
        copy_conversations(other, plain)
        assert contents(one)[0][1:4] == contents(other)[0][1:4] == contents(plain)[0][1:4]
        assert [] == [*other.verify(), *plain.verify()]


@pytest.mark.parametrize("where", ["postgres", "path"])
def test_a_fork_has_the_title_that_its_parent_has_by_then(
    where: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(where)
    with palaver.open(address, key=[NEW, OTHER]) as store:
        history = store.create([user("tea?")], title="Tea")
        assert "Tea" == history.fork().title == store.get(history.fork().id).title
        with palaver.open(address, key=[OTHER, NEW]) as another:  # the title is read again there
            another.describe(history.id, title="Rum")
        assert "Rum" == store.get(history.fork().id).title


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_key_conversations_are_listed_and_nothing_is_read_or_written(
    path: Path,
) -> None:
    with palaver.open(path, key=NEW) as store:
        history = store.create([user("tea?")], title="Tea", tags=["hot"], id="talk")
        history.mark(0, "m")
        store.put_record("talk", "note", "n", b"x")
    with palaver.open(path) as store:
        (head,) = store.list(tag="hot").conversations
        assert ("talk", HIDDEN_TITLE, 1) == (head.id, head.title, head.length)
        assert store.encrypted
        assert store.examine().encrypted
        assert ["create", "mark"] == [entry.kind for entry in store.journal("talk", -1, 9)]
        for attempt in (
            lambda: store.get("talk"),
            lambda: store.messages("talk", 0, 1),
            lambda: store.records("talk", "note"),
            lambda: store.create([user("plain")]),
            lambda: store.describe("talk", title="x"),
            lambda: store.put_record("talk", "note", "n", b"y"),
        ):
            with pytest.raises(EncryptionError, match=r"key"):
                attempt()
        assert store.kind == "sqlite"
        with pytest.raises(EncryptionError, match=f"with the key {NEW.id}, and no key was given"):
            store.get("talk")
        with pytest.raises(EncryptionError, match="search is off"):
            store.search("tea")
        store.delete("talk")


def test_another_key_is_refused_by_the_id_of_the_right_one(path: Path) -> None:
    with palaver.open(path, key=NEW) as store:
        store.create([user("tea?")], id="talk")
    with palaver.open(path, key=OTHER) as store:
        expected = f"encrypted with the key {NEW.id}, and the given key is {OTHER.id}"
        with pytest.raises(EncryptionError, match=expected):
            store.get("talk")


def test_a_process_that_opened_the_store_before_is_told_to_open_it_again(path: Path) -> None:
    with palaver.open(path) as before:
        history = before.create([user("tea?")], id="talk")
        fork = history.fork()
        with palaver.open(path) as store:
            store.encrypt(NEW)
        with pytest.raises(EncryptionError, match="open it again with its key"):
            before.get("talk")
        with pytest.raises(EncryptionError, match="open it again with its key"):
            before.get(fork.id)
        with pytest.raises(EncryptionError, match="open it again with its key"):
            before.messages("talk", 0, 1)
        with pytest.raises(EncryptionError, match="search is off"):
            before.search("tea")


def test_a_key_for_a_store_with_plain_text_is_refused(path: Path) -> None:
    with palaver.open(path) as store:
        store.create([user("tea?")])
    with pytest.raises(EncryptionError, match="has plain text in it; encrypt it with"):
        palaver.open(path, key=NEW)
    with palaver.open(path) as store:
        assert not store.encrypted
        assert 1 == len(store.search("tea"))


def test_a_store_in_memory_has_nothing_to_encrypt() -> None:
    with pytest.raises(StoreError, match="can't be encrypted: nothing of it is ever stored"):
        palaver.open(":memory:", key=NEW)
    with palaver.open(":memory:") as store, pytest.raises(StoreError, match="kind memory can't"):
        store.encrypt(NEW)


@pytest.mark.parametrize("key", ["text", b"bytes", Key, [], [NEW, 3], object()])
def test_what_is_no_key_is_refused(path: Path, key: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(ValidationError, match="key"):
        palaver.open(path, key=key)
    assert not path.exists()


@pytest.mark.parametrize("secret", [b"short", "c2hvcnQ=", "x" * 64, "ü", 32, ""])
def test_a_secret_of_another_length_is_refused_and_not_shown(secret: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(ValidationError, match="must be 32 bytes") as refused:
        Key(secret)
    assert not secret or str(secret) not in str(refused.value).replace("32 bytes", "")


def test_a_key_is_read_back_from_its_text_and_never_shown() -> None:
    key = Key.generate()
    assert key.id == Key(key.text).id == Key(key._secret.hex()).id
    assert key.text not in repr(key)
    with pytest.raises(TypeError, match="give its text"):
        pickle.dumps(key)


def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'palaver\[encryption\]'"):
        Key.generate()


class Vault:
    """A cipher of one's own: it asks somebody else, here a key that it has."""

    id = "vault/7"

    def __init__(self) -> None:
        self.asked = 0

    def encrypt(self, data: bytes, bound: bytes) -> bytes:
        self.asked += 1
        return OTHER.encrypt(data, bound)

    def decrypt(self, data: bytes, bound: bytes) -> bytes:
        self.asked += 1
        return OTHER.decrypt(data, bound)


def test_a_cipher_of_ones_own_encrypts(path: Path) -> None:
    vault = Vault()
    with palaver.open(path, key=vault) as store:
        store.create([user("tea?")], id="talk")
        assert "tea?" == store.get("talk")[0].text
    assert vault.asked
    assert b"vault/7" in path.read_bytes()
    vault.id = "v" * 256
    with pytest.raises(ValidationError, match="1 to 255 bytes"):
        palaver.open(path, key=vault)


# ── what somebody changed ───────────────────────────────────────────────────────────────────────


def _exchange(path: Path, table: str, column: str, one: str, other: str) -> None:
    """Put the content of one row into another, behind the store's back."""
    backend = SQLiteBackend(str(path))
    backend._writer.execute(
        f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {other}) WHERE {one}"  # noqa: S608 - from this test
    )
    backend.close()


def test_content_that_was_moved_or_changed_is_damage(path: Path) -> None:
    with palaver.open(path, key=NEW) as store:
        history = store.create([user("one"), user("two")], id="talk")
        history.mark(0, "m")
        store.put_record("talk", "note", "a", b"1")
        store.put_record("talk", "note", "b", b"2")
    _exchange(path, "records", "value", "name = 'a'", "name = 'b'")
    _exchange(path, "journal", "frame", "version = 0", "version = 1")
    backend = SQLiteBackend(str(path))
    first, second = (row[1] for row in backend.rows.read("hashes", "talk", 0, 2))
    moved = second[: second.index('","role')] + first[first.index('","role') :]
    backend._writer.execute("UPDATE messages SET body = ? WHERE seq = 0", (moved,))
    backend._writer.execute('UPDATE messages SET body = \'{"sealed":"!\' WHERE seq = 1')
    backend.close()
    with palaver.open(path, key=NEW) as store:
        with pytest.raises(StoreDamaged, match=f"record can't be decrypted with the key {NEW.id}"):
            store.records("talk", "note")
        with pytest.raises(StoreDamaged, match="frame can't be decrypted"):
            store.get("talk")
        with pytest.raises(StoreDamaged, match="message can't be decrypted"):
            store.messages("talk", 0, 1)
        with pytest.raises(StoreDamaged, match="an encrypted message can't be read"):
            store.messages("talk", 1, 2)
        assert 3 < len(list(store.verify()))


# ── switching on, rotation, and back ────────────────────────────────────────────────────────────


def test_a_file_is_encrypted_its_key_changed_and_made_plain_again(path: Path, word: str) -> None:
    _use_all_keys(str(path), word)


def test_a_database_is_encrypted_its_key_changed_and_made_plain_again(
    postgres: str, word: str
) -> None:
    _use_all_keys(postgres, word)


def _use_all_keys(address: str, word: str) -> None:
    with palaver.open(address) as store:
        say_everything(store, word)
        expected = contents(store)
        assert store.search(word)
        assert store.encrypt(OLD) > 10
        assert expected == contents(store)
        assert 0 == store.encrypt()
    for keys in ([NEW, OLD], [OTHER, NEW]):
        with palaver.open(address, key=keys[1]) as store:
            assert store.encrypt(keys[0]) > 10
            assert expected == contents(store)
            assert [] == list(store.verify())
        with palaver.open(address, key=keys[0]) as store:
            assert expected == contents(store)
            with pytest.raises(EncryptionError, match="search is off"):
                store.search(word)
    with palaver.open(address, key=OTHER) as store:
        assert store.decrypt() > 10
        assert expected == contents(store)
    with palaver.open(address) as store:
        assert expected == contents(store)
        assert not store.encrypted
        assert store.search(word)
        assert [] == list(store.verify())


def test_nothing_is_left_of_the_plain_text(path: Path, word: str) -> None:
    with palaver.open(path) as store:
        say_everything(store, word)
        store.create([user(f"{word} {number} " * 20) for number in range(300)])
        store.search(word)
        assert word.encode() in bytes_in(path.parent)
        store.encrypt(NEW)
        assert word.encode() not in bytes_in(path.parent)
    assert word.encode() not in bytes_in(path.parent)


def test_nothing_is_left_of_the_plain_text_in_the_tables_of_a_server(
    postgres: str, postgres_server: Server, word: str
) -> None:
    with palaver.open(postgres) as store:
        say_everything(store, word)
        store.search(word)
        store.encrypt(NEW)
    with psycopg.connect(postgres, autocommit=True) as line:
        line.execute("CHECKPOINT")
    assert word.encode() not in bytes_in(postgres_server.data / "base")


def test_others_read_and_write_while_the_key_of_a_file_is_changed(path: Path) -> None:
    _change_under_load(str(path))


def test_others_read_and_write_while_the_key_of_a_database_is_changed(postgres: str) -> None:
    _change_under_load(postgres)


def _change_under_load(address: str) -> None:
    with palaver.open(address, key=OLD) as store:
        names = [
            store.create([user(f"{number}")] * 30, id=f"talk-{number}").id for number in range(8)
        ]
    said: dict[str, int] = dict.fromkeys(names, 30)
    problems: list[Exception] = []
    over = threading.Event()

    def work() -> None:
        try:
            with palaver.open(address, key=[NEW, OLD]) as other:
                while not over.is_set():
                    for name in names:
                        other.get(name, last=20).append(user(name))
                        said[name] += 1
                        assert said[name] == len(other.get(name).messages)
        except Exception as error:  # noqa: BLE001 - shown below
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with palaver.open(address, key=[NEW, OLD]) as store:
            assert store.encrypt() >= 8 * 30
    finally:
        over.set()
        thread.join()
    assert [] == problems
    with palaver.open(address, key=NEW) as store:
        assert said == {head.id: len(store.get(head.id).messages) for head in store}
        assert [] == list(store.verify())


KILLED = """
import os, signal, sys
import palaver
from palaver.stores.sqlite.connections import SQLiteConnections

address, moment, new, old = sys.argv[1:]
left = int(moment)
write = SQLiteConnections.write

def counted(self, work, **options):
    global left
    left -= 1
    if left < 0 and int(moment) % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    done = write(self, work, **options)
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

SQLiteConnections.write = counted
with palaver.open(address) as store:
    store.encrypt([palaver.Key(new), palaver.Key(old)])
"""


@pytest.fixture
def moments() -> Iterator[int]:
    """When to kill: after how many transactions."""
    return iter(range(steps(4, in_faults=60)))


def test_killed_at_any_moment_another_run_does_the_rest(
    path: Path, word: str, moments: Iterator[int]
) -> None:
    with palaver.open(path) as store:
        say_everything(store, word)
        expected = contents(store)
    keys = [OLD, OLD]
    for number, moment in enumerate(moments):
        arguments = [str(path), str(moment * 3 % 31), keys[0].text, keys[1].text]
        program = [sys.executable, "-c", KILLED, *arguments]
        ended = subprocess.run(program, check=False, timeout=120, capture_output=True)
        assert ended.returncode in {0, -9}, ended.stderr
        with palaver.open(path) as store:
            marked = store.encrypted
        with palaver.open(path, key=keys if marked else None) as store:
            assert expected == contents(store)
            assert [] == list(store.verify())
            if number % 3 == 2:  # another run does the rest, and the next key comes
                store.encrypt(keys)
                assert expected == contents(store)
                assert word.encode() not in bytes_in(path.parent)
                keys = [NEW if keys[0] is OLD else OLD, keys[0]]
    with palaver.open(path) as store:
        store.encrypt(keys)
    with palaver.open(path, key=keys[0]) as store:
        assert expected == contents(store)
    assert word.encode() not in bytes_in(path.parent)


def test_a_conversation_that_is_deleted_meanwhile_is_left_out(path: Path) -> None:
    with palaver.open(path) as store, palaver.open(path) as other:
        for number in range(3):
            store.create([user("tea?")], id=f"talk-{number}")

        def progress(done: int, _total: int | None) -> None:
            if done == 1:
                other.delete("talk-0")
                other.create([user("plain")], id="later")

        store.encrypt(NEW, progress=progress)
        assert {"talk-1", "talk-2", "later"} == {head.id for head in store}
        assert b"plain" not in bytes_in(path.parent)


@pytest.mark.parametrize("kind", [SQLiteBackend, PostgresBackend])
def test_every_method_of_a_backend_encrypts_or_has_no_content(kind: type) -> None:
    """A new method is not passed on unseen: what it takes or gives may be content."""
    known = {*vars(EncryptedBackend), *_OPTIONAL, *_WITHOUT_CONTENT}
    assert [] == [name for name in vars(kind) if not name.startswith("_") and name not in known]


def test_what_is_not_known_to_be_without_content_is_not_passed_on(tmp_path: Path) -> None:
    with (
        palaver.open(tmp_path / "c.db", key=Key.generate()) as store,
        pytest.raises(AttributeError),
    ):
        getattr(store.backend, "rows")  # noqa: B009 - it is not declared
