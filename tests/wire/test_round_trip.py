"""Memory of details: back to the letter where nothing was edited, and never a way to break in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver import wire
from palaver.messages import Message, new_id, system, text_part, user
from palaver.testing import check_request
from palaver.wire import FORMATS
from palaver.wire.round_trip import (
    KEY,
    apply_changes,
    details_of,
    diff,
    fingerprint,
    foreign_details,
    restore,
    stands_apart,
    unknown_fields,
    with_details,
)
from tests.profiles import at_least
from tests.wire.pieces import S, call, calling, result

ANTHROPIC, CHAT = FORMATS["anthropic"], FORMATS["openai-chat"]
CACHED: dict[str, Any] = {
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        }
    ]
}
json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "role", "content"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "role"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@at_least(200)
@given(ours=json, theirs=json)
def test_changes_lead_from_ours_to_theirs(ours: Any, theirs: Any) -> None:  # noqa: ANN401 - JSON
    assert theirs == apply_changes(ours, diff(ours, theirs))
    assert _sorted(ours) == _sorted(theirs) or diff(ours, theirs)


def _sorted(value: object) -> bytes:
    """JSON in one order: it tells True from 1, and not one order of fields from another."""
    return msgspec.json.encode(value, order="sorted")


def test_objects_of_two_types_are_not_compared_field_by_field() -> None:
    """Half of one and half of the other would be neither."""
    ours, theirs = {"type": "text", "text": "a"}, {"type": "image", "text": "b"}

    assert [[["a"], theirs]] == diff({"a": ours}, {"a": theirs})


def test_a_change_tells_true_from_one() -> None:
    assert [[["a"], True]] == diff({"a": 1}, {"a": True})


@pytest.mark.parametrize(
    "steps",
    [
        [5],
        [[]],
        [[5]],
        [[["a"], 1, 2]],
        [[["b", "c"], 1]],
        [[["a", "b"], 1]],
        [[["z"]]],
        [[["a", {}], 1]],
        [[["list", 9], 1]],
        [[[]]],
    ],
)
def test_what_does_not_fit_changes_nothing(steps: Any) -> None:  # noqa: ANN401 - JSON
    assert apply_changes({"a": "text", "list": []}, steps) is None


def test_no_steps_are_no_change() -> None:
    assert {"a": 1} == apply_changes({"a": 1}, [])
    assert {"a": 1} == apply_changes({"a": 1}, "garbage")


def test_a_fingerprint_tells_elements_apart() -> None:
    assert fingerprint({"a": 1}) == fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_strangers_are_fields_that_no_provider_knows() -> None:
    assert [] == unknown_fields(["content", 0, "cache_control", "ttl"], ANTHROPIC)
    assert ["hologram"] == unknown_fields(["content", 0, "hologram"], ANTHROPIC)
    assert [] == unknown_fields(["content", 0, "input", "hologram"], ANTHROPIC)


@pytest.mark.parametrize(
    "stored", [None, 5, [], {"anthropic": 5}, {"anthropic": []}, {"other": {}}]
)
def test_metadata_of_any_kind_is_harmless(stored: Any) -> None:  # noqa: ANN401 - JSON
    message = user("x", metadata={KEY: stored})

    assert {} == details_of(message, "anthropic")
    assert not stands_apart(message, "anthropic")
    assert [] == [form for form, fields in foreign_details(message, "gemini") if fields]


def test_what_other_formats_said_is_noted_by_field() -> None:
    items = {"0": ["print", [["content", 0, "cache_control"], {}], [["name"]], 5, []], "1": 5}
    stored = {"anthropic": {"items": items}, "gemini": {"items": {}}, "openai-chat": 5}
    message = user("x", metadata={KEY: stored})

    assert [("anthropic", "cache_control, name")] == list(foreign_details(message, "gemini"))
    assert [("gemini", "")] == list(foreign_details(message, "anthropic"))


def test_adding_details_keeps_what_is_there() -> None:
    metadata = with_details({"a": 1, KEY: {"gemini": {}}}, "anthropic", {"0": ["p"]}, apart=True)

    assert {"a": 1, KEY: {"gemini": {}, "anthropic": {"apart": True, "items": {"0": ["p"]}}}} == (
        metadata
    )
    assert {KEY: {"anthropic": {}}} == with_details({KEY: 5}, "anthropic", {}, apart=False)


def test_details_come_back_until_the_message_is_edited() -> None:
    parsed = wire.from_("anthropic", CACHED)
    (message,) = parsed.messages
    assert CACHED == wire.to("anthropic", parsed.messages).body

    edited = replace(message, content=(text_part(S, S, "y"),))
    request = wire.to("anthropic", [edited])
    assert [{"type": "text", "text": "y"}] == request.items[0]["content"]
    assert [("lost", "edited", message.id)] == [
        (note.action, note.rule, note.message_id) for note in request.notes
    ]


def test_details_do_not_come_back_where_a_neighbour_joined() -> None:
    """Two messages that become one turn are not the turn that was remembered."""
    (message,) = wire.from_("anthropic", CACHED).messages
    for talk in ([message, user("y")], [user("y"), message]):
        request = wire.to("anthropic", talk)

        assert "cache_control" not in str(request.body)
        assert [("edited", message.id)] == [(n.rule, n.message_id) for n in request.notes]


def test_another_format_says_what_it_has_no_place_for() -> None:
    parsed = wire.from_("anthropic", CACHED)
    request = wire.to("openai-chat", parsed.messages)

    assert ["foreign-detail"] == [note.rule for note in request.losses]
    assert "cache_control" in request.losses[0].detail


def test_the_first_system_message_has_the_details_of_the_head() -> None:
    block = {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}
    body = {"system": [block], "messages": [{"role": "user", "content": "x"}]}
    parsed = wire.from_("anthropic", body)

    assert body == wire.to("anthropic", parsed.messages).body
    edited = [parsed.messages[0], system("more"), parsed.messages[1]]
    request = wire.to("anthropic", edited)
    assert [{"type": "text", "text": word} for word in ("s", "more")] == request.head["system"]
    assert ["edited"] == [note.rule for note in request.notes]


FORGED: list[Any] = [
    [["role"], "hologram"],
    [["role"]],
    [["role"], "assistant"],
    [["hologram"], 1],
    [["content", "hologram"], 1],
    [[], "text"],
    [[], 5],
    [[]],
    [["tool_calls"], [{"id": "x"}]],
    [["tool_call_id"], "x"],
    [["content", 5, "text"], "x"],
    [["content", 0], {"type": "hologram"}],
    [[0], "x"],
    [["content", 0, 1], "x"],
    [["content", 0, 1]],
    [["content", [0]], "x"],
    [["parts", 0], {"text": "y"}],
    [["content"]],
    [["parts"]],
    5,
    [],
    {"path": []},
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("step", FORGED)
def test_forged_details_with_the_right_fingerprint_are_refused(form: str, step: Any) -> None:  # noqa: ANN401 - JSON
    """It changes nobody's role, no pair, and no field that the provider does not know."""
    plain = wire.to(form, [user("x")])
    items = {"0": [fingerprint(plain.items[0]), step]}
    message = user("x", metadata={KEY: {form: {"items": items}}})

    assert plain.body == wire.to(form, [message]).body


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    "step",
    [
        [[], {}],
        [["system"]],
        [["systemInstruction"]],
        [["role"], "x"],
        [["title"], "x"],
        [["data"], "x"],
    ],
)
def test_no_detail_takes_the_head_away(form: str, step: Any) -> None:  # noqa: ANN401 - JSON
    plain = wire.to(form, [system("s"), user("x")])
    stored = {form: {"items": {"head": [fingerprint(plain.head), step]}}}

    assert plain.body == wire.to(form, [system("s", metadata={KEY: stored}), user("x")]).body


