"""Batches are linked and found quickly; versions remember frames; handles number a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import AmbiguousMessage, UnknownMessage, ValidationError
from palaver.history import History
from palaver.history.frame import SESSION, Batch, Frame, Redo, Versions, jump_of
from palaver.messages import user

if TYPE_CHECKING:
    from pathlib import Path


def a_line(count: int) -> Batch | None:
    line: Batch | None = None
    for index in range(count):
        line = Batch(index, line, jump_of(line), None, 0, 0, 0, 0, "CLEAR")
    return line


def test_every_batch_of_a_line_is_found() -> None:
    for count in (0, 1, 2, 3, 7, 8, 100):
        frame = Frame(line=a_line(count))
        assert count == frame.batch_index
        found = [frame.batch(index) for index in range(count)]
        assert list(range(count)) == [batch.index for batch in found if batch is not None]
        assert [None, None, None] == [frame.batch(index) for index in (-1, count, count + 1)]


def test_a_batch_is_a_few_jumps_away() -> None:
    """Skew binary jumps: about 2 log2(n) steps where one by one would take n."""
    batch, steps = a_line(100_000), 0
    while batch is not None and batch.index > 17:
        far = batch.jump
        batch = far if far is not None and far.index >= 17 else batch.before
        steps += 1
    assert batch is not None
    assert steps <= 50


@pytest.mark.parametrize(
    ("reason", "place", "description"),
    [
        ("INSERT", 3, "Before INSERT at position 3"),
        ("REPLACE", 2, "Before REPLACE at index 2"),
        ("TRUNCATE", None, "Before TRUNCATE"),
        ("CLEAR", None, "Before CLEAR"),
        ("FILTER", None, "Before FILTER"),
        ("MERGE", None, "Before MERGE"),
    ],
)
def test_a_batch_says_what_ended_it(reason: str, place: int | None, description: str) -> None:
    assert description == Batch(0, None, None, None, 0, 0, 0, 0, reason, place).description


def test_long_chains_are_let_go_of() -> None:
    """A linked list that is freed by recursion would take the whole process with it."""
    line: Batch | None = a_line(500_000)
    redo: Redo | None = None
    for version in range(500_000):
        redo = Redo(version, redo)
    del line, redo


def test_versions_know_their_frame_and_the_way_back() -> None:
    first, second = Frame(), Frame(back=1, redo=Redo(1))
    versions = Versions(first, 0)
    versions.stops.append(1)
    versions.add(second, 1)
    versions.stops.append(2)
    assert [first, first, second, second] == [versions.frame(version) for version in range(4)]
    assert [None, 0, 1, 2] == [versions.back(version) for version in range(4)]
    assert [None, None, Redo(1), None] == [versions.redo(version) for version in range(4)]


@pytest.mark.parametrize("version", [-1, 1, True, 1.0, "0", None])
def test_a_version_that_is_not_there_is_refused(version: object) -> None:
    with pytest.raises(ValidationError, match=r"\$\.version: must be a version from 0 to 0"):
        Versions(Frame(), 0).frame(version)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the point


# CX-09


def test_a_handle_counts_the_log() -> None:
    history = History([user("one"), user("two")])
    history.insert(0, [user("three")])
    assert ["msg-3", "msg-1", "msg-2"] == [history.view.handle(index) for index in range(3)]
    assert "three" == history.log[history.view.find("msg-3")].text


def test_a_handle_works_wherever_an_id_is_taken() -> None:
    history = History([user("one"), user("two")])
    history.mark("msg-2", "good")
    assert (["good"], [history[1].id]) == (history.marks_of("msg-2"), history.marks["good"])
    history.unmark("msg-2", "good")
    assert history[0].id == history.erase("msg-1").message_id
    assert "" == history[0].text


@pytest.mark.parametrize("handle", ["msg-0", "msg-3", "msg-01", "msg--1", "msg-", "MSG-1", "msg-٣",
                                    "msg-1 ", "msg-" + "9" * 40])  # fmt: skip
def test_what_is_no_handle_is_unknown(handle: str) -> None:
    with pytest.raises(UnknownMessage, match="no message has the id"):
        History([user("one"), user("two")]).mark(handle, "good")


def test_a_name_that_could_mean_two_messages_is_refused() -> None:
    history = History([user("one"), user("two", id="msg-1")])
    with pytest.raises(AmbiguousMessage, match=r"'msg-1' could mean 2 messages: index 0 .*index 1"):
        history.view.find("msg-1")
    assert "two" == history.log[history.view.find(history[1])].text


def test_a_message_from_elsewhere_is_not_found_by_its_spelling() -> None:
    with pytest.raises(UnknownMessage):
        History([user("one")]).view.find(user("other", id="msg-1"))


def test_a_new_session_counts_anew_and_going_back_counts_as_before() -> None:
    history = History([user("one"), user("two")])
    history.replace_all([], team_task=None, reason=SESSION)
    history.append(user("three"))
    history.clear()  # an edit like any other: it begins no session
    history.append(user("four"))
    assert ("msg-2", None) == (history.view.handle(0), history.log.handle(0) and None)
    assert None is history.view.handle(history.at(0)[0])
    history.rollback(0)
    assert ["msg-1", "msg-2"] == [history.view.handle(index) for index in range(2)]


def test_handles_last_in_a_store(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.create([user("one")], id="talk")
        history.replace_all([user("two")], team_task="tea", reason=SESSION)
        history.append(user("three"))
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.get("talk")
        assert ["msg-1", "msg-2"] == [history.view.handle(index) for index in range(2)]
        assert "tea" == history.team_task
        history.mark("msg-2", "good")
        assert ["good"] == history.marks_of(1)
        assert "msg-2" == history.fork().view.handle(1)


def test_replacing_all_is_one_change_that_can_be_undone() -> None:
    history = History([user("one")])
    history.set_team_task("tea")
    version = history.version
    result = history.replace_all([{"role": "user", "content": "new"}], team_task=None)
    assert (version + 1, 1, None) == (
        history.version,
        result.affected_batch_index,
        history.team_task,
    )
    snapshot = history.batch_snapshot(0)
    assert snapshot is not None
    assert "Before IMPORT" == snapshot.description
    history.undo()
    assert (["one"], "tea") == ([message.text for message in history], history.team_task)
