"""Bodies of providers read: everything kept or noted, whatever stands in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.errors import PalaverError, ValidationError
from palaver.messages import ToolCallPart, ToolPart, new_id
from palaver.messages.parts import read_arguments
from palaver.testing import check_request
from palaver.wire import FORMATS
from palaver.wire.round_trip import details_of
from tests.profiles import at_least
from tests.wire.pieces import call, calling, result
from tests.wire.sdk_types import check_types

formats = pytest.mark.parametrize("form", FORMATS)
KEYS = (
    *("type", "role", "content", "text", "parts", "id", "call_id", "tool_use_id", "tool_call_id"),
    *("name", "input", "args", "arguments", "output", "thinking", "signature", "summary", "data"),
    *("tool_calls", "function", "functionCall", "functionResponse", "response", "source", "url"),
    *("cache_control", "image_url", "inlineData", "mimeType", "refusal", "encrypted_content"),
)
WORDS = (
    *("user", "assistant", "model", "system", "tool", "developer", "text", "tool_use", "message"),
    *("tool_result", "function_call", "function_call_output", "reasoning", "thinking", "image"),
    *("input_text", "output_text", "c1", "ls", "", " ", "{}", "rs_1", "data:,hi", "aGk=", "base64"),
)
odd = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)
elements = st.builds(
    lambda role, field, content, more: {**more, "role": role, field: content},
    st.sampled_from(WORDS[:9]),
    st.sampled_from(["content", "parts"]),
    odd | st.lists(odd, max_size=3),
    st.dictionaries(st.sampled_from(KEYS), odd, max_size=3),
)


@formats
@pytest.mark.parametrize("body", [None, 5, "x", {}, {"messages": 5, "input": {}, "contents": "x"}])
def test_what_is_no_request_is_refused(form: str, body: object) -> None:
    if form == "openai-responses" and body == "x":
        return
    with pytest.raises(ValidationError, match=f"is no {form} request: it needs a list of "):
        wire.from_(form, body)


@formats
def test_a_list_is_taken_for_the_elements(form: str) -> None:
    request = wire.to(form, [calling(), result()])

    one, two = (wire.from_(form, given) for given in (request.items, request.body))
    assert [message.role for message in one.messages] == [message.role for message in two.messages]


@formats
def test_messages_belong_to_the_session_that_is_named(form: str) -> None:
    session = new_id()
    parsed = wire.from_(form, wire.to(form, [calling(), result()]).body, session=session)

    parts: list[Any] = [part for message in parsed.messages for part in message.parts]
    assert {session} == {part.session_id for part in parts}


@formats
def test_tools_get_their_own_names_back(form: str) -> None:
    request = wire.to(form, [calling(call("c1", "a b")), result()])
    parsed = wire.from_(form, request.body, names=request.names)
    parts = [part for message in parsed.messages for part in message.parts]

    assert ["a b", "a b"] == [p.tool for p in parts if isinstance(p, ToolCallPart | ToolPart)]


def test_a_result_without_a_call_is_of_an_unknown_tool() -> None:
    body = {"messages": [{"role": "tool", "tool_call_id": "c9", "content": "x"}]}
    parsed = wire.from_("openai-chat", body)

    (outcome,) = parsed.messages[0].parts
    assert isinstance(outcome, ToolPart)
    assert ("unknown", "c9") == (outcome.tool, outcome.call_id)
    assert ["inexact"] == [note.rule for note in parsed.notes]


def test_a_failure_without_words_is_still_a_failure() -> None:
    """An error must say something: one without a text gets a placeholder, which is not sent."""
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "", "is_error": True}
                ],
            },
        ]
    }
    parsed = wire.from_("anthropic", body)

    outcome: Any = parsed.messages[2].parts[0]
    assert ("error", "(no description)") == (outcome.state.status, outcome.state.error)
    assert body == wire.to("anthropic", parsed.messages).body


def test_a_strangers_field_is_lost_and_said_where() -> None:
    body = {"messages": [{"role": "user", "content": "x", "mood": "good", "name": "ada"}]}
    parsed = wire.from_("openai-chat", body)

    assert [("$.messages[0].mood", "unknown-field")] == [(n.where, n.rule) for n in parsed.notes]
    assert [{"role": "user", "content": "x", "name": "ada"}] == (
        wire.to("openai-chat", parsed.messages).items
    )


def test_what_a_provider_does_not_look_into_may_hold_anything() -> None:
    arguments = {"mood": {"any": ["thing"]}}
    asked = {"type": "tool_use", "id": "c1", "name": "ls", "input": arguments}
    outcome = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [asked]},
            {"role": "user", "content": [outcome]},
        ]
    }

    assert () == wire.from_("anthropic", body).notes


def test_neighbours_of_one_role_stay_apart_where_they_stood_apart() -> None:
    body = {"messages": [{"role": "user", "content": word} for word in ("a", "b")]}
    parsed = wire.from_("anthropic", body)

    assert body == wire.to("anthropic", parsed.messages).body
    assert {"apart": True} == details_of(parsed.messages[1], "anthropic")


def test_an_element_that_needs_repairs_is_not_stored_to_the_letter() -> None:
    """Else the repair would be undone on the way back."""
    asked = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{"}}
    body = {
        "messages": [
            {"role": "assistant", "content": "x", "tool_calls": [asked], "name": "ada"},
            {"role": "tool", "tool_call_id": "c1", "content": "y"},
        ]
    }
    parsed = wire.from_("openai-chat", body)

    assert [("$.messages[0]", "inexact")] == [(note.where, note.rule) for note in parsed.notes]
    answer = wire.to("openai-chat", parsed.messages).items[0]
    sent = answer["tool_calls"][0]["function"]["arguments"]
    assert ('{"freeform_input":"{"}', False) == (sent, "name" in answer)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [({"a": 1}, {"a": 1}), ('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), (5, {}), (None, {})],
)
def test_arguments_are_an_object_or_nothing(given_: object, expected: object) -> None:
    assert expected == read_arguments(given_).input


@formats
@at_least(120)
@given(body=st.lists(elements | odd, max_size=5), head=odd, other=st.sampled_from(list(FORMATS)))
def test_whatever_is_read_can_be_written(form: str, body: Any, head: Any, other: str) -> None:  # noqa: ANN401 - JSON
    """A body of anything: read or refused in words, and what is read makes valid requests."""
    known = FORMATS[form]
    try:
        parsed = wire.from_(form, {known.items: body, **dict.fromkeys(known.heads, head)})
    except PalaverError:
        return
    for target in {form, other}:
        again = wire.to(target, parsed.messages).body
        assert () == check_request(target, again)
        assert () == check_types(target, again)


def test_a_reference_to_an_item_need_not_say_that_it_is_one() -> None:
    """OpenAI takes it so, and it is written as it was read."""
    body = {"input": [{"id": "msg_1"}]}
    parsed = wire.from_("openai-responses", body)
    again = wire.to("openai-responses", parsed.messages).body

    assert (body, ()) == (again, parsed.notes)
    assert () == check_request("openai-responses", again)


def test_a_system_message_that_stood_among_the_others_is_not_forgotten() -> None:
    """It leads now, and the body had no head: nothing to compare it with."""
    spoken = [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]
    head: dict[str, Any]
    for head in ({}, {"system": None}, {"system": []}):
        parsed = wire.from_("anthropic", {"messages": spoken, **head})
        body = wire.to("anthropic", parsed.messages).body

        assert {"system": "s", "messages": spoken[1:]} == body
        assert ["inexact"] == [note.rule for note in parsed.notes]
