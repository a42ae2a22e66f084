# CX-09
"""Handles: short names for messages, worked out and never kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.errors import UnknownMessage
from palaver.history import History
from palaver.history.handles import SESSION
from palaver.messages import user

if TYPE_CHECKING:
    from pathlib import Path


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


def test_an_id_comes_before_a_handle() -> None:
    history = History([user("one"), user("two", id="msg-1")])
    assert "two" == history.log[history.view.find("msg-1")].text


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
