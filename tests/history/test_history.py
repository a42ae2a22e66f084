"""The front door: every change, every way back, and what callers cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import NothingToUndo, PalaverError, UnknownMessage, ValidationError
from palaver.history import Append, BaseHistory, History, Result
from palaver.messages import to_dict, user
from tests.history.samples import begin, everything, line, one, talk

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_history_is_a_sequence() -> None:
    history = begin("u1 a2 u3")
    assert 3 == len(history)
    assert "u1 a2 u3" == line(history)
    assert ("u1", "u3") == (history[0].id, history[-1].id)
    assert "a2 u3" == line(history[1:])
    assert "u3 a2 u1" == line(reversed(history))
    assert history[1] in history
    assert one("u9") not in history
    assert 1 == history.index(history[1])
    assert list(history) == history.messages
    assert "<History h: 3 messages at version 0>" == repr(history)


def test_reversing_sees_one_moment() -> None:
    history = begin("u1 a2")
    backwards = reversed(history)
    history.clear(keep_system_message=False)
    assert "a2 u1" == line(backwards)


def test_messages_can_come_as_json() -> None:
    spelled = {"role": "user", "content": "hi", "id": "u1", "timestamp": 5}
    history = History([spelled])
    history.append(spelled)
    history.extend([spelled, one("a2")])
    history.insert(0, [spelled])
    history.replace(0, spelled)
    assert [spelled] * 4 == to_dict(history.messages)[:4]


def test_an_append_answers_with_the_message() -> None:
    message = user("hello")
    assert message is begin().append(message)


@pytest.mark.parametrize(
    "add", [History.append, lambda history, message: history.extend([message])]
)
def test_appending_goes_on_wherever_the_view_ends(
    add: Callable[[BaseHistory, Any], object],
) -> None:
    """At the log's end, and where an edit or an undo has left the end behind."""
    history = begin("u1 a2")
    add(history, one("u3"))
    history.undo()
    add(history, one("u4"))
    history.truncate(keep_first=1)
    add(history, one("u5"))
    history.rollback(0)
    add(history, one("u6"))
    assert "u1 a2 u4 u6" == line(history)
    assert "u1 a2 u3 u4 u5 u6" == line(history.log)


def test_nothing_to_append_is_no_change() -> None:
    history = begin("u1")
    history.extend([])
    history.execute(Append(()))
    assert 0 == history.version


def test_every_change_is_one_version() -> None:
    history = begin("u1 a2")
    changes: list[Callable[[], object]] = [
        lambda: history.append(one("u3")),
        lambda: history.extend(talk("a4 u5")),
        lambda: history.insert(0, []),
        lambda: history.replace(0, one("u6")),
        lambda: history.truncate(keep_last=3),
        lambda: history.filter(roles=["user"]),
        history.clear,
        lambda: history.rollback(1),
        lambda: history.mark("u1", "pin"),
        lambda: history.unmark("u1", "pin"),
        lambda: history.set_team_task("tea"),
        history.undo,
        history.redo,
        lambda: history.restore(0),
        lambda: history.erase("u1"),
    ]
    for number, change in enumerate(changes, 1):
        change()
        assert number == history.version


def test_what_is_so_already_is_no_change() -> None:
    history = begin("u1")
    history.mark(0, "pin")
    history.set_team_task("tea")
    version = history.version
    history.mark("u1", "pin")
    history.unmark("u1", "other")
    history.set_team_task("tea")
    history.rollback(0)
    assert version == history.version


def test_undo_goes_back_call_by_call_and_redo_on_again() -> None:
    history = begin("u1")
    history.append(one("a2"))
    history.extend(talk("u3 a4"))
    history.truncate(keep_first=1)
    seen = []
    for _ in range(3):
        history.undo()
        seen.append(line(history))
    assert ["u1 a2 u3 a4", "u1 a2", "u1"] == seen
    with pytest.raises(NothingToUndo, match="nothing to undo"):
        history.undo()
    seen = []
    for _ in range(3):
        history.redo()
        seen.append(line(history))
    assert ["u1 a2", "u1 a2 u3 a4", "u1"] == seen
    with pytest.raises(NothingToUndo, match="nothing to redo"):
        history.redo()


def test_redo_lasts_until_the_next_change() -> None:
    history = begin("u1")
    history.append(one("a2"))
    for change in (
        lambda: history.append(one("u9")),
        lambda: history.mark("u1", "pin"),
        history.clear,
    ):
        history.undo()
        change()
        with pytest.raises(NothingToUndo):
            history.redo()


def test_undo_after_redo_and_redo_after_undo() -> None:
    history = begin("u1")
    history.append(one("a2"))
    history.append(one("u3"))
    history.undo()
    history.undo()
    history.redo()
    assert "u1 a2" == line(history)
    history.undo()
    assert "u1" == line(history)
    history.redo()
    history.redo()
    assert "u1 a2 u3" == line(history)


