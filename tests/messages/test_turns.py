from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ValidationError
from palaver.messages import (
    AssistantInfo,
    Message,
    TextPart,
    ToolCallPart,
    ToolPart,
    ToolState,
    UnknownPart,
    UserInfo,
    WithParts,
    assistant,
    complete,
    dump,
    fold,
    new_id,
    pending,
    start,
    system,
    text_part,
    to_dict,
    tool_call_part,
    tool_part,
    unfold,
    user,
)
from palaver.messages.foreign import parse_export, parse_turn, write_turn
from palaver.messages.ids import NIL_ID
from palaver.messages.turns import TurnInfo, TurnTime, Unfolded
from tests.messages.outcome import outcome
from tests.messages.strategies import anything
from tests.profiles import at_least

SESSION, OTHER, MESSAGE = new_id(), new_id(), new_id()
RUNNING = start(pending({}, "{}"), at=1)
DONE = complete(RUNNING, "out", tool="t", at=2)


def call(name: str, **fields: Any) -> ToolCallPart:  # noqa: ANN401 - the part's own fields
    return tool_call_part(SESSION, MESSAGE, "t", {}, call_id=name, **fields)


def result_part(name: str, state: ToolState = DONE, **fields: Any) -> ToolPart:  # noqa: ANN401
    return tool_part(SESSION, MESSAGE, name, "t", state, **fields)


def result(name: str, **fields: Any) -> Message:  # noqa: ANN401 - the message's own fields
    return Message("tool", (result_part(name),), **fields)


def shape(turns: tuple[WithParts, ...]) -> list[tuple[str, list[str]]]:
    return [
        (
            turn.info.role,
            [part.state.status if isinstance(part, ToolPart) else part.type for part in turn.parts],
        )
        for turn in turns
    ]


def test_a_message_of_text_is_a_turn_with_one_text_part() -> None:
    (turn,) = fold([user("hi", id=MESSAGE, timestamp=5)])
    part = turn.parts[0]
    assert isinstance(part, TextPart)
    assert ("hi", MESSAGE, NIL_ID) == (part.text, part.message_id, part.session_id)
    assert (MESSAGE, 5, None) == (turn.info.id, turn.info.time.created, turn.info.session_id)


def test_a_system_message_is_an_entry_of_its_own() -> None:
    assert [("system", ["text"]), ("user", ["text"])] == shape(fold([system("a"), user("b")]))


def test_calls_are_joined_to_their_results_in_the_order_of_the_calls() -> None:
    log = [assistant([call("a"), call("b"), call("c")]), result("c"), result("a"), user("next")]
    turns = fold(log, {"b": result_part("b", RUNNING)})
    assert [
        ("assistant", ["completed", "running", "completed"]),
        ("user", ["text"]),
    ] == shape(turns)
    assert tuple(log) == unfold(turns).messages


def test_a_call_that_nobody_knows_anything_about_is_pending_and_in_no_ledger() -> None:
    log = [assistant([call("a", raw="{ }")])]
    turns = fold(log)
    assert [("assistant", ["pending"])] == shape(turns)
    back = unfold(turns)
    assert (tuple(log), {}) == (back.messages, back.ledger)


def test_a_finished_call_may_be_in_the_ledger_only() -> None:
    log, ledger = [assistant([call("a")])], {"a": result_part("a")}
    back = unfold(fold(log, ledger))
    assert (tuple(log), ledger) == (back.messages, back.ledger)


@pytest.mark.parametrize(
    "later",
    [
        [user("in between"), result("a")],
        [result("another")],
        [result("a"), result("a")],
        [Message("tool", (result_part("a"), result_part("b")))],
        [Message("tool", "just text")],
        [Message("tool", (UnknownPart({"type": "x"}),))],
        [Message("user", (result_part("a"),))],
    ],
    ids=["in between", "of another call", "twice", "two in one", "text", "unknown", "a user's"],
)
def test_what_does_not_fit_its_answer_exactly_is_a_turn_of_its_own(later: list[Message]) -> None:
    log = [assistant([call("a")]), *later]
    turns = fold(log)
    assert len(turns) >= len(log) - 1
    assert tuple(log) == unfold(turns).messages


def test_nobody_can_tell_calls_with_the_same_id_apart_so_they_stay_calls() -> None:
    log = [assistant([call("a"), call("a")]), result("a")]
    turns = fold(log)
    assert [("assistant", ["tool-call", "tool-call"]), ("tool", ["completed"])] == shape(turns)
    assert tuple(log) == unfold(turns).messages


def test_a_ledger_speaks_of_the_latest_call_with_an_id() -> None:
    log = [assistant([call("a")]), user("again"), assistant([call("a")])]
    turns = fold(log, {"a": result_part("a", RUNNING)})
    assert ["pending"] == shape(turns)[0][1]
    assert ["running"] == shape(turns)[2][1]
    back = unfold(turns)
    assert tuple(log) == back.messages
    assert ["a"] == list(back.ledger)


def test_a_call_in_a_message_that_is_no_answer_stays_a_call() -> None:
    log = [user([call("a")])]
    assert [("user", ["tool-call"])] == shape(fold(log))
    assert tuple(log) == unfold(fold(log)).messages


def test_part_ids_stay_unique_in_a_turn() -> None:
    clash = call("a")
    log = [
        assistant([clash, call("b")]),
        Message(
            "tool",
            (
                result_part("b").__class__(
                    id=clash.id,
                    session_id=SESSION,
                    message_id=MESSAGE,
                    call_id="b",
                    tool="t",
                    state=DONE,
                ),
            ),
        ),
    ]
    assert tuple(log) == unfold(fold(log)).messages


