from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import AlreadyExists, StoreDamaged, UnknownConversation
from palaver.messages import assistant, user
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend
from palaver.stores.transfer import copy_conversations
from palaver.stores.transfer.export import read_changes, read_records
from tests.stores.programs import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.messages import Message
    from palaver.stores.records import JournalEntry, StoredFrame

    Opener = Callable[[], Store]


def contents(store: Store) -> Any:  # noqa: ANN401 - to be compared
    """Everything a store has, in a form that knows no store."""
    return {
        head.id: (
            head,
            list(read_changes(store.backend, head)),
            read_records(store.backend, head.id),
        )
        for head in store
    }


@pytest.mark.parametrize("seed", range(5))
def test_there_and_back_again_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    """Memory to SQLite to memory: every head, change, frame and record is the same."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable chance
    first, last = palaver.open(":memory:"), palaver.open(":memory:")
    names = run(first, chance, 120)
    with palaver.open(tmp_path / "chat.db") as middle:
        done = copy_conversations(first, middle)
        assert (len(names), 0) == (done.copied, done.unchanged)
        assert contents(first) == contents(middle)
        assert [] == list(middle.verify())
        copy_conversations(middle, last)
    assert contents(first) == contents(last)
    assert [] == list(last.verify())


def test_forks_go_on_sharing(open_store: Opener) -> None:
    source = palaver.open(":memory:")
    parent = source.create([user(f"{number}") for number in range(50)])
    fork = parent.fork()
    fork.append(user("mine"))
    with open_store() as target:
        done = copy_conversations(source, target, [fork.id])
        assert 51 == done.messages
        assert parent.id == target.backend.head(fork.id).parent
        there = target.get(parent.id)
        there.merge(target.get(fork.id))
        assert "mine" == there[-1].text


def test_doing_it_again_brings_what_is_new(open_store: Opener) -> None:
    source = palaver.open(":memory:")
    history = source.create([user("a")])
    other = source.create([user("b")])
    with open_store() as target:
        copy_conversations(source, target)
        history.append(assistant("c"))
        history.replace(0, user("z"))
        source.describe(other.id, title="Named", tags=["t"])
        source.backend.put(other.id, "draft", "d", b"1")
        done = copy_conversations(source, target)
        assert (1, 1, 2) == (done.copied, done.unchanged, done.messages)
        assert contents(source) == contents(target)
        source.backend.put(other.id, "draft", "d", None)
        copy_conversations(source, target)
        assert contents(source) == contents(target)


@pytest.mark.parametrize("breaks", range(1, 12))
def test_an_interrupted_copy_goes_on_where_it_stopped(
    breaks: int, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.stores.transfer.copy._CHUNK", 10)
    source = palaver.open(":memory:")
    run(source, random.Random(breaks), 80)  # noqa: S311 - a repeatable chance
    told = 0

    def interrupt(*_: object) -> None:
        nonlocal told
        told += 1
        if told == breaks:
            raise KeyboardInterrupt

    with open_store() as target:
        with pytest.raises(KeyboardInterrupt):
            copy_conversations(source, target, progress=interrupt)
        assert [] == list(target.verify())
        there = {head.id: head.version for head in target}
        assert there
        kept = {name: contents(target)[name][1] for name in there}
        copy_conversations(source, target)
        assert contents(source) == contents(target)
        assert all(contents(target)[name][1][: len(kept[name])] == kept[name] for name in there)
        assert 0 == copy_conversations(source, target).copied


def test_what_was_erased_since_is_erased_there(open_store: Opener) -> None:
    source = palaver.open(":memory:")
    history = source.create([user("secret"), user("open")])
    fork = history.fork()
    with open_store() as target:
        copy_conversations(source, target)
        fork.erase(0)
        copy_conversations(source, target)
        for name in (history.id, fork.id):
            assert ["", "open"] == [message.text for message in target.get(name)]
        assert [] == target.search("secret")
        assert [] == list(target.verify())


def test_another_conversation_of_the_same_id_is_left_alone(open_store: Opener) -> None:
    source = palaver.open(":memory:")
    source.create([user("mine")], id="same")
    with open_store() as target:
        target.create([user("a"), user("b")], id="same")
        with pytest.raises(AlreadyExists, match="another conversation with the id 'same'"):
            copy_conversations(source, target)
        assert 2 == len(target.get("same"))


def test_a_copy_that_went_on_by_itself_is_left_alone(open_store: Opener) -> None:
    source = palaver.open(":memory:")
    history = source.create([user("mine")], title="Old")
    with open_store() as target:
        copy_conversations(source, target)
        target.get(history.id).append(user("theirs"))
        target.describe(history.id, title="New")
        assert 0 == copy_conversations(source, target).copied
        assert (2, "New") == (len(target.get(history.id)), target.get(history.id).title)


def test_a_name_that_nobody_has_is_refused() -> None:
    source, target = palaver.open(":memory:"), palaver.open(":memory:")
    with pytest.raises(UnknownConversation, match="'nobody'"):
        copy_conversations(source, target, ["nobody"])


def test_progress_reaches_the_end() -> None:
    source, target = palaver.open(":memory:"), palaver.open(":memory:")
    source.create([user("a")]).append(user("b"))
    source.create()
    told: list[tuple[int, int | None]] = []
    copy_conversations(source, target, progress=lambda *now: told.append(now))
    assert (3, 3) == told[-1]
    assert sorted(told) == told


class Forgetful(MemoryBackend):
    """A backend that has lost something."""

    lost = ""

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        found = super().journal(conversation, after, limit)
        return found[1:] if self.lost == "version" else found

    def messages(self, conversation: str, start: int, stop: int) -> list[Message]:
        found = super().messages(conversation, start, stop)
        return found[1:] if self.lost == "message" else found

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        return [] if self.lost == "frame" else super().frames(conversation, after, upto)


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        ("version", "version 0 is missing"),
        ("message", "0 to 2 some are missing"),
        ("frame", "has no frame"),
    ],
)
def test_an_incomplete_conversation_is_not_copied(lost: str, text: str) -> None:
    """A damaged conversation is reported, and the target has nothing of it."""
    backend = Forgetful()
    source, target = Store(backend), palaver.open(":memory:")
    source.create([user("a"), user("b")]).append(user("c"))
    backend.lost = lost
    with pytest.raises(StoreDamaged, match=text):
        copy_conversations(source, target)
    assert [] == list(target)