def test_a_rollback_and_a_restore_can_be_undone_and_redone() -> None:
    ways: list[Callable[[BaseHistory], Result]] = [lambda h: h.rollback(0), lambda h: h.restore(0)]
    for back in ways:
        history = begin("u1 a2")
        history.truncate(keep_first=1)
        history.append(one("u3"))
        back(history)
        assert "u1 a2" == line(history)
        history.redo()
        assert ("u1 u3", 1) == (line(history), history.batch_index)
        back(history)
        history.undo()
        assert ("u1 u3", 1) == (line(history), history.batch_index)


def test_any_version_can_be_read_and_restored() -> None:
    history = begin("u1 a2")
    history.mark("u1", "pin")
    history.set_team_task("tea")
    history.clear(keep_system_message=False)
    history.unmark("u1", "pin")
    history.set_team_task(None)
    assert ["u1 a2", "u1 a2", "u1 a2", "", "", ""] == [line(history.at(v)) for v in range(6)]
    assert [None, None, "tea", "tea", "tea", None] == [history.at(v).team_task for v in range(6)]
    history.restore(2)
    assert ("u1 a2", "tea", {"pin": ["u1"]}, 0) == (
        line(history),
        history.team_task,
        history.marks,
        history.batch_index,
    )


def test_marks_survive_every_edit() -> None:
    history = begin("u1 a2 u3")
    history.mark("a2", "pin")
    history.insert(0, [one("u9")])
    history.truncate(keep_last=1)
    assert {"pin": ["a2"]} == history.marks
    assert [] == history.query(mark="pin")
    history.rollback(0)
    assert "a2" == line(history.query(mark="pin"))
    assert ["pin"] == history.fork().marks_of("a2")


def test_a_fork_goes_its_own_way() -> None:
    history = begin("u1 a2")
    history.truncate(keep_first=1)
    fork = history.fork(id="other")
    assert ("other", ("h", 1)) == (fork.id, fork.origin)
    fork.append(one("u8"))
    history.append(one("u9"))
    assert ("u1 u9", "u1 u8") == (line(history), line(fork))
    assert "u1 a2" == line(fork.rollback(0).state.messages)
    assert (1, 1) == (history.batch_index, history.fork().batch_index)
    with pytest.raises(NothingToUndo):
        history.fork().undo()


def test_a_fork_of_an_old_version_does_not_see_what_came_later() -> None:
    history = begin("u1")
    history.append(one("a2"))
    history.append(one("u3"))
    fork = history.fork(at=1)
    assert ("u1 a2", "u1 a2") == (line(fork), line(fork.log))
    fork.append(one("u9"))
    assert "u1 a2 u9" == line(fork)
    assert [0, 2] == fork.mark_map().type_indices["user"]


def test_a_fork_needs_a_name_of_its_own() -> None:
    with pytest.raises(ValidationError, match=r"\$\.id"):
        begin().fork(id="h")


def test_the_whole_log_is_a_view_too() -> None:
    history = begin("u1 a2 u3")
    history.mark("a2", "pin")
    history.clear()
    assert "u1 a2 u3" == line(history.log)
    assert "u1 u3" == line(history.log.by_role("user"))
    assert "a2" == line(history.log.query(mark="pin"))


