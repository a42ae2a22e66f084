"""Every call with exactly one result, in its place: turns, strays, what a late result changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from palaver.messages import Message, assistant, system, text_part, user
from palaver.messages.parts import step_start_part
from palaver.wire.pairing import PairedTurn, Pairing
from tests.wire.pieces import S, call, calling, result

if TYPE_CHECKING:
    from palaver.messages import Part


def repaired(*messages: Message) -> Pairing:
    """What comes of these messages."""
    mender = Pairing()
    mender.extend(messages)
    return mender


def answers(turn: PairedTurn) -> list[tuple[int, str, bool]]:
    """The results of a turn: whose, what, and whether they had to be moved."""
    return [(one.call, getattr(one.part.state, "output", ""), one.moved) for one in turn.results]


def rules(mender: Pairing) -> list[str]:
    """The rules of what was left out."""
    return [note.rule for note in mender.notes()]


def tool(*parts: Part) -> Message:
    """A tool message of these parts."""
    return Message("tool", parts)


def test_a_turn_is_a_message_or_an_answer_with_its_results() -> None:
    mender = repaired(system("s"), user("a"), calling(), result(), assistant("b"))

    assert [0, 1, 2, 4] == [turn.position for turn in mender.turns]
    assert [[], [], [(0, "a b", False)], []] == [answers(turn) for turn in mender.turns]
    assert () == mender.notes()


def test_results_keep_the_order_in_which_they_came() -> None:
    mender = repaired(calling(call("c1"), call("c2")), result("c2", "two"), result("c1", "one"))

    assert [(1, "two", False), (0, "one", False)] == answers(mender.turns[0])


def test_a_result_belongs_to_the_newest_call_of_its_id() -> None:
    mender = repaired(calling(), calling(), result("c1", "new"), result("c1", "more"))

    assert [[], [(0, "new", False)]] == [answers(turn) for turn in mender.turns]
    assert ["duplicate-result"] == rules(mender)
    assert [0, 1] == [(*turn.occurrences, 0)[0] for turn in mender.turns]


def test_calls_of_one_id_do_not_wait_for_what_a_later_answer_asked() -> None:
    mender = repaired(calling(call("x"), call("x")), calling(call("x")), result("x"), result("x"))

    assert [0, 1] == [len(turn.results) for turn in mender.turns]
    assert ["duplicate-result"] == rules(mender)


def test_an_id_that_comes_again_after_its_result_is_a_new_call() -> None:
    mender = repaired(calling(), result("c1", "one"), calling(), result("c1", "two"))

    assert [[(0, "one", False)], [(0, "two", False)]] == [answers(turn) for turn in mender.turns]
    assert () == mender.notes()


def test_calls_of_one_id_in_one_answer_get_their_results_in_turn() -> None:
    three = calling(call("x"), call("x"), call("y"), call("x"))
    mender = repaired(three, *(result("x", str(number)) for number in range(4)))

    (turn,) = mender.turns
    assert [(0, "0", False), (1, "1", False), (3, "2", False)] == answers(turn)
    assert [0, 1, 0, 2] == list(turn.occurrences)
    assert [2] == list(turn.unanswered())
    assert ["duplicate-result"] == rules(mender)


def test_a_result_that_comes_late_is_moved_and_says_which_turn_it_changes() -> None:
    mender = repaired(user("a"), calling(), user("b"))

    assert 1 == mender.extend([result()])
    assert [(0, "a b", True)] == answers(mender.turns[1])


def test_one_that_comes_in_time_changes_the_last_turn_and_a_new_turn_only_itself() -> None:
    mender = repaired(user("a"), calling())

    assert 1 == mender.extend([result()])
    assert 2 == mender.extend([user("b"), user("c")])
    assert [(0, "a b", False)] == answers(mender.turns[1])


def test_results_before_their_calls_wait_for_them_in_the_order_they_came() -> None:
    early = [result("c2", "two"), result("c1", "one"), result("c1", "again"), result("c9")]
    mender = repaired(*early)
    assert ["result-without-call"] * 4 == rules(mender)

    mender.extend([calling(call("c1"), call("c2"))])
    assert [(1, "two", True), (0, "one", True)] == answers(mender.turns[0])
    assert ["messages[2]", "messages[3]"] == [note.where for note in mender.notes()]

    mender.extend([calling(call("c1"))])
    assert [(0, "again", True)] == answers(mender.turns[1])
    assert ["messages[3]"] == [note.where for note in mender.notes()]


def test_two_results_that_wait_go_to_two_calls_of_their_id() -> None:
    mender = repaired(result("x", "1"), result("x", "2"), calling(call("x"), call("x")))

    assert [(0, "1", True), (1, "2", True)] == answers(mender.turns[0])
    assert () == mender.notes()


def test_what_else_a_tool_message_says_is_left_out_and_said() -> None:
    word = text_part(S, S, "by the way")
    both = tool(*result().parts, word)
    mender = repaired(calling(), both, Message("tool", "plain"), tool())

    assert 1 == len(mender.turns)
    assert ["result-without-call"] * 3 == rules(mender)
    assert [both.id] == [note.message_id for note in mender.notes()][:1]


def test_a_user_may_bring_a_result_and_speak_besides() -> None:
    only = Message("user", result("c1").parts)
    both = Message("user", (*result("c2").parts, text_part(S, S, "and?")))
    mender = repaired(calling(call("c1"), call("c2")), only, both)

    assert ["assistant", "user"] == [turn.message.role for turn in mender.turns]
    assert [0, 1] == [one.call for one in mender.turns[0].results]


def test_results_in_one_message_may_belong_to_several_answers() -> None:
    mender = repaired(calling(call("c1")), calling(call("c2")))

    assert 0 == mender.extend([tool(*result("c1").parts, *result("c2").parts)])
    assert [1, 1] == [len(turn.results) for turn in mender.turns]


@pytest.mark.parametrize(
    ("message", "spoken"),
    [
        (user("x"), 1),
        (user(""), -1),
        (user([text_part(S, S, "x")]), 1),
        (user([text_part(S, S, "x", ignored=True)]), -1),
        (user([text_part(S, S, "")]), -1),
        (user([step_start_part(S, S)]), -1),
        (user([]), -1),
        (assistant("x"), -1),
        (system([text_part(S, S, "x")]), -1),
    ],
)
def test_the_last_word_of_a_user_is_known(message: Message, spoken: int) -> None:
    """Gemini wants to know whether a turn is over."""
    assert spoken == repaired(assistant("a"), message).last_user_turn


def test_notes_name_the_call_and_the_tool() -> None:
    mender = repaired(result("c7"), calling(), result(), result())

    assert (
        "messages[0]: a result of ls was left out: call 'c7' is not there (result-without-call)",
        "messages[3]: a second result of call 'c1' (ls) was left out (duplicate-result)",
    ) == tuple(str(note) for note in mender.notes())


def test_ten_thousand_strays_and_as_many_calls_take_no_long_time() -> None:
    """Whatever waits is found by its id, and not by looking through all that waits."""
    count = 10_000
    strays = [result(f"s{number}") for number in range(count)]
    later = [calling(call(f"c{number}")) for number in range(count)]
    began = time.process_time()
    mender = repaired(*strays, *later)

    assert time.process_time() - began < 5
    assert count == len(mender.notes())


def test_ten_thousand_parallel_calls_take_no_long_time() -> None:
    """Under ids of their own, and all under one."""
    count = 9_000
    own = calling(*(call(f"c{number}") for number in range(count)))
    same = calling(*(call("x") for _ in range(count)))
    results = [result(f"c{number}") for number in range(count)]
    began = time.process_time()
    mender = repaired(own, *results, same, *(result("x") for _ in range(100)))

    assert time.process_time() - began < 10
    assert [count, 100] == [len(turn.results) for turn in mender.turns]
