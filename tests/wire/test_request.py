"""Converters: what grows is written as it grows, and what was handed out stays as it was."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import Message, assistant, system, text_part, user
from palaver.testing import check_request
from palaver.wire import FORMATS, Target
from palaver.wire.request import BEGIN, CONTINUE
from tests.profiles import at_least
from tests.wire.conversations import sayings
from tests.wire.pieces import S, call, calling, result

if TYPE_CHECKING:
    from palaver.wire import Request

formats = pytest.mark.parametrize("form", FORMATS)


def rules(request: Request) -> list[str]:
    """The rules of a request's notes; every call from elsewhere wants a signature of Gemini."""
    return [note.rule for note in request.notes if note.rule != "missing-signature"]


def grown(form: str, talk: list[Message], **target: Any) -> list[Request]:  # noqa: ANN401 - a Target's
    """The request after each message, all from one converter."""
    converter = wire.converter(form, Target(**target))
    found = []
    for message in talk:
        converter.extend([message])
        found.append(converter.request())
    return found


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ValidationError, match=r"no such format: 'x'; there are openai-chat, "):
        wire.to("x", [])


@formats
def test_nothing_said_is_a_request_to_go_on(form: str) -> None:
    request = wire.to(form, [])

    assert 1 == len(request.items)
    assert CONTINUE in str(request.body)
    assert ["last-role"] == rules(request)
    assert () == check_request(form, request.body)


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
def test_a_user_speaks_first_and_last_where_that_is_demanded(form: str) -> None:
    request = wire.to(form, [assistant("a")])
    told = wire.to(form, [assistant("a")], Target(prefill=True))

    assert [True, True] == [word in str(request.items) for word in (BEGIN, CONTINUE)]
    assert ["first-role", "last-role"] == rules(request)
    assert 2 == len(told.items)


@formats
def test_a_request_that_was_handed_out_never_changes(form: str) -> None:
    """Not by a message that joins its last turn, nor by a result that comes late."""
    late = [calling(call("c1"), call("c2")), user("b"), result("c2"), user("c"), result("c1")]
    talk = [system("s"), user("a"), user("a2"), *late, user("d"), assistant("e"), assistant("f")]
    found = grown(form, talk)
    told = [(msgspec.json.encode(one.body), one.notes) for one in found]
    again = [wire.to(form, talk[: index + 1]) for index in range(len(talk))]

    assert [text for text, _ in told] == [msgspec.json.encode(one.body) for one in again]
    assert [set(notes) for _, notes in told] == [set(one.notes) for one in again]
    assert told == [(msgspec.json.encode(one.body), one.notes) for one in found]


@formats
def test_a_result_that_comes_very_late_changes_an_early_turn(form: str) -> None:
    """Far behind what a request has for its own."""
    talk = [
        user("a"),
        calling(),
        *(m for n in range(40) for m in (user(f"{n}"), assistant("."))),
        user("z"),
    ]
    converter = wire.converter(form)
    converter.extend(talk)
    before = converter.request()
    told = msgspec.json.encode(before.body)
    converter.extend([result("c1", "LATE")])
    after = converter.request()

    assert told == msgspec.json.encode(before.body)
    assert ["call-without-result"] == rules(before)
    assert ["result-out-of-order"] == rules(after)
    assert wire.to(form, [*talk, result("c1", "LATE")]).body == after.body
    assert "LATE" in str(after.items[:4])


@formats
@at_least(60)
@given(talk=st.lists(sayings(), max_size=12), end=st.integers(0, 12))
def test_a_prefix_is_written_the_same_but_for_its_last_turn(
    form: str, talk: list[Message], end: int
) -> None:
    """Unless a later message answers a call that was open, or a result waits for its call."""
    target = Target(prefill=True)
    short, whole = wire.to(form, talk[:end], target), wire.to(form, talk, target)
    moved = {note.rule for note in whole.notes} & {"result-out-of-order", "duplicate-result"}
    pending = {note.rule for note in short.notes} & {
        *("call-without-result", "result-without-call", "last-role", "first-role"),
    }
    served = any("srvtoolu" in str(message.content) for message in talk)
    if not (moved or pending or served):
        settled = short.items[:-2]
        assert settled == whole.items[: len(settled)]
        assert short.head == whole.head or not settled


@formats
def test_neighbours_of_one_role_take_linear_time(form: str) -> None:
    """Ten thousand in a row; the time is a guard against what grows with the square."""
    talk = [user(f"line {number}") for number in range(10_000)]
    began = time.process_time()
    request = wire.to(form, talk)

    assert time.process_time() - began < 3
    assert "line 9999" in str(request.items[-1])
    assert (10_000 if not FORMATS[form].alternates or form == "x" else 1) == len(request.items)


