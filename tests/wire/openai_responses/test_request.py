"""OpenAI Responses: what is written, and what an id hangs on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from palaver import wire
from palaver.messages import (
    Message,
    ModelRef,
    UnknownPart,
    assistant,
    file_part,
    new_id,
    system,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.tool_state import fail, pending, start
from palaver.wire import Target
from tests.wire.conversations import PIXEL
from tests.wire.samples import (
    CALL,
    FORM,
    HELLO,
    MODEL,
    RESULT,
    SCREEN,
    SEARCH,
    SHOT,
    SPOKEN,
    THOUGHT,
    M,
    S,
    answer,
    call,
    items,
    result,
    rules,
    text,
    thought,
    written,
)


def test_words_go_out_in_the_easy_form() -> None:
    """A system message stays in its place; no item says more than it must."""
    talk = [system("Be brief."), user("Hello"), assistant("Hi"), system("Now French.")]

    assert [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "system", "content": "Now French."},
    ] == items(talk)


def test_nothing_said_is_still_a_request() -> None:
    """The endpoint wants some input."""
    request = written([])

    assert [{"role": "user", "content": "(please continue)"}] == request.items
    assert ["last-role"] == rules(request.repairs)


def test_an_answer_is_its_items_in_order_and_then_its_results() -> None:
    """Thoughts, words and calls as they came; ids go back to their model."""
    talk = [
        user("Hello"),
        answer(
            thought("hm", id="rs_1", encrypted_content="gAAAA"),
            thought("so", id="rs_1"),
            text("Let me see.", id="msg_1", after="rs_1"),
            call(id="fc_1", after="rs_1"),
        ),
        result(),
    ]

    plain = {**CALL, "arguments": "{}"}
    assert [HELLO, THOUGHT, SPOKEN, plain, RESULT] == items(talk, Target(MODEL))


def test_after_a_model_switch_neither_thoughts_nor_their_ids_go_out() -> None:
    """An id that a thought led to is refused without that thought."""
    # CV-03
    said = answer(
        thought("hm", id="rs_1"),
        text("Hi", id="msg_1", after="rs_1"),
        call(id="fc_1", after="rs_1"),
    )
    request = written([said, result()], Target(ModelRef("openai", "gpt-6")))

    assert {"role": "assistant", "content": "Hi"} == request.items[0]
    assert "id" not in request.items[1]
    assert ["foreign-reasoning"] == rules(request.losses)


def test_an_id_goes_only_to_its_own_model() -> None:
    """Even where no thought led to it."""
    said = answer(text("Hi", id="msg_1"))

    assert "msg_1" == items([said], Target(MODEL))[0]["id"]
    assert "id" not in items([said], Target(ModelRef("openai", "gpt-6")))[0]


def test_an_id_whose_thought_was_edited_away_stays_at_home() -> None:
    """The same model, but the thought is gone, or another stands there."""
    said = [text("Hi", id="msg_1", after="rs_1")]

    assert [{"role": "assistant", "content": "Hi"}] == items([answer(*said)], Target(MODEL))
    other = thought("", id="rs_2")
    assert {"role": "assistant", "content": "Hi"} == items([answer(other, *said)], Target(MODEL))[1]


def test_a_thought_that_led_to_nothing_is_left_out() -> None:
    """A reasoning item needs the item that follows it."""
    request = written([answer(text("Hi"), thought("hm", id="rs_1")), user("And?")])

    assert ["assistant", "user"] == [item["role"] for item in request.items]
    assert ["reasoning-placement"] == rules(request.losses)
    alone = written([answer(thought("hm", id="rs_1"))])
    assert ["reasoning-placement", "empty-text", "last-role"] == rules(alone.notes)


@pytest.mark.parametrize("name", [None, 7, "", "rs", "rs_é", "rs_" + "x" * 62, "msg_1"])
def test_a_thought_without_a_good_id_is_left_out(name: object) -> None:
    """Metadata may be anything."""
    request = written([answer(thought("hm", id=name), text("Hi"))])

    assert [{"role": "assistant", "content": "Hi"}] == request.items
    assert ["foreign-reasoning"] == rules(request.losses)


def test_no_id_stands_twice() -> None:
    """A copied answer goes out without ids, its thoughts and searches not at all."""
    said = answer(
        thought("hm", id="rs_1"),
        UnknownPart({"type": FORM, "block": SEARCH, "after": "rs_1"}),
        text("Hi", id="msg_1", after="rs_1"),
    )
    copy = replace(said, id=new_id())
    request = written([said, copy])
    search = UnknownPart({"type": FORM, "block": SEARCH})

    assert {"role": "assistant", "content": "Hi"} == request.items[-1]
    assert 4 == len(request.items)
    assert ["foreign-reasoning", "unknown-part"] == rules(request.losses)
    assert [SEARCH] == items([answer(search), answer(search)])


def test_ids_are_free_again_when_a_turn_is_written_again() -> None:
    """A late result makes the converter write a turn anew: with the same ids."""
    said = answer(text("Hi", id="msg_1"), call(id="fc_1"))
    converter = wire.converter(FORM, Target(MODEL))
    converter.extend([said])
    first = converter.request().items
    converter.extend([result()])

    assert first[:2] == converter.request().items[:2]
    assert "fc_1" == first[1]["id"]


def test_texts_of_one_item_are_one_item_again() -> None:
    """Same id, same item; without ids neighbours flow together."""
    named = [text("a", id="msg_1"), text("no", id="msg_1", refusal=True), text("b", id="msg_2")]
    first, second = items([answer(*named)], Target(MODEL))

    assert [
        {"type": "output_text", "text": "a", "annotations": []},
        {"type": "refusal", "refusal": "no"},
    ] == first["content"]
    assert ("msg_2", "completed") == (second["id"], second["status"])
    nameless = [text("a"), text(""), text("b")]
    assert [{"role": "assistant", "content": "ab"}] == items([answer(*nameless)])
    phased = [text("a", phase="commentary"), text("b", phase="final_answer")]
    assert ["commentary", "final_answer"] == [item["phase"] for item in items([answer(*phased)])]


def test_annotations_and_an_unfinished_status_are_stored() -> None:
    """As the SDK's types have them."""
    note = {"type": "file_citation", "file_id": "f", "filename": "a", "index": 1}
    (item,) = items([answer(text("a", id="msg_1", annotations=[note, "no"], status="incomplete"))])

    assert [note] == item["content"][0]["annotations"]
    assert "incomplete" == item["status"]


