"""A repaired history needs no repair, and says what was said in the messages that said it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.messages import Message, ModelRef, Part, assistant, reasoning_part, text_part, user
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    file_part,
    subtask_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import ToolCompleted, complete, pending, start
from palaver.wire import FORMATS, Target
from palaver.wire.notes import is_refused
from palaver.wire.repair import CALL_IDS, pair_results, portable, repair, with_call_ids
from tests.profiles import at_least
from tests.wire.conversations import MODELS, SESSION, sayings

if TYPE_CHECKING:
    from palaver.messages import Role


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


@at_least(200)
@given(sayings())
def test_what_is_portable_stays_as_it_is(message: Message) -> None:
    """CV-03: reasoning, blank texts and files in answers are left out, once and for all."""
    found = portable(message)
    if found is None:
        assert not message.text.strip() or message.role == "tool"
        return
    assert portable(found) == found
    assert (found.id, found.role) == (message.id, message.role)
    assert not any(isinstance(part, ReasoningPart) for part in found.parts)
    assert all(part.text.strip() for part in found.parts if isinstance(part, TextPart))
    if found.role == "assistant":
        assert not any(isinstance(part, FilePart) for part in found.parts)


@pytest.mark.parametrize(
    ("role", "mime", "url", "expected"),
    [
        ("assistant", "image/png", "data:image/png;base64,eA==", "[a file of type image/png is"),
        ("assistant", "image/png", "https://x.example/a", "[a file of type image/png is at https:"),
        ("user", "text/csv", "data:text/csv;base64,eA==", "[the file of type text/csv]\nx"),
        ("user", "application/zip", "data:application/zip;base64,eA==", "[a file of type appl"),
        ("user", "application/pdf", "file:///a.pdf", "[a file of type application/pdf is at file:"),
        ("user", "image/png", "data:image/png;base64,eA==", None),
        ("user", "application/pdf", "https://x.example/a.pdf", None),
    ],
)
def test_a_file_that_some_provider_refuses_is_a_text(
    role: Role, mime: str, url: str, expected: str | None
) -> None:
    message = Message(role, (file_part(SESSION, SESSION, mime, url),))
    found = portable(message)
    assert found is not None
    assert found is message if expected is None else found.text.startswith(expected)
    if role == "assistant" and url.startswith("data:"):
        assert portable(message, images=True) is message


def test_a_result_without_words_says_so_and_lists_the_files_that_are_not_sent() -> None:
    files = [
        file_part(SESSION, SESSION, mime, f"data:{mime};base64,eA==")
        for mime in ("image/png", "application/zip")
    ]
    outputs = []
    for given_files in ([], files[:1], files):
        done = complete(start(pending({}, ""), at=1), "", tool="t", attachments=given_files, at=2)
        found = portable(Message("tool", (tool_part(SESSION, SESSION, "c1", "t", done),)))
        assert found is not None
        part = found.parts[0]
        assert isinstance(part, ToolPart)
        assert isinstance(part.state, ToolCompleted)
        outputs.append((part.state.output, len(part.state.attachments or ())))
    zipped = "[a file of type application/zip is not included]"
    assert [("(no output)", 0), ("(1 file: image/png)", 1), (zipped, 1)] == outputs


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["c1", "c 1", "c" * 80]), st.booleans()),
        max_size=12,
    )
)
def test_calls_of_others_have_ids_that_fit_and_come_once(
    said: list[tuple[bool, str, bool]],
) -> None:
    done = complete(start(pending({}, ""), at=1), "so", tool="t", at=2)
    messages = [
        Message("assistant", (tool_call_part(SESSION, SESSION, "t", {}, call_id=name),),
                metadata={"ours": "1"} if own else {})
        if is_call
        else Message("tool", (tool_part(SESSION, SESSION, name, "t", done),))
        for is_call, name, own in said
    ]  # fmt: skip
    found = [*with_call_ids(messages, "ours")]
    given_ids: list[str] = []
    newest: dict[str, str] = {}
    for (is_call, name, own), message in zip(said, found, strict=True):
        part = message.parts[0]
        assert isinstance(part, ToolCallPart | ToolPart)
        if not is_call:
            assert newest.get(name, name) == part.call_id
            continue
        newest[name] = part.call_id
        if own:
            assert name == part.call_id
        else:
            assert CALL_IDS.fits(part.call_id)
            assert part.call_id not in given_ids
        given_ids.append(part.call_id)