@formats
def test_many_calls_at_once_take_linear_time(form: str) -> None:
    count = 5_000
    calls = calling(
        *(call(f"c{number}", metadata={"google": {"id": f"g{number}"}}) for number in range(count))
    )
    results = [result(f"c{number}") for number in range(count)]
    began = time.process_time()
    request = wire.to(form, [user("x"), calls, *results, user("y")])

    assert time.process_time() - began < 5
    assert set() == {note.rule for note in request.notes} - {"missing-signature"}


@formats
def test_many_messages_with_details_take_linear_time(form: str) -> None:
    stored = {"wire": {form: {"apart": True, "items": {"0": ["print", [["x"], 1]]}}}}
    talk = [
        user("x", metadata=stored),
        calling(*(call(f"c{n}") for n in range(2_000)), metadata=stored),
    ]
    talk += [user(f"{n}", metadata=stored) for n in range(4_000)]
    began = time.process_time()
    wire.to(form, talk)

    assert time.process_time() - began < 6


@formats
def test_one_more_message_is_not_paid_for_by_those_before_it(form: str) -> None:
    """The same steps behind a long conversation and behind a short one."""
    steps = [m for n in range(100) for m in (user("x"), calling(call(f"s{n}")), result(f"s{n}"))]

    def took(before: int) -> float:
        converter = wire.converter(form)
        converter.extend(
            m for n in range(before) for m in (user("x"), calling(call(f"c{n}")), result(f"c{n}"))
        )
        converter.request()
        began = time.process_time()
        for message in steps:
            converter.extend([message])
            converter.request()
        return time.process_time() - began

    short = min(took(4) for _ in range(3))
    assert min(took(1_000) for _ in range(3)) < 4 * short


@formats
def test_what_a_generator_gives_before_it_breaks_is_not_taken(form: str) -> None:
    """All or nothing: messages may come from a store that fails in the middle."""
    converter = wire.converter(form)
    converter.extend([user("a")])

    def broken() -> Any:  # noqa: ANN401 - never ends well
        yield user("b")
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        converter.extend(broken())
    assert wire.to(form, [user("a")]).body == converter.request().body


def test_a_system_message_leads_until_something_is_said() -> None:
    """Also behind a message that leaves nothing."""
    talk = [system("one"), user(""), system("two"), user("x"), system("three")]
    request = wire.to("anthropic", talk)

    assert [{"type": "text", "text": word} for word in ("one", "two")] == request.head["system"]
    assert [request.body] == [grown("anthropic", talk)[-1].body]
    assert "three" in str(request.items)


def test_an_answer_to_be_continued_ends_without_white_space() -> None:
    request = wire.to("anthropic", [user("x"), assistant("y \n")], Target(prefill=True))

    assert "y" == request.items[-1]["content"]
    assert ["trailing-space"] == rules(request)


def test_a_note_of_a_turn_that_is_written_again_is_not_said_twice() -> None:
    talk = [user("a"), calling(call("c 1"), call("c 2")), result("c 1"), user(" "), result("c 2")]
    last = grown("anthropic", talk)[-1]

    assert sorted(note.rule for note in wire.to("anthropic", talk).notes) == sorted(rules(last))


def test_ids_that_may_stand_once_are_free_again_when_their_turn_is_rewritten() -> None:
    """A reasoning's id is written once in a request, however often its turn is written."""
    stored = {"openai": {"id": "fc_1"}}
    talk = [
        user("a"),
        calling(call(metadata=stored)),
        user("b"),
        calling(call("c2", metadata=stored)),
    ]
    last = grown("openai-responses", [*talk, result("c1"), result("c2")])[-1]
    named = [item.get("id") for item in last.items if item.get("type") == "function_call"]

    assert ["fc_1", None] == named


def test_drafts_say_whose_an_element_is() -> None:
    """In order, the how-manieth of its message, and whether something was repaired in it."""
    answer = calling(call("c1"), call("c2"))
    converter = wire.converter("openai-chat")
    converter.extend([user("a"), answer, result("c1"), user([text_part(S, S, "x")])])

    assert [("0", False), ("0", True), ("0", True), ("0", True), ("0", False)] == [
        (draft.ordinal, draft.repaired) for draft in converter.drafts()
    ]
    assert converter.draft_of_head() is None


def test_a_message_of_several_elements_counts_them() -> None:
    converter = wire.converter("openai-responses")
    converter.extend([calling(text_part(S, S, "x"), call("c1"), call("c2"))])

    assert ["0", "1", "2", "3", "4"] == [draft.ordinal for draft in converter.drafts()]
