"""Bringing forks home: what both sides did stands side by side, or is a conflict."""

from __future__ import annotations

import pytest

from palaver.errors import Clash, Conflict, ValidationError
from palaver.history import History
from palaver.history.diff import compare
from tests.history.samples import begin, everything, line, one, talk


def test_the_forks_appends_come_after_ours() -> None:
    history = begin("u1")
    fork = history.fork()
    history.append(one("a2"))
    fork.extend(talk("a8 u9"))
    assert "u1 a2 a8 u9" == line(history.merge(fork).state.messages)


def test_the_forks_appends_come_after_ours_even_where_it_cut_what_was_there() -> None:
    history = begin("u1 a2 u3")
    fork = history.fork()
    fork.clear()
    fork.append(one("u9"))
    history.append(one("a4"))
    history.merge(fork)
    assert "a4 u9" == line(history)


def test_the_other_way_round_too() -> None:
    history = begin("u1 a2 u3")
    fork = history.fork()
    history.truncate(keep_first=1)
    history.append(one("a4"))
    fork.append(one("u9"))
    history.merge(fork)
    assert "u1 a4 u9" == line(history)


def test_inserts_at_the_same_place_stand_ours_first() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    history.insert(1, [one("u3")])
    fork.insert(1, [one("u8"), one("u9")])
    history.merge(fork)
    assert "u1 u3 u8 u9 a2" == line(history)


def test_deletions_unite() -> None:
    history = begin("u1 a2 u3 a4")
    fork = history.fork()
    history.truncate(remove_first=1)
    fork.filter(content_excludes=["u3", "u1"])
    history.merge(fork)
    assert "a2 a4" == line(history)


def test_what_one_side_replaced_is_replaced() -> None:
    history = begin("u1 a2 u3")
    fork = history.fork()
    history.replace(0, one("u8"))
    fork.replace(2, one("s9"))
    history.merge(fork)
    assert "u8 a2 s9" == line(history)
    assert 1 == history.count(role="system")


def test_replaced_twice_is_replaced() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    fork.replace(0, one("u8"))
    fork.replace(0, one("u9"))
    history.merge(fork)
    assert "u9 a2" == line(history)


def test_both_replaced_the_same_message() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    history.replace(0, one("u8"))
    fork.replace(0, one("u9"))
    before = everything(history), everything(fork)
    with pytest.raises(Conflict) as caught:
        history.merge(fork)
    assert (Clash("message u1", "replaced by u8", "replaced by u9"),) == caught.value.clashes
    assert before == (everything(history), everything(fork))
    assert [{"what": "message u1", "ours": "replaced by u8", "theirs": "replaced by u9"}] == (
        caught.value.to_dict()["clashes"]
    )


def test_one_replaced_what_the_other_removed() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    history.truncate(remove_first=1)
    fork.replace(0, one("u9"))
    with pytest.raises(Conflict, match="message u1: removed here, replaced by u9 there"):
        history.merge(fork)
    with pytest.raises(Conflict, match="message u1: replaced by u9 here, removed there"):
        fork.merge(history)


def test_a_replacement_brought_by_one_fork_is_one_for_the_next() -> None:
    """What came in by a merge is still known to stand for what it replaced."""
    history = begin("u1 a2")
    first, second = history.fork(), history.fork()
    first.replace(0, one("u8"))
    first.replace(0, one("u9"))
    second.truncate(remove_first=1)
    history.merge(first)
    with pytest.raises(Conflict, match="message u1: replaced by u9 here, removed there"):
        history.merge(second)


def test_every_conflict_is_named() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    for number, side in enumerate((history, fork)):
        side.replace(0, one(f"u{number}0"))
        side.replace(1, one(f"a{number}1"))
        side.set_team_task(f"task {number}")
    with pytest.raises(Conflict) as caught:
        history.merge(fork)
    assert ["message u1", "message a2", "team task"] == [c.what for c in caught.value.clashes]


def test_the_team_task_follows_whoever_changed_it() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.set_team_task("tea")
    assert "tea" == history.merge(fork).state.messages.team_task
    history.set_team_task("milk")
    history.merge(fork)
    assert "milk" == history.team_task


def test_marks_follow_what_the_fork_marked_and_unmarked() -> None:
    history = begin("u1 a2 u3")
    history.mark("u1", "pin")
    history.mark("a2", "pin")
    fork = history.fork()
    fork.unmark("u1", "pin")
    fork.mark("u3", "pin")
    fork.mark(fork.append(one("u9")), "new")
    history.mark("u3", "todo")
    history.merge(fork)
    assert {"new": ["u9"], "pin": ["a2", "u3"], "todo": ["u3"]} == history.marks


def test_what_both_unmarked_is_no_change() -> None:
    history = begin("u1")
    history.mark("u1", "pin")
    fork = history.fork()
    history.unmark("u1", "pin")
    fork.unmark("u1", "pin")
    version = history.version
    history.merge(fork)
    assert ({}, version) == (history.marks, history.version)


def test_a_message_that_comes_back_later_brings_its_marks() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("u9"))
    fork.mark("u9", "pin")
    fork.truncate(keep_first=1)
    fork.append(one("u8"))
    history.merge(fork)
    assert ("u1 u8", {}) == (line(history), history.marks)
    fork.rollback(0)
    history.merge(fork)
    assert ("u1 u9", {"pin": ["u9"]}) == (line(history), history.marks)


