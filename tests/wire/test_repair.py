"""A repaired history needs no repair, and says what was said in the messages that said it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.messages import Message, ModelRef, Part, assistant, reasoning_part, text_part, user
from palaver.messages.parts import subtask_part
from palaver.wire import FORMATS, Target
from palaver.wire.notes import is_refused
from palaver.wire.repair import pair_results, repair
from tests.profiles import at_least
from tests.wire.conversations import MODELS, SESSION, sayings


@pytest.mark.parametrize("form", FORMATS)
@at_least(60)
@given(
    talk=st.lists(sayings(), max_size=10, unique_by=lambda said: said.id),
    model=st.none() | st.sampled_from(MODELS),
)
def test_nothing_is_left_to_repair(form: str, talk: list[Message], model: ModelRef | None) -> None:
    """CV-03: whatever a history was like, the provider minds nothing in the repaired one."""
    reader = model if model and model.provider_id == FORMATS[form].provider else None
    target = Target(reader, prefill=True)
    found = repair(talk, wire.to(form, talk, target), reader)
    again = wire.to(form, found, target)
    assert [] == [note for note in again.notes if is_refused(note, form)]
    ids = [message.id for message in found]
    assert len(set(ids)) == len(ids)


def test_messages_that_became_one_are_two_again() -> None:
    talk = [user("a"), user("b"), assistant(" "), user("c"), assistant("d"), user("a")]
    found = repair(talk, wire.to("anthropic", talk, Target(prefill=True)))
    assert [talk[0], talk[1], talk[3], talk[4], talk[5]] == found


def test_a_message_is_used_once() -> None:
    """One had a thought that can't go along: it says the same as its neighbour then."""
    thoughtful: list[Part] = [
        text_part(SESSION, SESSION, "a"),
        reasoning_part(SESSION, SESSION, "hm"),
    ]
    talk = [user("q"), assistant(thoughtful), assistant("a"), user("q")]
    found = repair(talk, wire.to("openai-chat", talk, Target(prefill=True)))
    assert ["q", "a", "a", "q"] == [said.text for said in found]
    assert 4 == len({said.id for said in found})


def test_what_is_not_sent_does_not_tell_messages_apart() -> None:
    parts: list[Part] = [
        text_part(SESSION, SESSION, "not for you", ignored=True),
        subtask_part(SESSION, SESSION, "look", "Look there.", "scout"),
    ]
    talk = [user("q"), assistant(" "), user(parts)]
    found = repair(talk, wire.to("anthropic", talk, Target(prefill=True)))
    assert [talk[0], talk[2]] == found


def test_an_empty_part_is_no_empty_message() -> None:
    talk = [user([text_part(SESSION, SESSION, "")]), user("")]
    found = repair(talk, wire.to("openai-chat", talk, Target(prefill=True)))
    assert [talk[1]] == found


def test_what_is_far_apart_is_not_looked_for() -> None:
    talk = [user("a"), *(assistant(" ") for _ in range(9)), user("b")]
    (message,) = repair(talk, wire.to("anthropic", talk, Target(prefill=True)))
    assert "ab" == message.text.replace("\n", "")
    assert message.id not in {said.id for said in talk}


@pytest.mark.parametrize(
    ("given", "keep_open", "expected"),
    [
        ("a? a!", False, "a? a!"),
        ("a! a?", False, "a? a-"),
        ("a? x a!", False, "a? a! x"),
        ("ab? b! x", False, "ab? b! a- x"),
        ("abc? c! a! x b!", False, "abc? c! a! b! x"),
        ("a? a! a! x", False, "a? a! x"),
        ("aa? a! x a!", False, "aa? a! a! x"),
        ("aba? a! b! x", False, "aba? a! b! a- x"),
        ("a? aa? a! a! a!", False, "a? a- aa? a! a!"),
        ("a!", False, ""),
        ("x a?", True, "x a?"),
        ("a? x", True, "a? a- x"),
        ("", False, ""),
    ],
)
def test_entries_of_any_kind_are_paired(given: str, expected: str, *, keep_open: bool) -> None:
    """`a?` calls a, `a!` is its result, `a-` the one that was missing, and x is something else."""
    found = pair_results(
        given.split(),
        calls=lambda entry: entry[:-1] if entry[-1] == "?" else "",
        answers=lambda entry: entry[0] if entry[-1] == "!" else None,
        missing=lambda _entry, call: f"{call}-",
        keep_open=keep_open,
    )
    assert expected.split() == found