@pytest.mark.parametrize(
    "session", [SESSION, OTHER, "ses_1", None], ids=["its own", "another", "foreign", "none"]
)
def test_a_turn_knows_its_session(session: str | None) -> None:
    log = [user("hi"), user([text_part(SESSION, MESSAGE, "hi")]), user([])]
    turns = fold(log, session_id=session)
    for turn in turns:
        assert turn == parse_turn(dump(turn)) == parse_turn(write_turn(turn))
    assert tuple(log) == unfold(turns).messages
    if session in {SESSION, OTHER}:
        assert {session} == {turn.info.session_id for turn in turns}


def test_an_empty_extension_is_not_the_same_as_none() -> None:
    log = [user("a", info=UserInfo()), user("b"), assistant("c", info=AssistantInfo())]
    turns = [parse_turn(write_turn(turn)) for turn in fold(log)]
    assert tuple(log) == unfold(turns).messages


@pytest.mark.parametrize(
    "value", [{}, {"sessionID": 5}, {"sessionID": "x"}, {"parts": 5}, "text", 5, None]
)
def test_metadata_under_our_own_key_is_metadata_unless_it_is_ours(value: Any) -> None:  # noqa: ANN401
    log = [user("hi", metadata={"palaver.foreign": value, "a": 1}), assistant([call("a")])]
    turns = fold(log)
    assert tuple(log) == unfold(turns).messages
    assert tuple(log) == unfold([parse_turn(dump(turn)) for turn in turns]).messages


KEEPS = ["calls", "sources", "results", "order", "foreign", "content", "info", "session"]


@at_least(200)
@given(st.dictionaries(st.sampled_from(KEEPS), anything, max_size=4))
def test_a_keep_that_somebody_else_wrote_is_no_trouble(keep: dict[str, Any]) -> None:
    """It reads, unfolds and writes, or it is a typed error."""
    log = [assistant([text_part(SESSION, MESSAGE, "hi"), call("a"), call("b")]), result("a")]
    written = to_dict(fold(log)[0])
    part_ids = [part["id"] for part in written["parts"]]
    for value in (
        keep,
        {
            name: dict.fromkeys([*part_ids, written["info"]["id"]], item)
            for name, item in keep.items()
        },
    ):
        theirs = {**written, "info": {**written["info"], "keep": value}}
        turn = outcome(parse_turn, theirs)
        if isinstance(turn, WithParts):
            assert write_turn(turn)
            back = outcome(unfold, [turn])
            assert isinstance(back, Unfolded | ValidationError)
        else:
            assert isinstance(turn, ValidationError)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"id": ""}, "$.id"),
        ({"agent": "\0"}, "$.agent"),
        ({"cost": -1.0}, "$.cost"),
        ({"time": TurnTime(-1)}, "$.time.created"),
        ({"time": TurnTime(1, -1)}, "$.time.completed"),
        ({"metadata": {"a": float("nan")}}, "$.metadata.a"),
        ({"keep": []}, "$.keep"),
        ({"tools": []}, "$.tools"),
        ({"error": 5}, "$.error"),
    ],
)
def test_a_turn_that_could_not_be_unfolded_is_refused(fields: dict[str, Any], path: str) -> None:
    right: dict[str, Any] = {"id": "m", "role": "assistant", "time": TurnTime(1)}
    with pytest.raises(ValidationError) as caught:
        TurnInfo(**{**right, **fields})
    assert path == caught.value.path


def test_parts_of_a_turn_may_come_as_a_list() -> None:
    part = text_part(SESSION, MESSAGE, "hi")
    info = TurnInfo(id=MESSAGE, role="user", time=TurnTime(1))
    assert (part,) == WithParts(info, [part]).parts  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError) as caught:
        WithParts(info, (part, part))
    assert ("$.parts[1].id", "duplicate-part-id") == (caught.value.path, caught.value.rule)


def test_the_callers_ledger_and_list_are_not_touched() -> None:
    log, ledger = [assistant([call("a")])], {"a": result_part("a", RUNNING)}
    turns = fold(log, ledger)
    ledger.clear()
    log.clear()
    assert ["a"] == list(unfold(turns).ledger)


def test_a_long_conversation_folds_in_one_walk() -> None:
    log = [m for n in range(3_000) for m in (assistant([call(f"c{n}")]), result(f"c{n}"))]
    turns = fold(log)
    assert 3_000 == len(turns)
    assert tuple(log) == unfold(turns).messages


def test_an_export_with_everything_open_unfolds_into_a_ledger() -> None:
    base = {"sessionID": SESSION, "messageID": MESSAGE, "type": "tool", "tool": "t"}
    parts = [
        {
            **base,
            "id": "p1",
            "callID": "a",
            "state": {"status": "pending", "input": {}, "raw": "{ }"},
        },
        {
            **base,
            "id": "p2",
            "callID": "b",
            "state": {"status": "running", "input": {}, "time": {"start": 1}},
        },
    ]
    info = {"id": "m", "role": "assistant", "time": {"created": 1}}
    back = unfold(parse_export([{"info": info, "parts": parts}]).turns)
    assert ["a", "b"] == list(back.ledger)
    assert ["{ }", "{}"] == [
        part.raw for part in back.messages[0].parts if isinstance(part, ToolCallPart)
    ]
