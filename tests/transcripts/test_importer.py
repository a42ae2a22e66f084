"""Conversations of a file into a store: each whole, and what others made of them is never lost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import AlreadyExists, StoreError, UnknownConversation
from palaver.messages import user
from palaver.transcripts import each_conversation
from palaver.transcripts.importer import ORIGIN, TranscriptImport

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from palaver.stores import Store

COUNT = 9
KILLED = """
import os, sys, palaver
from palaver.transcripts import each_conversation
from palaver.transcripts.importer import TranscriptImport
data = sys.stdin.buffer.read()
transcript = TranscriptImport(palaver.open(sys.argv[1]), lambda: each_conversation(data))
transcript.plan()
transcript.run(lambda done, total: done == 4 and os._exit(9))
"""


def file_of(count: int = COUNT) -> bytes:
    """A transcript of so many conversations, with the ids s:a0, s:a1 and so on."""
    lines = (
        {
            "type": "user", "uuid": f"u{number}", "parentUuid": None, "isSidechain": True,
            "agentId": f"a{number}", "sessionId": "s",
            "message": {"role": "user", "content": f"text {number}"},
        }
        for number in range(count)
    )  # fmt: skip
    return b"\n".join(json.dumps(line).encode() for line in lines)


def importing(store: Store, data: bytes) -> TranscriptImport:
    transcript = TranscriptImport(store, lambda: each_conversation(data))
    transcript.plan()
    return transcript


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    address = ":memory:" if request.param == "memory" else tmp_path / "chat.db"
    with palaver.open(address) as opened:
        yield opened


def ids(store: Store) -> list[str]:
    assert [] == list(store.verify())
    return sorted(head.id for head in store)


def test_what_others_made_of_it_is_never_taken_back(store: Store) -> None:
    forks: list[str] = []

    def meddle(done: int, _: int | None) -> None:
        if done == COUNT - 1:
            store.get("s:a0").append(user("acknowledged"))
            forks.append(store.get("s:a1").fork().id)
            store.describe("s:a2", title="mine")
            store.backend.put("s:a3", "draft", "d", b"{}")
            store.delete("s:a4")
            store.delete("s:a5")
            store.create([user("another")], id="s:a5")
            store.create([user("first")], id=f"s:a{COUNT - 1}")

    with pytest.raises(AlreadyExists) as caught:
        importing(store, file_of()).run(meddle)
    stays = ["s:a0", "s:a1", "s:a2", "s:a3"]
    others = ["s:a5", f"s:a{COUNT - 1}"]
    assert sorted([*stays, *others, *forks]) == ids(store)
    assert "has the id 's:a8' already" in str(caught.value)
    assert str(caught.value).endswith(": 's:a0', 's:a1', 's:a2', 's:a3'")
    assert ["text 0", "acknowledged"] == [message.text for message in store.get("s:a0")]
    assert "text 1" == store.get(forks[0])[0].text
    assert ("another", "first") == tuple(store.get(name)[0].text for name in others)


def fail(error: BaseException) -> Callable[[int, int | None], None]:
    def progress(done: int, _: int | None) -> None:
        if done == COUNT - 1:
            raise error

    return progress


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), UnknownConversation("x")])
def test_what_nobody_changed_is_taken_back(store: Store, error: BaseException) -> None:
    with pytest.raises(type(error)):
        importing(store, file_of()).run(fail(error))
    assert [] == ids(store)


def test_an_error_names_what_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("no way in")

    monkeypatch.setattr(store, "delete", refuse)
    with pytest.raises(StoreError, match=r"OSError: full; imported.*'s:a0'.*'s:a4' and 3 more"):
        importing(store, file_of()).run(fail(OSError("full")))
    for name in ids(store):
        store.backend.delete(name)
    with pytest.raises(KeyboardInterrupt) as caught:
        importing(store, file_of()).run(fail(KeyboardInterrupt()))
    assert "'s:a0'" in caught.value.__notes__[0]


def test_after_a_kill_the_rest_can_be_brought_in(tmp_path: Path) -> None:
    address = tmp_path / "chat.db"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(address)], input=file_of(), check=False, timeout=60
    )
    assert 9 == killed.returncode
    with palaver.open(address) as store:
        there = [f"s:a{number}" for number in range(4)]
        assert there == ids(store)
        assert all(store.backend.records(name, ORIGIN) for name in there)
        store.get("s:a1").append(user("more"))
        again = importing(store, file_of())
        assert there == again.known
        again.run()
        assert COUNT == len(ids(store))
        assert [0, 1, *[0] * (COUNT - 2)] == [store.get(name).version for name in ids(store)]


def branched() -> bytes:
    """A session with two branches that were left, one of them in the middle of an answer."""

    def line(uuid: str, parent: str | None, text: str) -> str:
        said = {"role": "user", "content": text}
        return json.dumps(
            {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": said}
        )

    tree = [("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "d"), ("f", "d")]
    return "\n".join(line(uuid, parent, f"text {uuid}") for uuid, parent in tree).encode()


def branches(store: Store, name: str | None = None) -> TranscriptImport:
    made = TranscriptImport(store, lambda: each_conversation(branched(), branches=True), name)
    made.plan()
    return made


def texts(store: Store, name: str) -> list[str]:
    return [message.text for message in store.get(name)]


def test_branches_become_forks_that_share_their_beginning(store: Store) -> None:
    branches(store).run()
    assert ["s", "s:c", "s:e"] == ids(store)
    assert ["text a", "text d", "text f"] == texts(store, "s")
    assert ["text a", "text b", "text c"] == texts(store, "s:c")
    assert ["text a", "text d", "text e"] == texts(store, "s:e")
    assert {"s:c", "s:e"} == {head.id for head in store.forks("s")}
    assert ["s", "s:c", "s:e"] == branches(store).known


def test_a_given_id_names_the_conversation_and_its_branches(store: Store) -> None:
    made = branches(store, "mine")
    assert not made.unnamed
    made.run()
    assert ["mine", "mine:c", "mine:e"] == ids(store)


def test_forks_are_taken_back_with_what_they_are_forks_of(store: Store) -> None:
    def progress(done: int, _: int | None) -> None:
        if done == 3:
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        branches(store).run(progress)
    assert [] == ids(store)


def test_a_fork_that_was_only_begun_is_finished(store: Store) -> None:
    plain = TranscriptImport(store, lambda: each_conversation(branched()))
    plain.plan()
    plain.run()
    store.get("s").fork(at=0, id="s:c")
    again = branches(store)
    assert ["s"] == again.known
    again.run()
    assert ["text a", "text b", "text c"] == texts(store, "s:c")
    assert ["s", "s:c", "s:e"] == ids(store)