def test_a_pair_of_a_call_and_its_result_is_never_restored_otherwise() -> None:
    answer, outcome = calling(), result()
    first, second, third = wire.to("openai-chat", [user("x"), answer, outcome]).items
    forged = [fingerprint(second), [["tool_calls", 0, "id"], "other"]]
    again = [fingerprint(third), [["tool_call_id"], "other"]]
    talk = [
        user("x"),
        replace(answer, metadata={KEY: {"openai-chat": {"items": {"0": forged}}}}),
        replace(outcome, metadata={KEY: {"openai-chat": {"items": {"0": again}}}}),
    ]

    assert [first, second, third] == wire.to("openai-chat", talk).items


def test_details_of_a_text_take_no_call_away() -> None:
    """Words may stand for words, and these are words and a call."""
    answer = calling(text_part(S, S, "y"), call())
    plain = wire.to("anthropic", [user("x"), answer, result()])
    forged = [fingerprint(plain.items[1]), [["content"], [{"type": "text", "text": "y"}]]]
    told = replace(answer, metadata={KEY: {"anthropic": {"items": {"0": forged}}}})

    assert plain.body == wire.to("anthropic", [user("x"), told, result()]).body


BODIES: dict[str, Any] = {
    "openai-chat": [
        {"role": "user", "content": "a", "name": "ada"},
        {"role": "assistant", "content": "b", "name": "bob"},
        {"role": "user", "content": "c", "name": "eve"},
    ],
    "anthropic": [
        {
            "role": role,
            "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        }
        for role in ("user", "assistant", "user")
    ],
}


@pytest.mark.parametrize("form", BODIES)
def test_every_message_has_details_for_itself(form: str) -> None:
    assert BODIES[form] == wire.to(form, wire.from_(form, BODIES[form]).messages).items


@pytest.mark.parametrize("form", BODIES)
def test_details_come_back_behind_a_turn_that_is_written_again(form: str) -> None:
    """And what is said of an edited one is said once."""
    first, second, third = wire.from_(form, BODIES[form]).messages
    edited = replace(first, content="edited")
    talk = [user("x"), calling(), edited, second, third]
    growing = wire.converter(form)
    growing.extend(talk)
    growing.request()
    growing.extend([result()])
    again, whole = growing.request(), wire.to(form, [*talk, result()])

    assert whole.body == again.body
    assert sorted(note.rule for note in whole.notes) == sorted(note.rule for note in again.notes)
    assert 1 == [note.rule for note in again.notes].count("edited")
    assert BODIES[form][1:] == again.items[-2:]


def test_a_role_comes_back_where_it_is_the_same_side() -> None:
    body = {"messages": [{"role": "developer", "content": "x"}]}
    parsed = wire.from_("openai-chat", body)

    assert ["system"] == [message.role for message in parsed.messages]
    assert body == wire.to("openai-chat", parsed.messages).body


def test_nothing_is_stored_for_an_element_that_nobody_changed() -> None:
    element = {"role": "user", "content": "x"}

    stored: Any
    for stored in (
        {},
        {"items": 5},
        {"items": {"0": []}},
        {"items": {"0": 5}},
        {"items": {"1": [0]}},
    ):
        assert restore(element, "0", stored, CHAT) is None
    assert restore(element, "0", {"items": {"0": ["another"]}}, CHAT) is False


def test_the_second_element_of_a_message_has_its_own_details() -> None:
    """An answer of OpenAI Responses is several items; each remembers for itself."""
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {
            "type": "function_call",
            "call_id": "b",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2", "status": "completed"},
    ]
    parsed = wire.from_("openai-responses", items)

    assert items == wire.to("openai-responses", parsed.messages).items
    assert ["1"] == list(details_of(parsed.messages[1], "openai-responses")["items"])


@at_least(150)
@given(
    form=st.sampled_from(list(FORMATS)),
    stored=st.dictionaries(st.sampled_from(list(FORMATS)), json, max_size=4) | json,
    items=st.dictionaries(st.sampled_from(["0", "1", "head"]), json, max_size=3),
)
def test_metadata_from_outside_never_raises_nor_breaks_a_request(
    form: str,
    stored: Any,  # noqa: ANN401 - JSON
    items: Any,  # noqa: ANN401 - JSON
) -> None:
    details = (
        {**stored, form: {"items": items, "apart": True}} if isinstance(stored, dict) else stored
    )
    metadata = {KEY: details}
    talk = [
        system("s", metadata=metadata),
        user("x", metadata=metadata),
        replace(calling(), metadata=metadata),
        replace(result(), metadata=metadata),
        Message("assistant", "y", metadata=metadata, id=new_id()),
        user("z", metadata=metadata),
    ]

    assert () == check_request(form, wire.to(form, talk).body)