YES: Any = True  # not a number, though Python thinks so
BAD: list[tuple[Callable[[Any], object], str]] = [
    (lambda h: h.insert(-1, [one("u9")]), "$.position"),
    (lambda h: h.insert(YES, [one("u9")]), "$.position"),
    (lambda h: h.insert(1.5, [one("u9")]), "$.position"),
    (lambda h: h.insert(4, [one("u9")]), "$.position"),
    (lambda h: h.insert(0, one("u9")), "$.messages"),
    (lambda h: h.insert(0, "hello"), "$.messages"),
    (lambda h: h.insert(0, [one("u9"), 5]), "$.messages[1]"),
    (lambda h: h.replace(-1, one("u9")), "$.index"),
    (lambda h: h.replace(YES, one("u9")), "$.index"),
    (lambda h: h.replace(1.5, one("u9")), "$.index"),
    (lambda h: h.replace(3, one("u9")), "$.index"),
    (lambda h: h.replace(0, None), "$.message"),
    (lambda h: h.truncate(), "$"),
    (lambda h: h.truncate(keep_first=-1), "$.keepFirst"),
    (lambda h: h.truncate(keep_last=-1), "$.keepLast"),
    (lambda h: h.truncate(remove_first=-1), "$.removeFirst"),
    (lambda h: h.truncate(remove_last=-1), "$.removeLast"),
    (lambda h: h.truncate(range=(2, 1)), "$.range.start"),
    (lambda h: h.truncate(keep_last=1, role="robot"), "$.role"),
    (lambda h: h.execute({"operation": "TRUNCATE", "keepMiddle": 1}), "$.keepMiddle"),
    (lambda h: h.clear(keep_system_message=0), "$.keepSystemMessage"),
    (lambda h: h.filter(content_contains=[""]), "$.contentContains[0]"),
    (lambda h: h.filter(content_excludes=[""]), "$.contentExcludes[0]"),
    (lambda h: h.filter(content_contains="tea"), "$.contentContains"),
    (lambda h: h.filter(roles=["robot"]), "$.roles[0]"),
    (lambda h: h.rollback(-1), "$.targetBatchIndex"),
    (lambda h: h.rollback(YES), "$.targetBatchIndex"),
    (lambda h: h.rollback(2), "$.targetBatchIndex"),
    (lambda h: h.append("hello"), "$"),
    (lambda h: h.append(5), "$"),
    (lambda h: h.append({"role": "user"}), "$.content"),
    (lambda h: h.extend([one("u9"), {"role": "robot", "content": ""}]), "$.messages[1].role"),
    (lambda h: h.extend({"role": "user", "content": "x"}), "$.messages"),
    (lambda h: h.restore(-1), "$.version"),
    (lambda h: h.restore(99), "$.version"),
    (lambda h: h.at(YES), "$.version"),
    (lambda h: h.fork(at=99), "$.version"),
    (lambda h: h.fork(id=""), "$.id"),
    (lambda h: h.diff(0, 99), "$.version"),
    (lambda h: h.diff(after="1"), "$.version"),
    (lambda h: h.mark(0, ""), "$.mark"),
    (lambda h: h.set_team_task("\0"), "$.teamTask"),
]


@pytest.mark.parametrize(("call", "path"), BAD)
def test_bad_input_names_the_field_and_changes_nothing(
    call: Callable[[Any], object], path: str
) -> None:
    history = begin("s1 u2 a3")
    history.mark("u2", "pin")
    history.replace(0, one("s4"))
    before = everything(history)
    with pytest.raises(ValidationError) as caught:
        call(history)
    assert path == caught.value.path
    assert before == everything(history)


@pytest.mark.parametrize(
    "operation", [None, 5, [], "", "{}", "[]", b"\xff", {}, {"operation": "X"}]
)
def test_what_is_no_operation_changes_nothing(operation: Any) -> None:  # noqa: ANN401 - anything
    history = begin("u1")
    before = everything(history)
    with pytest.raises(PalaverError):
        history.execute(operation)
    assert before == everything(history)


def test_a_mark_needs_a_message() -> None:
    history = begin("u1")
    for which in (1, "nobody", one("u9")):
        with pytest.raises(UnknownMessage):
            history.mark(which, "pin")
    assert 0 == history.version


def test_what_the_caller_passed_in_is_not_held_on_to() -> None:
    spelled: dict[str, Any] = {
        "role": "user", "content": [{"type": "text", "text": "hi"}], "id": "u1", "timestamp": 0,
        "metadata": {"tags": ["a"]},
    }  # fmt: skip
    given = [spelled]
    history = History(given)
    history.append(spelled)
    history.insert(0, given)
    history.replace(0, spelled)
    before = everything(history)
    spelled["content"][0]["text"] = "changed"
    spelled["metadata"]["tags"].append("b")
    spelled["role"] = "system"
    given.clear()
    assert before == everything(history)


def test_what_the_caller_got_cannot_change_the_history() -> None:
    history = begin("u1 a2")
    history.mark("u1", "pin")
    history.clear(keep_system_message=False)
    history.rollback(0)
    before = everything(history)
    history.messages.clear()
    history[:].clear()
    history.by_role("user").clear()
    history.marks["pin"].clear()
    history.mark_map().original_indices.clear()
    history.state.batch_snapshots.clear()
    history.state.to_dict()["messages"].clear()
    with pytest.raises(AttributeError):
        history[0].content = "changed"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] - that is the point
    with pytest.raises(TypeError):
        history.view[0] = one("u9")  # type: ignore[index]  # pyright: ignore[reportIndexIssue] - that is the point
    assert before == everything(history)


def test_an_iterable_that_breaks_off_changes_nothing() -> None:
    history = begin("u1")

    def breaks_off() -> Any:  # noqa: ANN401 - a generator
        yield one("u2")
        raise RuntimeError

    for call in (history.extend, lambda messages: history.insert(0, messages)):
        with pytest.raises(RuntimeError):
            call(breaks_off())
    assert (1, 0) == (len(history.log), history.version)
