"""Erasing: the one place where something is destroyed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from palaver.errors import NothingToUndo, UnknownMessage
from palaver.history import ERASED, SUMMARY_OF, History
from tests.history.samples import begin, everything, line, one

if TYPE_CHECKING:
    from palaver.messages import Message

SECRET = "the code is 1234"  # noqa: S105 - not a real one


def secret() -> Message:
    return one("u1", SECRET, metadata={"from": SECRET}, timestamp=7)


def test_a_tombstone_stays_in_the_place() -> None:
    history = History([one("s0"), secret(), one("a2")], clock=lambda: 99)
    receipt = history.erase("u1")
    stone = history[1]
    assert ("u1", "user", "", 7) == (stone.id, stone.role, stone.text, stone.timestamp)
    assert {ERASED: 99} == dict(stone.metadata)
    assert "s0 u1 a2" == line(history)
    assert ("u1", ("u1",), (), 1) == (
        receipt.message_id,
        receipt.messages,
        receipt.summaries,
        receipt.places,
    )


def test_it_is_gone_from_every_version_fork_and_snapshot() -> None:
    history = History([secret()])
    fork = history.fork()
    old = history.view
    fork.append(one("a2"))
    history.replace(0, one("u9"))
    history.clear()
    deep = fork.fork()
    fork.erase("u1")
    for place in (history, fork, deep):
        assert SECRET.encode() not in everything(place)
    assert [""] == [message.text for message in old]


def test_a_copy_that_a_merge_brought_is_gone_too() -> None:
    history = begin("u8")
    fork = history.fork()
    fork.append(secret())
    history.merge(fork)
    receipt = fork.erase("u1")
    assert 2 == receipt.places
    assert SECRET.encode() not in everything(history)


def test_a_view_that_outlives_its_history_has_no_secret() -> None:
    history = History([one("u0")])
    fork = history.fork()
    fork.append(secret())
    view = fork.view
    history.merge(fork)
    del fork
    gc.collect()
    history.erase("u1")
    assert ["says u0", ""] == [message.text for message in view]


def test_a_summary_made_from_it_goes_with_it() -> None:
    summary = one("s3", f"someone said {SECRET}", metadata={SUMMARY_OF: ["u1", "a2"]})
    second = one("s4", f"in short: {SECRET}", metadata={SUMMARY_OF: ["s3"]})
    other = one("s5", "says nothing of it", metadata={SUMMARY_OF: ["a2"]})
    history = History([secret(), one("a2"), summary, second, other])
    receipt = history.erase(0)
    assert ("s3", "s4") == receipt.summaries
    assert 3 == receipt.places
    assert SECRET.encode() not in everything(history)
    assert "says nothing of it" == history[4].text


def test_it_cannot_be_undone() -> None:
    history = History([secret()])
    history.append(one("a2"))
    history.undo()
    history.erase("u1")
    with pytest.raises(NothingToUndo):
        history.redo()
    with pytest.raises(NothingToUndo):
        history.undo()
    history.restore(1)
    assert ["", "says a2"] == [message.text for message in history]


def test_undo_after_an_erasure_reverses_the_call_before_it() -> None:
    history = History([secret()])
    history.append(one("a2"))
    history.erase("u1")
    history.undo()
    assert ("u1", "") == (line(history), history[0].text)


def test_what_is_not_there_cannot_be_erased() -> None:
    history = begin("u1")
    before = everything(history)
    with pytest.raises(UnknownMessage, match="no message has the id 'nobody'"):
        history.erase("nobody")
    with pytest.raises(UnknownMessage):
        history.erase(5)
    assert before == everything(history)


def test_the_receipt_as_json() -> None:
    history = History([secret()], clock=lambda: 99)
    history.append(one("a2"))
    assert {
        "messageId": "u1",
        "erasedAt": 99,
        "messages": ["u1"],
        "summaries": [],
        "records": [],
        "places": 1,
        "versions": 2,
        "outOfReach": ["exports already written", "database backups and WAL archives"],
    } == history.erase("u1").to_dict()
