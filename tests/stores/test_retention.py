"""Conversations expire by age, into an archive or for good; an owner can be erased whole."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

import palaver
from palaver.errors import AlreadyExists, StoreError, UnknownConversation, ValidationError
from palaver.history.erase import SUMMARY_OF
from palaver.messages import user
from palaver.stores import retention
from palaver.stores.encryption import Key
from palaver.stores.postgres import PostgresBackend
from palaver.stores.retention import OwnerErased, read_receipt, seal_receipt
from palaver.stores.transfer import Archive, export_conversation, import_archive, write_archive
from palaver.stores.transfer.export import read_together
from palaver.testing.stores.suite import dump_history
from tests.profiles import steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.stores import Store

DAY = 86_400_000
START = 1_700_000_000_000
OLD = timedelta(days=90)
WITHOUT = pytest.mark.skipif(find_spec("zstandard") is None, reason="needs the extra zstd")
SUFFIXES = [".jsonl", ".jsonl.gz", pytest.param(".jsonl.zst", marks=WITHOUT)]


def at(store: Store, day: int) -> Store:
    """The same store, on a day."""
    return store.with_clock(count(START + day * DAY).__next__)


def fill(store: Store, many: int = 12) -> None:
    """Make old conversations of two owners, and one of today."""
    old = at(store, 0)
    for number in range(many):
        history = old.create(
            [user(f"message {number}"), user("x" * 50)],
            id=f"old{number:03}", owner=("anna", "jim")[number % 2], tags=["work"][: number % 3],
        )  # fmt: skip
        history.mark(0, "first")
        history.undo()
    at(store, 100).create([user("today")], id="new", owner="anna")


def there(store: Store) -> set[str]:
    return {head.id for head in store}


# ── expiring ────────────────────────────────────────────────────────────────────────────────────


def test_what_nobody_changed_for_long_expires_and_the_rest_stays(store: Store) -> None:
    fill(store)
    late = at(store, 100)
    late.get("old003").append(user("still in use"))
    would = late.expire(OLD, dry_run=True)
    assert (11, 22, False) == (would.conversations, would.messages, would.done)
    assert 13 == len(there(store))
    seen: list[int] = []
    done = late.expire(OLD, progress=lambda done, _: seen.append(done))
    assert {"new", "old003"} == there(store)
    assert (11, 22, True, would.sha256) == (
        done.conversations,
        done.messages,
        done.done,
        done.sha256,
    )
    assert list(range(1, 12)) == seen
    assert 0 == late.expire(OLD).conversations
    assert [] == list(store.verify())
    assert [] == store.search("message", owner="jim")[1:]


def test_only_those_of_an_owner_or_with_a_tag_expire(store: Store) -> None:
    fill(store)
    late = at(store, 100)
    assert 4 == late.expire(OLD, owner="anna", tag="work").conversations
    assert {"old000", "old006"} == {head.id for head in store if head.owner == "anna"} - {"new"}
    assert 2 == late.expire(OLD, owner="anna").conversations
    assert 6 == late.expire(OLD).conversations


def test_a_parent_stays_as_long_as_a_younger_fork_reads_from_it(store: Store) -> None:
    old = at(store, 0)
    for name in ("a", "b"):
        old.create([user("one")], id=name).fork(id=f"{name}1").fork(id=f"{name}2")
    at(store, 95).get("a1").fork(id="young")
    late = at(store, 100)
    expired = late.expire(OLD)
    assert {"a", "a1", "young"} == there(store)
    assert (4, 2) == (expired.conversations, expired.kept)
    assert "one" == store.get("young")[0].text
    assert 3 == at(store, 200).expire(OLD).conversations
    assert set() == there(store)


def test_a_long_line_of_forks_expires_from_its_end(store: Store) -> None:
    history = at(store, 0).create([user("one")])
    for _ in range(150):
        history = history.fork()
    assert 151 == at(store, 100).expire(OLD).conversations


@pytest.mark.parametrize(
    ("older", "detail"),
    [(timedelta(-1), "from 0 up to now"), (90, "timedelta"), (timedelta(days=99_999), "up to now")],
)
def test_a_wrong_age_is_refused(older: Any, detail: str) -> None:  # noqa: ANN401 - what is wrong
    with pytest.raises(ValidationError, match=detail):
        at(palaver.open(":memory:"), 0).expire(older)


def test_a_wrong_owner_or_tag_is_refused() -> None:
    wrongs: list[dict[str, Any]] = [{"owner": ""}, {"tag": ""}, {"tag": 7}]
    for wrong in wrongs:
        with pytest.raises(ValidationError):
            at(palaver.open(":memory:"), 0).expire(OLD, **wrong)


class SlowTime:
    """A clock that only work and breaks move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.breaks: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.breaks.append(seconds)
        self.now += seconds