def test_merging_again_brings_only_what_is_new() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("a2"))
    history.merge(fork)
    version = history.version
    history.merge(fork)
    assert version == history.version
    fork.append(one("u3"))
    history.append(one("t4"))
    history.merge(fork)
    assert "u1 a2 t4 u3" == line(history)
    assert "u1 a2 t4 u3" == line(history.log)


def test_what_we_removed_after_a_merge_stays_removed() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.extend(talk("a2 u3"))
    history.merge(fork)
    history.truncate(keep_first=2)
    fork.append(one("a4"))
    history.merge(fork)
    assert "u1 a2 a4" == line(history)


def test_what_the_fork_removes_after_a_merge_goes_here_too() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.extend(talk("a2 u3"))
    history.merge(fork)
    fork.filter(content_excludes=["a2"])
    history.merge(fork)
    assert "u1 u3" == line(history)


def test_a_fork_catches_up_and_nothing_comes_twice() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("u9"))
    history.append(one("a2"))
    history.merge(fork)
    fork.merge(history)
    assert "u1 a2 u9" == line(history) == line(fork)
    for number in range(3, 6):
        fork.append(one(f"u{number}0"))
        history.append(one(f"a{number}1"))
        history.merge(fork)
        fork.merge(history)
        assert line(history) == line(fork)
    assert len(history) == len({message.id for message in history})


def test_a_fork_of_a_fork_catches_up_with_its_parent() -> None:
    """From where it was forked, and not from where its parent began."""
    history = begin("u1")
    middle = history.fork()
    middle.append(one("a2"))
    leaf = middle.fork()
    leaf.truncate(keep_first=1)
    middle.append(one("u3"))
    leaf.merge(middle)
    assert "u1 u3" == line(leaf)


def test_a_merge_that_was_undone_can_be_done_again() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("u9"))
    history.merge(fork)
    history.undo()
    assert "u1" == line(history)
    history.merge(fork)
    assert "u1 u9" == line(history)
    assert "u1 u9" == line(history.log)
    history.rollback(0)
    history.merge(fork)
    assert "u1 u9" == line(history)


def test_a_fork_rolled_back_beyond_its_beginning_still_merges() -> None:
    history = begin("u1 a2")
    history.truncate(keep_first=1)
    fork = history.fork()
    fork.rollback(0)
    history.append(one("u3"))
    history.merge(fork)
    assert "u1 u3 a2" == line(history)


def test_orders_that_crossed_lose_nothing() -> None:
    """After an undo, each side can come to know the other's message in another order."""
    history = begin("u1")
    fork = history.fork()
    history.append(one("a2"))
    fork.append(one("u9"))
    history.merge(fork)
    history.undo()
    fork.merge(history)
    history.redo()
    assert ("u1 a2 u9", "u1 u9 a2") == (line(history), line(fork))
    fork.append(one("u3"))
    history.append(one("a4"))
    history.merge(fork)
    assert {"u1", "a2", "u9", "a4", "u3"} == {message.id for message in history}
    fork.merge(history)
    assert {"u1", "a2", "u9", "a4", "u3"} == {message.id for message in fork}
    assert 5 == len(history) == len(fork)


def test_what_is_still_there_was_not_replaced() -> None:
    """One side brought a message back, the other replaced it: then both are there."""
    history = begin("u1")
    history.clear()
    fork = history.fork()
    history.rollback(0)
    other = history.fork()
    fork.rollback(0)
    history.replace(0, one("u2"))
    history.merge(fork)
    assert "u2 u1" == line(history)
    other.replace(0, one("u9"))
    history.merge(other)
    assert "u2 u9" == line(history)


def test_a_fork_of_an_old_version_merges() -> None:
    history = begin("u1 a2 u3")
    version = history.version
    history.replace(1, one("a8"))
    fork = history.fork(at=version)
    assert "u1 a2 u3" == line(fork)
    fork.replace(2, one("u9"))
    history.merge(fork)
    assert "u1 a8 u9" == line(history)


def test_a_merge_is_one_batch_and_can_be_undone() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("u9"))
    result = history.merge(fork)
    assert 1 == result.affected_batch_index
    ended = history.batch_snapshot(0)
    assert ended is not None
    assert ("Before MERGE", "u1") == (ended.description, line(ended.messages))
    assert [0, 1] == history.mark_map().batch_boundaries
    history.undo()
    assert ("u1", 0) == (line(history), history.batch_index)


def test_only_fork_and_parent_can_merge() -> None:
    history = begin("u1")
    sibling, other = history.fork(), history.fork()
    for one_side, another in (
        (history, History(id="stranger")),
        (sibling, other),
        (history, history),
        (history, sibling.fork()),
    ):
        with pytest.raises(ValidationError, match=r"\$\.other: is neither a fork"):
            one_side.merge(another)


def test_nothing_to_merge_changes_nothing() -> None:
    history = begin("u1 a2")
    fork = history.fork()
    before = everything(history)
    history.merge(fork)
    fork.append(one("u9"))
    fork.undo()
    history.merge(fork)
    assert before == everything(history)


def test_a_difference_can_be_seen_between_fork_and_parent_after_a_merge() -> None:
    history = begin("u1")
    fork = history.fork()
    fork.append(one("u9"))
    history.merge(fork)
    assert not compare(history.view, history.at(history.version))
