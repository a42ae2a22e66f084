"""A view is a sequence that does not change; its results are computed when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import UnknownMessage, ValidationError
from palaver.history import BaseHistory, History
from palaver.messages import to_dict
from tests.history.samples import begin, line, one, talk

if TYPE_CHECKING:
    from collections.abc import Callable


YES: Any = True  # not a number, though Python thinks so


def broken_up() -> BaseHistory:
    """A history whose view is in many pieces: u6 u1 a2 u9 u5 t7, then a tail of two."""
    history = begin("u1 a2 u3 a4 u5")
    history.truncate(role="user", keep_first=9, others="keep")
    history.filter(content_excludes=["u3", "a4"])
    history.insert(0, [one("u6")])
    history.insert(3, [one("u9")])
    history.insert(5, [one("t7")])
    history.extend(talk("a8 u10"))
    assert "u6 u1 a2 u9 u5 t7 a8 u10" == line(history)
    return history


def test_a_view_is_a_sequence() -> None:
    view = broken_up().view
    messages = list(view)
    assert 8 == len(view)
    assert messages == view
    assert view == broken_up().view
    assert view != messages[:-1]
    assert view != "u6 u1 a2 u9 u5 t7 a8 u10"
    assert messages == [view[index] for index in range(8)]
    assert messages == [view[index - 8] for index in range(8)]
    for start in range(-9, 10):
        for stop in (-9, -3, 0, 2, 5, 8, 99):
            assert messages[start:stop] == view[start:stop]
            assert messages[start:stop:2] == view[start:stop:2]
    assert messages[::-1] == view[::-1] == list(reversed(view))
    assert messages[2] in view
    assert 2 == view.index(messages[2])
    assert "<View of 8 messages at version 6>" == repr(view)


@pytest.mark.parametrize("index", [8, -9, 100])
def test_there_is_nothing_beyond_the_ends(index: int) -> None:
    with pytest.raises(IndexError, match=f"there are 8 messages, none at {index}"):
        broken_up().view[index]


def test_what_is_in_the_log_only_is_not_in_the_view() -> None:
    history = broken_up()
    gone = history.log[2]
    assert "u3" == gone.id
    assert gone in history.log
    assert gone not in history.view
    assert one("u1", "another text") not in history.view
    name: object = "u1"
    assert name not in history.view


def test_a_view_is_not_hashable_as_lists_are_not() -> None:
    with pytest.raises(TypeError):
        hash(begin().view)


def test_a_view_holds_still() -> None:
    history = begin("u1")
    view = history.view
    history.append(one("a2"))
    history.clear(keep_system_message=False)
    assert "u1" == line(view)
    assert "" == line(history)


def test_positions_and_indexes_are_kept_apart() -> None:
    view = broken_up().view
    assert [5, 0, 1, 6, 4, 7, 8, 9] == [view.position(index) for index in range(8)]
    assert [1, 2, None, None, 4, 0, 3, 5, 6, 7] == [view.index_of(p) for p in range(10)]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_a_role_is_found_in_all_the_pieces(role: Any) -> None:  # noqa: ANN401 - a role
    view = broken_up().view
    mine = [message for message in view if message.role == role]
    assert mine == view.by_role(role)
    assert len(mine) == view.count(role=role)
    for n in range(7):
        assert mine[max(len(mine) - n, 0) :] == view.recent(n, role=role)
        for start in range(n + 1):
            assert mine[start:n] == view.range(start, n, role=role)


def test_roles_together_stand_in_the_views_order() -> None:
    view = broken_up().view
    both = [message for message in view if message.role in ("user", "tool")]
    assert both == view.query(roles=["tool", "user", "user"])
    for start in range(8):
        for stop in range(start, 9):
            assert both[start:stop] == view.query(roles=["user", "tool"], range=(start, stop))
    assert [] == view.query(roles=[])
    assert 0 == view.count(roles=[])
    assert both == view.query(role="tool", roles=["user"])


def test_terms_join() -> None:
    history = History(
        [one("u1", "tea", timestamp=10), one("a2", "tea", timestamp=20), one("u3", timestamp=30)]
    )
    history.mark("u1", "pin")
    history.mark("u3", "pin")
    assert "u1 u3" == line(history.query(mark="pin"))
    assert "u1" == line(history.query(mark="pin", text="tea"))
    assert "u1 a2" == line(history.query(until=30))
    assert "a2 u3" == line(history.query(since=20))
    assert "u3" == line(history.query(role="user", since=20))
    assert "a2" == line(history.query(since=10, range=(1, 2)))
    assert "a2 u3" == line(history.query(since=10, recent=2))
    assert 2 == history.count(text="tea")
    assert 1 == history.count(text="tea", role="user", mark="pin")
    assert [] == history.query(mark="nothing has it")


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        (lambda view: view.recent(-1), "$.recent"),
        (lambda view: view.recent(1.0), "$.recent"),
        (lambda view: view.recent(YES), "$.recent"),
        (lambda view: view.range(-1, 2), "$.range.start"),
        (lambda view: view.range(0, -2), "$.range.end"),
        (lambda view: view.range(0, "2"), "$.range.end"),
        (lambda view: view.range(3, 2), "$.range.start"),
        (lambda view: view.by_role("robot"), "$.role"),
        (lambda view: view.count(role="robot"), "$.role"),
        (lambda view: view.query(roles="user"), "$.roles"),
        (lambda view: view.query(roles=5), "$.roles"),
        (lambda view: view.query(since="yesterday"), "$.since"),
        (lambda view: view.query(until=1.5), "$.until"),
        (lambda view: view.query(mark=5), "$.mark"),
        (lambda view: view.count(text=5), "$.text"),
        (lambda view: view.batch_snapshot(YES), "$.index"),
    ],
)
def test_a_senseless_question_is_refused(ask: Callable[[Any], object], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ask(broken_up().view)
    assert path == caught.value.path


def test_a_message_is_found_by_index_id_or_itself() -> None:
    view = broken_up().view
    assert [5, 9, 0] == [view.find(which) for which in (0, -1, view[1])]
    assert 2 == view.find("u3")


@pytest.mark.parametrize("which", [8, -9, "nobody", one("u99"), True, None, 1.5])
def test_a_message_that_is_not_there_is_said_to_be_unknown(which: Any) -> None:  # noqa: ANN401
    with pytest.raises(UnknownMessage):
        broken_up().view.find(which)


def test_marks_are_read_both_ways() -> None:
    history = broken_up()
    history.mark(0, "b")
    history.mark("u3", "a")
    history.mark("u6", "a")
    assert {"a": ["u3", "u6"], "b": ["u6"]} == history.marks
    assert ["a", "b"] == history.marks_of(0)
    assert [] == history.marks_of("u1")


def test_a_snapshot_of_a_batch_is_a_view_too() -> None:
    view = broken_up().view
    third = view.batch_snapshot(2)
    assert third is not None
    assert "u1 a2 u5" == line(third.messages)
    assert 2 == third.messages.count(role="user")
    assert [0, 1, 2, 3, 4] == [each.batch_index for each in view.batch_snapshots()]
    assert view.batch_snapshot(5) is None
    assert view.batch_snapshot(-1) is None


def test_a_result_is_spelled_as_in_the_documents() -> None:
    history = begin("u1 a2")
    result = history.insert(1, [one("u9")])
    spelled = {message.id: to_dict(message) for message in history}
    assert {
        "state": {
            "messages": [spelled["u1"], spelled["u9"], spelled["a2"]],
            "batchSnapshots": [
                {
                    "batchIndex": 0,
                    "timestamp": 1_000,
                    "messages": [spelled["u1"], spelled["a2"]],
                    "messageCount": 2,
                    "description": "Before INSERT at position 1",
                }
            ],
            "currentBatchIndex": 1,
            "totalMessageCount": 3,
        },
        "stats": {
            "totalMessages": 3,
            "currentBatchMessages": 3,
            "totalBatches": 2,
            "currentBatchIndex": 1,
        },
        "affectedBatchIndex": 1,
    } == result.to_dict()


def test_snapshots_can_come_without_their_messages() -> None:
    history = begin("u1")
    spelled = history.clear().to_dict(snapshots=False)
    assert [
        {"batchIndex": 0, "timestamp": 1_000, "messageCount": 1, "description": "Before CLEAR"}
    ] == spelled["state"]["batchSnapshots"]


def test_a_result_stays_as_it_was() -> None:
    history = begin("u1")
    result = history.extend(talk("a2"))
    history.clear()
    history.append(one("u3"))
    assert "u1 a2" == line(result.state.messages)
    assert 0 == result.state.current_batch_index
    assert 2 == result.state.total_message_count == result.stats.total_messages
    assert [] == result.state.batch_snapshots
    assert "<Result: 2 messages, batch 0>" == repr(result)


def test_the_mark_map_is_spelled_as_in_the_documents() -> None:
    history = begin("s1 u2 a3")
    history.insert(1, [one("u9")])
    assert {
        "originalIndices": [0, 3, 1, 2],
        "typeIndices": {"system": [0], "user": [3, 1], "assistant": [2], "tool": []},
        "batchBoundaries": [0, 3],
        "boundaryToBatch": [0, 1],
        "currentBatch": 1,
    } == to_dict(history.mark_map())