def test_a_transaction_is_as_large_as_takes_a_moment_and_a_break_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where deleting becomes slow, less is deleted at once, and others have more time."""
    store, clock = palaver.open(":memory:"), SlowTime()
    monkeypatch.setattr(retention, "time", clock)
    for number in range(400):
        at(store, 0).create([user("x")] * 10, id=f"old{number:03}")
    delete_all, made = store.backend.delete_all, list[tuple[int, float]]()

    def slow(wanted: Any) -> list[str]:  # noqa: ANN401 - pairs
        took = len(wanted) * (0.0001 if len(there(store)) > 200 else 0.01)
        clock.now += took
        made.append((len(wanted), took))
        return delete_all(wanted)

    monkeypatch.setattr(store.backend, "delete_all", slow)
    assert 400 == at(store, 100).expire(OLD).conversations
    assert 30 <= max(size for size, _ in made) <= 80
    assert 4 == max(size for size, _ in made[-10:])
    for (_, took), pause in zip(made, clock.breaks, strict=True):
        assert pause >= min(5 * took, 0.5)


def test_how_long_the_caller_takes_with_what_it_is_told_is_no_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = palaver.open(":memory:"), SlowTime()
    monkeypatch.setattr(retention, "time", clock)
    fill(store)

    def tell(_: int, __: int | None) -> None:
        clock.now += 100

    at(store, 100).expire(OLD, progress=tell)
    assert 0.1 > max(clock.breaks)


# ── archives ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_archived_comes_back_as_it_was(store: Store, tmp_path: Path, suffix: str) -> None:
    fill(store, 60)
    before = {name: dump_history(store.get(name)) for name in there(store)}
    owners = {head.id: head.owner for head in store}
    archive = tmp_path / f"old{suffix}"
    late = at(store, 100)
    first = late.expire(OLD, owner="jim", archive=archive)
    second = late.expire(OLD, archive=archive)
    assert second.archive is not None
    assert (30, 30, 60) == (first.conversations, second.conversations, second.archive.conversations)
    assert archive.stat().st_size == second.archive.bytes
    assert {"new"} == there(store)
    assert 60 == len(import_archive(store, archive))
    assert before == {name: dump_history(store.get(name)) for name in there(store)}
    assert owners == {head.id: head.owner for head in store}
    with pytest.raises(AlreadyExists, match="--missing"):
        import_archive(store, archive)
    store.delete("old007")
    assert ["old007"] == import_archive(store, archive, missing=True, owner="max")
    assert "max" == store.head("old007").owner
    assert [] == list(store.verify())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_conversation_that_changed_meanwhile_stays_and_its_copy_is_withdrawn(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = palaver.open(":memory:")
    fill(store)
    archive = tmp_path / f"old{suffix}"
    delete_all = store.backend.delete_all

    def busy(wanted: Any) -> list[str]:  # noqa: ANN401 - pairs
        if wanted[0][0] == "old011":
            at(store, 100).get("old010").append(user("meanwhile"))
            store.delete("old000")
        return delete_all(wanted)

    monkeypatch.setattr(store.backend, "delete_all", busy)
    expired = at(store, 100).expire(OLD, archive=archive)
    assert (10, 2) == (expired.conversations, expired.changed)
    assert {"new", "old010"} == there(store)
    there_too = palaver.open(":memory:")
    assert {f"old{n:03}" for n in range(1, 12) if n != 10} == {*import_archive(there_too, archive)}
    # later it expires, too, and is in the archive once
    assert 2 == at(store, 300).expire(OLD, archive=archive).conversations
    assert 12 == len(import_archive(palaver.open(":memory:"), archive))


@pytest.mark.parametrize("key", [None, Key(b"k" * 32)])
def test_what_is_read_together_is_exported_as_if_it_was_read_alone(
    postgres: str, key: Key | None
) -> None:
    with palaver.open(postgres, key=key) as store:
        talk = at(store, 0).create(
            [user("one", id="1"), user("two"), user("three")], id="talk", title="Tea", tags=["a"],
            owner="anna",
        )  # fmt: skip
        talk.replace(1, user("another"))
        talk.append(user("four"), key="once")
        talk.insert(0, [user("first")])
        talk.set_team_task("Brew.")
        talk.mark(0, "pin")
        talk.undo()
        store.put_record("talk", "draft", "d", b"not sent")
        store.create(id="empty")
        long = store.create(id="long")
        for number in range(60):
            long.append(user(str(number)))
        talk.fork(id="fork").append(user("of the fork"))
        names = ["talk", "empty", "long", "fork", "nothing"]
        together = read_together(store.backend, names)
        assert {"talk", "empty"} == {*together}
        for name, stored in together.items():
            alone, file = io.BytesIO(), io.BytesIO()
            export_conversation(store, name, alone)
            export_conversation(store, name, file, stored=stored)
            assert alone.getvalue() == file.getvalue()
        assert read_together(palaver.open(":memory:").backend, names) == {}


def test_what_is_written_while_it_is_read_together_is_not_in_it(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with palaver.open(postgres) as store, palaver.open(postgres) as other:
        store.create([user("one")], id="talk").append(user("two"))
        assert isinstance(store.backend, PostgresBackend)
        connections = store.backend._connections
        fetch = connections.fetch

        def late(*wanted: Any) -> Any:  # noqa: ANN401 - rows
            found = fetch(*wanted)
            other.get("talk").append(user("three"))
            return found

        monkeypatch.setattr(connections, "fetch", late)
        found = read_together(store.backend, ["talk"])["talk"]
        assert (1, 2, 2) == (found.head.version, len(found.journal), len(found.messages))


def test_an_archive_that_was_archived_before_is_not_doubled(tmp_path: Path) -> None:
    store = palaver.open(":memory:")
    fill(store)
    archive = tmp_path / "old.jsonl"
    late = at(store, 100)
    late.expire(OLD, archive=archive)
    size = archive.stat().st_size
    import_archive(store, archive)
    assert 12 == late.expire(OLD, archive=archive).conversations
    assert size == archive.stat().st_size
    import_archive(store, archive)
    late.get("old001").append(user("more"))
    at(store, 500).expire(OLD, archive=archive)
    again = palaver.open(":memory:")
    assert 13 == len(import_archive(again, archive))
    assert 3 == len(again.get("old001"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_killed_writer_left_is_removed_and_nothing_before_it(
    tmp_path: Path, suffix: str
) -> None:
    store = palaver.open(":memory:")
    fill(store)
    path = tmp_path / f"old{suffix}"
    with Archive(path) as archive:
        archive.add(store, [("old000", 2), ("old001", 2)])
        kept = path.read_bytes()
        archive.add(store, [("old002", 2)])
    data = path.read_bytes()
    draw = random.Random(7)  # noqa: S311 - repeatable
    for length in draw.sample(range(len(kept), len(data)), 20):
        path.write_bytes(data[:length])
        with Archive(path) as archive:
            assert ["old000", "old001"] == list(archive.held)
            assert kept == path.read_bytes()
        assert 2 == len(import_archive(palaver.open(":memory:"), path))
    path.write_bytes(data[:-1])
    with pytest.raises(ValidationError, match="cut off"):
        import_archive(palaver.open(":memory:"), path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"notes{suffix}"
    for text in (b"", b"my notes\n", b'{"palaver":"conversation"}\n', b"\x1f\x8bnot gzip"):
        path.write_bytes(text)
        with pytest.raises((StoreError, ValidationError)):
            Archive(path)
        assert text == path.read_bytes()
        with pytest.raises((StoreError, ValidationError)):
            import_archive(palaver.open(":memory:"), path)


def test_an_archive_damaged_in_its_middle_is_not_cut(tmp_path: Path) -> None:
    store = palaver.open(":memory:")
    fill(store)
    path = tmp_path / "old.jsonl.gz"
    with Archive(path) as archive:
        for number in range(5):
            archive.add(store, [(f"old{number:03}", 2)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ValidationError, match="decompressed"):
        Archive(path)
    assert bytes(data) == path.read_bytes()


def test_two_processes_can_not_write_to_one_archive(tmp_path: Path) -> None:
    with Archive(tmp_path / "old.jsonl"), pytest.raises(StoreError, match="another process"):
        Archive(tmp_path / "old.jsonl")


@pytest.mark.parametrize("name", ["old.zip", "old", "old.gz", "old.json"])
def test_the_name_of_an_archive_tells_its_form(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="must end in"):
        at(palaver.open(":memory:"), 0).expire(timedelta(0), archive=tmp_path / name)
    assert [] == list(tmp_path.iterdir())


def test_without_the_package_zstandard_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(StoreError, match=r"palaver\[zstd\]"):
        at(palaver.open(":memory:"), 0).expire(timedelta(0), archive=tmp_path / "old.jsonl.zst")
    (tmp_path / "old.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(StoreError, match=r"palaver\[zstd\]"):
        import_archive(palaver.open(":memory:"), tmp_path / "old.jsonl.zst")


def test_a_conversation_that_is_wrong_keeps_all_others_of_the_file_out(tmp_path: Path) -> None:
    store, file = palaver.open(":memory:"), io.BytesIO()
    fill(store, 3)
    assert 3 == write_archive(store, ["old000", "old001", "new"], file)
    path, lines = tmp_path / "some.jsonl", file.getvalue().splitlines(keepends=True)
    for wrong in (lines[:-1], [*lines[:2], *lines[3:]], [*lines, b"{}\n"], lines[1:]):
        path.write_bytes(b"".join(wrong))
        other = palaver.open(":memory:")
        with pytest.raises(ValidationError):
            import_archive(other, path)
        assert [] == list(other)


PROGRAM = """
import os, random, signal, sys
import palaver
from datetime import timedelta
from palaver.stores.transfer import archive

