"""Blocks that palaver does not understand go out as they came, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from palaver import wire
from palaver.messages import UnknownPart, assistant, new_id, text_part, user
from palaver.testing import check_request
from palaver.wire import FORMATS
from palaver.wire.anthropic.blocks import ASSISTANT_BLOCKS, USER_BLOCKS
from palaver.wire.format import known_fields
from palaver.wire.gemini.blocks import PARTS
from palaver.wire.openai_responses.blocks import ITEMS
from palaver.wire.openai_responses.blocks import USER_BLOCKS as FILES
from tests.wire.sdk_types import check_types
from tests.wire.unknown_blocks import BY_MODELS, BY_USERS, ODDITIES

S = new_id()


def parts(form: str, blocks: list[Any]) -> list[Any]:
    """Unknown parts of a format, and a word so that something is said."""
    return [*(UnknownPart({"type": form, "block": block}) for block in blocks), word()]


def word() -> Any:  # noqa: ANN401 - a part
    """A text."""
    return text_part(S, S, "tea")


def valid(form: str, *talk: Any) -> Any:  # noqa: ANN401 - messages
    """The request, which the provider must take."""
    request = wire.to(form, talk)
    assert () == check_request(form, request.body)
    assert () == check_types(form, request.body)
    return request


@pytest.mark.parametrize("form", FORMATS)
def test_every_type_goes_out_as_it_came(form: str) -> None:
    """Both of a pair beside each other, one block of every type that the format passes on."""
    given = valid(form, user(parts(form, BY_USERS[form])))
    made = valid(form, user("x"), assistant(parts(form, BY_MODELS[form])), user("y"))

    assert [] == [block for block in BY_USERS[form] if str(block) not in str(given.body)]
    assert [] == [block for block in BY_MODELS[form] if str(block)[1:-1] not in str(made.body)]
    assert [] == [note for note in (*given.notes, *made.notes) if note.rule == "unknown-part"]


def test_there_is_a_sample_of_every_type() -> None:
    """Else the test above would not show what it says."""
    kinds = {
        form: {
            block.get("type", next(iter(block))) for block in (*BY_MODELS[form], *BY_USERS[form])
        }
        for form in FORMATS
    }

    assert {*ITEMS, *FILES, "id"} == kinds["openai-responses"]  # a reference may have no type
    assert {*ASSISTANT_BLOCKS, *USER_BLOCKS} == kinds["anthropic"]
    assert set(PARTS) == kinds["gemini"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("odd", [*ODDITIES, {"type": "hologram"}, {"hologram": 1}])
def test_what_is_no_block_is_left_out_and_said(form: str, odd: Any) -> None:  # noqa: ANN401 - JSON
    talk = user(parts(form, [odd])), assistant(parts(form, [odd])), user("z")
    request = valid(form, *talk)

    assert ["unknown-part"] * 2 == [n.rule for n in request.losses]
    assert [talk[0].id, talk[1].id] == [n.message_id for n in request.losses]


@pytest.mark.parametrize("form", FORMATS)
def test_a_block_in_the_wrong_mouth_is_left_out(form: str) -> None:
    """What models make is not a user's to say, and the other way round."""
    users = [block for block in BY_USERS[form] if form != "openai-responses"]
    request = valid(form, user(parts(form, BY_MODELS[form])), assistant(parts(form, users)))

    assert len(BY_MODELS[form]) + len(users) == len(request.losses)


def test_what_a_provider_does_not_know_in_a_block_is_left_out() -> None:
    block = {"type": "container_upload", "file_id": "f", "role": "system", "hologram": 1}
    (said,) = valid("anthropic", user(parts("anthropic", [block]))).items

    assert {"type": "container_upload", "file_id": "f"} == said["content"][0]


def test_a_shape_is_looked_at_as_deep_as_it_goes() -> None:
    shape: Any = {"a": {"b": str, "c?": int}, "d?": ("x", "y")}

    assert {"a": {"b": "z"}} == known_fields({"a": {"b": "z"}, "e": 1}, shape)
    assert {"a": {"b": "z"}, "d": None} == known_fields({"a": {"b": "z"}, "d": None}, shape)
    wrong: Any
    for wrong in ({"b": "z", "c": True}, {"b": " "}, {"b": "z", "e": 1}, {}, [], None):
        assert known_fields({"a": wrong}, shape) is None
    assert known_fields({"a": {"b": "z"}, "d": "w"}, shape) is None


def test_a_provider_tool_needs_its_call_before_its_result() -> None:
    """Both are there, the wrong way round: neither can stand."""
    call, result = BY_MODELS["anthropic"][:2]
    request = valid(
        "anthropic", user("x"), assistant(parts("anthropic", [result, call])), user("y")
    )

    assert "srvtoolu_1" not in str(request.items[1]["content"][0])
    assert {"result-without-call"} <= {note.rule for note in request.notes}


def test_a_spoiled_call_of_a_provider_takes_its_result_along() -> None:
    call, result = BY_MODELS["anthropic"][:2]
    spoiled = {**call, "input": None}
    request = valid(
        "anthropic", user("x"), assistant(parts("anthropic", [spoiled, result])), user("y")
    )

    assert [{"type": "text", "text": "tea"}] == request.items[1]["content"]
    assert ["unknown-part", "result-without-call"] == [note.rule for note in request.notes]


def test_a_call_of_a_provider_waits_for_the_result_that_comes_with_the_next_answer() -> None:
    """Step by step it comes to what it comes to at once."""
    call, result = BY_MODELS["anthropic"][:2]
    talk = [
        user("x"),
        assistant(parts("anthropic", [call])),
        assistant(parts("anthropic", [result])),
    ]
    growing = wire.converter("anthropic")
    for message in talk:
        growing.extend([message])
        assert () == check_request("anthropic", growing.request().body)

    assert wire.to("anthropic", talk).body == growing.request().body
    assert "srvtoolu_1" in str(growing.request().body)


def test_reasoning_leads_to_what_a_model_made() -> None:
    """A reference to something stored is no work of the model that thought."""
    from tests.wire.samples import thought  # noqa: PLC0415 - only here

    reference = UnknownPart({"type": "openai-responses", "block": {"id": "msg_1"}})
    request = valid(
        "openai-responses", user("x"), assistant([thought("hm", id="rs_1"), reference, word()])
    )

    assert ["reasoning", "unknown-part"] == [request.items[1]["type"], request.losses[0].rule]