def test_calls_and_results() -> None:
    """Arguments to the letter; free text where the tool takes that; errors as text."""
    custom = tool_call_part(
        S, M, "patch", {}, call_id="c2", raw="*** Begin", metadata={"openai": {"custom": True}}
    )
    failed = fail(start(pending({}, "")), "no such file")
    talk = [
        answer(call(namespace="crm", caller={"type": "direct"}), custom),
        result(),
        Message("tool", (tool_part(S, M, "c2", "patch", failed),)),
    ]
    first, second, *results = items(talk, Target(MODEL))

    assert ("crm", {"type": "direct"}) == (first["namespace"], first["caller"])
    assert {
        "type": "custom_tool_call",
        "call_id": "c2",
        "name": "patch",
        "input": "*** Begin",
    } == second
    assert [
        RESULT,
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "no such file"},
    ] == results


def test_names_and_call_ids_are_spelled_as_the_endpoint_takes_them() -> None:
    """A call id of 200 characters, a tool name with a dot."""
    odd = tool_call_part(S, M, "weather.get", {}, call_id="x" * 200)
    request = written([answer(odd)])

    assert 64 == len(request.items[0]["call_id"])
    assert {request.items[0]["name"]: "weather.get"} == request.names
    assert "call-without-result" in rules(request.repairs)


def test_files_of_users_and_of_results() -> None:
    """Images and documents as data or by reference; a word for what can't be sent."""
    pdf = "data:application/pdf;base64,JVBERi0xLjQ="
    files = [
        file_part(S, M, "image/png", PIXEL),
        file_part(S, M, "application/pdf", pdf, filename="a.pdf"),
        file_part(S, M, "application/pdf", "https://example.org/a.pdf"),
        file_part(S, M, "application/pdf", "gs://bucket/a.pdf"),
        file_part(S, M, "video/mp4", "data:video/mp4;base64,aGk="),
    ]
    blocks = [
        {"type": "input_image", "detail": "auto", "image_url": PIXEL},
        {"type": "input_file", "filename": "a.pdf", "file_data": pdf},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_text", "text": "[a file of type application/pdf is not included]"},
        {"type": "input_text", "text": "[a file of type video/mp4 is not included]"},
    ]
    talk = [user(files), answer(call()), result(files=files), answer(call("c2"))]
    sent = items([*talk, result("c2", "", files[:1])])

    assert blocks == sent[0]["content"]
    assert [{"type": "input_text", "text": "9"}, *blocks] == sent[2]["output"]
    assert blocks[:1] == sent[4]["output"]
    blind = written([user(files[:1])], Target(images=False))
    assert "input_text" == blind.items[0]["content"][0]["type"]
    assert ["media"] == rules(blind.losses)


def test_files_out_of_place_are_words() -> None:
    """An answer and a system message hold none."""
    picture = file_part(S, M, "image/png", PIXEL)
    said, ruled = items([assistant([text("Look: "), picture]), system([picture])])

    assert "Look: [a file of type image/png is not included]" == said["content"]
    assert "input_text" == ruled["content"][0]["type"]


def test_parts_without_a_place_are_reported() -> None:
    """A call of a user, a block of another kind, an item that is none."""
    strange = UnknownPart({"type": FORM, "block": {"type": "hologram"}})
    request = written([user([text("a"), call(), strange]), assistant([text("b"), strange])])

    assert 2 == len(request.items)
    assert ["unknown-part"] * 3 == rules(request.losses)
    assert ["empty-text", "last-role"] == rules(written([user([call()])]).repairs)


def test_what_openai_ran_goes_back_whole() -> None:
    """A search with its thought; a screenshot with its picture, or neither."""
    stored = [UnknownPart({"type": FORM, "block": block}) for block in (SCREEN, SHOT)]

    assert [SCREEN, SHOT] == items([answer(*stored)])
    lonely = written([answer(stored[0], text("a"))])
    assert [{"role": "assistant", "content": "a"}] == lonely.items
    assert ["unknown-part"] == rules(lonely.losses)
    assert 1 == len(items([answer(stored[1], text("a"))]))