path, file, seed, now, most = sys.argv[1:]
left = random.Random(int(seed)).randrange(1, int(most))

def dying(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*arguments, **named)
        return found
    return call

os.fsync = dying(os.fsync)
archive.export_conversation = dying(archive.export_conversation)
with palaver.open(path) as store:
    backend = type(store.backend)
    backend.delete_all = dying(backend.delete_all)
    store.with_clock(lambda: int(now)).expire(timedelta(days=90), archive=file)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_after_every_kill_each_conversation_is_in_the_store_or_once_in_the_archive(
    tmp_path: Path, suffix: str, kind: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue("postgres") if kind == "postgres" else tmp_path / "chat.db"
    archive = tmp_path / f"old{suffix}"
    with palaver.open(path) as store:
        fill(store, 110)
        everything = there(store)
    killed = 0
    for seed in range(steps(4, in_faults=200)):
        values = path, archive, seed, START + 100 * DAY, 60
        program = [sys.executable, "-c", PROGRAM, *map(str, values)]
        ended = subprocess.run(program, check=False, timeout=120).returncode
        assert ended in {0, -signal.SIGKILL}
        killed += ended != 0
        if not ended:
            break
    assert killed
    with palaver.open(path) as store:
        late = at(store, 100)
        late.expire(OLD, archive=archive)
        assert {"new"} == there(store)
        assert [] == list(store.verify())
    with palaver.open(":memory:") as back:
        assert everything - {"new"} == {*import_archive(back, archive)}
        assert [] == list(back.verify())
    with Archive(archive) as held:
        assert 110 == len(held.held)


# ── everything of an owner ──────────────────────────────────────────────────────────────────────


def family(store: Store) -> None:
    """Make conversations of anna, and of others that have something from hers."""
    anna = store.create(
        [user("my door code is 4711", id="code"), user("and a second thing", id="second")],
        id="hers", owner="anna", title="Anna's door", tags=["anna"],
    )  # fmt: skip
    store.put_record("hers", "draft", "d", b"my door code is 4711")
    store.create([user("her diary, all of it")], id="alone", owner="anna")
    other = anna.fork(id="fork", owner="jim")
    other.append(user("jim says hello", id="jims"))
    other.append(user("the door code, in short", id="short", metadata={SUMMARY_OF: ["code"]}))
    mine = other.fork(id="hers again", owner="anna")
    mine.append(user("anna answers jim here", id="answer"))
    third = mine.fork(id="third", owner="max")
    third.append(user("max was here", id="maxs"))
    other.merge(mine)
    store.create([user("nothing of hers", id="code")], id="stranger", owner="jim")


def test_everything_of_an_owner_is_gone_in_others_forks_too(
    open_store: Callable[[], Store],
) -> None:
    with open_store() as store:
        family(store)
        receipt = store.erase_owner("anna")
        assert (("alone",), ("hers", "hers again")) == (receipt.deleted, receipt.shells)
        assert [] == list(store.check_receipt(receipt))
    with open_store() as store:
        assert {"hers", "hers again", "fork", "third", "stranger"} == there(store)
        assert () == store.list(owner="anna").conversations
        texts = {head.id: [m.text for m in store.get(head.id)] for head in store}
        assert ["", "", "jim says hello", "", ""] == texts["fork"]
        assert ["", "", "jim says hello", "", "", "max was here"] == texts["third"]
        assert ["nothing of hers"] == texts["stranger"]
        for word in ("door", "second", "diary", "answers"):
            assert [] == store.search(word)
        assert 1 == len(store.search("hello"))
        shell = store.head("hers")
        assert (None, None, ()) == (shell.owner, shell.title, shell.tags)
        assert [] == store.kinds("hers")
        assert [] == list(store.verify())
        again = store.erase_owner("anna")
        assert ((), ()) == (again.deleted, again.shells)


def test_an_owner_whose_conversations_nobody_forked_leaves_nothing(store: Store) -> None:
    hers = store.create([user("one")], id="hers", owner="anna")
    hers.fork(id="fork").fork(id="fork of it")
    store.create([user("two")], id="his", owner="jim").fork(id="hers too", owner="anna")
    receipt = store.erase_owner("anna")
    assert ("fork", "fork of it", "hers", "hers too") == receipt.deleted
    assert ((), {"his"}) == (receipt.shells, there(store))
    assert "two" == store.get("his")[0].text


def test_a_message_of_another_that_only_has_the_same_id_stays(store: Store) -> None:
    his = store.create([user("one", id="msg-1")], id="his", owner="jim")
    fork = his.fork(id="hers", owner="anna")
    fork.append(user("hers", id="msg-2"))
    fork.fork(id="third", owner="max")
    his.append(user("his own", id="msg-2"))
    store.erase_owner("anna")
    assert ["one", "his own"] == [message.text for message in store.get("his")]
    assert ["one", ""] == [message.text for message in store.get("third")]


def test_a_receipt_tells_what_came_back(store: Store) -> None:
    file = io.BytesIO()
    family(store)
    write_archive(store, ["alone"], file)
    receipt = store.erase_owner("anna")
    store.create([user("back")], id="alone", owner="anna")
    store.describe("hers", title="Anna's door")
    found = list(store.check_receipt(receipt))
    assert 3 == len(found)
    assert found[0].startswith("alone: belongs to 'anna'")
    made = seal_receipt(replace(receipt, erased=(("stranger", ("code",)),)))
    assert "stranger: message 0 was erased, and has content" in list(store.check_receipt(made))


def test_a_receipt_is_read_again_and_a_changed_one_is_refused() -> None:
    store = palaver.open(":memory:")
    family(store)
    receipt = store.erase_owner("anna")
    data = msgspec.json.encode(receipt)
    assert receipt == read_receipt(data)
    for wrong in (data.replace(b"alone", b"alien"), b"{}", b"[", b'{"owner": 7}', b"\xff"):
        with pytest.raises(ValidationError):
            read_receipt(wrong)
    assert "door" not in data.decode()
    with pytest.raises(UnknownConversation):
        store.get("alone")
    with pytest.raises(ValidationError):
        store.erase_owner("")
    assert isinstance(receipt, OwnerErased)
